//! A guard against kernels that a driver runs many times slower than it could. It compares times of one run with one
//! another, the shortest of several, so that a busy machine is no failure. One test, in a binary of its own: others
//! must not run beside it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use deltanet::checkpoint::Checkpoint;
use deltanet::engine::DecodeRow;
use deltanet::gpu::{DeviceChoice, Gpu, GpuOptions, OpenOptions, Runner};
use deltanet::model::Spec;
use deltanet::plan::PlanKind;
use deltanet::{Sampling, cpu};
use deltanet_tests::{checkpoints, devices, expected, skip::skip};

const ROUNDS: usize = 8;

/// Longest time of a kernel's dispatches, averaged over a plan, as a multiple of a product's.
///
/// Measured on lavapipe: norms 0.16, others 0.8 in the demo model, 1.0 and 2.1 in tiny ones. A driver that compiles a norm
/// anew for every dispatch makes it 2.4 to 9 times a product of the demo model, and 40 to 160 times one of a tiny model.
fn most(kernel: &str, demo: bool) -> f64 {
    match (demo, kernel.starts_with("norm/")) {
        (true, true) => 0.6,
        (true, false) => 2.0,
        (false, _) => 6.0,
    }
}

/// Longest decode step of the demo model, as a multiple of the CPU engine's: 6 to 8 were measured.
const MOST_STEP: f64 = 16.0;

fn open(as_browsers: bool) -> Gpu {
    let options = OpenOptions { as_browsers, ..OpenOptions::default() };
    devices::wait(Gpu::request_with(&DeviceChoice::Index(devices::index()), &options)).expect("the adapter opens")
}

/// The shortest times of a plan's dispatches, in milliseconds, as (kernel, mean, dispatches).
fn times(gpu: &Gpu, runner: &mut Runner, kind: PlanKind, rows: usize) -> Vec<(String, f64, usize)> {
    let mut best: Vec<(String, f64)> = Vec::new();
    for _ in 0..ROUNDS {
        let timings = gpu.wait(runner.profile(kind, rows)).expect("timestamps");
        if best.is_empty() {
            best = timings.iter().map(|t| (t.label.clone(), f64::INFINITY)).collect();
        }
        for (b, t) in best.iter_mut().zip(&timings) {
            b.1 = b.1.min(1e-6 * t.nanoseconds);
        }
    }
    let mut kernels: Vec<(String, f64, usize)> = Vec::new();
    for (label, time) in best {
        let kernel = label.split_whitespace().next().unwrap_or_default();
        match kernels.iter_mut().find(|k| k.0 == kernel) {
            Some(k) => (k.1, k.2) = (k.1 + time, k.2 + 1),
            None => kernels.push((kernel.to_owned(), time, 1)),
        }
    }
    kernels.iter_mut().for_each(|k| k.1 /= k.2 as f64);
    kernels
}

/// What is wrong with a plan's times, and what they are.
fn compare(what: &str, kernels: &[(String, f64, usize)], demo: bool, wrong: &mut Vec<String>) {
    let product = kernels.iter().find(|k| k.0.starts_with("linear/solo")).expect("products").1;
    for (kernel, time, count) in kernels {
        let (ratio, most) = (time / product, most(kernel, demo));
        eprintln!("{what}: {count:3} x {time:.3} ms {kernel}, {ratio:.2} times a product");
        if ratio > most {
            wrong
                .push(format!("{what}: {kernel} takes {ratio:.1} times as long as a product, expected {most} at most"));
        }
    }
}

fn spec(path: &Path) -> Arc<Spec> {
    let checkpoint = Checkpoint::open(path).unwrap();
    Arc::new(Spec::from_checkpoint(&checkpoint, &mut |_, _| {}).unwrap())
}

fn row(steps: usize) -> DecodeRow {
    DecodeRow { slot: 0, sampling: Sampling::GREEDY, limit: steps as u32, stop_at_eos: false, snapshot: None }
}

#[test]
fn no_kernel_is_slow_out_of_proportion() {
    let demo = expected::demo_directory();
    let tiny = checkpoints::tiny("fla-kda-tiny");
    let mut wrong = Vec::new();
    for as_browsers in [false, true] {
        let gpu = open(as_browsers);
        if !gpu.caps().software || !gpu.caps().timestamps {
            skip("speed", "the bounds are for software adapters with timestamps");
            return;
        }
        let how = if as_browsers { "as browsers" } else { "native" };
        for path in [&tiny, &demo] {
            let model = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let spec = spec(path);
            let mut runner = Runner::new(gpu.clone(), spec.clone(), GpuOptions::default(), &mut |_, _| {}).unwrap();
            runner.prefill(0, &[1, 5, 6, 7]).unwrap();
            let is_demo = *path == demo;
            let decode = times(&gpu, &mut runner, PlanKind::Decode, 1);
            compare(&format!("{how}, {model}, decode"), &decode, is_demo, &mut wrong);
            if !is_demo {
                let prefill = times(&gpu, &mut runner, PlanKind::Prefill, 64);
                compare(&format!("{how}, {model}, 64 rows"), &prefill, is_demo, &mut wrong);
                continue;
            }
            let ratio = steps(&gpu, &mut runner, &spec);
            eprintln!("{how}, {model}: a step takes {ratio:.1} times as long as on the CPU engine");
            if ratio > MOST_STEP {
                wrong.push(format!("{how}: a decode step takes {ratio:.1} of the CPU engine's, expected {MOST_STEP}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A decode step's shortest time as a multiple of the CPU engine's, both in turn.
fn steps(gpu: &Gpu, runner: &mut Runner, spec: &Arc<Spec>) -> f64 {
    const STEPS: usize = 4;
    let mut engine = cpu::Runner::new(spec.clone(), cpu::CpuOptions { threads: None, slots: 1 }).unwrap();
    runner.clear(0).unwrap();
    runner.prefill(0, &[1, 5, 6, 7]).unwrap();
    engine.prefill(0, &[1, 5, 6, 7]).unwrap();
    let (mut ours, mut theirs) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let ticket = runner.decode(&[row(STEPS)], STEPS).unwrap();
        gpu.wait(runner.read(ticket)).unwrap();
        ours = ours.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        engine.decode(&[row(STEPS)], STEPS).unwrap();
        theirs = theirs.min(start.elapsed().as_secs_f64());
    }
    ours / theirs
}
