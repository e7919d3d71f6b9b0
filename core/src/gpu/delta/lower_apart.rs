//! The chunk stages with outputs apart from the scan: when they run, and their dispatches.

use deltanet_shaders::delta::{self as kernels, Decay as Decays};

use super::lower::Lowering;
use crate::gpu::Caps;

/// Whether they run with shuffles, where they run: on devices with subgroups of one size for these, and without where
/// tests ask for what a device does not have ([`Caps::emulate`]). `fours`: V, places and strides are multiples of 4.
pub(super) fn shuffles(key_dim: u32, chunk: u32, fours: bool, caps: &Caps) -> Option<bool> {
    if caps.software || !fours || chunk != kernels::APART_CHUNK {
        return None;
    }
    let shuffles = kernels::apart_shuffles(caps.subgroup_size);
    if !shuffles && !caps.emulate {
        return None;
    }
    kernels::apart_fits(key_dim, shuffles, caps.workgroup_bytes, caps.max_invocations).then_some(shuffles)
}

impl Lowering<'_, '_> {
    /// Whether the stages make q and k unit by themselves.
    pub(super) fn apart_normalises(&self) -> bool {
        let alone = self.call.precond.is_none() && self.parts.decay != Decays::Channel;
        self.apart.is_some() && alone && self.raw_keys()
    }

    pub(super) fn apart_stages(&mut self, shuffles: bool) {
        let call = self.call;
        let (parts, k, chunks) = (self.parts, call.key_dim, call.chunks.buffer);
        let [key_pad, value_dim] = [kernels::padded(k), call.value_dim].map(u64::from);
        let words = self.blocks() * u64::from(kernels::apart_words(k));
        let operands = (self.scratch)("operands", words);
        // `[chunks, HV, (K + C) / 4, V, 4]`: S before each chunk, and V less what S expects.
        let words = self.blocks() * value_dim * (key_pad + u64::from(call.chunk));
        let left = (self.scratch)("left", words);

        let over_chunks = [call.value_heads, call.chunks.len, 1];
        let pairs;
        let mut decayed = None;
        if parts.decay == Decays::Channel {
            pairs = self.pairs();
            let keys = self.decayed_keys();
            decayed = Some(keys);
            self.gram(pairs, decayed, None);
            self.push(kernels::apart_solve(parts, k), vec![keys, pairs, operands, chunks], over_chunks);
        } else {
            let words = self.blocks() * u64::from(kernels::APART_PAIR_WORDS);
            pairs = (self.scratch)("pairs", words);
            let mut buffers = vec![self.q, self.k];
            buffers.extend(self.beta);
            buffers.extend(call.g.map(|g| g.buffer));
            buffers.extend([pairs, operands, chunks]);
            self.push(kernels::apart_chunk(parts, k, self.normalise), buffers, over_chunks);
        }
        let keys = decayed.unwrap_or(self.k);
        let mut buffers = vec![];
        if parts.delta {
            buffers.push(keys);
        }
        buffers.extend([operands, pairs, call.v.buffer, call.state.buffer, left]);
        buffers.extend(call.chunk_states);
        buffers.push(call.sequences.buffer);
        let groups = [call.value_dim.div_ceil(kernels::APART_COLUMNS), call.value_heads, call.sequences.len];
        self.push(kernels::apart_scan(parts, k, shuffles, call.chunk_states.is_some()), buffers, groups);

        let mut buffers = match decayed {
            Some(keys) => vec![keys],
            None => vec![self.q, pairs],
        };
        buffers.extend([operands, left, call.out.buffer, chunks]);
        let columns = call.value_dim.div_ceil(kernels::apart_out_columns(call.value_dim));
        let groups = [columns, call.value_heads, call.chunks.len];
        self.push(kernels::apart_out(parts, k, call.value_dim), buffers, groups);
    }
}
