//! The program from outside: what it prints where, its exit codes, and one line for every bad input.
//!
//! These tests live here rather than in the `tests` package because cargo builds a program for its own package's
//! integration tests only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The program, in the repository's folder.
fn deltanet(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deltanet"));
    command.current_dir(repository()).args(words).stdin(Stdio::null());
    // The user's cache folder is none of the tests' business.
    command.env("DELTANET_NO_CACHE", "1");
    command
}

fn with_stdin(words: &[&str], input: &[u8]) -> Output {
    let mut child =
        deltanet(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// Runs, and expects success.
fn ok(words: &[&str]) -> (String, String) {
    let out = deltanet(words).output().unwrap();
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{words:?}: {}\n{stderr}", out.status);
    (stdout, stderr)
}

/// One line of `error: …` and nothing else, and exit code 2. Returns the message.
fn refused(words: &[&str], out: &Output) -> String {
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(2), "{words:?}: {stderr}");
    assert_eq!(stdout, "", "{words:?}");
    assert_eq!(stderr.lines().count(), 1, "{words:?}: {stderr}");
    let message = stderr.trim_end().strip_prefix("error: ").unwrap_or_else(|| panic!("{words:?}: {stderr}"));
    message.to_string()
}

/// Exit code 2 with the error as the last line: it came up when the model was loaded already, and that was told.
fn refused_after_loading(words: &[&str]) -> String {
    let out = deltanet(words).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{words:?}");
    assert_eq!(text(&out.stdout), "", "{words:?}");
    text(&out.stderr).lines().last().unwrap_or_default().to_string()
}

const STORY: [&str; 8] = ["Once upon a time", "--device", "cpu", "--max-tokens", "24", "--seed", "5", "--json"];

fn tokens(lines: &str) -> Vec<Value> {
    lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[test]
fn text_goes_to_stdout_and_the_rest_to_stderr() {
    let (stdout, stderr) = ok(&STORY[..7]);
    assert!(stdout.len() > 20 && stdout.ends_with('\n'), "{stdout:?}");
    for word in ["model", "stories-17m", "device", "cpu", "prefill", "decode", "tokens/s", "seed 5"] {
        assert!(stderr.contains(word), "no {word} in: {stderr}");
        assert!(!stdout.contains("tokens/s"));
    }
    // The same seed, the same text; and the JSON form holds the same.
    assert_eq!(ok(&STORY[..7]).0, stdout);
    let objects = tokens(&ok(&STORY).0);
    let (summary, pieces) = objects.split_last().unwrap();
    let joined: String = pieces.iter().map(|p| p["text"].as_str().unwrap()).collect();
    assert_eq!(joined, stdout.trim_end_matches('\n'));
    assert!(pieces.iter().all(|p| p["logprob"].as_f64().unwrap() <= 0.0 && p["token"].is_u64()));
    let summary = &summary["summary"];
    assert_eq!(summary["tokens"], 24);
    assert_eq!(summary["finish"], "length");
    assert_eq!(summary["seed"], 5);
    assert!(summary["decode_tokens_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn another_seed_another_text() {
    let mut words = STORY;
    words[6] = "6";
    assert_ne!(ok(&words[..7]).0, ok(&STORY[..7]).0);
}

#[test]
fn the_prompt_may_come_from_standard_input() {
    let mut words = STORY[1..7].to_vec();
    let piped = with_stdin(&words, b"Once upon a time\n");
    assert!(piped.status.success());
    assert_eq!(text(&piped.stdout), ok(&STORY[..7]).0);
    words.push("--json");
    let two_lines = with_stdin(&words, b"One\n\nTwo\n");
    assert!(two_lines.status.success(), "{}", text(&two_lines.stderr));
}

#[test]
fn logprobs_are_lines() {
    let (stdout, _) = ok(&["Once", "--device", "cpu", "--max-tokens", "3", "--temperature", "0", "--logprobs"]);
    assert_eq!(stdout.lines().count(), 3, "{stdout}");
    for line in stdout.lines() {
        let mut words = line.split_whitespace();
        assert!(words.next().unwrap().parse::<f64>().unwrap() <= 0.0);
        assert!(words.next().unwrap().parse::<u32>().is_ok());
        assert!(words.next().unwrap().starts_with('"'));
    }
}

#[test]
fn a_stop_string_is_not_shown() {
    let greedy = ["Once upon a time", "--device", "cpu", "--max-tokens", "40", "--temperature", "0"];
    let (whole, _) = ok(&greedy);
    let word = whole.split_whitespace().nth(6).unwrap();
    let mut words = greedy.to_vec();
    words.extend(["--stop", "never in it", "--stop", word]);
    let (cut, stderr) = ok(&words);
    assert_eq!(cut.trim_end(), whole[..whole.find(word).unwrap()].trim_end());
    assert!(stderr.contains("stop"), "{stderr}");
}

#[test]
fn a_saved_session_goes_on_as_if_nothing_had_been() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("story.deltanet");
    let file = file.to_str().unwrap();
    let words = |n: &'static str| ["--device", "cpu", "--seed", "5", "--max-tokens", n];
    let whole = ok(&[&["Once upon a time"], &words("24")[..]].concat()).0;
    let first = ok(&[&["Once upon a time", "--save", file], &words("10")[..]].concat()).0;
    let rest = ok(&[&["--resume", file], &words("14")[..]].concat()).0;
    assert_eq!(format!("{}{rest}", first.trim_end_matches('\n')), whole);

    let other = ["x", "--resume", "models/stories-17m/config.json", "--device", "cpu"];
    let error = refused_after_loading(&other);
    assert!(error.contains("config.json") && error.contains("not a saved session"), "{error}");
    let missing = ["x", "--resume", "no/such.file"];
    assert!(refused(&missing, &deltanet(&missing).output().unwrap()).contains("no/such.file"));
}

#[test]
fn no_tokens_is_not_an_error() {
    let (stdout, _) = ok(&["Once", "--device", "cpu", "--max-tokens", "0"]);
    assert_eq!(stdout, "");
}

#[test]
fn bad_options_are_one_line() {
    for (words, part) in [
        (&["x", "--temperature", "-1"][..], "--temperature"),
        (&["x", "--top-p", "0"], "--top-p"),
        (&["x", "--device", "tpu"], "--device"),
        (&["x", "--device", "999"], "999"),
        (&["x", "--frobnicate"], "--frobnicate"),
        (&["x", "y"], "y"),
        (&["x", "--model", "no/such/folder"], "no/such/folder"),
        (&["x", "--model", "Cargo.toml"], "Cargo.toml"),
        (&["x", "--model", "native-demo"], "config.json"),
        (&["score"], "<FILE>"),
        (&["score", "no/such/file", "--device", "cpu"], "no/such/file"),
        (&["info", "--model", "no/such/folder"], "no/such/folder"),
        (&["bench", "--rule", "fastest"], "fastest"),
        (&["bench", "--key-dim", "512"], "--key-dim"),
    ] {
        let message = refused(words, &deltanet(words).output().unwrap());
        assert!(message.contains(part), "{words:?}: {message}");
    }
}

/// What is wrong with a model is said with the folder that it lies in.
#[test]
fn a_bad_model_is_named_with_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let demo = repository().join("models/stories-17m");
    let path = folder.path().to_str().unwrap();
    let config = std::fs::read_to_string(demo.join("config.json")).unwrap();
    for file in ["model.safetensors", "tokenizer.json"] {
        std::fs::copy(demo.join(file), folder.path().join(file)).unwrap();
    }
    let refused_with = |file: &str, bytes: &str| {
        let kept = std::fs::read(folder.path().join(file)).ok();
        std::fs::write(folder.path().join(file), bytes).unwrap();
        let (run, info) = (["x", "--device", "cpu", "--model", path], ["info", "--model", path]);
        let outputs = [deltanet(&run).output().unwrap(), deltanet(&info).output().unwrap()];
        if let Some(kept) = kept {
            std::fs::write(folder.path().join(file), kept).unwrap();
        }
        let message = refused(&run, &outputs[0]);
        if file == "config.json" {
            assert_eq!(refused(&info, &outputs[1]), message);
        }
        message
    };
    let file = |name: &str| folder.path().join(name).display().to_string();
    let wrong = config.replace("\"hidden_size\": 384", "\"hidden_size\": \"wide\"");
    assert_ne!(wrong, config);
    let message = refused_with("config.json", &wrong);
    assert_eq!(
        message,
        format!("{}: hidden_size: expected a whole number from 1 to 65536, got \"wide\"", file("config.json"))
    );
    let message = refused_with("config.json", "{");
    assert!(message.starts_with(&format!("{}: invalid JSON", file("config.json"))), "{message}");
    let other = config.replace("\"num_hidden_layers\": 8", "\"num_hidden_layers\": 9");
    assert_ne!(other, config);
    let message = refused_with("config.json", &other);
    assert!(message.starts_with(&format!("{path}: tensor model.layers.8.")), "{message}");
    std::fs::write(file("config.json"), &config).unwrap();
    let message = refused_with("tokenizer.json", "{}");
    assert!(message.starts_with(&format!("{}: cannot be loaded: ", file("tokenizer.json"))), "{message}");
}

/// Runs with a limit on the process's address space.
#[cfg(target_os = "linux")]
fn with_memory(kib: u32, words: &[&str]) -> Output {
    let limited = format!("ulimit -v {kib}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_deltanet")]).args(words);
    command.current_dir(repository()).env("DELTANET_NO_CACHE", "1").stdin(Stdio::null()).output().unwrap()
}

/// A system that has less memory than the model needs.
#[cfg(target_os = "linux")]
#[test]
fn a_model_larger_than_memory_is_one_line() {
    let words = ["Once", "--device", "cpu", "--max-tokens", "3"];
    let message = refused(&words, &with_memory(45_000, &words));
    assert!(message.contains("model.safetensors: Cannot allocate memory"), "{message}");
    assert_eq!(message.matches("Cannot allocate memory").count(), 1, "{message}");
}

/// Room for the weights, and for few threads or none.
#[cfg(target_os = "linux")]
#[test]
fn little_memory_is_enough_or_is_told() {
    let words = ["Once", "--device", "cpu", "--max-tokens", "3", "--temperature", "0"];
    let whole = ok(&words).0;
    for kib in (50_000..=120_000).step_by(5_000) {
        let out = with_memory(kib, &words);
        let stderr = text(&out.stderr);
        if out.status.success() {
            assert_eq!(text(&out.stdout), whole, "{kib} KiB");
        } else {
            assert_eq!(out.status.code(), Some(2), "{kib} KiB: {stderr}");
            let errors: Vec<&str> = stderr.lines().filter(|line| !line.starts_with(['m', 'd'])).collect();
            assert!(matches!(errors[..], [e] if e.starts_with("error: ") && e.contains("memory")), "{kib}: {stderr}");
        }
    }
}

#[test]
fn sizes_beyond_any_memory_are_one_line() {
    let large = ["--tokens", "1048576", "--heads", "1024", "--key-dim", "256", "--device", "cpu"];
    let wide = ["--tokens", "1048576", "--value-heads", "4096", "--value-dim", "4096", "--device", "cpu"];
    for (part, sizes) in [("operator", &large[..]), ("attention", &large), ("operator", &wide)] {
        let words = [&["bench", "--only", part], sizes].concat();
        let message = refused(&words, &deltanet(&words).output().unwrap());
        assert!(message.starts_with(part) && message.contains("expected sizes for which"), "{words:?}: {message}");
        assert!(message.contains("TiB"), "{words:?}: {message}");
    }
    for (option, value) in [("--tokens", "100000000000"), ("--heads", "100000"), ("--length", "999999999")] {
        let words = ["bench", option, value];
        let message = refused(&words, &deltanet(&words).output().unwrap());
        assert!(message.contains(option) && message.contains("expected a number from 1 to"), "{message}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn sessions_beyond_memory_are_told_before_they_begin() {
    let words = ["bench", "--only", "model", "--sessions", "1024", "--prefill", "1048576", "--device", "cpu"];
    let out = with_memory(1_000_000, &words);
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.starts_with("error: 1024 sessions of 1048576 tokens: expected sizes"), "{stderr}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_output_is_one_line() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for words in [
        &["score", "README.md", "--device", "cpu"][..],
        &["info"],
        &["Once", "--device", "cpu", "--max-tokens", "2"],
        &["bench", "--only", "operator", "--tokens", "4", "--heads", "1", "--key-dim", "8", "--device", "cpu"],
    ] {
        let out = deltanet(words).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        let stderr = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{words:?}: {stderr}");
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains("No space left"), "{words:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{words:?}: {stderr}");
    }
    // Nobody can be told anything; that is no reason to panic.
    let out = deltanet(&["Once", "--device", "cpu", "--max-tokens", "2"]).stderr(full()).output().unwrap();
    assert!(out.status.success(), "{}", out.status);
}

#[cfg(target_os = "linux")]
#[test]
fn a_long_prompt_can_be_interrupted() {
    let long = "once upon a time there was ".repeat(40_000);
    // While it becomes tokens, before any is read; and while it is read.
    for seconds in ["0.5", "3"] {
        // In the foreground it signals the program alone; otherwise its whole group too, and a second signal ends at once.
        let program = env!("CARGO_BIN_EXE_deltanet");
        let words = ["--foreground", "--preserve-status", "-s", "INT", seconds, program, "--device", "cpu"];
        let mut command = Command::new("timeout");
        command.current_dir(repository()).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(long.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let stderr = text(&out.stderr);
        assert_eq!(out.status.code(), Some(130), "after {seconds} s: {stderr}");
        assert!(stderr.contains("ended    interrupted"), "after {seconds} s: {stderr}");
    }
}

/// Nothing can ask the tokenizer to stop.
#[cfg(unix)]
#[test]
fn text_of_megabytes_can_be_interrupted_before_it_is_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long.txt");
    std::fs::write(&file, "once upon a time there was ".repeat(600_000)).unwrap();
    for words in [&["--device", "cpu"][..], &["score", file.to_str().unwrap(), "--device", "cpu"]] {
        let mut command = deltanet(words);
        command.stdin(std::fs::File::open(&file).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(2));
        let start = std::time::Instant::now();
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let out = child.wait_with_output().unwrap();
        let (waited, stderr) = (start.elapsed(), text(&out.stderr));
        assert_eq!(out.status.code(), Some(130), "{words:?}: {stderr}");
        // To the end of the text it takes a multiple of that.
        assert!(waited.as_secs() < 5, "{words:?}: ended after {waited:?}");
    }
}

#[test]
fn a_place_that_cannot_be_saved_to_is_told_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("none/story.bin");
    for (place, why) in [(folder.path(), "got a folder"), (nowhere.as_path(), "in a folder that exists")] {
        let words = ["Once", "--device", "cpu", "--max-tokens", "2", "--save", place.to_str().unwrap()];
        let message = refused(&words, &deltanet(&words).output().unwrap());
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn bad_text_is_one_line_that_says_where() {
    let words = ["--device", "cpu", "--max-tokens", "4"];
    let message = refused(&words, &with_stdin(&words, b"Once \xff upon"));
    assert!(message.contains("standard input") && message.contains("0xff at offset 5"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.txt");
    std::fs::write(&file, b"ab\xc3").unwrap();
    let words = ["score", file.to_str().unwrap(), "--device", "cpu"];
    let message = refused(&words, &deltanet(&words).output().unwrap());
    assert!(message.contains("bad.txt") && message.contains("offset 2"), "{message}");
}

#[test]
fn scores_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("story.txt");
    let story = "Once upon a time there was a little girl who lived in a house by the forest.";
    std::fs::write(&file, story).unwrap();
    let path = file.to_str().unwrap();
    let (stdout, _) = ok(&["score", path, "--device", "cpu", "--json"]);
    let score: Value = serde_json::from_str(&stdout).unwrap();
    let (bits, perplexity) = (score["bits_per_byte"].as_f64().unwrap(), score["perplexity"].as_f64().unwrap());
    // A model of stories finds a story likelier than chance: 8 bits a byte, a perplexity of the vocabulary's size.
    assert!((0.1..3.0).contains(&bits), "{score}");
    assert!((1.5..500.0).contains(&perplexity), "{score}");
    assert_eq!(score["bytes"], story.len());
    let (human, _) = ok(&["score", path, "--device", "cpu"]);
    assert!(human.contains("perplexity") && human.contains("bits per byte"), "{human}");
}

#[test]
fn lists_adapters_and_shows_the_model() {
    let (stdout, _) = ok(&["info", "--plan"]);
    for word in ["adapters", "stories-17m", "gated_deltanet", "--device auto"] {
        assert!(stdout.contains(word), "no {word} in: {stdout}");
    }
    let (json, _) = ok(&["info", "--json"]);
    let info: Value = serde_json::from_str(&json).unwrap();
    assert!(info["adapters"].is_array());
    assert_eq!(info["model"]["vocab"], 4096);
}

#[test]
fn benchmarks_check_and_time() {
    let (stdout, _) = ok(&[
        "bench",
        "--device",
        "cpu",
        "--only",
        "operator",
        "--rule",
        "all",
        "--tokens",
        "70",
        "--batch",
        "2",
        "--heads",
        "2",
        "--value-heads",
        "4",
        "--key-dim",
        "32",
        "--value-dim",
        "48",
        "--runs",
        "2",
        "--json",
    ]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 20);
    for row in rows {
        assert!(row["wall"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["error"].as_f64().unwrap() < 1e-4, "{row}");
    }
}

/// The whole suite in small sizes. A result that is wrong fails the program.
#[test]
fn the_suite_has_every_row() {
    let words = ["bench", "--suite", "h200", "--quick", "--device", "gpu", "--runs", "1", "--seconds", "1"];
    let (stdout, _) = ok(&[&words[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let named = |group: &str| {
        let rows = rows.iter().filter(|r| r["group"] == group);
        rows.map(|r| r["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let skipped: Vec<&str> = report["skipped"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    assert_eq!(named("copy").len(), 2);
    // Three lengths and all other rules, twice; and two steps.
    let operators = named("operator");
    assert_eq!(operators.len(), 2 * (3 + 9) + 2, "{operators:?}");
    assert_eq!(operators.iter().filter(|n| n.ends_with(", f16")).count(), 3 + 9, "{operators:?}");
    assert_eq!(operators.iter().filter(|n| n.contains("step of")).count(), 2, "{operators:?}");
    let products = named("matmul");
    assert_eq!(products.len(), 3, "{products:?}");
    assert!(products[2].contains("in turn"), "{products:?}");
    // Decode of the demo model; prefill, decode and many sessions; prefill and decode.
    let models = named("model");
    assert_eq!(models.len(), 1 + 3 + 2, "{models:?}");
    let busy = named("busy").len() + skipped.iter().filter(|s| s.contains("no timestamps")).count();
    assert_eq!((busy, skipped.len()), (2, 2 - named("busy").len()), "{skipped:?}");
    assert_eq!(rows.len(), 2 + 26 + 3 + 6 + named("busy").len());
    for row in rows {
        assert!(row["wall"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["rate"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["error"].as_f64().unwrap() < 3e-2, "{row}");
        assert!(row["bar"].is_null() && row["times_the_bar"].is_null(), "{row}");
        if row["group"] == "busy" {
            assert!(row["rate"].as_f64().unwrap() <= 100.5, "{row}");
        }
    }
    let (human, _) = ok(&["bench", "--suite", "h200", "--quick", "--device", "cpu"]);
    assert!(human.trim_end().ends_with("0 rows checked and timed, 0 of 0 bars met, 1 skipped"), "{human}");
}

#[test]
fn attention_is_checked_and_timed() {
    let words = ["bench", "--device", "cpu", "--only", "attention", "--tokens", "70,600", "--heads", "4"];
    let (stdout, _) = ok(&[&words[..], &["--key-dim", "20", "--runs", "2", "--json"]].concat());
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!(row["wall"]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn a_long_prompt_needs_no_more_memory_and_leaves_a_finite_state() {
    // The program itself fails when memory grows or the state is not finite; how steady the times are is for people.
    let (stdout, _) = ok(&["bench", "--device", "cpu", "--only", "million", "--length", "10000", "--json"]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let row = &report["rows"][0];
    assert_eq!(row["group"], "million");
    assert_eq!(row["wall"]["runs"], 2, "pieces of 4,096 tokens: {row}");
}

#[cfg(target_os = "linux")]
#[test]
fn compiled_kernels_are_kept_unless_that_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["Once", "--device", "gpu", "--max-tokens", "2", "--seed", "3"];
    let kept = || std::fs::read_dir(folder.path().join("deltanet")).map_or(0, Iterator::count);
    let run = |more: &[&str], variable: Option<&str>| {
        let mut command = deltanet(&[&words, more].concat());
        command.env("XDG_CACHE_HOME", folder.path());
        match variable {
            Some(value) => command.env("DELTANET_NO_CACHE", value),
            None => command.env_remove("DELTANET_NO_CACHE"),
        };
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout)
    };
    let plain = run(&["--no-cache"], None);
    assert_eq!(run(&[], Some("1")), plain);
    assert_eq!(kept(), 0);
    assert_eq!(run(&[], None), plain);
    assert_eq!(kept(), 1);
    assert_eq!(run(&[], None), plain, "with what was kept");
    assert_eq!(kept(), 1);
}

/// Starts a long generation and waits until it has printed something.
#[cfg(unix)]
fn started() -> std::process::Child {
    let mut child = deltanet(&["Once upon a time", "--device", "cpu", "--max-tokens", "100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 16];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    child
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_with_the_summary() {
    let child = started();
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let out = child.wait_with_output().unwrap();
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(130), "{stderr}");
    assert!(stderr.contains("interrupted") && stderr.contains("decode"), "{stderr}");
}

#[cfg(unix)]
#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = started();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    let stderr = text(&out.stderr);
    assert!(out.status.success(), "{}\n{stderr}", out.status);
    assert!(!stderr.contains("error") && !stderr.contains("panicked"), "{stderr}");
}
