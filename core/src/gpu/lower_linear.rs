//! Matrix products: which kernel, which tile, and what is fused into it.

use bytemuck::bytes_of;
use deltanet_shaders::linear::{
    COOP_SMALL, COOP_SPLIT_SMALL, CoopInput, Destination, GemmTile, Product, SoloTile, Spread, decode_coop, gemm,
    gemm_coop, gemv, panel, solo,
};
use deltanet_shaders::params::{ConvOutParams, LinearParams, OutputParams};

use super::lower::{Lower, element, mixer_of};
use super::lower_input::Source;
use super::tiles::{SPLIT_OUTPUTS, coop_tile, decode_tile, gemv_tile, panel_tile, rows_a_pass, team};
use super::upload::GpuMatrix;
use crate::error::{Error, Result};
use crate::model::DType;
use crate::ops::{Input, Linear, Mixer, Op};
use crate::plan::PlanKind;

/// Where a product goes.
struct Target {
    destination: Destination,
    buffer: usize,
    stride: u32,
    at: u32,
    bias: Option<usize>,
    /// Params, pack and state of a convolution on the way.
    conv: Option<(ConvOutParams, usize, usize)>,
}

/// Rows up to which one pass over the weights serves them all.
const GEMV_ROWS: u32 = 16;

impl Lower<'_> {
    /// `rest`: the ops that follow.
    pub(super) fn linear(&mut self, op: &Linear, rest: &[Op]) -> Result<()> {
        let matrix = self.matrix(op.weight)?.clone();
        if (matrix.rows as usize, matrix.cols as usize) != (op.out_dim, op.in_dim) {
            let (rows, cols) = (matrix.rows, matrix.cols);
            return Err(Error::Gpu(format!("expected a matrix of {}×{}, got {rows}×{cols}", op.out_dim, op.in_dim)));
        }
        let mut target = self.target(op)?;
        let one = op.last_only && self.plan.kind == PlanKind::Prefill;
        let rows = if one { 1 } else { self.rows() };
        // A decode counts as few rows whatever it has, since a session's bits are not to depend on its company. Where the
        // caller has agreed to rounding, crowded decodes go their own way.
        let few = rows <= GEMV_ROWS || self.plan.kind == PlanKind::Decode;
        // A head norm besides would bind too many buffers; no model has that.
        let simple = !op.add && !matches!(op.input, Input::HeadNorm { .. });
        if let Some(mixer) = mixer_of(op, rest)
            && mixer.qkv.buf == op.out
            && simple
            && self.fuses(mixer)
        {
            self.convolve_out(mixer, &mut target)?;
        }
        if self.crowded(op) {
            return self.decode(op, &matrix, &target, rest.first());
        }
        if few && !self.caps.software {
            let source = self.source(op)?;
            let paired = self.pairs(op, rest.first(), &matrix);
            if paired {
                self.fused.gated = Some((op.out, false));
            }
            if one || !self.panel(&matrix, &source, &target, rows, paired) {
                self.gemv(&matrix, &source, &target, rows, one, paired);
            }
            return Ok(());
        }
        // A norm of its own picks the last row, and leaves one.
        let last = one && !matches!(op.input, Input::RmsNorm { .. });
        let coop = self.cooperates(op, &matrix, &target);
        let source = self.plain(op, one, coop && self.caps.half_products)?;
        if self.caps.software {
            self.solo(&matrix, &source, &target, rows, last)?;
        } else {
            self.gemm(&matrix, &source, &target, rows, coop);
        }
        Ok(())
    }

    /// Whether a product is one of a decode of many sessions with cooperative matrices, its input rounded to f16: where
    /// the caller has agreed to rounding ([`Caps::half_products`](super::caps::Caps)). What a session computes then
    /// depends on whether it has company, so a run is replayed in a plan of as many rows.
    pub(super) fn crowded(&self, op: &Linear) -> bool {
        let fours = match &op.input {
            Input::Plain(x) | Input::RmsNorm { x, .. } | Input::SwiGlu(x) => x.at % 4 == 0,
            Input::HeadNorm { x, head_dim, gate, .. } => {
                let gate = gate.as_ref().is_none_or(|(gate, _)| gate.at % 4 == 0);
                x.at % 4 == 0 && head_dim % 4 == 0 && gate
            }
        };
        let asked = self.plan.kind == PlanKind::Decode && self.caps.half_products && self.caps.coop16;
        let wide = self.matrix(op.weight).is_ok_and(|m| m.dtype != DType::F32);
        let fits = |paired| decode_tile(self.rows(), op.out_dim as u32, paired, self.caps).is_some();
        asked && !self.caps.software && fits(false) && fits(true) && wide && fours && op.in_dim.is_multiple_of(16)
    }

    /// A product that is [`Lower::crowded`]. `next` is the op that follows.
    fn decode(&mut self, op: &Linear, matrix: &GpuMatrix, target: &Target, next: Option<&Op>) -> Result<()> {
        let rows = self.rows();
        let mut source = self.source(op)?;
        if !source.half {
            source = self.apart(source, false, Spread::Tiles)?;
        }
        let paired = self.pairs(op, next, matrix);
        // What the next product would round is rounded here.
        let half = paired && matches!(next, Some(Op::Linear(next)) if self.crowded(next));
        if paired {
            self.fused.gated = Some((op.out, half));
        }
        let product = Self::product(matrix, &source, target, false);
        for (mut params, buffers) in self.parts(matrix, &source, target, &product) {
            let outputs = if paired { params.output.out_dim / 2 } else { params.output.out_dim };
            if half {
                params.output.out_stride = outputs;
            }
            let tile = decode_tile(rows, outputs, paired, self.caps);
            let tile = tile.ok_or_else(|| Error::Gpu("no tile for a decode's product".into()))?;
            let groups = [outputs.div_ceil(tile.outputs), rows.div_ceil(tile.rows), 1];
            let variant = decode_coop(&product, tile, rows, half).emulated(self.caps.emulate);
            self.push_with(variant, &params, buffers, groups);
        }
        Ok(())
    }

    /// Whether a product of many rows uses cooperative matrices.
    fn cooperates(&self, op: &Linear, matrix: &GpuMatrix, target: &Target) -> bool {
        let fits =
            [COOP_SMALL.bytes(false), COOP_SPLIT_SMALL.bytes(true)].iter().all(|b| *b <= self.caps.workgroup_bytes);
        // A plain input is read where it lies.
        let aligned = match &op.input {
            Input::Plain(x) => x.at % 4 == 0,
            _ => true,
        };
        let rows = matches!(target.destination, Destination::Rows | Destination::Add);
        let shape = op.in_dim.is_multiple_of(8) && aligned && rows;
        self.caps.coop16 && fits && shape && matrix.dtype != DType::F32 && !self.caps.software
    }

    /// Whether a decode's product can do the SwiGLU of the product that follows.
    fn pairs(&self, op: &Linear, next: Option<&Op>, matrix: &GpuMatrix) -> bool {
        let Some(Op::Linear(Linear { input: Input::SwiGlu(x), in_dim, .. })) = next else { return false };
        let whole = x.buf == op.out && x.at == 0 && op.out_dim == 2 * in_dim && matrix.parts.len() == 1;
        self.plan.kind == PlanKind::Decode && whole && !op.add && op.bias.is_none()
    }

    fn target(&mut self, op: &Linear) -> Result<Target> {
        let bias = op.bias.map(|id| self.vector(id)).transpose()?;
        // Logits go straight to the sessions' heads, unless all rows of one session are wanted.
        if op.out == self.plan.logits && self.plan.kind != PlanKind::Score {
            let head = self.fixed.head;
            let destination = Destination::Heads;
            let (buffer, stride, at) = (self.fixed.heads, head.stride, head.logits);
            return Ok(Target { destination, buffer, stride, at, bias, conv: None });
        }
        let out = self.place(op.out)?;
        let destination = if op.add { Destination::Add } else { Destination::Rows };
        Ok(Target { destination, buffer: out.buffer, stride: out.stride, at: 0, bias, conv: None })
    }

    /// Lets a decode's product run the convolution of the mixer that follows.
    fn convolve_out(&mut self, mixer: &Mixer, target: &mut Target) -> Result<()> {
        if mixer.conv.is_none() || mixer.conv_size < 2 {
            return Ok(());
        }
        let (pack, _) = self.mixer_pack(mixer, None)?;
        let (state, words) = self.layer_state(mixer.layer)?;
        let params = ConvOutParams {
            at: mixer.qkv.at as u32,
            channels: mixer.channels() as u32,
            state_words: words,
            tail_at: mixer.state.tail as u32,
        };
        target.conv = Some((params, pack, state));
        target.destination = Destination::Convolution(mixer.conv_size as u32);
        self.fused.convolved = Some(mixer.qkv.buf);
        Ok(())
    }

    fn product(matrix: &GpuMatrix, source: &Source, target: &Target, last: bool) -> Product {
        Product {
            element: element(matrix.dtype),
            texture: matrix.texture,
            prologue: source.prologue,
            destination: target.destination,
            bias: target.bias.is_some(),
            aligned: source.aligned,
            tail: !source.params.in_dim.is_multiple_of(8),
            last,
        }
    }

    /// Parts of the weight: params, and buffers in the order that all products bind them.
    fn parts(
        &self,
        matrix: &GpuMatrix,
        source: &Source,
        target: &Target,
        product: &Product,
    ) -> Vec<(LinearParams, Vec<usize>)> {
        let mut all = Vec::with_capacity(matrix.parts.len());
        for part in &matrix.parts {
            let output = OutputParams {
                out_dim: part.rows,
                out_stride: target.stride,
                out_at: target.at + part.first,
                bias_at: part.first,
            };
            let conv = target.conv.map_or_else(ConvOutParams::default, |c| c.0);
            let mut buffers = vec![part.buffer, source.x];
            buffers.extend(source.norm.into_iter().chain(source.gate).chain(target.bias));
            buffers.extend(target.conv.iter().flat_map(|c| [c.1, c.2]));
            if product.reads_table() {
                buffers.push(self.fixed.table);
            }
            buffers.push(target.buffer);
            all.push((LinearParams { input: source.params, output, conv, first_row: 0 }, buffers));
        }
        all
    }

    fn gemv(&mut self, matrix: &GpuMatrix, source: &Source, target: &Target, rows: u32, last: bool, paired: bool) {
        let product = Self::product(matrix, source, target, last);
        for (params, buffers) in self.parts(matrix, source, target, &product) {
            let outputs = if paired { params.output.out_dim / 2 } else { params.output.out_dim };
            let tile = gemv_tile(params.input.groups, outputs, rows_a_pass(rows, GEMV_ROWS), paired, self.caps);
            let a_group = tile.workgroup / tile.team * tile.outputs;
            let groups = [outputs.div_ceil(a_group), rows.div_ceil(tile.rows), 1];
            self.push_with(gemv(&product, tile), &params, buffers, groups);
        }
    }

    /// A decode of many sessions: the same sums as one row's, and weights that are read once for more rows.
    fn panel(&mut self, matrix: &GpuMatrix, source: &Source, target: &Target, rows: u32, paired: bool) -> bool {
        let product = Self::product(matrix, source, target, false);
        let parts = self.parts(matrix, source, target, &product);
        // Parts are of one size, but for the last.
        let weights = parts.first().map_or(0, |(params, _)| params.output.out_dim);
        let same = parts.iter().all(|(p, _)| p.output.out_dim >= SPLIT_OUTPUTS || weights < SPLIT_OUTPUTS);
        let team = team(source.params.groups, weights, paired, self.caps);
        let Some(tile) = panel_tile(&product, team, rows, paired, self.caps).filter(|_| same) else { return false };
        for (params, buffers) in parts {
            let outputs = if paired { params.output.out_dim / 2 } else { params.output.out_dim };
            let groups = [outputs.div_ceil(tile.group_outputs()), rows / tile.group_rows(), 1];
            // As consts, like one row's: the same divisor must give the same bits.
            self.push_with(panel(&product, tile), &params, buffers, groups);
        }
        true
    }

    fn gemm(&mut self, matrix: &GpuMatrix, source: &Source, target: &Target, rows: u32, coop: bool) {
        let product = Self::product(matrix, source, target, false);
        for (params, buffers) in self.parts(matrix, source, target, &product) {
            // (A stride of its own may still break the rows up.)
            if coop && product.aligned {
                let input = match (source.half, self.caps.half_products) {
                    (true, _) => CoopInput::Half,
                    (false, true) => CoopInput::Rounded,
                    (false, false) => CoopInput::Split,
                };
                let out_dim = params.output.out_dim;
                let tile = coop_tile(rows, out_dim, input, self.caps.workgroup_bytes);
                let groups = [out_dim.div_ceil(tile.outputs), rows.div_ceil(tile.rows), 1];
                let ragged = !params.input.in_dim.is_multiple_of(tile.depth);
                let variant = gemm_coop(&product, tile, rows, input, ragged).emulated(self.caps.emulate);
                self.push(variant, bytes_of(&params), buffers, groups);
                continue;
            }
            let tile = GemmTile { rows: 64.min(rows.next_multiple_of(16)), outputs: 64, depth: 16, thread: (4, 4) };
            let groups = [params.output.out_dim.div_ceil(tile.outputs), rows.div_ceil(tile.rows), 1];
            self.push(gemm(&product, tile, rows), bytes_of(&params), buffers, groups);
        }
    }

    fn solo(&mut self, matrix: &GpuMatrix, source: &Source, target: &Target, rows: u32, last: bool) -> Result<()> {
        let product = Self::product(matrix, source, target, last);
        let (tile, window_rows) = self.solo_tile(source, rows, last);
        for (mut params, buffers) in self.parts(matrix, source, target, &product) {
            let invocations = params.output.out_dim.div_ceil(tile.outputs);
            let tile = SoloTile { workgroup: if invocations < 1024 { 8 } else { 32 }, ..tile };
            for first in (0..rows).step_by(window_rows as usize) {
                let mut buffers = buffers.clone();
                if tile.window > 0 {
                    let offset = 4 * u64::from(first) * u64::from(source.params.x_stride);
                    let window = self.window(source.x, offset)?;
                    // Weights come first, then x.
                    if let Some(x) = buffers.get_mut(1) {
                        *x = window;
                    }
                }
                params.first_row = first;
                let groups = [invocations.div_ceil(tile.workgroup), window_rows / tile.rows, 1];
                self.push(solo(&product, tile), bytes_of(&params), buffers, groups);
            }
        }
        Ok(())
    }

    /// Rows of so many elements that fit a uniform binding.
    pub(super) fn window_rows(&self, stride: u32) -> u32 {
        (self.window_bytes() / (4 * u64::from(stride.max(1)))) as u32
    }

    /// The tile, its workgroup still to be chosen, and the rows of one dispatch.
    fn solo_tile(&self, source: &Source, rows: u32, last: bool) -> (SoloTile, u32) {
        let most = self.window_rows(source.params.x_stride);
        let uniform = source.aligned && !last && most > 0;
        let r = rows_a_pass(rows, if uniform { most.min(8) } else { 8 });
        let window_rows = if uniform {
            (1..=rows.min(most)).rev().find(|w| rows.is_multiple_of(*w) && w.is_multiple_of(r)).unwrap_or(r)
        } else {
            rows
        };
        let window = if uniform { (self.window_bytes() / 16) as u32 } else { 0 };
        (SoloTile { workgroup: 0, outputs: 4, rows: r, window }, window_rows)
    }
}
