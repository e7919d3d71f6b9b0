//! Parts of tests that could not run: printed and counted, never silent.

use std::io::Write;

/// Notes that `test` had to leave something out, and why. `cargo xtask test` prints and counts these notes at its end
/// (cargo itself hides what a passing test prints).
pub fn skip(test: &str, why: &str) {
    eprintln!("skipped in {test}: {why}");
    let Some(path) = std::env::var_os("DELTANET_SKIP_FILE") else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    // One write a line: several test binaries share the file.
    file.and_then(|mut f| f.write_all(format!("{test}: {why}\n").as_bytes())).expect("the skip file can be written");
}
