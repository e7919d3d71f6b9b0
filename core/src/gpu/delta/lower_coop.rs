//! The chunk stages with cooperative matrices: when they run, and their dispatches.

use deltanet_shaders::delta::{self as kernels, Decay as Decays, Parts};

use super::lower::Lowering;
use super::{PrecondViews, View};
use crate::gpu::Caps;

/// Whether they run: where results may have f16's accuracy ([`Caps::half_products`]) and the device has such matrices
/// and room for any K. `fours`: V, places and strides are multiples of 4. Everything else takes the f32 stages.
pub(super) fn fits(parts: Parts, key_dim: u32, fours: bool, caps: &Caps) -> bool {
    let device = caps.coop16 && caps.f16 && !caps.software && caps.max_invocations >= kernels::COOP_THREADS;
    let bytes = kernels::coop_chunk_bytes(parts).max(kernels::coop_scan_bytes(key_dim));
    caps.half_products && device && fours && bytes <= caps.workgroup_bytes
}

impl Lowering<'_, '_> {
    /// Whether the stages make q and k unit by themselves.
    pub(super) fn coop_normalises(&self) -> bool {
        self.coop && self.raw_keys()
    }

    /// Whether log decays can be read four at a time, where there is one a channel.
    pub(super) fn coop_decays(&self) -> bool {
        let places = |g: View| [g.stride, g.at, self.call.key_dim].iter().all(|x| x.is_multiple_of(4));
        self.parts.decay != Decays::Channel || self.call.g.is_some_and(places)
    }

    /// The preconditioner's sums before each chunk; returns their buffer.
    fn coop_totals(&mut self, pre: PrecondViews) -> usize {
        let call = self.call;
        let words = kernels::coop_totals_words(call.key_dim);
        let per_chunk = u64::from(call.heads) * u64::from(words);
        let totals = (self.scratch)("totals", u64::from(call.chunks.len) * per_chunk);
        let buffers = vec![self.k, pre.beta.buffer, pre.g.buffer, pre.log_scale.buffer, totals, call.chunks.buffer];
        self.push(kernels::coop_sums(call.key_dim, self.normalise), buffers, [call.heads, call.chunks.len, 1]);
        let buffers = vec![totals, pre.sums.buffer, call.sequences.buffer];
        let groups = self.channel_groups(call.sequences.len);
        self.push(kernels::precond_carry(call.key_dim, call.chunk, words), buffers, groups);
        totals
    }

    pub(super) fn coop_stages(&mut self, emulate: bool) {
        let call = self.call;
        let (parts, k, chunks) = (self.parts, call.key_dim, call.chunks.buffer);
        let words = self.blocks() * u64::from(kernels::coop_words(k));
        let operands = (self.scratch)("operands", words);
        let mut keeps = None;
        let mut buffers = vec![self.q, self.k];
        buffers.extend(self.beta);
        if let Some(g) = call.g {
            let each = if parts.decay == Decays::Channel { kernels::padded(k) } else { 1 };
            let words = self.blocks() * u64::from(each);
            keeps = Some((self.scratch)("keeps", words));
            buffers.push(g.buffer);
            buffers.extend(keeps);
        }
        buffers.extend(call.precond.map(|precond| self.coop_totals(precond)));
        buffers.extend([operands, chunks]);
        let variant = kernels::coop_chunk(parts, k, self.normalise).emulated(emulate);
        self.push(variant, buffers, [call.value_heads, call.chunks.len, 1]);

        self.scans(kernels::COOP_COLUMNS, &mut |this, pass| {
            let mut buffers = vec![operands];
            buffers.extend(keeps);
            buffers.extend([pass.v.buffer, pass.state.buffer, pass.out.buffer]);
            buffers.extend(pass.chunk_states);
            buffers.push(pass.sequences.buffer);
            let variant = kernels::coop_scan(parts, k, pass.chunk_states.is_some()).emulated(emulate);
            let columns = pass.value_dim.div_ceil(kernels::COOP_COLUMNS);
            this.push(variant, buffers, [columns, call.value_heads, pass.sequences.len]);
        });
    }
}
