//! The chunk stages of any GPU: products of a chunk with itself, their inverse, U and W, and one scan over the chunks.

use deltanet_shaders::delta::{self as kernels, Decay};

use super::lower::Lowering;

impl Lowering<'_, '_> {
    /// U and W, `[chunks, HV, C, V + K]`.
    fn uw(&mut self) -> usize {
        let keys = if self.wide.is_some() { 0 } else { kernels::padded(self.call.key_dim) };
        let width = u64::from(self.params.value_pad + keys);
        let words = self.blocks() * u64::from(self.call.chunk) * width;
        (self.scratch)("uw", words)
    }

    pub(super) fn chunk_stages(&mut self) {
        let call = self.call;
        let (parts, k, c) = (self.parts, call.key_dim, call.chunk);
        let chunks = call.chunks.buffer;
        let [pairs, uw] = [self.pairs(), self.uw()];
        let decayed = (parts.decay == Decay::Channel).then(|| self.decayed_keys());
        let tiles = self.wide.map(|_| {
            let words = self.blocks() * 2 * u64::from(kernels::padded(k)) * u64::from(c);
            (self.scratch)("tiles", words)
        });

        let over_chunks = self.gram(pairs, decayed, tiles);

        let mut buffers = vec![call.v.buffer];
        let mut columns = call.value_dim.div_ceil(64);
        if parts.delta {
            self.push(kernels::invert(parts, k, c), vec![pairs, chunks], over_chunks);
            buffers.push(decayed.unwrap_or(self.k));
            columns += kernels::padded(k).div_ceil(64);
        }
        buffers.extend([pairs, uw]);
        buffers.extend(tiles.filter(|_| parts.delta));
        buffers.push(chunks);
        let groups = [columns, call.chunks.len, call.value_heads];
        self.push(kernels::solve(parts, k, c, tiles.is_some()), buffers, groups);

        if let (Some(split), Some(tiles)) = (self.wide, tiles) {
            let mut buffers = vec![decayed.unwrap_or(self.k), tiles, uw, pairs, call.state.buffer, call.out.buffer];
            buffers.extend(call.chunk_states);
            buffers.push(call.sequences.buffer);
            let variant = kernels::wide(parts, k, c, split, call.chunk_states.is_some());
            let columns = call.value_dim.div_ceil(kernels::WIDE_COLUMNS);
            self.push(variant, buffers, [columns, call.value_heads, call.sequences.len]);
            return;
        }

        let mut buffers = match decayed {
            Some(keys) => vec![keys],
            None => vec![self.q, self.k],
        };
        buffers.extend([uw, pairs, call.state.buffer, call.out.buffer]);
        buffers.extend(call.chunk_states);
        buffers.push(call.sequences.buffer);
        let columns = 8;
        let variant = kernels::scan(parts, k, c, columns, call.chunk_states.is_some());
        let groups = [call.value_dim.div_ceil(columns), call.value_heads, call.sequences.len];
        self.push(variant, buffers, groups);
    }
}
