//! From ops to dispatches: the only place that chooses kernel variants for a model's ops.
//!
//! The choice depends on the op, the plan's kind and rows, and [`Caps`]: GPUs get fused one-pass products for few rows
//! and workgroup tiles for many; software adapters get register tiles without barriers, and norms of their own.

use bytemuck::bytes_of;
use deltanet_shaders::head::HeadLayout;
use deltanet_shaders::params::{BeginParams, EmbedParams, Uniform};
use deltanet_shaders::{Variant, linear};

use super::attention::PagePool;
use super::buffer::Binding;
use super::caps::Caps;
use super::device::Gpu;
use super::program::Dispatch;
use super::scratch::ScratchPool;
use super::stage::Stage;
use super::upload::{GpuMatrix, GpuWeight, Uploaded};
use crate::error::{Error, Result};
use crate::model::{DType, LayerState};
use crate::ops::{BufId, Cols, Embed, Linear, Mixer, Op, WeightId};
use crate::plan::{Life, Plan, PlanKind};

/// Buffers that every plan of a runner uses, as indices into its buffer table.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    /// Heads, `[slots, head.stride]` u32.
    pub(super) heads: usize,
    /// Layout of a head.
    pub(super) head: HeadLayout,
    /// Layers' states, `[slots, words]` f32 each; `None` for layers without one.
    pub(super) states: Vec<Option<usize>>,
    /// Controls of decode rows, `[rows, CONTROL_WORDS]` u32.
    pub(super) controls: usize,
    /// Tokens of a piece of a prompt, `[rows]` u32.
    pub(super) tokens: usize,
    /// The row table, `[rows]` vec4<u32>.
    pub(super) table: usize,
    /// Sequences of the delta rule, `[rows]` vec4<u32>.
    pub(super) sequences: usize,
    /// Chunks of the delta rule for each chunk length in use, `[rows / C + 1]` vec4<u32>.
    pub(super) chunks: Vec<(u32, usize)>,
}

/// Where a plan buffer lies: `(row, i)` at `row · stride + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Index into the buffer table.
    pub(super) buffer: usize,
    /// Elements from row to row, a multiple of 4.
    pub(super) stride: u32,
}

/// Lowers the ops of one plan, in order.
pub(super) struct Lower<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) caps: &'a Caps,
    pub(super) vocab: u32,
    pub(super) layers: &'a [LayerState],
    pub(super) plan: &'a Plan,
    pub(super) weights: &'a mut Uploaded,
    pub(super) fixed: &'a Fixed,
    pub(super) pages: &'a PagePool,
    pub(super) scratch: &'a mut ScratchPool,
    pub(super) buffers: &'a mut Vec<Binding>,
    /// What neighbouring ops do for each other.
    pub(super) fused: Fused,
    /// Places of the plan's buffers that are alive.
    places: Vec<Option<Place>>,
    /// Scratch of the op at hand.
    pub(super) passing: Vec<usize>,
    /// Result.
    pub(super) out: Vec<Dispatch>,
}

/// Work that one op's kernels take over from the next op.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fused {
    /// The buffer whose convolution has been done by the product that wrote it.
    pub(super) convolved: Option<BufId>,
    /// The buffer whose norm and gate have been done by the mixer that wrote it.
    pub(super) normed: Option<BufId>,
    /// The same, but for the scales of the norm: the product makes these.
    pub(super) scaled: Option<Scaled>,
    /// The buffer whose SwiGLU has been done by the product that wrote it, and whether that left it in f16.
    pub(super) gated: Option<(BufId, bool)>,
}

/// A mixer's output with its norm's weights and gate applied, and what the scales of its heads are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scaled {
    pub(super) of: BufId,
    /// Sums of squares, `[rows, heads, blocks]`.
    pub(super) sums: Place,
    pub(super) blocks: u32,
}

/// A plan, lowered.
pub(super) struct Lowered {
    /// Dispatches in order.
    pub(super) dispatches: Vec<Dispatch>,
    /// The first dispatch of the op that makes the logits: what a piece of a prompt that is not the last leaves out.
    pub(super) logits_from: usize,
    /// The logits of a [`PlanKind::Score`] plan, `[rows, stride]`.
    pub(super) logits: Option<Place>,
}

/// Lowers a whole plan, adding the scratch that the stage lacks. With `keep`, every plan
/// buffer has memory of its own. Returns the places of the plan's buffers that are alive at the end, too.
pub(super) fn lower_plan(stage: &mut Stage, plan: &Plan, keep: bool) -> Result<(Lowered, Vec<Option<Place>>)> {
    let Stage { gpu, caps, layers, vocab, weights, fixed, pages, scratch, buffers, .. } = stage;
    scratch.release_all();
    let places = vec![None; plan.buffers.len()];
    let vocab = *vocab as u32;
    let (passing, out, fused) = (Vec::new(), Vec::new(), Fused::default());
    let mut lower =
        Lower { gpu, caps, vocab, layers, plan, weights, fixed, pages, scratch, buffers, fused, places, passing, out };
    let mut logits_from = 0;
    if plan.kind != PlanKind::Decode {
        lower.begin()?;
    }
    for (i, op) in plan.ops.iter().enumerate() {
        logits_from = lower.out.len();
        lower.op(op, plan.ops.get(i + 1..).unwrap_or_default())?;
        lower.release_after(i, keep);
    }
    let logits = if plan.kind == PlanKind::Score { Some(lower.place(plan.logits)?) } else { None };
    Ok((Lowered { dispatches: lower.out, logits_from, logits }, lower.places))
}

impl Lower<'_> {
    fn op(&mut self, op: &Op, rest: &[Op]) -> Result<()> {
        match (op, rest.first()) {
            (Op::Embed(o), _) => self.embed(o),
            (Op::Linear(o), _) => self.linear(o, rest),
            (Op::Mixer(o), Some(Op::Linear(l))) => self.mixer(o, Some(l)),
            (Op::Mixer(o), _) => self.mixer(o, None),
            (Op::Attention(o), _) => self.attention(o),
        }
    }

    /// Rows of the plan.
    pub(super) fn rows(&self) -> u32 {
        self.plan.rows as u32
    }

    /// Elements from row to row of a buffer `width` wide: whole vec4s, and on software adapters whole uniform windows
    /// (256 bytes).
    fn stride(&self, width: u32) -> u32 {
        width.next_multiple_of(if self.caps.software { 64 } else { 4 })
    }

    /// Bytes of a uniform window of a buffer. All have one size, so that kernels need no variant for each.
    pub(super) fn window_bytes(&self) -> u64 {
        self.caps.max_uniform.min(64 << 10)
    }

    /// What buffers have beyond their rows on software adapters, so that the last row's window is whole.
    fn slack(&self) -> u64 {
        if self.caps.software { self.window_bytes() } else { 0 }
    }

    /// A window of a buffer from byte `offset` on, as an entry of the table.
    pub(super) fn window(&mut self, buffer: usize, offset: u64) -> Result<usize> {
        let size = self.window_bytes();
        let whole = self.buffers.get(buffer).and_then(Binding::buffer).cloned();
        let whole = whole.ok_or_else(|| Error::Gpu(format!("no buffer {buffer}")))?;
        self.buffers.push(Binding::Window(whole, offset, size));
        Ok(self.buffers.len() - 1)
    }

    /// The place of a plan buffer, made when first asked for.
    pub(super) fn place(&mut self, id: BufId) -> Result<Place> {
        if let Some(place) = self.places.get(id.0).copied().flatten() {
            return Ok(place);
        }
        let missing = || Error::Gpu(format!("the plan has no buffer {}", id.0));
        let spec = self.plan.buffers.get(id.0).ok_or_else(missing)?;
        let stride = self.stride(spec.width as u32);
        let bytes = 4 * u64::from(stride) * spec.rows as u64 + self.slack();
        let buffer = self.scratch.take(self.gpu, self.buffers, spec.name, bytes)?;
        let place = Place { buffer, stride };
        *self.places.get_mut(id.0).ok_or_else(missing)? = Some(place);
        Ok(place)
    }

    /// The place of columns, with the first column.
    pub(super) fn cols(&mut self, cols: &Cols) -> Result<(Place, u32)> {
        Ok((self.place(cols.buf)?, cols.at as u32))
    }

    /// Scratch for the op at hand, so many f32 elements a row.
    pub(super) fn pass(&mut self, name: &'static str, width: u32) -> Result<Place> {
        let place = self.scratch_of(name, width)?;
        self.passing.push(place.buffer);
        Ok(place)
    }

    /// Scratch that whoever uses it up adds to `passing`.
    pub(super) fn scratch_of(&mut self, name: &'static str, width: u32) -> Result<Place> {
        let stride = self.stride(width);
        let bytes = 4 * u64::from(stride) * u64::from(self.rows()) + self.slack();
        Ok(Place { buffer: self.scratch.take(self.gpu, self.buffers, name, bytes)?, stride })
    }

    /// Gives back what no op after the `i`-th uses.
    fn release_after(&mut self, i: usize, keep: bool) {
        if keep {
            return;
        }
        for buffer in self.passing.drain(..) {
            self.scratch.release(buffer);
        }
        let later = self.plan.ops.get(i + 1..).unwrap_or_default();
        for (id, place) in self.places.iter_mut().enumerate() {
            if self.plan.buffers.get(id).is_some_and(|b| b.life == Life::Saved) {
                continue;
            }
            let used = BufId(id) == self.plan.logits || later.iter().any(|op| op.buffers().contains(&BufId(id)));
            if let Some(p) = place.filter(|_| !used) {
                self.scratch.release(p.buffer);
                *place = None;
            }
        }
    }

    /// A matrix on the device.
    pub(super) fn matrix(&self, id: WeightId) -> Result<&GpuMatrix> {
        match self.weights.weight(id) {
            Some(GpuWeight::Matrix(m)) => Ok(m),
            _ => Err(Error::Gpu(format!("weight {} is not a matrix", id.0))),
        }
    }

    /// A vector on the device: its buffer, padded with zeros to a multiple of 8 elements.
    pub(super) fn vector(&self, id: WeightId) -> Result<usize> {
        match self.weights.weight(id) {
            Some(GpuWeight::Vector(buffer, _)) => Ok(*buffer),
            _ => Err(Error::Gpu(format!("weight {} is not a vector", id.0))),
        }
    }

    pub(super) fn push(&mut self, variant: Variant, params: &[u8], buffers: Vec<usize>, groups: [u32; 3]) {
        self.out.push(Dispatch { variant, params: params.to_vec(), buffers, groups });
    }

    /// The same with the params in the kernel's text where that pays: in decodes, whose dispatches are short.
    pub(super) fn push_with<P: Uniform>(
        &mut self,
        variant: Variant,
        params: &P,
        buffers: Vec<usize>,
        groups: [u32; 3],
    ) {
        if self.plan.kind == PlanKind::Decode && !self.caps.software {
            self.push(variant.baked(params), &[], buffers, groups);
        } else {
            self.push(variant, bytes_of(params), buffers, groups);
        }
    }

    fn begin(&mut self) -> Result<()> {
        let params = BeginParams {
            rows: self.rows(),
            head_words: self.fixed.head.stride,
            seen_at: self.fixed.head.seen,
            vocab: self.vocab,
        };
        let f = self.fixed;
        let buffers = vec![f.tokens, f.sequences, f.heads, f.table];
        self.push(linear::begin(), bytes_of(&params), buffers, [1, 1, 1]);
        Ok(())
    }

    fn embed(&mut self, op: &Embed) -> Result<()> {
        let out = self.place(op.out)?;
        let matrix = self.matrix(op.table)?.clone();
        let f = self.fixed;
        let decode = self.plan.kind == PlanKind::Decode;
        for part in &matrix.parts {
            let params = EmbedParams {
                groups: matrix.groups,
                width: op.width as u32,
                first: part.first,
                count: part.rows,
                head_words: f.head.stride,
                vocab: self.vocab,
                out_stride: out.stride,
            };
            let variant = linear::embed(element(matrix.dtype), matrix.texture, decode);
            let mut buffers = vec![part.buffer, out.buffer];
            if decode {
                buffers.extend([f.controls, f.heads, f.table, f.sequences]);
            } else {
                buffers.push(f.tokens);
            }
            self.push_with(variant, &params, buffers, [self.rows(), 1, 1]);
        }
        Ok(())
    }
}

/// The mixer whose convolution a product may run: the next one, with nothing between but products of low rank that make
/// its gates.
pub(super) fn mixer_of<'a>(op: &Linear, rest: &'a [Op]) -> Option<&'a Mixer> {
    for next in rest {
        match next {
            Op::Mixer(mixer) => return Some(mixer),
            Op::Linear(other) if other.out != op.out => {}
            _ => return None,
        }
    }
    None
}

/// A matrix's element type, as kernels name it.
pub(super) fn element(dtype: DType) -> linear::Element {
    match dtype {
        DType::F32 => linear::Element::F32,
        DType::F16 => linear::Element::F16,
        DType::Bf16 => linear::Element::Bf16,
    }
}
