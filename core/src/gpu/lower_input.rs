//! What a product reads: its input with a norm, a gate or SwiGLU on the way, in the product's kernel or in one before.

use deltanet_shaders::linear::{
    Gate, Prologue, SOLO_WORKGROUP, SWIGLU_WORKGROUP, Spread, halve, head_norm, rms, swiglu,
};
use deltanet_shaders::params::{HalveParams, HeadNormParams, InputParams, RmsParams, SwiGluParams};

use super::lower::{Lower, Place};
use crate::error::{Error, Result};
use crate::ops::{Activation, Input, Linear};

/// What a product's kernel binds and knows of its input.
pub(super) struct Source {
    pub(super) params: InputParams,
    pub(super) prologue: Prologue,
    pub(super) x: usize,
    pub(super) norm: Option<usize>,
    pub(super) gate: Option<usize>,
    /// All places and strides are multiples of 4.
    pub(super) aligned: bool,
    /// `x` has been rounded to f16.
    pub(super) half: bool,
}

impl Lower<'_> {
    /// The input with its prologue left to the product's kernel.
    pub(super) fn source(&mut self, op: &Linear) -> Result<Source> {
        let in_dim = op.in_dim as u32;
        let cols = match &op.input {
            Input::Plain(x) | Input::SwiGlu(x) | Input::RmsNorm { x, .. } | Input::HeadNorm { x, .. } => x,
        };
        let (place, at) = self.cols(cols)?;
        let mut params = InputParams { in_dim, groups: in_dim.div_ceil(8), ..Default::default() };
        params.x_stride = place.stride;
        params.x_at = at;
        let (mut norm, mut gate) = (None, None);
        let mut aligned = true;
        let mut half = false;
        let prologue = match &op.input {
            Input::Plain(_) => Prologue::Plain,
            // The mixer has done it.
            Input::HeadNorm { x, .. } if self.fused.normed == Some(x.buf) => {
                self.fused.normed = None;
                Prologue::Plain
            }
            Input::HeadNorm { x, head_dim, eps, .. } if self.fused.scaled.is_some_and(|s| s.of == x.buf) => {
                let Some(scaled) = self.fused.scaled.take() else {
                    return Err(Error::Gpu("no sums of squares".into()));
                };
                // Given back after this op, like scratch of its own.
                self.passing.push(scaled.sums.buffer);
                norm = Some(scaled.sums.buffer);
                params.head_dim = *head_dim as u32;
                params.eps = *eps;
                params.gate_stride = scaled.sums.stride;
                Prologue::Scaled { blocks: scaled.blocks }
            }
            Input::RmsNorm { weight, eps, .. } => {
                norm = Some(self.vector(*weight)?);
                params.eps = *eps;
                Prologue::Rms
            }
            Input::HeadNorm { head_dim, weight, eps, gate: z, .. } => {
                params.head_dim = *head_dim as u32;
                params.eps = *eps;
                aligned = head_dim % 4 == 0;
                norm = weight.map(|w| self.vector(w)).transpose()?;
                let mut activation = Gate::None;
                if let Some((cols, a)) = z {
                    let (place, at) = self.cols(cols)?;
                    gate = Some(place.buffer);
                    params.gate_stride = place.stride;
                    params.gate_at = at;
                    activation = gate_of(*a);
                }
                Prologue::Head { heads: in_dim / params.head_dim.max(1), norm: norm.is_some(), gate: activation }
            }
            // The product before has done it.
            Input::SwiGlu(x) if self.fused.gated.is_some_and(|(gated, _)| gated == x.buf) => {
                half = self.fused.gated.take().is_some_and(|(_, half)| half);
                if half {
                    params.x_stride = in_dim;
                }
                Prologue::Plain
            }
            Input::SwiGlu(_) => {
                params.gate_at = at + in_dim;
                Prologue::SwiGlu
            }
        };
        let p = &params;
        aligned &= [p.in_dim, p.x_at, p.gate_at, p.x_stride, p.gate_stride].iter().all(|v| v % 4 == 0);
        Ok(Source { params, prologue, x: place.buffer, norm, gate, aligned, half })
    }

    /// The input with its prologue run by a dispatch of its own. With `one`, a normed row is the last of the piece.
    /// `half`: rounded to f16, where its places allow that.
    pub(super) fn plain(&mut self, op: &Linear, one: bool, half: bool) -> Result<Source> {
        let source = self.source(op)?;
        let half = half && source.aligned;
        if source.prologue == Prologue::Plain && !half {
            return Ok(source);
        }
        let spread = match (self.caps.software, source.aligned, half) {
            (true, ..) => Spread::Alone,
            (_, _, true) => Spread::Halves,
            (_, true, _) => Spread::Fours,
            _ => Spread::Single,
        };
        self.apart(source, one, spread)
    }

    pub(super) fn apart(&mut self, s: Source, one: bool, spread: Spread) -> Result<Source> {
        let p = s.params;
        let tiles = spread == Spread::Tiles;
        let half = tiles || spread == Spread::Halves;
        // Whole tiles, whatever the rows: there are sixteen at least, so twice as many are enough.
        let width = if tiles { p.in_dim } else { p.in_dim.div_ceil(if half { 2 } else { 1 }) };
        let mut out = self.pass("input", width)?;
        if tiles {
            out.stride = p.in_dim;
        } else if half {
            out.stride *= 2;
        }
        let alone = spread == Spread::Alone;
        let across =
            if matches!(spread, Spread::Fours | Spread::Halves | Spread::Tiles) { 4 } else { 1 } * SWIGLU_WORKGROUP;
        let rows = self.rows();
        match s.prologue {
            Prologue::Plain => {
                let params =
                    HalveParams { width: p.in_dim, x_stride: p.x_stride, x_at: p.x_at, out_stride: out.stride };
                let groups = [p.in_dim.div_ceil(across), rows, 1];
                self.push_with(halve(tiles), &params, vec![s.x, out.buffer], groups);
            }
            // Made for one-pass products alone.
            Prologue::Scaled { .. } => return Err(Error::Gpu("scales of heads to make in a pass of their own".into())),
            Prologue::Rms => self.rms(&s, out, one, spread),
            Prologue::Head { heads, norm, gate } => {
                let params = HeadNormParams {
                    head_dim: p.head_dim,
                    heads,
                    x_stride: p.x_stride,
                    x_at: p.x_at,
                    gate_stride: p.gate_stride,
                    gate_at: p.gate_at,
                    out_stride: out.stride,
                    eps: p.eps,
                    rows,
                };
                let mut buffers = vec![s.x];
                buffers.extend(s.norm.into_iter().chain(s.gate));
                buffers.push(out.buffer);
                let groups = if alone { [(rows * heads).div_ceil(SOLO_WORKGROUP), 1, 1] } else { [rows, heads, 1] };
                self.push_with(head_norm(spread, norm, gate, p.head_dim), &params, buffers, groups);
            }
            Prologue::SwiGlu => {
                let params = SwiGluParams {
                    width: p.in_dim,
                    x_stride: p.x_stride,
                    x_at: p.x_at,
                    up_at: p.gate_at,
                    out_stride: out.stride,
                };
                let groups = [p.in_dim.div_ceil(across), rows, 1];
                self.push_with(swiglu(spread), &params, vec![s.x, out.buffer], groups);
            }
        }
        let params = InputParams { in_dim: p.in_dim, groups: p.groups, x_stride: out.stride, ..Default::default() };
        let aligned = p.in_dim.is_multiple_of(4);
        Ok(Source { params, prologue: Prologue::Plain, x: out.buffer, norm: None, gate: None, aligned, half })
    }

    fn rms(&mut self, s: &Source, out: Place, one: bool, spread: Spread) {
        let rows = if one { 1 } else { self.rows() };
        let p = &s.params;
        let params =
            RmsParams { width: p.in_dim, x_stride: p.x_stride, x_at: p.x_at, out_stride: out.stride, rows, eps: p.eps };
        let mut buffers = vec![s.x];
        buffers.extend(s.norm);
        if one {
            buffers.push(self.fixed.table);
        }
        buffers.push(out.buffer);
        let groups = if spread == Spread::Alone { rows.div_ceil(SOLO_WORKGROUP) } else { rows };
        self.push_with(rms(spread, one, p.in_dim), &params, buffers, [groups, 1, 1]);
    }
}

/// An activation, as kernels name it.
pub(super) fn gate_of(activation: Activation) -> Gate {
    match activation {
        Activation::Silu => Gate::Silu,
        Activation::Sigmoid => Gate::Sigmoid,
    }
}
