//! Softmax attention on its own: whole prompts, over everything and over a window.

use anyhow::{Result, bail};
use deltanet::attention::{Inputs, Options, Shape};
use deltanet::gpu::Gpu;
use deltanet::gpu::attention::{Buffers, Operator};
use deltanet::gpu::delta::Kernels;
use deltanet::{Device, cpu};

use super::report::{Report, Row};
use crate::args::BenchArgs;
use crate::interrupt::Interrupt;
use crate::measure::{Effort, Random, Times, error, seconds};

/// Largest difference that still counts as right.
const TOLERANCE: f64 = 1e-5;
/// Tokens of the sliding window.
const WINDOW: usize = 512;
/// Query heads of a key head, where the heads divide by it.
const GROUP: usize = 4;
/// Rows that are checked.
const CHECKED: usize = 9;

pub(crate) fn run(
    args: &BenchArgs,
    device: &Device,
    effort: Effort,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    report.head("attention (f32)")?;
    for tokens in &args.tokens {
        for window in [None, Some(WINDOW)] {
            if interrupt.pressed() {
                return Ok(());
            }
            let shape = shape(args, *tokens);
            let options = Options { scale: None, window, rope_theta: None };
            let data = Data::new(&shape);
            let (wall, gpu, off) = match device {
                Device::Gpu(gpu) => on_gpu(gpu, &shape, &data, &options, effort)?,
                Device::Cpu { .. } => {
                    let attend = || cpu::attention::attend(&shape, &data.inputs(), &options);
                    let off = check(&shape, &data, &options, &attend()?)?;
                    let wall = effort.measure(|| seconds(|| Ok(attend().map(drop)?)))?;
                    (wall, None, off)
                }
            };
            report.add(Row::new(
                "attention",
                name(&shape, window),
                (wall, gpu),
                (f64::from(*tokens), "tokens/s"),
                off,
            ))?;
        }
    }
    Ok(())
}

/// One prompt of so many tokens.
pub(super) fn shape(args: &BenchArgs, tokens: u32) -> Shape {
    let heads = args.heads as usize;
    let kv_heads = if heads.is_multiple_of(GROUP) { heads / GROUP } else { heads };
    Shape { batch: 1, tokens: tokens as usize, heads, kv_heads, head_dim: args.key_dim as usize }
}

/// What is measured, for the table.
pub(super) fn name(shape: &Shape, window: Option<usize>) -> String {
    let seen = window.map_or_else(|| "all".into(), |w| format!("a window of {w}"));
    format!("{seen}, T={}, {}/{} heads of {}", shape.tokens, shape.heads, shape.kv_heads, shape.head_dim)
}

struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Data {
    fn new(shape: &Shape) -> Self {
        let mut random = Random::new(4);
        let kv = shape.tokens * shape.kv_heads * shape.head_dim;
        Self {
            q: random.ranges(shape.tokens * shape.heads * shape.head_dim, -2.0, 2.0),
            k: random.ranges(kv, -2.0, 2.0),
            v: random.ranges(kv, -1.0, 1.0),
        }
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs { q: &self.q, k: &self.k, v: &self.v, qk_norm: None, cu_seqlens: None }
    }
}

/// Some rows of one head in f64. Fails when a result is wrong; returns how far it is off.
fn check(shape: &Shape, data: &Data, options: &Options, got: &[f32]) -> Result<f64> {
    let Shape { tokens, heads, kv_heads, head_dim: d, .. } = *shape;
    let head = heads - 1;
    let (mut some, mut want) = (Vec::new(), Vec::new());
    for i in 0..CHECKED.min(tokens) {
        let t = tokens - 1 - i * tokens / CHECKED;
        let q = data.q.get((t * heads + head) * d..).unwrap_or_default();
        let first = (t + 1).saturating_sub(options.window.unwrap_or(usize::MAX));
        let at = |s: usize| (s * kv_heads + kv_heads - 1) * d;
        let score = |s: usize| {
            let k = data.k.get(at(s)..).unwrap_or_default();
            q.iter().zip(k).take(d).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>() / (d as f64).sqrt()
        };
        let scores: Vec<f64> = (first..=t).map(score).collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
        let mut row = vec![0.0; d];
        for (s, score) in (first..=t).zip(&scores) {
            let weight = (score - top).exp() / total;
            let v = data.v.get(at(s)..).unwrap_or_default();
            row.iter_mut().zip(v).for_each(|(o, v)| *o += weight * f64::from(*v));
        }
        want.extend(row.iter().map(|x| *x as f32));
        some.extend(got.get((t * heads + head) * d..).unwrap_or_default().iter().take(d));
    }
    let off = error(&some, &want);
    if off > TOLERANCE {
        bail!("attention: expected results within {TOLERANCE:e} of f64, got {off:.1e}");
    }
    Ok(off)
}

fn on_gpu(
    gpu: &Gpu,
    shape: &Shape,
    data: &Data,
    options: &Options,
    effort: Effort,
) -> Result<(Times, Option<Times>, f64)> {
    let bytes = 4 * data.q.len() as u64;
    let buffers = Buffers {
        q: gpu.upload("q", &data.q)?,
        k: gpu.upload("k", &data.k)?,
        v: gpu.upload("v", &data.v)?,
        o: gpu.buffer("o", bytes)?,
    };
    let operator = Operator::new(gpu, Kernels::Auto, shape, &buffers, None, None, options)?;
    operator.run()?;
    let read = gpu.wait(gpu.read(&[(&buffers.o, 0, bytes)]))?;
    let words = read.first().map_or(&[][..], Vec::as_slice).chunks_exact(4);
    let got: Vec<f32> = words.map(|b| b.try_into().map_or(f32::NAN, f32::from_le_bytes)).collect();
    let off = check(shape, data, options, &got)?;
    let wall = effort.measure(|| {
        seconds(|| {
            operator.run()?;
            gpu.wait(gpu.read(&[(&buffers.o, 0, 4)]))?;
            Ok(())
        })
    })?;
    let gpu_time = effort.measure_gpu(gpu, operator.program())?;
    Ok((wall, gpu_time, off))
}
