//! The program from outside: what it prints where, its exit codes, and one line for every bad input.
//!
//! These tests live here rather than in the `tests` package because cargo builds a program for its own package's
//! integration tests only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

mod bench;
mod interrupted;
mod memory;

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
        (&["--device", "cpu", "check"], "check: expected a command before its options"),
        (&["--seed", "5", "help"], "help: expected a command"),
        (&["bench", "--seconds", "-1"], "--seconds"),
        (&["check", "--tolerance", "-1"], "--tolerance"),
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
    let piped = with_stdin(&["score", "-", "--device", "cpu", "--json"], story.as_bytes());
    let piped: Value = serde_json::from_str(&text(&piped.stdout)).unwrap();
    assert_eq!((&piped["bits_per_byte"], &piped["bytes"]), (&score["bits_per_byte"], &score["bytes"]));
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
