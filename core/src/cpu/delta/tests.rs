use super::*;
use crate::delta::Precond;
use crate::rule::{Beta, Decay};

/// Uniform numbers in [−1, 1).
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut s = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    (0..n)
        .map(|_| {
            s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (s >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

struct Tensors {
    shape: Shape,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    beta: Vec<f32>,
    g: Vec<f32>,
    initial: Vec<f32>,
    pg: Vec<f32>,
    pbeta: Vec<f32>,
    mu: Vec<f32>,
    sums: Vec<f32>,
    cu: Option<Vec<u32>>,
}

impl Tensors {
    fn new(rule: &Rule, shape: Shape, cu: Option<Vec<u32>>, decay: f32, seed: u32) -> Self {
        let Shape { batch, tokens, heads, value_heads, key_dim, value_dim } = shape;
        let rows = batch * tokens;
        let n = cu.as_ref().map_or(batch, |c| c.len() - 1);
        let width = if rule.decay == Decay::PerChannel { key_dim } else { 1 };
        let half = |x: Vec<f32>| x.into_iter().map(|x| 0.5 + 0.5 * x).collect::<Vec<_>>();
        Self {
            shape,
            q: numbers(rows * heads * key_dim, seed),
            k: numbers(rows * heads * key_dim, seed + 1),
            v: numbers(rows * value_heads * value_dim, seed + 2),
            beta: half(numbers(rows * value_heads, seed + 3)),
            g: half(numbers(rows * value_heads * width, seed + 4)).into_iter().map(|x| -decay * x * x).collect(),
            initial: numbers(n * value_heads * key_dim * value_dim, seed + 5),
            pg: half(numbers(rows * heads, seed + 6)).into_iter().map(|x| -x).collect(),
            pbeta: half(numbers(rows * heads, seed + 7)),
            mu: numbers(heads, seed + 8),
            sums: half(numbers(n * heads * key_dim, seed + 9)),
            cu,
        }
    }
    fn inputs(&self, rule: &Rule) -> Inputs<'_> {
        Inputs {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            beta: (rule.beta != Beta::One).then_some(&self.beta),
            g: (rule.decay != Decay::None).then_some(&self.g),
            initial_state: Some(&self.initial),
            precond: (rule.write_key == WriteKey::Preconditioned).then_some(Precond {
                g: &self.pg,
                beta: &self.pbeta,
                log_scale: &self.mu,
                initial: Some(&self.sums),
            }),
            cu_seqlens: self.cu.as_deref(),
        }
    }
}

#[track_caller]
fn close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}: length");
    let size = want.iter().fold(1e-30f64, |m, x| m.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let err = (f64::from(*g) - w).abs() / size;
        assert!(err <= tolerance, "{what}[{i}]: {g} instead of {w}, {err:.2e} of the largest");
    }
}

fn check(rule: &Rule, t: &Tensors, options: &Options, recurrent_tolerance: f64, chunk_tolerance: f64) {
    let name = rule.name();
    let inputs = t.inputs(rule);
    let want = reference(rule, &t.shape, &inputs, options).unwrap();
    let got = recurrent(rule, &t.shape, &inputs, options).unwrap();
    close(&format!("{name} recurrent o"), &got.o, &want.o, recurrent_tolerance);
    close(&format!("{name} recurrent state"), &got.final_state, &want.final_state, recurrent_tolerance);
    close(&format!("{name} recurrent sums"), &got.final_sums, &want.final_sums, recurrent_tolerance);
    for len in [None, Some(16), Some(64)] {
        let got = chunk(rule, &t.shape, &inputs, &Options { chunk: len, ..*options }).unwrap();
        close(&format!("{name} chunk {len:?} o"), &got.o, &want.o, chunk_tolerance);
        close(&format!("{name} chunk {len:?} state"), &got.final_state, &want.final_state, chunk_tolerance);
        close(&format!("{name} chunk {len:?} sums"), &got.final_sums, &want.final_sums, recurrent_tolerance);
    }
}

#[test]
fn every_rule_at_awkward_shapes() {
    let shapes = [
        (1, 1, 1, 1, 1, 1),
        (2, 7, 1, 2, 3, 5),
        (1, 63, 2, 2, 20, 33),
        (1, 64, 1, 3, 12, 16),
        (1, 65, 2, 4, 96, 40),
        (1, 130, 1, 1, 256, 24),
    ];
    for (name, rule) in Rule::NAMED {
        for (i, (batch, tokens, heads, value_heads, key_dim, value_dim)) in shapes.into_iter().enumerate() {
            let shape = Shape { batch, tokens, heads, value_heads, key_dim, value_dim };
            for decay in [0.5, 20.0] {
                let t = Tensors::new(&rule, shape, None, decay, 100 * i as u32);
                let options = Options { l2norm: name != "longhorn", ..Options::default() };
                check(&rule, &t, &options, 2e-6, 5e-6);
            }
        }
    }
}

#[test]
fn every_rule_without_special_instructions() {
    crate::cpu::simd::tests::all_plain(|| {
        every_rule_at_awkward_shapes();
        packed_sequences_do_not_leak();
    });
}

#[test]
fn packed_sequences_do_not_leak() {
    let cu = vec![0, 1, 1, 2, 65, 129, 194];
    let shape = Shape { batch: 1, tokens: 194, heads: 1, value_heads: 2, key_dim: 16, value_dim: 20 };
    for (_, rule) in Rule::NAMED {
        let t = Tensors::new(&rule, shape, Some(cu.clone()), 2.0, 7);
        check(&rule, &t, &Options { l2norm: true, ..Options::default() }, 2e-6, 5e-6);
    }
}

#[test]
fn collinear_keys_at_beta_two() {
    let rule = Rule::DELTANET;
    let shape = Shape { batch: 1, tokens: 256, heads: 1, value_heads: 1, key_dim: 32, value_dim: 16 };
    let mut t = Tensors::new(&rule, shape, None, 0.0, 3);
    let first = t.k[..32].to_vec();
    let noise = numbers(256 * 32, 77);
    for (i, k) in t.k.iter_mut().enumerate() {
        *k = first[i % 32] + 1e-3 * noise[i];
    }
    t.beta.fill(2.0);
    check(&rule, &t, &Options { l2norm: true, ..Options::default() }, 1e-5, 5e-4);
}

#[test]
fn infinite_and_zero_decays() {
    for rule in [Rule::GATED_DELTANET, Rule::KDA, Rule::CHANNEL_DECAY] {
        let shape = Shape { batch: 1, tokens: 100, heads: 1, value_heads: 1, key_dim: 16, value_dim: 16 };
        let mut t = Tensors::new(&rule, shape, None, 3.0, 5);
        for (i, g) in t.g.iter_mut().enumerate() {
            match i % 5 {
                0 => *g = 0.0,
                1 => *g = f32::NEG_INFINITY,
                2 => *g = -30.0,
                _ => {}
            }
        }
        check(&rule, &t, &Options { l2norm: true, ..Options::default() }, 2e-6, 5e-6);
    }
}

#[test]
fn chunk_states_restart_the_sequence() {
    let rule = Rule::PRECONDITIONED_GATED_DELTANET;
    let shape = Shape { batch: 2, tokens: 70, heads: 1, value_heads: 2, key_dim: 8, value_dim: 20 };
    let t = Tensors::new(&rule, shape, None, 1.0, 9);
    let inputs = t.inputs(&rule);
    let options = Options { chunk_states: true, l2norm: true, ..Options::default() };
    let state = 2 * 8 * 20;
    for out in [recurrent(&rule, &shape, &inputs, &options), chunk(&rule, &shape, &inputs, &options)] {
        let out = out.unwrap();
        let chunks = 70usize.div_ceil(out.chunk);
        assert_eq!(out.chunk_states.len(), 2 * chunks * state);
        for b in 0..2 {
            let first = &out.chunk_states[b * chunks * state..][..state];
            assert_eq!(first, &t.initial[b * state..][..state]);
            // The state before the last chunk is the final state of a run that stops there.
            let tokens = (chunks - 1) * out.chunk;
            let cut = |x: &[f32]| x[b * x.len() / 2..][..x.len() / 2 / 70 * tokens].to_vec();
            let part = Shape { batch: 1, tokens, ..shape };
            let (q, k, v, beta, g) = (cut(&t.q), cut(&t.k), cut(&t.v), cut(&t.beta), cut(&t.g));
            let (pg, pbeta) = (cut(&t.pg), cut(&t.pbeta));
            let inputs = Inputs {
                q: &q,
                k: &k,
                v: &v,
                beta: Some(&beta),
                g: Some(&g),
                initial_state: Some(&t.initial[b * state..][..state]),
                precond: Some(Precond { g: &pg, beta: &pbeta, log_scale: &t.mu, initial: Some(&t.sums[b * 8..][..8]) }),
                cu_seqlens: None,
            };
            let again = if out.chunk == 1 {
                recurrent(&rule, &part, &inputs, &options).unwrap()
            } else {
                chunk(&rule, &part, &inputs, &options).unwrap()
            };
            assert_eq!(again.final_state, out.chunk_states[((b + 1) * chunks - 1) * state..][..state]);
        }
    }
}
