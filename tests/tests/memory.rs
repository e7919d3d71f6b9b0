//! Memory of the CPU engine: the weights stay in the mapped file.

#![cfg(target_os = "linux")]

use deltanet::session::GenerateOptions;
use deltanet::{Device, Model, Sampling};
use deltanet_tests::expected;

/// Bytes of anonymous memory of this process.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn anonymous_memory_stays_below_0_3_of_the_weights_plus_100_mb() {
    let model = Model::open(expected::demo_directory(), &Device::CPU).unwrap();
    let mut session = model.session().unwrap();
    session.feed(&expected::demo().long.ids).unwrap();
    let sampling = Sampling { seed: 1, ..Sampling::default() };
    let options = GenerateOptions { sampling, max_tokens: 64, stop_at_eos: false, ..GenerateOptions::default() };
    assert_eq!(session.generate(options).unwrap().map(Result::unwrap).count(), 64);
    let most = 3 * model.spec().weight_bytes / 10 + 100_000_000;
    let got = anonymous();
    eprintln!("anonymous memory: {got} bytes, at most {most}");
    assert!(got <= most, "anonymous memory: {got} bytes, at most {most}");
}
