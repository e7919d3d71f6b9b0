//! The f32 chunk stages with outputs apart from the scan, which other adapters than those with large subgroups run only
//! here, without their shuffles, against the f64 recurrence. Compiling a kernel is what takes time here, so that the tests
//! share dims: K = 64.

use deltanet::Rule;
use deltanet::gpu::delta::{Form, Kernels};
use deltanet_tests::operators::{Engine, Tensors, check, none};
use deltanet_tests::{compare, devices};

use crate::shape;

fn engine() -> Engine {
    Engine::Gpu(devices::best(), Kernels::Emulated, "best")
}

/// As [`check`], in chunks of 64.
fn failures(what: &str, t: &Tensors, tolerance: f64) -> Vec<String> {
    let mut t = t.clone();
    t.options.chunk = Some(64);
    check(what, &t, &[engine()], tolerance, tolerance)
}

/// Every rule, over packed sequences with grouped heads, of which one is empty and the last ends inside a chunk.
#[test]
fn every_rule_with_outputs_apart() {
    let mut failed = Vec::new();
    for (name, rule) in Rule::NAMED {
        let mut t = Tensors::random(rule, shape(200, (1, 2, 64, 64)), Some(&[0, 65, 65, 200]), 9);
        t.options.l2norm = true;
        failed.extend(failures(name, &t, 5e-6));
    }
    none(&failed);
}

/// Log decays that are strong, infinite, or both beside gentle ones.
#[test]
fn strong_gates_with_outputs_apart() {
    let mut failed = Vec::new();
    for rule in [Rule::GATED_DELTANET, Rule::KDA] {
        let gates: [(&str, &dyn Fn(usize) -> f32); 4] = [
            ("g = -20", &|_| -20.0),
            ("one strong", &|i| if i % 64 == 1 { -300.0 } else { -0.01 }),
            ("half zero", &|i| if i % 2 == 0 { 0.0 } else { -0.05 * (i % 37) as f32 }),
            ("zero, strong and infinite", &|i| [0.0, f32::NEG_INFINITY, -90.0, -0.3, -0.3, -0.3, -0.01][i % 7]),
        ];
        for (what, gate) in gates {
            let mut t = Tensors::random(rule, shape(130, (1, 2, 64, 64)), None, 3);
            t.g.iter_mut().enumerate().for_each(|(i, g)| *g = gate(i));
            failed.extend(failures(&format!("{what}, {}", rule.name()), &t, 2e-5));
        }
    }
    none(&failed);
}

/// Nearly collinear keys at β = 2, where T grows and what it is multiplied with decides what is lost.
#[test]
fn collinear_keys_with_outputs_apart() {
    let mut t = Tensors::random(Rule::DELTANET, shape(256, (1, 1, 64, 64)), None, 3);
    let first = t.k[..64].to_vec();
    for row in t.k.chunks_exact_mut(64) {
        row.iter_mut().zip(&first).for_each(|(k, f)| *k = f + 1e-3 * *k);
        let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        row.iter_mut().for_each(|x| *x /= norm);
    }
    t.beta.fill(2.0);
    let mut failed = failures("collinear", &t, 5e-4);
    for row in t.k.chunks_exact_mut(64) {
        row.copy_from_slice(&first);
    }
    failed.extend(failures("equal keys", &t, 5e-4));
    none(&failed);
}

/// The state before each chunk.
#[test]
fn chunk_states_with_outputs_apart() {
    let mut t = Tensors::random(Rule::GATED_DELTANET, shape(200, (1, 2, 64, 64)), Some(&[0, 65, 65, 200]), 9);
    t.beta.iter_mut().for_each(|b| *b *= 2.0);
    t.options.chunk = Some(64);
    t.options.chunk_states = true;
    let exact = Engine::Cpu.run(Form::Chunk, &t).unwrap();
    let got = engine().run(Form::Chunk, &t).unwrap();
    compare::close("chunk states", &got.chunk_states, &exact.chunk_states, 5e-6);
}

/// Dims that no tile divides, more channels than threads in fours, lengths around a chunk's ends.
#[test]
fn unusual_sizes_with_outputs_apart() {
    let mut failed = Vec::new();
    for (rule, dims, tokens) in [
        (Rule::GATED_DELTANET, (1, 1, 7, 20), 65),
        (Rule::GATED_DELTANET, (1, 2, 160, 4), 70),
        (Rule::CHANNEL_DECAY, (1, 1, 20, 132), 65),
    ] {
        let mut t = Tensors::random(rule, shape(tokens, dims), None, 5);
        t.options.l2norm = true;
        failed.extend(failures(&format!("{dims:?}, {tokens} tokens"), &t, 5e-6));
    }
    for tokens in [1, 63, 64, 65, 257] {
        let t = Tensors::random(Rule::GATED_DELTANET, shape(tokens, (1, 1, 64, 64)), None, tokens as u64);
        failed.extend(failures(&format!("{tokens} tokens"), &t, 5e-6));
    }
    none(&failed);
}
