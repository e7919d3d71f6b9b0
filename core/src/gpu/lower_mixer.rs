//! Mixers: convolution and gates, then the delta rule.

use bytemuck::bytes_of;
use deltanet_shaders::mixer::{
    MixerForm, StepOutput, StepTile, conv_tail, lanes, prep, prep_workgroup, solo_step, step, step_packed,
    tail_workgroup,
};
use deltanet_shaders::params::{ConvParams, GateParams, LanesParams, PrepParams, SoloStepParams, StepParams};
use deltanet_shaders::{
    delta::{self as shaders, LanesTile},
    linear::{Gate, SOLO_WORKGROUP},
};

use super::caps::Caps;
use super::delta::{DeltaCall, PrecondViews, Slots, Table, View, chunk_length, lower_chunk, lower_recurrent};
use super::lower::{Lower, Place, Scaled};
use super::lower_linear::gate_of;
use crate::error::{Error, Result};
use crate::ops::{GateForm, Input, Linear, Mixer, WeightId};
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
    fn gates(&mut self, op: &Mixer, x: Place, places: &[u32; 6]) -> Result<(GateParams, Place, bool)> {
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

    /// A decode step in one kernel. Takes over the norm and gate of the product that follows where a workgroup has a
    /// whole head.
    fn step(&mut self, op: &Mixer, next: Option<&Linear>) -> Result<()> {
        // A product with rounded input has a norm of its own, which rounds.
        let next = next.filter(|l| !self.crowded(l));
        if self.lanes(op, next)? {
            return Ok(());
        }
        let v = op.value_dim as u32;
        let tile = step_tile(op.key_dim as u32, v, self.caps);
        let mut norm = None;
        let mut eps = 0.0;
        let mut gate = None;
        let mut activation = Gate::None;
        if let Some(Linear { input: Input::HeadNorm { x, head_dim, weight, eps: e, gate: g }, .. }) = next
            && x.buf == op.out
            && x.at == 0
            && *head_dim == op.value_dim
            && tile.columns == v
        {
            norm = *weight;
            eps = *e;
            if let Some((cols, a)) = g {
                gate = Some(self.cols(cols)?);
                activation = gate_of(*a);
            }
            self.fused.normed = Some(op.out);
        }
        let (state, words) = self.layer_state(op.layer)?;
        let (x, x_at) = self.cols(&op.qkv)?;
        let out = self.place(op.out)?;
        let (pack, places) = self.mixer_pack(op, norm)?;
        let (gates, aux, bounded) = self.gates(op, x, &places)?;
        let [.., norm_at] = places;
        let params = StepParams {
            gates,
            x_at,
            out_stride: out.stride,
            state_words: words,
            state_at: op.state.s as u32,
            scale: (op.key_dim as f32).sqrt().recip(),
            eps,
            norm: norm_at,
            z_stride: gate.map_or(0, |g| g.0.stride),
            z_at: gate.map_or(0, |g| g.1),
        };
        let form = form(op, bounded, aux != x);
        let output = StepOutput { norm: norm.is_some(), gate: activation };
        let convolved = self.fused.convolved.take() == Some(op.qkv.buf);
        let mut buffers = vec![x.buffer];
        buffers.extend(form.apart.then_some(aux.buffer));
        buffers.extend(gate.map(|g| g.0.buffer));
        buffers.extend(step_packed(&form, output).then_some(pack));
        buffers.extend([self.fixed.table, state, out.buffer]);
        let groups = [v.div_ceil(tile.columns), form.value_heads, self.rows()];
        self.push_with(step(&form, tile, output, convolved), &params, buffers, groups);
        Ok(())
    }

    /// The same by subgroups that work alone, where dims, places and the device allow it.
    fn lanes(&mut self, op: &Mixer, next: Option<&Linear>) -> Result<bool> {
        let [h, hv, k, v] = [op.heads, op.value_heads, op.key_dim, op.value_dim].map(|n| n as u32);
        // A small head in one workgroup takes less time than the norm that several leave to the product.
        if k * v < LANES_HEAD {
            return Ok(false);
        }
        let Some(tile) = LanesTile::new(k, v, LANES_CHANNELS, hv * self.rows(), self.caps.subgroup_size) else {
            return Ok(false);
        };
        let (state, words) = self.layer_state(op.layer)?;
        let (x, x_at) = self.cols(&op.qkv)?;
        let out = self.place(op.out)?;
        let mut places = vec![x_at, h * k, words, op.state.s as u32];
        let mut params = LanesParams { x_at, state_words: words, state_at: op.state.s as u32, ..Default::default() };
        (params.out_stride, params.scale) = (out.stride, (op.key_dim as f32).sqrt().recip());
        let (mut weight, mut gate) = (None, None);
        let mut activation = Gate::None;
        let follows = |input: &Input| {
            let Input::HeadNorm { x, head_dim, .. } = input else { return false };
            x.buf == op.out && x.at == 0 && *head_dim == op.value_dim && v.is_multiple_of(8)
        };
        if let Some(Linear { input: Input::HeadNorm { weight: w, gate: g, .. }, .. }) =
            next.filter(|l| follows(&l.input))
        {
            weight = *w;
            if let Some((cols, a)) = g {
                let (place, at) = self.cols(cols)?;
                (params.z_stride, params.z_at) = (place.stride, at);
                places.push(at);
                gate = Some(place.buffer);
                activation = gate_of(*a);
            }
        }
        if places.iter().any(|p| !p.is_multiple_of(4)) {
            return Ok(false);
        }
        let (pack, packed) = self.mixer_pack(op, weight)?;
        let (gates, aux, bounded) = self.gates(op, x, &packed)?;
        params.gates = gates;
        let form = form(op, bounded, aux != x);
        let output = StepOutput { norm: weight.is_some(), gate: activation };
        let mut buffers = vec![x.buffer];
        buffers.extend(form.apart.then_some(aux.buffer));
        buffers.extend(gate);
        buffers.extend(step_packed(&form, output).then_some(pack));
        buffers.extend([self.fixed.table, state]);
        if weight.is_some() {
            let blocks = tile.blocks(v);
            let sums = self.scratch_of("sums of squares", hv * blocks)?;
            [.., params.norm] = packed;
            params.sums_stride = sums.stride;
            buffers.push(sums.buffer);
            self.fused.scaled = Some(Scaled { of: op.out, sums, blocks });
        } else if gate.is_some() {
            self.fused.normed = Some(op.out);
        }
        buffers.push(out.buffer);
        let convolved = self.fused.convolved.take() == Some(op.qkv.buf);
        let groups = [v.div_ceil(tile.width()), hv, self.rows()];
        self.push_with(lanes(&form, tile, output, convolved), &params, buffers, groups);
        Ok(true)
    }

    /// A decode step on a software adapter; norm and gate are left to the product that follows.
    fn solo_step(&mut self, op: &Mixer) -> Result<()> {
        let (state, words) = self.layer_state(op.layer)?;
        let (x, x_at) = self.cols(&op.qkv)?;
        let out = self.place(op.out)?;
        let (pack, places) = self.mixer_pack(op, None)?;
        let (gates, aux, bounded) = self.gates(op, x, &places)?;
        let form = form(op, bounded, aux != x);
        let convolved = self.fused.convolved.take() == Some(op.qkv.buf);
        // Rows of a window; what lies apart has none.
        let most = if form.apart { 0 } else { self.window_rows(x.stride) };
        let rows = (1..=self.rows().min(most)).rev().find(|w| self.rows().is_multiple_of(*w));
        let window = rows.map_or(0, |_| (self.window_bytes() / 16) as u32);
        let rows = rows.unwrap_or(self.rows());
        let variant = solo_step(&form, window, convolved);
        for first in (0..self.rows()).step_by(rows as usize) {
            let params = SoloStepParams {
                gates,
                x_at,
                out_stride: out.stride,
                state_words: words,
                state_at: op.state.s as u32,
                scale: (op.key_dim as f32).sqrt().recip(),
                first_row: first,
            };
            let mut buffers = vec![x.buffer];
            if window > 0 {
                let offset = 4 * u64::from(first) * u64::from(x.stride);
                buffers = vec![self.window(x.buffer, offset)?];
            }
            buffers.extend(form.apart.then_some(aux.buffer));
            buffers.extend((form.decay != shaders::Decay::None).then_some(pack));
            buffers.extend([self.fixed.table, state, out.buffer]);
            let groups = [form.value_dim.div_ceil(4 * SOLO_WORKGROUP), form.value_heads, rows];
            self.push(variant.clone(), bytes_of(&params), buffers, groups);
        }
        Ok(())
    }
}

fn form(op: &Mixer, bounded: bool, apart: bool) -> MixerForm {
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

/// How a step's S is spread over threads.
fn step_tile(key_dim: u32, value_dim: u32, caps: &Caps) -> StepTile {
    // Workgroup memory: 20 bytes a thread, 12 a channel, 4 a column.
    let wide = caps.max_invocations >= 1024 && caps.workgroup_bytes >= 32 << 10;
    let most = if wide { 1024 } else { caps.max_invocations.min(256) };
    // A whole head a workgroup, where that leaves a thread no more channels than registers hold; and no more threads
    // than leave each of them sixteen channels, whose loads are in flight together.
    let split = most / value_dim.max(1);
    if split >= 1 && key_dim.div_ceil(split) <= 64 {
        return StepTile { columns: value_dim, split: split.min(key_dim.div_ceil(STEP_CHANNELS)) };
    }
    StepTile { columns: value_dim.min(32), split: (most.min(256) / 32).min(key_dim.div_ceil(4)) }
}

/// From so many elements of S on, a head is spread over workgroups. (The demo model's 4,096 are not.)
const LANES_HEAD: u32 = 8192;
/// Most channels of S that a lane of `mixer/lanes` has.
const LANES_CHANNELS: u32 = 8;

/// Channels of S that a thread of a step has, where there are threads enough.
const STEP_CHANNELS: u32 = 16;
