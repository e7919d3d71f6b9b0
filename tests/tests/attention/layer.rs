//! The attention op of a model on the GPU against f64: pieces of a prompt, then single steps of several sessions.

use deltanet::engine::SlotState;
use deltanet::gpu::{Caps, Gpu, Stage, Trace};
use deltanet::model::{LayerState, Weight};
use deltanet::ops::{Attention, BufId, Cols, Op, WeightId};
use deltanet::plan::{BufSpec, Life, Plan, PlanKind};
use deltanet_tests::attention_reference::{EPS, Form, Session};
use deltanet_tests::devices;
use deltanet_tests::random::Random;

const SLOTS: usize = 5;
const TOLERANCE: f64 = 4e-6;

fn state(form: &Form) -> LayerState {
    let token = 2 * form.kv_heads * form.head_dim;
    match form.window {
        Some(window) => LayerState { words: window * token, cache_per_token: 0 },
        None => LayerState { words: 0, cache_per_token: token },
    }
}

/// Stages that choose kernels as the device asks, and as a GPU would.
fn stages(gpu: &Gpu, form: &Form, norms: &(Vec<f32>, Vec<f32>)) -> Vec<(&'static str, Stage)> {
    let weights = [Weight::Vector(norms.0.clone()), Weight::Vector(norms.1.clone())];
    let make = || Stage::new(gpu.clone(), 64, &weights, &[state(form)], SLOTS, &mut |_, _| {}).unwrap();
    let mut all = vec![("own kernels", make())];
    if gpu.caps().software {
        let mut stage = make();
        stage.choose_for(Caps { software: false, ..gpu.caps().clone() });
        all.push(("GPU kernels", stage));
    }
    all
}

/// A plan of the op alone. q|k|v lie at column 4 of a buffer with some more behind.
fn plan(form: &Form, kind: PlanKind, rows: usize) -> Plan {
    let width = form.width() + 7;
    let op = Attention {
        heads: form.heads,
        kv_heads: form.kv_heads,
        head_dim: form.head_dim,
        qkv: Cols { buf: BufId(0), width, at: 4 },
        qk_norm: form.norm.then_some((WeightId(0), WeightId(1), EPS)),
        rope_theta: form.theta,
        window: form.window,
        layer: 0,
        out: BufId(1),
    };
    let buffer = |name, width| BufSpec { name, width, rows, life: Life::Scratch };
    let buffers = vec![buffer("x", width), buffer("out", form.out())];
    Plan { kind, rows, ops: vec![Op::Attention(op)], labels: Vec::new(), buffers, logits: BufId(99) }
}

/// Runs rows of q|k|v through the op; returns `[tokens, out]`.
fn run(gpu: &Gpu, stage: &mut Stage, form: &Form, kind: PlanKind, rows: usize, slots: &[usize], x: &[f32]) -> Vec<f32> {
    let count = x.len() / form.width();
    let mut given = Vec::new();
    for row in x.chunks(form.width()) {
        given.extend([f32::NAN; 4]);
        given.extend_from_slice(row);
        given.extend([f32::NAN; 3]);
    }
    given.resize(rows * (form.width() + 7), f32::NAN);
    let plan = plan(form, kind, rows);
    let tokens = vec![1; count];
    let run = Trace { slots, tokens: &tokens, given: &[(BufId(0), &given)], wanted: &[BufId(1)] };
    let mut out = gpu.wait(stage.trace(&plan, &run)).unwrap().remove(0);
    out.truncate(count * form.out());
    out
}

#[track_caller]
fn close(got: &[f32], want: &[f64], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let top = want.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*g) - w).abs() / top;
        assert!(error <= TOLERANCE, "{what}: {error:.1e} at {i}: got {g}, want {w}");
    }
}

/// Feeds pieces to slot 3, a few tokens to slots 0 and 1, and then steps all three together.
fn check(gpu: &Gpu, form: Form, pieces: &[usize]) {
    let mut random = Random::new((form.head_dim + 31 * form.heads + pieces[0]) as u64);
    let norms = form.norms(&mut random);
    for (kernels, mut stage) in stages(gpu, &form, &norms) {
        let what = format!("{form:?}, pieces {pieces:?}, {kernels}");
        let mut references: Vec<Session> = (0..3).map(|_| Session::new(form, &norms, 0)).collect();
        let slots = [3, 0, 1];
        let short = [2, 40];
        for (reference, slot, pieces) in [(0, 3, pieces), (1, 0, &short[..1]), (2, 1, &short[1..])] {
            for tokens in pieces {
                let x = form.inputs(*tokens, &mut random);
                let want: Vec<f64> = x.chunks(form.width()).flat_map(|row| references[reference].feed(row)).collect();
                let rows = if *tokens == 1 { 1 } else { (tokens + 3).next_multiple_of(16) };
                let got = run(gpu, &mut stage, &form, PlanKind::Prefill, rows, &[slot], &x);
                close(&got, &want, &format!("{what}: {tokens} tokens to slot {slot}"));
            }
        }
        for step in 0..3 {
            let x = form.inputs(3, &mut random);
            let rows = x.chunks(form.width()).zip(&mut references);
            let want: Vec<f64> = rows.flat_map(|(row, reference)| reference.feed(row)).collect();
            let got = run(gpu, &mut stage, &form, PlanKind::Decode, 4, &slots, &x);
            close(&got, &want, &format!("{what}: step {step}"));
        }
    }
}

const FORM: Form = Form { heads: 4, kv_heads: 2, head_dim: 16, window: None, theta: Some(10_000.0), norm: false };

// Attention's kernels depend on nothing that the adapter's best has over the default limits.

#[test]
fn prompts_of_many_lengths_with_and_without_a_window() {
    let gpu = devices::default_limits();
    for tokens in [1, 63, 64, 65, 257] {
        check(gpu, FORM, &[tokens]);
        // Windows shorter than the piece, as long, longer.
        for window in [16, 65, 300] {
            check(gpu, Form { window: Some(window), ..FORM }, &[tokens]);
        }
    }
}

#[test]
fn pieces_continue_one_another_and_rings_wrap() {
    let gpu = devices::default_limits();
    check(gpu, FORM, &[1, 1, 30, 65, 100, 1]);
    for window in [1, 3, 32, 33, 70] {
        check(gpu, Form { window: Some(window), ..FORM }, &[5, 1, 30, 65, 1, 100, 2]);
    }
}

#[test]
fn heads_of_every_form() {
    let gpu = devices::default_limits();
    for (heads, kv_heads, head_dim) in [(1, 1, 2), (3, 3, 33), (6, 2, 20), (10, 1, 40), (8, 4, 128), (2, 1, 300)] {
        for (window, norm, theta) in [(None, true, Some(1e6)), (Some(20), true, None), (Some(50), false, None)] {
            check(gpu, Form { heads, kv_heads, head_dim, window, theta, norm }, &[35, 1, 9]);
        }
    }
}

#[test]
fn positions_far_from_the_start_are_exact() {
    let gpu = devices::default_limits();
    let form = Form { window: Some(24), norm: true, ..FORM };
    let mut random = Random::new(5);
    let norms = form.norms(&mut random);
    // 16,777,215 is the last position that an f32 tells from its neighbours.
    for position in [999_983usize, 16_777_190] {
        for (kernels, mut stage) in stages(gpu, &form, &norms) {
            let mut reference = Session::new(form, &norms, position);
            let state = SlotState {
                position: position as u64,
                seen: vec![0; 2],
                logits: vec![0.0; 64],
                layers: vec![vec![0.0; state(&form).words]],
                caches: vec![Vec::new()],
            };
            stage.import(2, &state).unwrap();
            // The window is filled first: what was before it is not the reference's.
            let x = form.inputs(23 + 2, &mut random);
            let want: Vec<f64> = x.chunks(form.width()).flat_map(|row| reference.feed(row)).collect();
            let got = run(gpu, &mut stage, &form, PlanKind::Prefill, 32, &[2], &x);
            let from = 23 * form.out();
            close(&got[from..], &want[from..], &format!("position {position}, {kernels}"));
        }
    }
}
