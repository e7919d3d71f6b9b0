//! A model's ops on the GPU, one at a time, against plain references in f64.
//!
//! Scratch starts as NaN and is guarded: `Stage::trace` fails when a kernel writes beyond its rows.

mod company;
mod mixers;

use deltanet::gpu::{Caps, Gpu, Stage, Trace};
use deltanet::model::{DType, LayerState, Weight};
use deltanet::ops::{Activation, BufId, Cols, Embed, Input, Linear, Op, WeightId};
use deltanet::plan::{BufSpec, Life, Plan, PlanKind};
use deltanet_tests::random::Random;
use deltanet_tests::small_spec::matrix;
use deltanet_tests::{devices, skip};

/// Stages that choose kernels as the device asks, and as a GPU would.
fn stages(gpu: &Gpu, vocab: usize, weights: &[Weight], layers: &[LayerState]) -> Vec<(&'static str, Stage)> {
    let make = || Stage::new(gpu.clone(), vocab, weights, layers, 5, &mut |_, _| {}).unwrap();
    let mut all = vec![("own kernels", make())];
    if gpu.caps().software {
        let mut stage = make();
        stage.choose_for(Caps { software: false, ..gpu.caps().clone() });
        all.push(("GPU kernels", stage));
    }
    all
}

/// A stage that chooses kernels as a GPU with cooperative matrices would, and emulates these.
fn cooperative(gpu: &Gpu, weights: &[Weight], layers: &[LayerState], half_products: bool) -> Stage {
    let mut stage = Stage::new(gpu.clone(), 64, weights, layers, 20, &mut |_, _| {}).unwrap();
    stage.choose_for(cooperative_caps(gpu, half_products));
    stage
}

fn cooperative_caps(gpu: &Gpu, half_products: bool) -> Caps {
    let like = Caps { software: false, coop16: true, emulate: true, half_products, ..gpu.caps().clone() };
    Caps { workgroup_bytes: like.workgroup_bytes.max(48 << 10), ..like }
}

fn buffer(name: &'static str, width: usize, rows: usize) -> BufSpec {
    BufSpec { name, width, rows, life: Life::Scratch }
}

fn plan(kind: PlanKind, rows: usize, ops: Vec<Op>, buffers: Vec<BufSpec>, logits: BufId) -> Plan {
    Plan { kind, rows, ops, labels: Vec::new(), buffers, logits }
}

/// Largest difference over the largest of the reference, and where it is.
#[track_caller]
fn close(got: &[f32], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let top = want.iter().fold(0.0f64, |a, b| a.max(b.abs())).max(1e-30);
    let (mut worst, mut at) = (0.0, 0);
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let d = (f64::from(*g) - w).abs() / top;
        // NaN is worse than anything.
        if d > worst || d.is_nan() {
            (worst, at) = (d, i);
        }
    }
    assert!(worst <= tolerance, "{what}: {worst:.2e} at {at}: got {}, want {}", got[at], want[at]);
}

const NOWHERE: BufId = BufId(99);

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// The prologues, `[rows, in_dim]` in f64. `x` is `[rows, width]`.
fn reference_input(input: &Input, x: &[f32], width: usize, in_dim: usize, norm: &[f32]) -> Vec<f64> {
    let mut out = Vec::new();
    for row in x.chunks(width) {
        let at = |i: usize| f64::from(row[i]);
        match input {
            Input::Plain(c) => out.extend((0..in_dim).map(|i| at(c.at + i))),
            Input::RmsNorm { x: c, eps, .. } => {
                let square: f64 = (0..in_dim).map(|i| at(c.at + i).powi(2)).sum();
                let scale = (square / in_dim as f64 + f64::from(*eps)).sqrt().recip();
                out.extend((0..in_dim).map(|i| at(c.at + i) * scale * f64::from(norm[i])));
            }
            Input::SwiGlu(c) => out.extend((0..in_dim).map(|i| silu(at(c.at + i)) * at(c.at + in_dim + i))),
            Input::HeadNorm { x: c, head_dim, weight, eps, gate } => {
                for i in 0..in_dim {
                    let head = i / head_dim * head_dim;
                    let mut v = at(c.at + i);
                    if weight.is_some() {
                        let square: f64 = (0..*head_dim).map(|j| at(c.at + head + j).powi(2)).sum();
                        v *= (square / *head_dim as f64 + f64::from(*eps)).sqrt().recip();
                        v *= f64::from(norm[i % head_dim]);
                    }
                    if let Some((g, a)) = gate {
                        v *= if *a == Activation::Silu { silu(at(g.at + i)) } else { sigmoid(at(g.at + i)) };
                    }
                    out.push(v);
                }
            }
        }
    }
    out
}

/// Added to eight times a form of [`check_linear`] and whatever decides the rest: kernels with cooperative matrices,
/// emulated.
const COOPERATIVE: usize = 7;

/// One product, with everything that can be fused to it, as prefill and as decode.
fn check_linear(gpu: &Gpu, dtype: DType, in_dim: usize, out_dim: usize, rows: usize, form: usize) {
    let mut random = Random::new((in_dim * 31 + out_dim * 7 + rows) as u64);
    let (x_at, extra) = if form.is_multiple_of(2) { (0, 0) } else { (4, 7) };
    let width = x_at + 2 * in_dim + extra;
    let x = random.normals(rows * width);
    let w: Vec<f32> = random.normals(out_dim * in_dim).iter().map(|v| v / (in_dim as f32).sqrt()).collect();
    let norm: Vec<f32> = random.normals(in_dim).iter().map(|v| 1.0 + 0.2 * v).collect();
    let bias = random.normals(out_dim);
    let residual = random.normals(rows * out_dim);
    let (w, w_stored) = matrix(&w, out_dim, in_dim, dtype);
    let (xb, ob) = (BufId(0), BufId(1));
    let cols = |at: usize| Cols { buf: xb, width, at };
    let head_dim = if in_dim.is_multiple_of(20) { 20 } else { in_dim / 3 };
    let input = match if form < COOPERATIVE { form } else { (form - COOPERATIVE) / 8 } {
        0 => Input::Plain(cols(x_at)),
        1 | 2 => Input::RmsNorm { x: cols(x_at), weight: WeightId(1), eps: 1e-6 },
        3 => Input::SwiGlu(cols(x_at)),
        _ if !in_dim.is_multiple_of(head_dim) => return,
        4 => Input::HeadNorm {
            x: cols(0),
            head_dim,
            weight: Some(WeightId(1)),
            eps: 1e-5,
            gate: Some((cols(in_dim), Activation::Silu)),
        },
        5 => Input::HeadNorm {
            x: cols(x_at),
            head_dim,
            weight: None,
            eps: 1e-5,
            gate: Some((cols(x_at + in_dim), Activation::Sigmoid)),
        },
        _ => Input::HeadNorm { x: cols(0), head_dim, weight: Some(WeightId(1)), eps: 1e-5, gate: None },
    };
    let normed = reference_input(&input, &x, width, in_dim, &norm);
    let (add, with_bias) = (form.is_multiple_of(2), form.is_multiple_of(3));
    let mut want = Vec::new();
    for r in 0..rows {
        for o in 0..out_dim {
            let dot = (0..in_dim).map(|i| normed[r * in_dim + i] * f64::from(w_stored[o * in_dim + i]));
            let mut sum: f64 = dot.sum();
            sum += if with_bias { f64::from(bias[o]) } else { 0.0 };
            sum += if add { f64::from(residual[r * out_dim + o]) } else { 0.0 };
            want.push(sum);
        }
    }
    let op = Op::Linear(Linear {
        input,
        weight: WeightId(0),
        bias: with_bias.then_some(WeightId(2)),
        in_dim,
        out_dim,
        out: ob,
        add,
        last_only: false,
    });
    let weights = [w, Weight::Vector(norm), Weight::Vector(bias)];
    let all = if form < COOPERATIVE {
        stages(gpu, 64, &weights, &[]).into_iter().map(|(name, stage)| (name, stage, 3e-6)).collect()
    } else {
        // Halves: inputs are rounded to f16, errors of up to 2^-11 each.
        let make = |half| cooperative(gpu, &weights, &[], half);
        vec![("cooperative matrices", make(false), 3e-6), ("cooperative matrices, halves", make(true), 2e-3)]
    };
    for (kernels, mut stage, tolerance) in all {
        for kind in [PlanKind::Prefill, PlanKind::Decode] {
            if kind == PlanKind::Decode && rows > 64 {
                continue;
            }
            let buffers = vec![buffer("x", width, rows), buffer("out", out_dim, rows)];
            let plan = plan(kind, rows, vec![op.clone()], buffers, NOWHERE);
            let tokens = vec![1; rows];
            let run = Trace { slots: &[1], tokens: &tokens, given: &[(xb, &x), (ob, &residual)], wanted: &[ob] };
            let got = gpu.wait(stage.trace(&plan, &run)).unwrap();
            let what = format!("{dtype:?} {in_dim}→{out_dim}, {rows} rows, form {form}, {kind:?}, {kernels}");
            close(&got[0], &want, tolerance, &what);
        }
    }
}

/// Shapes, of which decodes have kernels of their own each: compiling them is what takes time here.
fn products(dtype: DType, shapes: &[(usize, usize)]) {
    for gpu in devices::both() {
        for (in_dim, out_dim) in shapes {
            for rows in [1, 3, 16, 17, 65] {
                check_linear(gpu, dtype, *in_dim, *out_dim, rows, (in_dim + rows) % 7);
            }
        }
    }
}

#[test]
fn products_in_f32() {
    products(DType::F32, &[(4, 5), (60, 12), (384, 100), (1000, 33)]);
}

#[test]
fn products_with_weights_of_sixteen_bits() {
    products(DType::F16, &[(60, 12), (1000, 33)]);
    products(DType::Bf16, &[(4, 5), (384, 100)]);
    // Few long rows.
    for (rows, form) in [(1, 0), (2, 1), (4, 4)] {
        check_linear(devices::best(), DType::F16, 1560, 7, rows, form);
    }
}

#[test]
fn products_with_everything_fused() {
    for gpu in devices::both() {
        for form in 0..7 {
            check_linear(gpu, DType::Bf16, 60, 70, 2, form);
            check_linear(gpu, DType::Bf16, 60, 70, 64, form);
            check_linear(gpu, DType::F32, 42, 9, 8, form);
        }
    }
}

/// Several tiles, whole and ragged, with and without bias and residual.
#[test]
fn products_with_cooperative_matrices() {
    let gpu = devices::best();
    if !gpu.caps().f16 {
        skip::skip("products_with_cooperative_matrices", "no f16");
        return;
    }
    for (in_dim, out_dim, rows, form) in [(48, 64, 40, 0), (64, 128, 64, 1), (40, 72, 64, 2), (128, 96, 130, 5)] {
        check_linear(gpu, DType::F16, in_dim, out_dim, rows, COOPERATIVE + form);
        check_linear(gpu, DType::Bf16, in_dim, out_dim, rows, COOPERATIVE + form);
    }
    for prologue in [1, 3, 4] {
        check_linear(gpu, DType::Bf16, 48, 40, 40, COOPERATIVE + 8 * prologue + prologue % 2);
    }
    let lines = gpu.kernels();
    let coop = lines.lines().filter(|l| l.starts_with("linear/coop") && l.contains(" EMULATE"));
    let (split, half): (Vec<_>, Vec<_>) = coop.partition(|l| l.contains(" SPLIT"));
    // Other tests of this process may have used others of them.
    assert!(split.len() >= 8 && half.len() >= 8, "{split:?} {half:?}");
}

/// A decode's product with its SwiGLU, and the product after it: with half products by cooperative matrices, in whole
/// and ragged tiles, the f16 between the two written by the first.
#[test]
fn many_rows_of_a_decode_with_halves() {
    let gpu = devices::best();
    if !gpu.caps().f16 {
        skip::skip("many_rows_of_a_decode_with_halves", "no f16");
        return;
    }
    for (dtype, in_dim, middle, rows) in
        [(DType::Bf16, 48, 48, 16), (DType::F16, 272, 32, 23), (DType::Bf16, 48, 2064, 16)]
    {
        let mut random = Random::new(rows as u64);
        let x = random.normals(rows * in_dim);
        let residual = random.normals(rows * in_dim);
        let mut stored = |outputs: usize, inputs: usize| {
            let values: Vec<f32> =
                random.normals(outputs * inputs).iter().map(|v| v / (inputs as f32).sqrt()).collect();
            matrix(&values, outputs, inputs, dtype)
        };
        let (up, up_stored) = stored(2 * middle, in_dim);
        let (down, down_stored) = stored(in_dim, middle);
        let weights = [up, down];
        let linear = |input, weight, in_dim, out_dim, out, add| {
            let weight = WeightId(weight);
            Op::Linear(Linear { input, weight, bias: None, in_dim, out_dim, out, add, last_only: false })
        };
        let cols = |buf, width| Cols { buf: BufId(buf), width, at: 0 };
        let ops = vec![
            linear(Input::Plain(cols(0, in_dim)), 0, in_dim, 2 * middle, BufId(1), false),
            linear(Input::SwiGlu(cols(1, 2 * middle)), 1, middle, in_dim, BufId(2), true),
        ];
        let dot = |a: &[f64], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * f64::from(*b)).sum::<f64>();
        let mut want = Vec::new();
        for (row, before) in x.chunks(in_dim).zip(residual.chunks(in_dim)) {
            let row: Vec<f64> = row.iter().map(|v| f64::from(*v)).collect();
            let wide: Vec<f64> = up_stored.chunks(in_dim).map(|w| dot(&row, w)).collect();
            let gated: Vec<f64> = (0..middle).map(|i| silu(wide[i]) * wide[middle + i]).collect();
            want.extend(before.iter().zip(down_stored.chunks(middle)).map(|(b, w)| f64::from(*b) + dot(&gated, w)));
        }
        let mut stage = cooperative(gpu, &weights, &[], true);
        let buffers = vec![buffer("x", in_dim, rows), buffer("wide", 2 * middle, rows), buffer("out", in_dim, rows)];
        let plan = plan(PlanKind::Decode, rows, ops, buffers, NOWHERE);
        let tokens = vec![1; rows];
        let given = [(BufId(0), &x[..]), (BufId(2), &residual[..])];
        let trace = Trace { slots: &[1], tokens: &tokens, given: &given, wanted: &[BufId(2)] };
        let got = gpu.wait(stage.trace(&plan, &trace)).unwrap().remove(0);
        close(&got, &want, 2e-3, &format!("{dtype:?} {in_dim}→2·{middle}→{in_dim}, {rows} rows"));
    }
    let kernels = gpu.kernels();
    let ours = kernels.lines().filter(|l| l.starts_with("linear/coop_decode"));
    let (gated, added): (Vec<_>, Vec<_>) = ours.partition(|l| l.contains(" PAIRED") && l.contains(" OUT_HALF"));
    assert!(gated.len() >= 3 && added.len() >= 3, "{gated:?} {added:?}");
}

#[test]
fn embedding_takes_stored_rows_and_clamps_nothing_else() {
    for gpu in devices::both() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let (vocab, width, rows) = (4096, 60, 17);
            let mut random = Random::new(3);
            let (table, stored) = matrix(&random.normals(vocab * width), vocab, width, dtype);
            let tokens: Vec<u32> = (0..rows).map(|i| if i == 0 { 4095 } else { random.below(vocab) as u32 }).collect();
            let (_, mut stage) = stages(gpu, vocab, &[table], &[]).remove(0);
            let op = Op::Embed(Embed { table: WeightId(0), width, out: BufId(0) });
            let buffers = vec![buffer("x", width, 64)];
            let plan = plan(PlanKind::Prefill, 64, vec![op], buffers, NOWHERE);
            let run = Trace { slots: &[2], tokens: &tokens, given: &[], wanted: &[BufId(0)] };
            let got = gpu.wait(stage.trace(&plan, &run)).unwrap();
            for (r, token) in tokens.iter().enumerate() {
                let want = &stored[*token as usize * width..][..width];
                assert_eq!(&got[0][r * width..][..width], want, "{dtype:?} row {r}");
            }
        }
    }
}

/// One row of a decode has the same bits as many: a session draws the same tokens in any company.
#[test]
fn a_row_of_a_decode_does_not_depend_on_its_company() {
    let gpu = devices::best();
    for (dtype, in_dim, out_dim, form) in
        [(DType::Bf16, 384, 120, 0), (DType::F16, 200, 128, 1), (DType::F32, 136, 48, 2), (DType::Bf16, 800, 24, 3)]
    {
        let rows = 64;
        let mut random = Random::new(in_dim as u64);
        let x = random.normals(rows * in_dim);
        let residual = random.normals(rows * out_dim);
        let (w, _) = matrix(&random.normals(2 * out_dim * in_dim), 2 * out_dim, in_dim, dtype);
        let (down, _) = matrix(&random.normals(out_dim * out_dim), out_dim, out_dim, dtype);
        let weights = [w, Weight::Vector(random.normals(in_dim)), Weight::Vector(random.normals(2 * out_dim)), down];
        let cols = |buf: usize, width: usize| Cols { buf: BufId(buf), width, at: 0 };
        let x_cols = cols(0, in_dim);
        // A product and its SwiGLU; with a bias it cannot be one kernel's.
        let ops = vec![
            Op::Linear(Linear {
                input: match form {
                    0 => Input::Plain(x_cols),
                    _ => Input::RmsNorm { x: x_cols, weight: WeightId(1), eps: 1e-6 },
                },
                weight: WeightId(0),
                bias: (form == 2).then_some(WeightId(2)),
                in_dim,
                out_dim: 2 * out_dim,
                out: BufId(1),
                add: false,
                last_only: false,
            }),
            Op::Linear(Linear {
                input: Input::SwiGlu(cols(1, 2 * out_dim)),
                weight: WeightId(3),
                bias: None,
                in_dim: out_dim,
                out_dim,
                out: BufId(2),
                add: true,
                last_only: false,
            }),
        ];
        for (kernels, mut stage) in stages(gpu, 64, &weights, &[]) {
            let mut run = |rows: usize, first: usize| {
                let buffers =
                    vec![buffer("x", in_dim, rows), buffer("wide", 2 * out_dim, rows), buffer("out", out_dim, rows)];
                let plan = plan(PlanKind::Decode, rows, ops.clone(), buffers, NOWHERE);
                let x = &x[first * in_dim..][..rows * in_dim];
                let residual = &residual[first * out_dim..][..rows * out_dim];
                let tokens = vec![1; rows];
                let given = [(BufId(0), x), (BufId(2), residual)];
                let trace = Trace { slots: &[1], tokens: &tokens, given: &given, wanted: &[BufId(2)] };
                gpu.wait(stage.trace(&plan, &trace)).unwrap().remove(0)
            };
            let many = run(rows, 0);
            for (count, first) in [(1, 5), (2, 30), (16, 16)] {
                let few: Vec<u32> = run(count, first).iter().map(|v| v.to_bits()).collect();
                let same: Vec<u32> = many[first * out_dim..][..count * out_dim].iter().map(|v| v.to_bits()).collect();
                assert_eq!(few, same, "{dtype:?} {in_dim}→{out_dim}, form {form}, {count} from {first}, {kernels}");
            }
        }
    }
    let kernels = devices::best().kernels();
    let panels: Vec<_> = kernels.lines().filter(|l| l.starts_with("linear/panel")).collect();
    assert!(panels.len() >= 4, "{panels:?}");
}
