//! Mixers: convolution and gates, then the delta rule.

use bytemuck::bytes_of;
use deltanet_shaders::delta as shaders;
use deltanet_shaders::mixer::{MixerForm, conv_tail, prep, prep_workgroup, tail_workgroup};
use deltanet_shaders::params::{ConvParams, GateParams, PrepParams};

use super::caps::Caps;
use super::delta::{DeltaCall, PrecondViews, Slots, Table, View, chunk_length, lower_chunk, lower_recurrent};
use super::lower::{Lower, Place};
use crate::error::{Error, Result};
use crate::ops::{GateForm, Linear, Mixer, WeightId};
use crate::plan::PlanKind;
use crate::rule::{Beta, Decay};

/// Rows up to which the recurrent form runs a prompt.
const RECURRENT_ROWS: u32 = 16;

/// Where a row of gates has what: β, g, the preconditioner's β and g, those that the rule has.
struct GateColumns {
    decay: u32,
    sums_beta: u32,
    sums_g: u32,
}

impl GateColumns {
    fn new(op: &Mixer) -> Self {
        let (h, hv) = (op.heads as u32, op.value_heads as u32);
        let decays = match op.rule.decay {
            Decay::None => 0,
            Decay::PerHead => hv,
            Decay::PerChannel => hv * op.key_dim as u32,
        };
        let decay = if op.beta.is_some() { hv } else { 0 };
        let sums_beta = decay + decays;
        let sums = if op.precond.is_some() { h } else { 0 };
        Self { decay, sums_beta, sums_g: sums_beta + sums }
    }
}

/// The chunk length of a mixer's chunkwise form.
pub(super) fn mixer_chunk(op: &Mixer, caps: &Caps) -> u32 {
    chunk_length(&op.rule, op.key_dim as u32, op.value_dim as u32, caps)
}

impl Lower<'_> {
    /// `next` is the product that follows, if one does.
    pub(super) fn mixer(&mut self, op: &Mixer, next: Option<&Linear>) -> Result<()> {
        // Without the product's help there is a convolution to run first.
        let convolves = op.conv.is_some() && op.conv_size > 1;
        if self.fuses(op) && (!convolves || self.fused.convolved == Some(op.qkv.buf)) {
            return if self.caps.software { self.solo_step(op) } else { self.step(op, next) };
        }
        let (state, words) = self.layer_state(op.layer)?;
        let conved = self.place(op.conved)?;
        let columns = GateColumns::new(op);
        let gates = self.place(op.gates)?;
        let pack = self.prep(op, state, words, conved, gates)?;
        self.delta(op, state, words, conved, gates, &columns, pack)
    }

    /// A layer's states and its words a slot.
    pub(super) fn layer_state(&self, layer: usize) -> Result<(usize, u32)> {
        let state = self.fixed.states.get(layer).copied().flatten();
        let state = state.ok_or_else(|| Error::Gpu(format!("layer {layer} has no state")))?;
        Ok((state, self.layers.get(layer).map_or(0, |l| l.words) as u32))
    }

    /// Whether a mixer's decode is one kernel, with its convolution done by the product before. Preconditioner sums
    /// are shared by the heads and columns of a group, so no single workgroup could advance them.
    pub(super) fn fuses(&self, op: &Mixer) -> bool {
        let beta_beside = op.beta.as_ref().is_none_or(|b| b.buf == op.qkv.buf);
        let whole = !self.caps.software || op.value_dim.is_multiple_of(4);
        self.plan.kind == PlanKind::Decode && op.precond.is_none() && beta_beside && whole
    }

    /// Small weights, convolution first; then A_log and dt_bias; then the preconditioner's A_log, dt_bias and μ; then
    /// `norm`.
    pub(super) fn mixer_pack(&mut self, op: &Mixer, norm: Option<WeightId>) -> Result<(usize, [u32; 6])> {
        let mut ids: Vec<WeightId> = op.conv.into_iter().collect();
        let decay_from = ids.len();
        if let Some(d) = &op.decay {
            ids.extend([d.a_log, d.dt_bias]);
        }
        let precond_from = ids.len();
        if let Some(p) = &op.precond {
            ids.extend([p.a_log, p.dt_bias, p.log_scale]);
        }
        let norm_from = ids.len();
        ids.extend(norm);
        let pack = self.weights.pack(self.gpu, &ids, self.buffers)?;
        let at = |from: usize, i: usize| pack.at.get(from + i).copied().unwrap_or(0);
        let places = [at(decay_from, 0), at(decay_from, 1), at(precond_from, 0), at(precond_from, 1)];
        let [a_log, dt_bias, sums_a_log, sums_dt_bias] = places;
        Ok((pack.buffer, [a_log, dt_bias, sums_a_log, sums_dt_bias, at(precond_from, 2), at(norm_from, 0)]))
    }

    /// Params of the gates; where the decay's projection lies; whether its gate is bounded.
    pub(super) fn gates(&mut self, op: &Mixer, x: Place, places: &[u32; 6]) -> Result<(GateParams, Place, bool)> {
        let same = |name: &str, place: Place| {
            if place == x { Ok(()) } else { Err(Error::Unsupported(format!("{name} projected apart from q, k and v"))) }
        };
        let [a_log, dt_bias, sums_a_log, sums_dt_bias, ..] = *places;
        let mut g = GateParams { x_stride: x.stride, a_log, dt_bias, sums_a_log, sums_dt_bias, ..Default::default() };
        g.beta_scale = op.beta_scale;
        if let Some(cols) = &op.beta {
            let (place, at) = self.cols(cols)?;
            same("beta", place)?;
            g.beta_at = at;
        }
        let mut aux = x;
        let mut bounded = false;
        if let Some(d) = &op.decay {
            (aux, g.decay_at) = self.cols(&d.a)?;
            g.aux_stride = aux.stride;
            if let GateForm::Bounded(lower) = d.form {
                g.lower = lower;
                bounded = true;
            }
        }
        if let Some(p) = &op.precond {
            let (place, at) = self.cols(&p.a)?;
            same("the preconditioner's decay", place)?;
            g.sums_g_at = at;
            let (place, at) = self.cols(&p.b)?;
            same("the preconditioner's write strength", place)?;
            g.sums_beta_at = at;
        }
        Ok((g, aux, bounded))
    }

    /// Convolution, l2norm and gates. Returns the pack's buffer and the place of μ in it.
    fn prep(&mut self, op: &Mixer, state: usize, words: u32, conved: Place, gates: Place) -> Result<(usize, u32)> {
        let (pack, places) = self.mixer_pack(op, None)?;
        let (x, x_at) = self.cols(&op.qkv)?;
        let (g, aux, bounded) = self.gates(op, x, &places)?;
        let conv = ConvParams {
            channels: op.channels() as u32,
            x_stride: x.stride,
            x_at,
            state_words: words,
            tail_at: op.state.tail as u32,
            out_stride: conved.stride,
            pad0: 0,
            pad1: 0,
        };
        let own = self.plan.kind == PlanKind::Decode;
        let alone = self.caps.software;
        let form = form(op, bounded, aux != x);
        let wg = prep_workgroup(&form, alone);
        let parts = 2 * form.heads + form.value_heads;
        let groups = if alone {
            [(parts + form.gates().div_ceil(8)).div_ceil(wg), self.rows(), 1]
        } else {
            [self.rows(), parts + form.gates().div_ceil(wg), 1]
        };
        let params = PrepParams { conv, gates: g, gates_stride: gates.stride };
        let table = self.fixed.table;
        let mut buffers = vec![x.buffer];
        buffers.extend(form.apart.then_some(aux.buffer));
        buffers.extend(form.packed().then_some(pack));
        buffers.push(table);
        buffers.extend((form.taps > 1).then_some(state));
        buffers.push(conved.buffer);
        buffers.extend((form.gates() > 0).then_some(gates.buffer));
        self.push(prep(&form, own, alone), bytes_of(&params), buffers, groups);
        if form.taps > 1 && !own {
            let groups = [conv.channels.div_ceil(tail_workgroup(alone)), 1, 1];
            self.push(conv_tail(form.taps, alone), bytes_of(&conv), vec![x.buffer, table, state], groups);
        }
        let [.., log_scale, _] = places;
        Ok((pack, log_scale))
    }

    fn delta(
        &mut self,
        op: &Mixer,
        state: usize,
        words: u32,
        conved: Place,
        gates: Place,
        columns: &GateColumns,
        (pack, log_scale): (usize, u32),
    ) -> Result<()> {
        let out = self.place(op.out)?;
        let (h, hv, k, v) = (op.heads as u32, op.value_heads as u32, op.key_dim as u32, op.value_dim as u32);
        let view = |place: Place, at: u32| View { buffer: place.buffer, stride: place.stride, at };
        let slots = |at: usize| Slots { buffer: state, words, at: at as u32 };
        let own = self.plan.kind == PlanKind::Decode;
        let chunk = mixer_chunk(op, self.caps);
        let chunks = self.fixed.chunks.iter().find(|c| c.0 == chunk).map(|c| c.1);
        let chunks = chunks.ok_or_else(|| Error::Gpu(format!("no table for chunks of {chunk}")))?;
        let call = DeltaCall {
            rule: op.rule,
            heads: h,
            value_heads: hv,
            key_dim: k,
            value_dim: v,
            rows: self.rows(),
            scale: (op.key_dim as f32).sqrt().recip(),
            l2norm: false,
            q: view(conved, 0),
            k: view(conved, h * k),
            v: view(conved, 2 * h * k),
            beta: (op.rule.beta != Beta::One).then(|| view(gates, 0)),
            g: (op.rule.decay != Decay::None).then(|| view(gates, columns.decay)),
            precond: op.precond.as_ref().map(|_| PrecondViews {
                g: view(gates, columns.sums_g),
                beta: view(gates, columns.sums_beta),
                log_scale: View { buffer: pack, stride: 0, at: log_scale },
                sums: slots(op.state.sums),
            }),
            out: view(out, 0),
            state: slots(op.state.s),
            sequences: Table { buffer: self.fixed.sequences, len: if own { self.rows() } else { 1 } },
            chunks: Table { buffer: chunks, len: self.rows().div_ceil(chunk) },
            chunk,
            chunk_states: None,
            segments: None,
        };
        let (gpu, caps, table) = (self.gpu, self.caps, &mut *self.buffers);
        let (pool, passing) = (&mut *self.scratch, &mut self.passing);
        let mut failed = None;
        let mut scratch = |name: &'static str, elements: u64| match pool.take(gpu, table, name, 4 * elements) {
            Ok(buffer) => {
                passing.push(buffer);
                buffer
            }
            Err(e) => {
                failed = Some(e);
                0
            }
        };
        let dispatches = if own || self.plan.rows as u32 <= RECURRENT_ROWS {
            lower_recurrent(&call, caps, &mut scratch)?
        } else {
            lower_chunk(&call, caps, &mut scratch)?
        };
        if let Some(e) = failed {
            return Err(e);
        }
        self.out.extend(dispatches);
        Ok(())
    }
}

pub(super) fn form(op: &Mixer, bounded: bool, apart: bool) -> MixerForm {
    MixerForm {
        heads: op.heads as u32,
        value_heads: op.value_heads as u32,
        key_dim: op.key_dim as u32,
        value_dim: op.value_dim as u32,
        taps: if op.conv.is_some() { op.conv_size.max(1) as u32 } else { 1 },
        l2norm: op.l2norm,
        delta: op.rule.delta,
        beta: op.beta.is_some(),
        longhorn: op.rule.beta == Beta::Longhorn,
        decay: match op.rule.decay {
            Decay::None => shaders::Decay::None,
            Decay::PerHead => shaders::Decay::Head,
            Decay::PerChannel => shaders::Decay::Channel,
        },
        bounded,
        apart,
        precond: op.precond.is_some(),
    }
}
