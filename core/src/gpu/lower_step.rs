//! A mixer's decode: gates, norms and the delta rule's step in one kernel.

use bytemuck::bytes_of;
use deltanet_shaders::delta::{Decay, LanesTile};
use deltanet_shaders::linear::{Gate, SOLO_WORKGROUP};
use deltanet_shaders::mixer::{StepOutput, StepTile, lanes, solo_step, step, step_packed};
use deltanet_shaders::params::{LanesParams, SoloStepParams, StepParams};

use super::caps::Caps;
use super::lower::{Lower, Scaled};
use super::lower_input::gate_of;
use super::lower_mixer::form;
use crate::error::Result;
use crate::ops::{Input, Linear, Mixer};

/// From so many elements of S on, a head is spread over workgroups. (The demo model's 4,096 are not.)
const LANES_HEAD: u32 = 8192;
/// Most channels of S that a lane of `mixer/lanes` has.
const LANES_CHANNELS: u32 = 8;

/// Channels of S that a thread of a step has, where there are threads enough.
const STEP_CHANNELS: u32 = 16;

impl Lower<'_> {
    /// A decode step in one kernel. Takes over the norm and gate of the product that follows where a workgroup has a
    /// whole head.
    pub(super) fn step(&mut self, op: &Mixer, next: Option<&Linear>) -> Result<()> {
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
    pub(super) fn solo_step(&mut self, op: &Mixer) -> Result<()> {
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
            buffers.extend((form.decay != Decay::None).then_some(pack));
            buffers.extend([self.fixed.table, state, out.buffer]);
            let groups = [form.value_dim.div_ceil(4 * SOLO_WORKGROUP), form.value_heads, rows];
            self.push(variant.clone(), bytes_of(&params), buffers, groups);
        }
        Ok(())
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
