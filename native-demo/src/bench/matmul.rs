//! Matrix products as models use them: activations times a weight in its stored type.

use anyhow::{Result, bail};
use deltanet::gpu::{Gpu, Stage, Trace, wgpu};
use deltanet::model::DType;
use deltanet::ops::{BufId, Cols, Input, Linear, Op, WeightId};
use deltanet::plan::{BufSpec, Life, Plan, PlanKind};

use super::report::{Report, Row};
use crate::interrupt::Interrupt;
use crate::measure::{Effort, Random, random_matrix, seconds};

/// Largest difference that counts as right, relative to the largest result: f32 sums of a few thousand products, or
/// operands rounded to f16 where a kernel does that.
const TOLERANCE: f64 = 2e-3;
/// Results that are compared with sums in f64.
const CHECKED: usize = 256;

/// Bytes of weights in turn that no cache holds: several times that of the largest GPUs.
const COLD: usize = 512 << 20;

/// What is multiplied, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    size: Size,
    dtype: DType,
    /// Whether x may be rounded to f16.
    half: bool,
    /// Weights that are read in turn, so that each is cold.
    copies: usize,
}

impl Product {
    /// `rows` rows times a square f16 weight, rounded to f16.
    pub(crate) fn f16(rows: usize, n: usize) -> Self {
        Self { size: Size { rows, out: n, cols: n }, dtype: DType::F16, half: true, copies: 1 }
    }

    /// One row times square f16 weights, so many that none is in a cache when its turn comes.
    pub(crate) fn cold(n: usize) -> Self {
        let copies = COLD.div_ceil(2 * n * n).clamp(2, MOST_COPIES);
        Self { size: Size { rows: 1, out: n, cols: n }, dtype: DType::F16, half: false, copies }
    }
}

/// Most weights in turn.
const MOST_COPIES: usize = 16;

/// `[rows, cols]` times `[out, cols]` transposed.
#[derive(Clone, Copy, Debug)]
struct Size {
    rows: usize,
    out: usize,
    cols: usize,
}

pub(crate) fn gpu(gpu: &Gpu, effort: Effort, interrupt: &Interrupt, report: &mut Report) -> Result<()> {
    report.head("matrix product")?;
    // A software adapter computes a few GFLOP/s: small sizes say the same there.
    let n = if gpu.caps().software { 1024 } else { 4096 };
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let one = if gpu.caps().software { n } else { 2 * n };
        let mut sizes = vec![(512, n, n, false), (1, one, one, false)];
        if gpu.caps().coop16 && dtype != DType::F32 {
            sizes.extend([(512, n, n, true), (n, n, n, true), (2 * n, 2 * n, 2 * n, true)]);
        }
        for (rows, out, cols, half) in sizes {
            if interrupt.pressed() {
                return Ok(());
            }
            let size = Size { rows, out, cols };
            report.add(measure(gpu, &Product { size, dtype, half, copies: 1 }, effort)?)?;
        }
    }
    Ok(())
}

/// Checks and times one product.
pub(crate) fn measure(gpu: &Gpu, product: &Product, effort: Effort) -> Result<Row> {
    let Product { size, dtype, half, copies } = *product;
    let Size { rows, out, cols } = size;
    let mut random = Random::new(4);
    let x = random.ranges(rows * cols, -1.0, 1.0);
    let (weight, values) = random_matrix(&mut random, (size.out, size.cols), 1.0, dtype);
    let mut stage = Stage::new(gpu.clone(), 1, &vec![weight; copies], &[], 1, &mut |_, _| {})?;
    stage.half_products(half);
    let plan = plan(size, copies);
    // The row count chooses between the kernels of prefill and of decode.
    let (slots, tokens) = ([0], vec![0; rows]);
    let wanted: Vec<BufId> = (1..=copies).map(BufId).collect();
    let trace = Trace { slots: &slots, tokens: &tokens, given: &[(BufId(0), &x)], wanted: &wanted };
    let mut error = 0f64;
    for got in gpu.wait(stage.trace(&plan, &trace))? {
        error = error.max(check(&got, &x, &values, size)?);
    }

    let program = stage.program(&plan, &trace)?;
    // A product of one row is too short to be timed alone.
    let repeat = if rows == 1 { 32usize.div_ceil(copies) } else { 1 };
    // Reading anything back waits for all that was submitted before.
    let sink = gpu.buffer("sink", 4)?;
    let wall = effort.measure(|| {
        seconds(|| {
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            for _ in 0..repeat {
                program.encode(&mut encoder);
            }
            gpu.queue().submit([encoder.finish()]);
            gpu.wait(gpu.read(&[(&sink, 0, 4)]))?;
            Ok(())
        })
    })?;
    let gpu_time = effort.measure_gpu(gpu, &program)?;
    let gpu_time = gpu_time.map(|t| t.per(copies));
    let how = match (half, copies) {
        (true, _) => ", f16 operands".into(),
        (false, 1) => String::new(),
        (false, _) => format!(", {copies} in turn"),
    };
    let name = format!("{rows} × {cols} × {out}, {} weight{how}", dtype.name());
    let work = if rows == 1 {
        ((out * cols * dtype.bytes()) as f64 / 1e9, "GB/s")
    } else {
        (2e-9 * (rows * out * cols) as f64, "GFLOP/s")
    };
    Ok(Row::new("matmul", name, (wall.per(repeat * copies), gpu_time), work, error))
}

/// `copies` products of one input with weights of their own.
fn plan(size: Size, copies: usize) -> Plan {
    let Size { rows, out, cols } = size;
    let buffer = |name, width| BufSpec { name, width, rows, life: Life::Saved };
    let linear = |n: usize| Linear {
        input: Input::Plain(Cols { buf: BufId(0), width: cols, at: 0 }),
        weight: WeightId(n),
        bias: None,
        in_dim: cols,
        out_dim: out,
        out: BufId(1 + n),
        add: false,
        last_only: false,
    };
    let mut buffers = vec![buffer("x", cols)];
    buffers.extend((0..copies).map(|_| buffer("y", out)));
    // The last product of a model writes elsewhere, to the sessions' slots; these are like any other.
    buffers.push(buffer("logits", 0));
    Plan {
        kind: if rows == 1 { PlanKind::Decode } else { PlanKind::Score },
        rows,
        ops: (0..copies).map(|n| Op::Linear(linear(n))).collect(),
        labels: Vec::new(),
        buffers,
        logits: BufId(1 + copies),
    }
}

/// Compares results spread over the whole output with sums in f64.
fn check(got: &[f32], x: &[f32], weight: &[f32], size: Size) -> Result<f64> {
    let Size { rows, out, cols } = size;
    if got.len() != rows * out {
        bail!("matmul: expected {} results, got {}", rows * out, got.len());
    }
    let (mut worst, mut top) = (0f64, 0f64);
    for i in 0..CHECKED {
        // A stride without a common factor with the sizes visits every part of the output.
        let at = (i * 7919 * 131) % got.len();
        let (row, column) = (at / out, at % out);
        let products = x.iter().skip(row * cols).zip(weight.iter().skip(column * cols)).take(cols);
        let want: f64 = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let off = got.get(at).map_or(f64::NAN, |g| (f64::from(*g) - want).abs());
        worst = if off.is_nan() { f64::INFINITY } else { worst.max(off) };
        top = top.max(want.abs());
    }
    let error = worst / top.max(1e-30);
    if error > TOLERANCE {
        bail!("matmul {rows} × {cols} × {out}: expected results within {TOLERANCE:e}, got {error:.1e}");
    }
    Ok(error)
}
