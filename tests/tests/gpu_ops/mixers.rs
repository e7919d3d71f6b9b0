//! Mixers, with their convolutions, gates and outputs.

use deltanet::gpu::{Gpu, Stage, Trace};
use deltanet::model::{DType, LayerState, Weight};
use deltanet::ops::{
    Activation, BufId, Cols, DecayGate, GateForm, Input, Linear, Mixer, MixerState, Op, PrecondGate, WeightId,
};
use deltanet::plan::{Plan, PlanKind};
use deltanet::rule::{Beta, Decay, Rule, WriteKey};
use deltanet_tests::mixer_reference::MixerSession;
use deltanet_tests::random::Random;
use deltanet_tests::small_spec::matrix;
use deltanet_tests::{devices, skip};

use super::{NOWHERE, buffer, close, cooperative, plan, reference_input, stages};

/// A layer's middle: projection, mixer, output product with norm and gate.
struct Chain {
    op: Mixer,
    ops: Vec<Op>,
    widths: Vec<(&'static str, usize)>,
    weights: Vec<Weight>,
    vectors: Vec<Vec<f32>>,
    /// Projections: of q|k|v|z|b|a|…, and of the decay alone when it has a buffer of its own.
    projection: Vec<f32>,
    aux: Vec<f32>,
    out: Vec<f32>,
    words: usize,
}

const HIDDEN: usize = 48;
const OUT: usize = 24;
const X: BufId = BufId(0);
const PROJECTION: BufId = BufId(1);
const AUX: BufId = BufId(2);
const RESULT: BufId = BufId(6);

impl Chain {
    fn new(rule: Rule, dims: [usize; 4], taps: usize, option: usize) -> Self {
        Self::stored(rule, dims, taps, option, DType::F32)
    }

    /// With the projection stored in a type.
    fn stored(
        rule: Rule,
        [heads, value_heads, key_dim, value_dim]: [usize; 4],
        taps: usize,
        option: usize,
        dtype: DType,
    ) -> Self {
        let mut random = Random::new((key_dim * 100 + value_dim * 10 + taps + option) as u64);
        let (hk, hvv) = (heads * key_dim, value_heads * value_dim);
        let channels = 2 * hk + hvv;
        let decays = if rule.decay == Decay::PerChannel { value_heads * key_dim } else { value_heads };
        let apart = rule.decay == Decay::PerChannel;
        // q|k|v, z, b, a, preconditioner a and b.
        let z_at = channels;
        let b_at = z_at + hvv;
        let a_at = b_at + value_heads;
        let pa_at = a_at + if apart { 0 } else { decays };
        let width = pa_at + 2 * heads;
        let cols = |at: usize| Cols { buf: PROJECTION, width, at };
        let a = if apart { Cols { buf: AUX, width: decays, at: 0 } } else { cols(a_at) };
        let precond = rule.write_key == WriteKey::Preconditioned;
        let s_words = value_heads * key_dim * value_dim;
        let tail = s_words;
        let sums = tail + (taps - 1) * channels;
        let op = Mixer {
            rule,
            heads,
            value_heads,
            key_dim,
            value_dim,
            qkv: cols(0),
            conv: (taps > 1).then_some(WeightId(1)),
            conv_size: taps,
            l2norm: option % 3 != 2,
            beta: (rule.beta != Beta::One).then(|| cols(b_at)),
            beta_scale: if option % 2 == 1 { 2.0 } else { 1.0 },
            decay: (rule.decay != Decay::None).then(|| DecayGate {
                a,
                a_log: WeightId(2),
                dt_bias: WeightId(3),
                form: if option % 2 == 1 { GateForm::Bounded(-3.0) } else { GateForm::Softplus },
            }),
            precond: precond.then(|| PrecondGate {
                a: cols(pa_at),
                b: cols(pa_at + heads),
                a_log: WeightId(4),
                dt_bias: WeightId(5),
                log_scale: WeightId(6),
            }),
            layer: 0,
            state: MixerState { s: 0, tail, sums },
            out: BufId(3),
            conved: BufId(4),
            gates: BufId(5),
        };
        let mut vector = |n: usize, scale: f32, shift: f32| -> Vec<f32> {
            random.normals(n).iter().map(|x| x * scale + shift).collect()
        };
        let vectors = vec![
            Vec::new(),
            vector(channels * taps, 0.5, 0.1),
            vector(value_heads, 0.5, 0.0),
            vector(decays, 0.5, -1.0),
            vector(heads, 0.5, 0.0),
            vector(heads, 0.5, -1.0),
            vector(heads, 0.1, -0.2),
            vector(value_dim, 0.2, 1.0),
        ];
        let scale = 1.0 / (HIDDEN as f32).sqrt();
        let (w, projection) = matrix(&vector(width * HIDDEN, scale, 0.0), width, HIDDEN, dtype);
        let (w_out, out) = matrix(&vector(OUT * hvv, 1.0 / (hvv as f32).sqrt(), 0.0), OUT, hvv, DType::Bf16);
        let (w_aux, aux) = matrix(&vector(decays * HIDDEN, scale, 0.0), decays, HIDDEN, DType::F16);
        let mut weights = vec![w];
        weights.extend(vectors.iter().skip(1).map(|v| Weight::Vector(v.clone())));
        weights.extend([w_out, w_aux]);
        let linear = |input, weight, in_dim, out_dim, out| {
            let weight = WeightId(weight);
            Op::Linear(Linear { input, weight, bias: None, in_dim, out_dim, out, add: false, last_only: false })
        };
        let x = Cols { buf: X, width: HIDDEN, at: 0 };
        let mut ops = Vec::new();
        if apart && rule.decay != Decay::None {
            ops.push(linear(Input::Plain(x), 9, HIDDEN, decays, AUX));
        }
        ops.push(linear(Input::Plain(x), 0, HIDDEN, width, PROJECTION));
        ops.push(Op::Mixer(op.clone()));
        let normed = Input::HeadNorm {
            x: Cols { buf: op.out, width: hvv, at: 0 },
            head_dim: value_dim,
            weight: (option != 1).then_some(WeightId(7)),
            eps: 1e-5,
            gate: (option != 2).then(|| (cols(z_at), if option == 0 { Activation::Silu } else { Activation::Sigmoid })),
        };
        ops.push(linear(normed, 8, hvv, OUT, RESULT));
        let gates = value_heads + decays + 2 * heads;
        let widths = vec![
            ("x", HIDDEN),
            ("projection", width),
            ("aux", decays),
            ("mixed", hvv),
            ("conved", channels),
            ("gates", gates),
            ("out", OUT),
        ];
        let words = sums + if precond { hk } else { 0 };
        Self { op, ops, widths, weights, vectors, projection, aux, out, words }
    }

    fn plan(&self, kind: PlanKind, rows: usize) -> Plan {
        let buffers = self.widths.iter().map(|(name, width)| buffer(name, *width, rows)).collect();
        plan(kind, rows, self.ops.clone(), buffers, NOWHERE)
    }

    fn stages(&self, gpu: &Gpu) -> Vec<(&'static str, Stage)> {
        stages(gpu, 64, &self.weights, &[LayerState { words: self.words, cache_per_token: 0 }])
    }

    /// The reference: one row fed, the output product's result.
    fn feed(&self, session: &mut MixerSession, x: &[f32]) -> Vec<f64> {
        let product = |w: &[f32]| -> Vec<f32> {
            let dot = |row: &[f32]| row.iter().zip(x).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32;
            w.chunks(HIDDEN).map(dot).collect()
        };
        let row = product(&self.projection);
        let mixed = session.feed(&self.op, &row, &product(&self.aux), &|id| self.vectors[id.0].clone());
        let mixed: Vec<f32> = mixed.iter().map(|v| *v as f32).collect();
        let Some(Op::Linear(Linear { input: Input::HeadNorm { head_dim, weight, eps, gate, .. }, .. })) =
            self.ops.last()
        else {
            unreachable!()
        };
        // The reference takes x and gate from one row.
        let n = mixed.len();
        let joined: Vec<f32> = [&mixed[..], &row[2 * self.op.heads * self.op.key_dim + n..][..n]].concat();
        let cols = |at: usize| Cols { buf: X, width: 2 * n, at };
        let input = Input::HeadNorm {
            x: cols(0),
            head_dim: *head_dim,
            weight: *weight,
            eps: *eps,
            gate: gate.map(|(_, a)| (cols(n), a)),
        };
        let normed = reference_input(&input, &joined, 2 * n, n, &self.vectors[7]);
        self.out.chunks(n).map(|w| w.iter().zip(&normed).map(|(a, b)| f64::from(*a) * b).sum()).collect()
    }
}

/// Rules, sizes (H, HV, K, V), taps and options that together use every path.
fn chains() -> Vec<Chain> {
    let mut all = vec![
        Chain::new(Rule::GATED_DELTANET, [2, 4, 32, 48], 4, 0),
        Chain::new(Rule::GATED_DELTANET, [2, 2, 60, 20], 2, 1),
        Chain::new(Rule::GATED_DELTANET, [1, 1, 4, 300], 8, 2),
        Chain::new(Rule::DELTANET, [3, 3, 16, 16], 4, 1),
        Chain::new(Rule::LINEAR_ATTENTION, [1, 2, 36, 12], 1, 0),
    ];
    for (i, (_, rule)) in Rule::NAMED.iter().enumerate() {
        // In turn, small heads and such as several workgroups share; the latter only with l2norm, without which the
        // states of so many channels grow beyond measure.
        let (k, v) = if i % 2 == 0 || i % 3 == 2 { (20, 28) } else { (64, 128) };
        all.push(Chain::new(*rule, [1, 2, k, v], 4, i % 3));
    }
    all
}

#[test]
fn mixers_decode_token_by_token() {
    for gpu in devices::both() {
        for (i, chain) in chains().iter().enumerate() {
            for (kernels, mut stage) in chain.stages(gpu) {
                decode(gpu, i, chain, &mut stage, kernels);
            }
        }
    }
}

fn decode(gpu: &Gpu, i: usize, chain: &Chain, stage: &mut Stage, kernels: &str) {
    let mut random = Random::new(i as u64);
    let plan = chain.plan(PlanKind::Decode, 4);
    let alone = chain.plan(PlanKind::Decode, 1);
    let slots = [3, 0, 4];
    let mut sessions = vec![MixerSession::new(&chain.op); 3];
    for step in 0..6 {
        // The last session sits out a step; its row is padding then.
        let live = if step == 3 { 2 } else { 3 };
        let x = random.normals(4 * HIDDEN);
        let run = Trace { slots: &slots[..live], tokens: &[], given: &[(X, &x)], wanted: &[RESULT] };
        let before = gpu.wait(stage.export(0)).unwrap();
        let got = gpu.wait(stage.trace(&plan, &run)).unwrap();
        let mut want = Vec::new();
        for (r, session) in sessions.iter_mut().enumerate().take(live) {
            want.extend(chain.feed(session, &x[r * HIDDEN..][..HIDDEN]));
        }
        let what = format!("chain {i} ({}), step {step}, {kernels}", chain.op.rule.name());
        close(&got[0][..want.len()], &want, 1e-5, &what);
        // The same row alone gives the same bits.
        let mut other = before;
        other.position = 0;
        other.logits.clear();
        stage.import(2, &other).unwrap();
        let run = Trace { slots: &[2], given: &[(X, &x[HIDDEN..2 * HIDDEN])], ..run };
        let single = gpu.wait(stage.trace(&alone, &run)).unwrap();
        assert_eq!(single[0][..], got[0][OUT..2 * OUT], "{what}: alone and in company");
    }
    for (slot, session) in slots.iter().zip(&sessions) {
        let state = gpu.wait(stage.export(*slot)).unwrap();
        check_state(chain, &state.layers[0], session, 1e-5, &format!("chain {i}, {kernels}"));
    }
}

/// A decode of many sessions whose products round to f16: convolution and its tail in the projection's kernel, then
/// the norm's rounding. Some rows are padding, and the last workgroup has rows beyond the plan's.
#[test]
fn mixers_decode_many_rows_with_halves() {
    let gpu = devices::best();
    if !gpu.caps().f16 {
        skip::skip("mixers_decode_many_rows_with_halves", "no f16");
        return;
    }
    const ROWS: usize = 19;
    for (option, dims) in [[1, 2, 60, 20], [1, 1, 64, 128]].into_iter().enumerate() {
        let chain = Chain::stored(Rule::GATED_DELTANET, dims, 4, option, DType::Bf16);
        let layers = [LayerState { words: chain.words, cache_per_token: 0 }];
        let mut stage = cooperative(gpu, &chain.weights, &layers, true);
        let plan = chain.plan(PlanKind::Decode, ROWS);
        let slots: Vec<usize> = (0..ROWS - 1).rev().collect();
        let mut sessions = vec![MixerSession::new(&chain.op); slots.len()];
        let mut random = Random::new(7);
        for step in 0..3 {
            let x = random.normals(ROWS * HIDDEN);
            let run = Trace { slots: &slots, tokens: &[], given: &[(X, &x)], wanted: &[RESULT] };
            let got = gpu.wait(stage.trace(&plan, &run)).unwrap();
            let rows = sessions.iter_mut().zip(x.chunks(HIDDEN));
            let want: Vec<f64> = rows.flat_map(|(session, row)| chain.feed(session, row)).collect();
            // The norm makes small outputs, and their errors, larger.
            close(&got[0][..want.len()], &want, 1e-2, &format!("option {option}, step {step}"));
        }
        for (slot, session) in slots.iter().zip(&sessions) {
            let state = gpu.wait(stage.export(*slot)).unwrap();
            let places = chain.op.state;
            close(&state.layers[0][places.s..][..session.s.len()], &session.s, 3e-3, "S");
            let tail = session.tail(&chain.op);
            close(&state.layers[0][places.tail..][..tail.len()], &tail, 3e-3, "tail");
        }
    }
    let kernels = gpu.kernels();
    assert!(kernels.lines().any(|l| l.starts_with("linear/coop_decode") && l.contains(" CONV_OUT")));
}

/// The same sums as one row's where a head's norm waits for the product after the mixer.
#[test]
fn a_row_after_a_mixer_does_not_depend_on_its_company() {
    let gpu = devices::best();
    const ROWS: usize = 16;
    let chain = Chain::new(Rule::GATED_DELTANET, [2, 8, 64, 128], 4, 0);
    for (kernels, mut stage) in chain.stages(gpu) {
        let x = Random::new(3).normals(ROWS * HIDDEN);
        let run = |stage: &mut Stage, rows: usize, slot: usize, x: &[f32]| {
            let run = Trace { slots: &[slot], tokens: &[], given: &[(X, x)], wanted: &[RESULT] };
            gpu.wait(stage.trace(&chain.plan(PlanKind::Decode, rows), &run)).unwrap().remove(0)
        };
        let many = run(&mut stage, ROWS, 1, &x);
        let alone = run(&mut stage, 1, 2, &x[..HIDDEN]);
        assert_eq!(alone[..], many[..OUT], "{kernels}");
    }
    let kernels = gpu.kernels();
    let panel = kernels.lines().any(|l| l.starts_with("linear/panel") && l.contains(" SCALED"));
    let lanes = gpu.caps().subgroup_size;
    assert_eq!(panel, (8..128).contains(&lanes) && lanes.is_power_of_two(), "{kernels}");
}

fn check_state(chain: &Chain, got: &[f32], session: &MixerSession, tolerance: f64, what: &str) {
    let places = chain.op.state;
    close(&got[places.s..][..session.s.len()], &session.s, tolerance, &format!("{what}: S"));
    let tail = session.tail(&chain.op);
    close(&got[places.tail..][..tail.len()], &tail, 1e-5, &format!("{what}: tail"));
    if chain.op.precond.is_some() {
        close(&got[places.sums..], &session.sums, 1e-5, &format!("{what}: sums"));
    }
}

#[test]
fn mixers_prefill_in_pieces() {
    for gpu in devices::both() {
        for (i, chain) in chains().iter().enumerate() {
            for (kernels, mut stage) in chain.stages(gpu) {
                prefill(gpu, i, chain, &mut stage, kernels, (2e-5, 1e-5));
            }
        }
    }
}

/// The delta rule's chunks, and the product behind them, with what they multiply rounded to f16.
#[test]
fn mixers_prefill_with_halves() {
    let gpu = devices::best();
    if !gpu.caps().f16 {
        skip::skip("mixers_prefill_with_halves", "no f16");
        return;
    }
    let chain = Chain::new(Rule::GATED_DELTANET, [1, 2, 60, 20], 4, 0);
    let layers = [LayerState { words: chain.words, cache_per_token: 0 }];
    let mut stage = cooperative(gpu, &chain.weights, &layers, true);
    // The norm makes small outputs, and their errors, larger.
    prefill(gpu, 0, &chain, &mut stage, "cooperative matrices, halves", (1e-2, 3e-3));
    assert!(gpu.kernels().contains("delta/coop/scan"));
}

fn prefill(gpu: &Gpu, i: usize, chain: &Chain, stage: &mut Stage, kernels: &str, (out, state): (f64, f64)) {
    let mut random = Random::new(100 + i as u64);
    let mut session = MixerSession::new(&chain.op);
    for (n, rows) in [(1, 16), (2, 16), (17, 64), (65, 256), (3, 16)] {
        let x = random.normals(rows * HIDDEN);
        let plan = chain.plan(PlanKind::Prefill, rows);
        let run = Trace { slots: &[1], tokens: &vec![0; n], given: &[(X, &x)], wanted: &[RESULT] };
        let got = gpu.wait(stage.trace(&plan, &run)).unwrap();
        let mut want = Vec::new();
        for row in x.chunks(HIDDEN).take(n) {
            want.extend(chain.feed(&mut session, row));
        }
        let what = format!("chain {i} ({}), {n} of {rows} rows, {kernels}", chain.op.rule.name());
        close(&got[0][..want.len()], &want, out, &what);
    }
    let slot = gpu.wait(stage.export(1)).unwrap();
    assert_eq!(slot.position, 88);
    check_state(chain, &slot.layers[0], &session, state, &format!("chain {i}, {kernels}"));
}
