//! What is wrong with a file is said in one line that names the file, field or tensor; nothing panics, and nothing is
//! allocated on a file's word alone.

mod config;
mod fuzz;
mod memory;
mod tensors;
mod tokenizer;

use deltanet_tests::checkpoints::tiny;
use deltanet_tests::files::{Files, message};

/// The tiny Gated DeltaNet.
fn gdn() -> Files {
    Files::read(&tiny("fla-gated_deltanet-tiny"))
}

/// The tiny Gated DeltaNet with a window of attention.
fn hybrid() -> Files {
    Files::read(&tiny("fla-gated_deltanet-swa-tiny"))
}

/// Asserts that loading fails with exactly this message.
#[track_caller]
fn refuses(files: &Files, expected: &str) {
    match files.load() {
        Ok(_) => panic!("loaded, though expected: {expected}"),
        Err(e) => assert_eq!(message(&e), expected),
    }
}
