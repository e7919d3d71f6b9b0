//! The chunk stages with cooperative matrices: when they run, and their dispatches.

use deltanet_shaders::delta::{self as kernels, CoopTile, Decay as Decays, Parts};

use super::lower::Lowering;
use crate::gpu::Caps;
use crate::rule::Beta;

/// Whether and how they run: where results may have f16's accuracy ([`Caps::half_products`]) and the device has such
/// matrices and room for any K. `fours`: V, places and strides are multiples of 4. Everything else takes the f32 stages.
pub(super) fn tile(parts: Parts, key_dim: u32, fours: bool, caps: &Caps) -> Option<CoopTile> {
    let device = caps.coop16 && caps.f16 && !caps.software && caps.max_invocations >= kernels::COOP_THREADS;
    if !(caps.half_products && device && fours) {
        return None;
    }
    CoopTile::best(parts, key_dim, caps.workgroup_bytes)
}

impl Lowering<'_, '_> {
    /// Whether the stages make q and k unit by themselves.
    pub(super) fn coop_normalises(&self) -> bool {
        let call = self.call;
        let places = [call.q.stride, call.q.at, call.k.stride, call.k.at, call.key_dim];
        let alone = call.precond.is_none() && call.rule.beta != Beta::Longhorn && self.parts.decay != Decays::Channel;
        self.coop.is_some() && alone && call.l2norm && places.iter().all(|x| x.is_multiple_of(4))
    }

    pub(super) fn coop_stages(&mut self, tile: CoopTile, emulate: bool) {
        let call = self.call;
        let (parts, k, chunks) = (self.parts, call.key_dim, call.chunks.buffer);
        let over_chunks = [call.value_heads, call.chunks.len, 1];
        let words = self.blocks() * u64::from(kernels::coop_words(k, call.value_dim));
        let operands = (self.scratch)("operands", words);
        let mut keeps = None;
        let mut buffers;
        if parts.decay == Decays::Channel {
            // Products with a decay a channel stay in f32.
            let [pairs, keys] = [self.pairs(), self.decayed_keys()];
            self.gram(pairs, Some(keys), None);
            keeps = Some(pairs);
            buffers = vec![keys, pairs];
        } else {
            buffers = vec![self.q, self.k];
            buffers.extend(self.beta);
            if let Some(g) = call.g {
                let words = self.blocks();
                keeps = Some((self.scratch)("keeps", words));
                buffers.push(g.buffer);
                buffers.extend(keeps);
            }
        }
        buffers.extend([call.v.buffer, operands, chunks]);
        let variant = kernels::coop_chunk(parts, k, tile, self.normalise).emulated(emulate);
        self.push(variant, buffers, over_chunks);

        let mut buffers = vec![operands];
        buffers.extend(keeps);
        buffers.extend([call.state.buffer, call.out.buffer]);
        buffers.extend(call.chunk_states);
        buffers.push(call.sequences.buffer);
        let variant = kernels::coop_scan(parts, k, call.chunk_states.is_some()).emulated(emulate);
        let columns = call.value_dim.div_ceil(kernels::COOP_COLUMNS);
        self.push(variant, buffers, [columns, call.value_heads, call.sequences.len]);
    }
}
