//! Where there is little memory, or less than what was asked for.

use std::process::{Command, Output, Stdio};

use super::{deltanet, ok, refused, repository, text};

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

/// Room for the weights, and for few threads or none. A small piece of memory that is missing ends the program by Rust's own
/// hand, with its own line.
#[cfg(target_os = "linux")]
#[test]
fn little_memory_is_enough_or_is_told() {
    let words = ["Once", "--device", "cpu", "--max-tokens", "3", "--temperature", "0"];
    let whole = ok(&words).0;
    let run = |kib| {
        let out = with_memory(kib, &words);
        let stderr = text(&out.stderr);
        if out.status.success() {
            assert_eq!(text(&out.stdout), whole, "{kib} KiB");
            return true;
        }
        let facts = ["model ", "device "];
        let errors: Vec<&str> = stderr.lines().filter(|line| !facts.iter().any(|f| line.starts_with(f))).collect();
        match (out.status.code(), &errors[..]) {
            (Some(2), [e]) => assert!(e.starts_with("error: ") && e.contains("memory"), "{kib} KiB: {stderr}"),
            // (What follows is a backtrace, if the environment asks for one.)
            (None, [e, ..]) => {
                assert!(e.starts_with("memory allocation of ") && !stderr.contains("panicked"), "{kib} KiB: {stderr}");
            }
            _ => panic!("{kib} KiB: {}: {stderr}", out.status),
        }
        false
    };
    assert!(!run(45_000), "less than the weights");
    for kib in (50_000..=120_000).step_by(5_000) {
        run(kib);
    }
    assert!(run(1_000_000));
}

/// Linux says how much memory there is; elsewhere a reservation fails or does not.
#[cfg(target_os = "linux")]
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
