//! Attention over an application's own GPU buffers, and over host tensors.

use bytemuck::bytes_of;
use deltanet_shaders::attention::{Heads, PREFILL_ROWS, Prep, Source, prefill, prep, solo};
use deltanet_shaders::linear::SOLO_WORKGROUP;
use deltanet_shaders::params::{AttentionParams, AttentionPrepParams};

use super::lower::{check_head_dim, frequencies};
use crate::attention::{Inputs, Options, QkNorm, Shape};
use crate::error::{Error, Result};
use crate::gpu::delta::Kernels;
use crate::gpu::program::Dispatch;
use crate::gpu::{Gpu, GpuBuffer, Program};

/// Multiplications of one submission: what a slow GPU does well within the second or two after which an operating
/// system takes it for hung.
const SUBMISSION_WORK: u64 = 1 << 34;

/// Tensors of an [`Operator`], row-major f32. q, k and v may be one buffer only if they are the same tensor; `o` must
/// be another.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// Queries, `[B, T, H, D]`.
    pub q: GpuBuffer,
    /// Keys, `[B, T, HK, D]`.
    pub k: GpuBuffer,
    /// Values, `[B, T, HK, D]`.
    pub v: GpuBuffer,
    /// Output, `[B, T, H, D]`: written.
    pub o: GpuBuffer,
}

/// Attention compiled for given sizes and buffers; runs any number of times.
///
/// ```
/// use deltanet::attention::{Options, Shape};
/// use deltanet::gpu::attention::{Buffers, Operator};
/// use deltanet::gpu::delta::Kernels;
/// use deltanet::gpu::{DeviceChoice, Gpu, LimitsChoice};
///
/// # fn main() -> deltanet::Result<()> {
/// # let Ok(gpu) = pollster::block_on(Gpu::request(&DeviceChoice::Any, LimitsChoice::Best)) else { return Ok(()) };
/// # #[cfg(any())]
/// let gpu = Gpu::request(&DeviceChoice::Hardware, LimitsChoice::Best).await?; // or Gpu::from_wgpu(device, queue)
/// let shape = Shape { batch: 1, tokens: 2, heads: 1, kv_heads: 1, head_dim: 2 };
/// let q = gpu.upload("q", &[1.0f32, 0.0, 0.0, 0.0])?;
/// let k = gpu.upload("k", &[1.0f32, 0.0, 0.0, 1.0])?;
/// let v = gpu.upload("v", &[1.0f32, 2.0, 3.0, 4.0])?;
/// let buffers = Buffers { q, k, v, o: gpu.buffer("o", 4 * 4)? };
/// let attention = Operator::new(&gpu, Kernels::Auto, &shape, &buffers, None, None, &Options::default())?;
/// attention.run()?;
/// let read = gpu.wait(gpu.read(&[(&buffers.o, 0, 16)]))?;
/// let o: Vec<f32> = read[0].chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
/// // The second query is zero: both keys weigh the same.
/// assert_eq!(o, [1.0, 2.0, 2.0, 3.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Operator {
    gpu: Gpu,
    program: Program,
}

impl Operator {
    /// Compiles attention for a shape, its buffers and how sequences are packed in them
    /// ([`Inputs::cu_seqlens`]).
    ///
    /// Scratch as large as q, k and v together is made.
    ///
    /// # Errors
    /// [`Error::Argument`] for sizes, options or buffers that do not fit together; [`Error::Limit`] for a tensor larger
    /// than a storage binding, or heads of more than 512 channels; what the device reports.
    pub fn new(
        gpu: &Gpu,
        kernels: Kernels,
        shape: &Shape,
        buffers: &Buffers,
        qk_norm: Option<QkNorm<'_>>,
        cu_seqlens: Option<&[u32]>,
        options: &Options,
    ) -> Result<Self> {
        shape.check_sizes(options)?;
        check_head_dim(&gpu.info().name, shape.head_dim)?;
        let Shape { batch, tokens, heads, kv_heads, head_dim } = *shape;
        let rows = batch * tokens;
        let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
        for (name, buffer, width) in [
            ("q", &buffers.q, q_width),
            ("k", &buffers.k, kv_width),
            ("v", &buffers.v, kv_width),
            ("o", &buffers.o, q_width),
        ] {
            let bytes = 4 * (rows as u64).saturating_mul(width as u64);
            if bytes > u64::from(u32::MAX) {
                return Err(Error::argument(name, "a tensor below 4 GiB", format!("{bytes} bytes")));
            }
            if buffer.size() < bytes {
                let expected = format!("{rows} rows of {width} f32, {bytes} bytes");
                return Err(Error::argument(name, expected, format!("{} bytes", buffer.size())));
            }
        }
        let sizes = Inputs { q: &[], k: &[], v: &[], qk_norm, cu_seqlens };
        shape.check_packing(&sizes)?;
        let spans = shape.spans(&sizes);
        let mut table = Vec::with_capacity(rows);
        for (_, length) in &spans {
            let n = *length as u32;
            table.extend((0..n).map(|i| [0, i, n, i]));
        }

        let mut small = Vec::new();
        if let Some(norm) = qk_norm {
            small.extend_from_slice(norm.q);
            small.extend_from_slice(norm.k);
        }
        small.extend(options.rope_theta.map(|theta| frequencies(theta, head_dim)).unwrap_or_default());
        let all = vec![
            buffers.q.clone(),
            buffers.k.clone(),
            buffers.v.clone(),
            buffers.o.clone(),
            gpu.upload("row table", &table)?,
            gpu.upload("attention's small weights", &small)?,
            gpu.buffer("queries", 4 * (rows * q_width) as u64)?,
            gpu.buffer("keys and values", 8 * (rows * kv_width) as u64)?,
        ];
        let [q, k, v, o, table, small, queries, entries] = std::array::from_fn(|i| i);

        let alone = match kernels {
            Kernels::Auto => gpu.caps().software,
            Kernels::Gpu | Kernels::Portable | Kernels::Emulated => false,
            Kernels::Software => true,
        };
        let form = Heads { heads: heads as u32, kv_heads: kv_heads as u32, head_dim: head_dim as u32 };
        let most = gpu.caps().max_groups;
        let (norm, rotary) = (qk_norm.is_some(), options.rope_theta.is_some());
        let mut dispatches = Vec::new();
        for first_row in (0..rows as u32).step_by(most.max(1) as usize) {
            let params = AttentionPrepParams {
                x_stride: q_width as u32,
                x_at: 0,
                q_stride: q_width as u32,
                slot_words: 0,
                window: 0,
                entry_stride: form.entry(),
                first_row,
                scale: shape.scale(options),
                eps: qk_norm.map_or(0.0, |n| n.eps),
            };
            let mut bound = vec![q, k, v];
            bound.extend((norm || rotary).then_some(small));
            bound.extend([table, queries, entries]);
            let parts = form.heads + 2 * form.kv_heads;
            let across = if alone { parts.div_ceil(SOLO_WORKGROUP) } else { parts };
            dispatches.push(Dispatch {
                variant: prep(&form, Prep { to: Source::Fresh, norm, rotary, apart: true, alone }),
                params: bytes_of(&params).to_vec(),
                buffers: bound,
                groups: [across, most.min(rows as u32 - first_row), 1],
            });
        }
        for (first, length) in spans {
            let seen = options.window.unwrap_or(usize::MAX).min(length).max(1);
            let block = SUBMISSION_WORK / ((seen * q_width) as u64).max(1);
            // solo's grid is one-dimensional, over rows and heads: 8 invocations a workgroup.
            let fits = u64::from(most) * u64::from(if alone { SOLO_WORKGROUP } else { PREFILL_ROWS }) / heads as u64;
            let block = (block.min(fits) / u64::from(PREFILL_ROWS) * u64::from(PREFILL_ROWS)).max(32) as usize;
            for at in (0..length).step_by(block) {
                let count = block.min(length - at) as u32;
                let params = AttentionParams {
                    q_stride: q_width as u32,
                    out_stride: q_width as u32,
                    slot_words: 0,
                    window: options.window.map_or(0, |w| w.min(u32::MAX as usize) as u32),
                    fresh_stride: form.entry(),
                    first_row: (first + at) as u32,
                    rows: count,
                };
                let (variant, groups) = if alone {
                    (solo(&form, Source::Fresh), [(count * form.heads).div_ceil(SOLO_WORKGROUP), 1, 1])
                } else {
                    (prefill(&form, Source::Fresh), [count.div_ceil(PREFILL_ROWS), form.heads, 1])
                };
                let bound = vec![queries, entries, table, o];
                dispatches.push(Dispatch { variant, params: bytes_of(&params).to_vec(), buffers: bound, groups });
            }
        }
        let program = Program::compile(gpu, &dispatches, &all)?;
        Ok(Self { gpu: gpu.clone(), program })
    }

    /// The compiled dispatches, for timing.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Submits one run. Returns once it is queued; long inputs take several submissions.
    ///
    /// # Errors
    /// What [`Gpu::check`] reports.
    pub fn run(&self) -> Result<()> {
        for i in 0..self.program.len() {
            let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            self.program.encode_range(&mut encoder, i..i + 1);
            self.gpu.queue().submit([encoder.finish()]);
        }
        self.gpu.check()
    }
}

/// Causal softmax attention on host tensors; returns `[B, T, H, D]`.
///
/// # Errors
/// What [`Shape::check`] finds; [`Error::Limit`] for a tensor larger than a storage binding, or heads of more than 512
/// channels; what the device reports.
pub async fn attend(gpu: &Gpu, shape: &Shape, inputs: &Inputs<'_>, options: &Options) -> Result<Vec<f32>> {
    run(gpu, Kernels::Auto, shape, inputs, options).await
}

/// [`attend`] with a choice of kernels.
///
/// # Errors
/// As [`attend`].
pub async fn run(
    gpu: &Gpu,
    kernels: Kernels,
    shape: &Shape,
    inputs: &Inputs<'_>,
    options: &Options,
) -> Result<Vec<f32>> {
    shape.check(inputs, options)?;
    if inputs.q.is_empty() {
        return Ok(Vec::new());
    }
    let o = gpu.buffer("o", 4 * inputs.q.len() as u64)?;
    let buffers = Buffers {
        q: gpu.upload("q", inputs.q)?,
        k: gpu.upload("k", inputs.k)?,
        v: gpu.upload("v", inputs.v)?,
        o: o.clone(),
    };
    let operator = Operator::new(gpu, kernels, shape, &buffers, inputs.qk_norm, inputs.cu_seqlens, options)?;
    operator.run()?;
    let read = gpu.read(&[(&o, 0, 4 * inputs.q.len() as u64)]).await?;
    Ok(bytemuck::pod_collect_to_vec(read.first().map_or(&[][..], Vec::as_slice)))
}
