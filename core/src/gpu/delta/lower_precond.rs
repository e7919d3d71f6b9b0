//! Write keys of the preconditioned rules (MATH.md §8.3).

use deltanet_shaders::delta as kernels;

use super::PrecondViews;
use super::lower::Lowering;

impl Lowering<'_, '_> {
    /// From here on keys are read from `keys`, `[rows, H, 2, K]`: k, k̃.
    fn keys_made(&mut self, keys: usize) {
        let width = kernels::padded(self.call.key_dim);
        self.k = keys;
        let p = &mut self.params;
        (p.k_stride, p.k_at, p.k_head, p.kt_at) = (2 * width * self.call.heads, 0, 2 * width, width);
    }

    /// Write keys, every sequence in one go.
    pub(super) fn precond_steps(&mut self, pre: PrecondViews) {
        let keys = self.pairs_of_keys("keys");
        let call = self.call;
        let buffers = vec![
            self.k,
            pre.beta.buffer,
            pre.g.buffer,
            pre.log_scale.buffer,
            pre.sums.buffer,
            keys,
            call.sequences.buffer,
        ];
        self.push(kernels::precond_apply(call.key_dim, false), buffers, self.channel_groups(call.sequences.len));
        self.keys_made(keys);
    }

    /// Write keys, chunks in parallel.
    pub(super) fn precond_chunks(&mut self, pre: PrecondViews) {
        let call = self.call;
        let words = kernels::precond_words(call.key_dim);
        let per_chunk = u64::from(call.heads) * u64::from(words);
        let totals = (self.scratch)("totals", u64::from(call.chunks.len) * per_chunk);
        let keys = self.pairs_of_keys("keys");
        let chunks = call.chunks.buffer;
        let over_chunks = self.channel_groups(call.chunks.len);
        let gates = [self.k, pre.beta.buffer, pre.g.buffer];
        self.push(kernels::precond_sums(call.key_dim), [&gates[..], &[totals, chunks]].concat(), over_chunks);
        self.push(
            kernels::precond_carry(call.key_dim, call.chunk, words),
            vec![totals, pre.sums.buffer, call.sequences.buffer],
            self.channel_groups(call.sequences.len),
        );
        let buffers = [&gates[..], &[pre.log_scale.buffer, totals, keys, chunks]].concat();
        self.push(kernels::precond_apply(call.key_dim, true), buffers, over_chunks);
        self.keys_made(keys);
    }
}
