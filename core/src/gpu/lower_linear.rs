//! Matrix products: which kernel, which tile, and what is fused into it.

use bytemuck::bytes_of;
use deltanet_shaders::params::{
    ConvOutParams, HeadNormParams, InputParams, LinearParams, OutputParams, RmsParams, SwiGluParams,
};
use deltanet_shaders::{Kernel, Variant};

use super::lower::{Lower, Place, type_flag};
use super::upload::GpuMatrix;
use crate::error::{Error, Result};
use crate::ops::{Activation, Input, Linear, Mixer};
use crate::plan::PlanKind;

/// What a product's kernel binds and knows of its input.
struct Source {
    params: InputParams,
    x: usize,
    norm: Option<usize>,
    gate: Option<usize>,
    /// Flags of `linear/input`, `XVEC` and `TAIL` aside.
    flags: Vec<&'static str>,
    /// All places are multiples of 4.
    aligned: bool,
}

/// Where a product goes.
struct Target {
    buffer: usize,
    stride: u32,
    at: u32,
    bias: Option<usize>,
    flags: Vec<&'static str>,
    /// A convolution on the way: its params, taps, pack and state.
    conv: Option<(ConvOutParams, u32, usize, usize)>,
}

/// Rows up to which one pass over the weights serves them all.
const GEMV_ROWS: u32 = 16;

impl Lower<'_> {
    /// `next` is the mixer that follows, if one does.
    pub(super) fn linear(&mut self, op: &Linear, next: Option<&Mixer>) -> Result<()> {
        let matrix = self.matrix(op.weight)?.clone();
        if (matrix.rows as usize, matrix.cols as usize) != (op.out_dim, op.in_dim) {
            let (rows, cols) = (matrix.rows, matrix.cols);
            return Err(Error::Gpu(format!("expected a matrix of {}×{}, got {rows}×{cols}", op.out_dim, op.in_dim)));
        }
        let mut target = self.target(op)?;
        let one = op.last_only && self.plan.kind == PlanKind::Prefill;
        let rows = if one { 1 } else { self.rows() };
        let few = rows <= GEMV_ROWS || self.plan.kind == PlanKind::Decode;
        if few && !self.caps.software {
            let source = self.source(op)?;
            if let Some(mixer) = next.filter(|m| m.qkv.buf == op.out && !op.add && self.fuses(m)) {
                self.convolve_out(mixer, &mut target)?;
            }
            self.gemv(&matrix, &source, &target, rows, one);
            return Ok(());
        }
        let last = one && !matches!(op.input, Input::RmsNorm { .. });
        let source = self.plain(op, one)?;
        if self.caps.software {
            self.solo(&matrix, &source, &target, rows, last);
        } else {
            self.gemm(&matrix, &source, &target, rows);
        }
        Ok(())
    }

    fn target(&mut self, op: &Linear) -> Result<Target> {
        let mut flags = Vec::new();
        let bias = match op.bias {
            Some(id) => {
                flags.push("BIAS");
                Some(self.vector(id)?)
            }
            None => None,
        };
        if op.add {
            flags.push("ADD");
        }
        // Logits go straight to the sessions' heads, unless all rows of one session are wanted.
        if op.out == self.plan.logits && self.plan.kind != PlanKind::Score {
            flags.push("OUT_HEAD");
            let head = self.fixed.head;
            return Ok(Target {
                buffer: self.fixed.heads,
                stride: head.stride,
                at: head.logits,
                bias,
                flags,
                conv: None,
            });
        }
        let out = self.place(op.out)?;
        Ok(Target { buffer: out.buffer, stride: out.stride, at: 0, bias, flags, conv: None })
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
        target.conv = Some((params, mixer.conv_size as u32, pack, state));
        self.fused.convolved = Some(mixer.qkv.buf);
        Ok(())
    }

    /// The input with its prologue left to the product's kernel.
    fn source(&mut self, op: &Linear) -> Result<Source> {
        let in_dim = op.in_dim as u32;
        let params = InputParams { in_dim, groups: in_dim.div_ceil(8), ..Default::default() };
        let mut s = Source { params, x: 0, norm: None, gate: None, flags: Vec::new(), aligned: true };
        let cols = match &op.input {
            Input::Plain(x) | Input::SwiGlu(x) | Input::RmsNorm { x, .. } | Input::HeadNorm { x, .. } => x,
        };
        let (place, at) = self.cols(cols)?;
        s.x = place.buffer;
        s.params.x_stride = place.stride;
        s.params.x_at = at;
        match &op.input {
            Input::Plain(_) => {}
            // The mixer has done it.
            Input::HeadNorm { x, .. } if self.fused.normed == Some(x.buf) => self.fused.normed = None,
            Input::RmsNorm { weight, eps, .. } => {
                s.norm = Some(self.vector(*weight)?);
                s.params.eps = *eps;
                s.flags.extend(["NORMED", "IN_RMS"]);
            }
            Input::HeadNorm { head_dim, weight, eps, gate, .. } => {
                s.params.head_dim = *head_dim as u32;
                s.params.eps = *eps;
                s.flags.push("IN_HEAD");
                s.aligned &= head_dim % 4 == 0;
                if let Some(weight) = weight {
                    s.norm = Some(self.vector(*weight)?);
                    s.flags.extend(["NORMED", "HEAD_NORM"]);
                }
                if let Some((cols, activation)) = gate {
                    let (place, at) = self.cols(cols)?;
                    s.gate = Some(place.buffer);
                    s.params.gate_stride = place.stride;
                    s.params.gate_at = at;
                    s.flags.push("GATED");
                    if *activation == Activation::Silu {
                        s.flags.push("GATE_SILU");
                    }
                }
            }
            Input::SwiGlu(_) => {
                s.params.gate_at = at + in_dim;
                s.flags.push("IN_SWIGLU");
            }
        }
        let p = &s.params;
        s.aligned &= [p.in_dim, p.x_at, p.gate_at, p.x_stride, p.gate_stride].iter().all(|v| v % 4 == 0);
        Ok(s)
    }

    /// The input with its prologue run by a dispatch of its own. With `one`, a normed row is the last of the piece.
    fn plain(&mut self, op: &Linear, one: bool) -> Result<Source> {
        if matches!(op.input, Input::Plain(_)) {
            return self.source(op);
        }
        let s = self.source(op)?;
        let p = s.params;
        let rows = if one { 1 } else { self.rows() };
        let out = self.pass("input", p.in_dim)?;
        let (solo, nothing) = (self.caps.software, self.fixed.nothing);
        match &op.input {
            Input::Plain(_) => {}
            Input::RmsNorm { .. } => {
                let params = RmsParams {
                    width: p.in_dim,
                    x_stride: p.x_stride,
                    x_at: p.x_at,
                    out_stride: out.stride,
                    rows,
                    eps: p.eps,
                };
                let wg = if solo { 8 } else { 128 };
                let variant = Variant::new(Kernel::RmsNorm).with("WG", wg).flag("SOLO", solo).flag("LAST", one);
                let buffers = vec![s.x, s.norm.unwrap_or(nothing), self.fixed.table, out.buffer];
                let groups = if solo { rows.div_ceil(wg) } else { rows };
                self.push(variant, bytes_of(&params), buffers, [groups, 1, 1]);
            }
            Input::HeadNorm { .. } => {
                let heads = p.in_dim / p.head_dim.max(1);
                let params = HeadNormParams {
                    head_dim: p.head_dim,
                    heads,
                    x_stride: p.x_stride,
                    x_at: p.x_at,
                    gate_stride: p.gate_stride,
                    gate_at: p.gate_at,
                    out_stride: out.stride,
                    eps: p.eps,
                    rows: self.rows(),
                };
                let wg = if solo { 8 } else { 64 };
                let mut variant = Variant::new(Kernel::HeadNorm).with("WG", wg).flag("SOLO", solo);
                variant.flags.extend(s.flags.iter().filter(|f| !matches!(**f, "IN_HEAD" | "NORMED")));
                let groups = if solo { [(self.rows() * heads).div_ceil(wg), 1, 1] } else { [self.rows(), heads, 1] };
                let (norm, gate) = (s.norm.unwrap_or(nothing), s.gate.unwrap_or(nothing));
                self.push(variant, bytes_of(&params), vec![s.x, norm, gate, out.buffer], groups);
            }
            Input::SwiGlu(_) => {
                let params = SwiGluParams {
                    width: p.in_dim,
                    x_stride: p.x_stride,
                    x_at: p.x_at,
                    up_at: p.gate_at,
                    out_stride: out.stride,
                };
                let variant = Variant::new(Kernel::SwiGlu).with("WG", 64);
                let groups = [p.in_dim.div_ceil(64), self.rows(), 1];
                self.push(variant, bytes_of(&params), vec![s.x, out.buffer], groups);
            }
        }
        let Place { buffer, stride } = out;
        let params = InputParams { in_dim: p.in_dim, groups: p.groups, x_stride: stride, ..Default::default() };
        let aligned = p.in_dim % 4 == 0;
        Ok(Source { params, x: buffer, norm: None, gate: None, flags: Vec::new(), aligned })
    }

    /// Parts of the weight with their params.
    fn parts(matrix: &GpuMatrix, source: &Source, target: &Target) -> Vec<(usize, LinearParams)> {
        let part = |part: &super::upload::Part| {
            let output = OutputParams {
                out_dim: part.rows,
                out_stride: target.stride,
                out_at: target.at + part.first,
                bias_at: part.first,
            };
            let conv = target.conv.map_or_else(ConvOutParams::default, |c| c.0);
            (part.buffer, LinearParams { input: source.params, output, conv })
        };
        matrix.parts.iter().map(part).collect()
    }

    fn variant(kernel: Kernel, matrix: &GpuMatrix, source: &Source, target: &Target) -> Variant {
        let mut variant = Variant::new(kernel).flag(type_flag(matrix.dtype), true);
        variant.flags.extend(source.flags.iter().chain(&target.flags));
        variant.flag("XVEC", source.aligned).flag("TAIL", source.params.in_dim % 8 != 0)
    }

    fn gemv(&mut self, matrix: &GpuMatrix, source: &Source, target: &Target, rows: u32, last: bool) {
        let r = rows_a_pass(rows, GEMV_ROWS);
        for (buffer, params) in Self::parts(matrix, source, target) {
            let tile = GemvTile::choose(params.input.groups, params.output.out_dim);
            let sums = tile.n + u32::from(source.flags.contains(&"IN_RMS"));
            // 12 KiB of workgroup memory at most, and a power of two, so that blocks divide the rows.
            let fit = (3072 / (tile.wg * sums)).max(1);
            let block = r.min(1 << fit.ilog2());
            let mut variant = Self::variant(Kernel::Gemv, matrix, source, target)
                .with("WG", tile.wg)
                .with("TEAM", tile.team)
                .with("N", tile.n)
                .with("R", r)
                .with("BLOCK", block)
                .flag("LAST", last);
            if source.flags.contains(&"HEAD_NORM") {
                variant = variant.with("HEADS", params.input.in_dim / params.input.head_dim.max(1));
            }
            let mut buffers = vec![buffer, source.x];
            buffers.extend(source.norm.into_iter().chain(source.gate).chain(target.bias));
            if let Some((_, taps, pack, state)) = target.conv {
                variant = variant.with("TAPS", taps).flag("CONV_OUT", true);
                buffers.extend([pack, state]);
            }
            buffers.extend([self.fixed.table, target.buffer]);
            let groups = [params.output.out_dim.div_ceil(tile.wg / tile.team * tile.n), rows.div_ceil(r), 1];
            self.push(variant, bytes_of(&params), buffers, groups);
        }
    }

    fn gemm(&mut self, matrix: &GpuMatrix, source: &Source, target: &Target, rows: u32) {
        for (buffer, params) in Self::parts(matrix, source, target) {
            let (bm, bn) = (64.min(rows.next_multiple_of(16)), 64);
            let variant = Self::variant(Kernel::Gemm, matrix, source, target)
                .with("BM", bm)
                .with("BN", bn)
                .with("BK", 16)
                .with("TM", 4)
                .with("TN", 4)
                .with("ROWS", rows);
            let bias = target.bias.unwrap_or(self.fixed.nothing);
            let buffers = vec![buffer, source.x, bias, self.fixed.table, target.buffer];
            let groups = [params.output.out_dim.div_ceil(bn), rows.div_ceil(bm), 1];
            self.push(variant, bytes_of(&params), buffers, groups);
        }
    }

    fn solo(&mut self, matrix: &GpuMatrix, source: &Source, target: &Target, rows: u32, last: bool) {
        let r = rows_a_pass(rows, 8);
        for (buffer, params) in Self::parts(matrix, source, target) {
            let n = if r >= 4 { 4 } else { 1 };
            let wg = 32;
            let variant = Self::variant(Kernel::LinearSolo, matrix, source, target)
                .with("WG", wg)
                .with("N", n)
                .with("R", r)
                .flag("LAST", last);
            let bias = target.bias.unwrap_or(self.fixed.nothing);
            let buffers = vec![buffer, source.x, bias, self.fixed.table, target.buffer];
            let groups = [params.output.out_dim.div_ceil(wg * n), rows.div_ceil(r), 1];
            self.push(variant, bytes_of(&params), buffers, groups);
        }
    }
}

/// The largest power of two up to `most` that divides `rows`.
fn rows_a_pass(rows: u32, most: u32) -> u32 {
    (1 << rows.trailing_zeros().min(31)).min(most)
}

/// How a one-pass product is spread over lanes.
struct GemvTile {
    wg: u32,
    team: u32,
    n: u32,
}

impl GemvTile {
    /// Depends on the matrix alone: a row's result must not depend on how many rows there are.
    fn choose(groups: u32, out_dim: u32) -> Self {
        // About three loads a lane hide their latency; fewer lanes make the sum at the end cheaper.
        let team = (groups / 3).next_power_of_two().clamp(4, 32);
        let n = match out_dim {
            0..2048 => 1,
            2048..16384 => 2,
            _ => 4,
        };
        Self { wg: 128, team, n }
    }
}
