//! The delta rules on software adapters: their dispatches.

use deltanet_shaders::delta as kernels;

use super::lower::Lowering;

impl Lowering<'_, '_> {
    /// Groups of a kernel for software adapters, in two dimensions where one does not hold them.
    fn software_groups(threads: u32) -> [u32; 3] {
        let groups = threads.div_ceil(kernels::SOFTWARE_LANES);
        let rows = groups.div_ceil(32_768).max(1);
        [groups.div_ceil(rows), rows, 1]
    }

    /// Threads of a software kernel that goes over sequences: 16 columns each.
    fn software_columns(&self) -> u32 {
        let call = self.call;
        call.sequences.len * call.value_heads * call.value_dim.div_ceil(kernels::SOFTWARE_COLUMNS)
    }

    pub(super) fn software_step(&mut self) {
        let call = self.call;
        let mut buffers = vec![self.q, self.k, call.v.buffer];
        buffers.extend(self.beta);
        buffers.extend(call.g.map(|g| g.buffer));
        buffers.extend([call.state.buffer, call.out.buffer, call.sequences.buffer]);
        let groups = Self::software_groups(self.software_columns());
        let each = kernels::software_step_rows(call.key_dim);
        self.push_in_parts(&kernels::software_step(self.parts), &buffers, groups, each);
    }

    pub(super) fn software_chunk_stages(&mut self) {
        let call = self.call;
        let (parts, k, c) = (self.parts, call.key_dim, u64::from(call.chunk));
        let (width, columns) = (kernels::padded(k), call.value_dim.div_ceil(kernels::SOFTWARE_COLUMNS));
        let blocks = self.blocks();
        let pairs = (self.scratch)("pairs", blocks * u64::from(kernels::software_pair_words(k)));
        let keys = (self.scratch)("decayed keys", blocks * 2 * c * u64::from(width));
        let tiles = (self.scratch)("tiles", blocks * 2 * c * u64::from(width));
        let u = (self.scratch)("u", blocks * c * u64::from(call.value_dim));
        let chunks = call.chunks.buffer;
        // A kernel over chunks, with so many threads a chunk and value head.
        let over_chunks = |each: u32| Self::software_groups(call.chunks.len * call.value_heads * each);

        let g = call.g.map(|g| g.buffer);
        let mut buffers = vec![self.q, self.k];
        buffers.extend(self.beta);
        buffers.extend(g);
        buffers.extend([pairs, keys, tiles, chunks]);
        self.push(kernels::software_decay(parts), buffers, over_chunks(width / 4));

        let mut buffers = vec![self.q, self.k];
        buffers.extend(g);
        buffers.extend([pairs, chunks]);
        self.push(kernels::software_gram(parts), buffers, over_chunks(16));

        let mut buffers = vec![call.v.buffer, pairs, u];
        let mut each = columns;
        if parts.delta {
            self.push(kernels::software_invert(), vec![pairs, chunks], over_chunks(call.chunk));
            buffers.extend([keys, tiles]);
            each += width.div_ceil(kernels::SOFTWARE_COLUMNS);
        }
        buffers.push(chunks);
        self.push(kernels::software_solve(parts), buffers, over_chunks(each));

        let mut buffers = vec![keys, tiles, pairs, u, call.state.buffer, call.out.buffer];
        buffers.extend(call.chunk_states);
        buffers.push(call.sequences.buffer);
        let variant = kernels::software_scan(parts, call.chunk_states.is_some());
        let groups = Self::software_groups(self.software_columns());
        self.push_in_parts(&variant, &buffers, groups, kernels::software_scan_rows(k));
    }
}
