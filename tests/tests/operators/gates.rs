//! Gates and keys at the limits of f32, each a failure that some implementation has had, against the f64 recurrence.

use deltanet::Rule;
use deltanet_tests::operators::{Engine, Tensors, check, engines_at_default_limits, none};

use crate::{chunks, shape};

/// Rules with a decay a head and a channel, with and without the delta term.
const DECAYING: [Rule; 5] =
    [Rule::SCALAR_DECAY, Rule::CHANNEL_DECAY, Rule::GATED_DELTANET, Rule::KDA, Rule::PRECONDITIONED_KDA];
/// Tolerances of strong decay: recurrent, chunkwise.
const STRONG: (f64, f64) = (1e-5, 2e-5);

/// A call with gates made by `gate(index of the element, row, channel)`; results must hold at every chunk length.
fn gated(what: &str, rules: &[Rule], tokens: usize, gate: &dyn Fn(usize, usize, usize) -> f32) -> Vec<String> {
    let mut failures = Vec::new();
    for rule in rules {
        let mut t = Tensors::random(*rule, shape(tokens, (1, 1, 16, 16)), None, tokens as u64);
        let width = t.g.len() / tokens;
        for (i, g) in t.g.iter_mut().enumerate() {
            *g = gate(i, i / width, i % width);
        }
        failures.extend(at_every_chunk(&format!("{what}, {}", rule.name()), &t, STRONG));
    }
    failures
}

/// [`check`] with every chunk length that each engine takes.
fn at_every_chunk(what: &str, t: &Tensors, (recurrent, chunkwise): (f64, f64)) -> Vec<String> {
    let mut failures = Vec::new();
    for engine in engines_at_default_limits() {
        for chunk in chunks(&engine) {
            // The software kernels have one chunk length; at others the same kernels run as for a GPU.
            let software = matches!(engine, Engine::Gpu(_, deltanet::gpu::delta::Kernels::Software, _));
            if software && chunk != 16 {
                continue;
            }
            let mut t = t.clone();
            t.options.chunk = Some(chunk);
            failures.extend(check(&format!("{what}, C={chunk}"), &t, &[engine], recurrent, chunkwise));
        }
    }
    failures
}

/// attention-gym #394, fla #99.
#[test]
fn constant_strong_gates() {
    let mut failures = gated("g = -20", &DECAYING, 256, &|_, _, _| -20.0);
    failures.extend(gated("g = -30", &[Rule::GATED_DELTANET, Rule::KDA], 130, &|_, _, _| -30.0));
    none(&failures);
}

/// executorch #21417: decays of 1e-12 in some channels or tokens beside gentle ones, so that a sum over a chunk is
/// far below what f32 holds.
#[test]
fn decays_of_1e_12() {
    let tiny = 1e-12f32.ln();
    let mut failures = gated("decay 1e-12", &DECAYING, 130, &|_, _, _| tiny);
    failures.extend(gated("decay 1e-12 in every third", &DECAYING, 130, &|_, row, channel| {
        if (row + channel) % 3 == 0 { tiny } else { -0.01 }
    }));
    none(&failures);
}

/// fla #463; and −∞, which no difference may meet.
#[test]
fn half_of_the_gates_zero() {
    let mut failures =
        gated("half zero", &DECAYING, 130, &|i, _, _| if i % 2 == 0 { 0.0 } else { -0.05 * (i % 37) as f32 });
    failures.extend(gated("zero, strong and infinite", &DECAYING, 130, &|i, _, _| match i % 5 {
        0 => 0.0,
        1 => f32::NEG_INFINITY,
        2 => -90.0,
        _ => -0.3,
    }));
    none(&failures);
}

/// cudnn-frontend #1017: g = L · sigmoid(x) for the lower bounds that models use.
#[test]
fn bounded_gates() {
    let mut failures = Vec::new();
    for bound in [-1.0f32, -2.5, -3.0, -5.0] {
        let gate = |i: usize, _: usize, _: usize| {
            // A spread of −4 to 4 before the sigmoid, in no order.
            let x = (i.wrapping_mul(2_654_435_761) % 1_000) as f32 / 125.0 - 4.0;
            bound / (1.0 + (-x).exp())
        };
        let what = format!("bound {bound}");
        failures.extend(gated(&what, &[Rule::KDA, Rule::PRECONDITIONED_KDA], 256, &gate));
        failures.extend(gated(&format!("{what}, every gate there"), &[Rule::KDA], 256, &|_, _, _| bound));
    }
    none(&failures);
}

/// Nearly collinear keys at beta = 2: the triangular inverse grows, and block recursion alone loses 3e-3.
#[test]
fn collinear_keys_at_beta_two() {
    let mut failures = Vec::new();
    let mut t = Tensors::random(Rule::DELTANET, shape(256, (1, 1, 16, 16)), None, 3);
    let first = t.k[..16].to_vec();
    for row in t.k.chunks_exact_mut(16) {
        for (k, f) in row.iter_mut().zip(&first) {
            *k = f + 1e-3 * *k;
        }
        let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        row.iter_mut().for_each(|x| *x /= norm);
    }
    t.beta.fill(2.0);
    failures.extend(at_every_chunk("collinear", &t, (1e-5, 5e-4)));
    // The same keys over and over, exactly.
    for row in t.k.chunks_exact_mut(16) {
        row.copy_from_slice(&first);
    }
    failures.extend(at_every_chunk("equal keys", &t, (1e-5, 5e-4)));
    none(&failures);
}
