//! Ctrl-C, and readers that leave.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use super::{deltanet, repository, text};

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

/// Nothing is lost with a benchmark, whatever it is at.
#[cfg(unix)]
#[test]
fn a_benchmark_ends_soon() {
    // A minute of one row.
    let sizes = ["--rule", "kda", "--tokens", "8192", "--heads", "2", "--runs", "1000", "--seconds", "60"];
    let words = [&["bench", "--only", "operator", "--device", "cpu"], &sizes[..]].concat();
    let child = deltanet(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let start = std::time::Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(130), "{}", text(&out.stderr));
    assert!(start.elapsed().as_secs() < 5, "ended after {:?}", start.elapsed());
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
