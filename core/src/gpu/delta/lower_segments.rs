//! Long inputs with few heads: segments of a sequence are scanned side by side.
//!
//! Over any run of chunks the state goes from S to A S + B. Two scans over all segments at once find A, from the identity
//! with values of zero, and B, from zero; a carry makes of them the state that each segment starts from; a last scan over
//! the segments, from those, gives the outputs. The scan's kernel is the same for all: a segment is a sequence to it.

use deltanet_shaders::delta as kernels;

use super::lower::Lowering;
use super::{Slots, Table, View};
use crate::delta::MAX_SEGMENTS;

/// What one scan reads and writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    pub(super) v: View,
    pub(super) value_dim: u32,
    pub(super) state: Slots,
    pub(super) out: View,
    pub(super) chunk_states: Option<usize>,
    pub(super) sequences: Table,
}

/// Workgroups that a GPU is supposed to run at once. (No API tells; the largest of today have 132 multiprocessors.)
const AT_ONCE: u32 = 128;
/// What a call takes with so many segments a sequence, in steps of a scan, as measured on an H200: two scans of which one
/// has K columns for V, then one, a carry from segment to segment, and four dispatches more.
fn cost(chunks: u32, segments: u32) -> u32 {
    3 * chunks.div_ceil(segments) + 7 * segments / 2 + 20
}

/// Segments for a sequence of so many chunks, of at most `most`; 1 unless that gains a tenth.
fn best(chunks: u32, most: u32) -> u32 {
    let best = (2..=most.min(MAX_SEGMENTS as u32)).min_by_key(|n| cost(chunks, *n));
    best.filter(|n| u64::from(cost(chunks, *n)) * 10 < 9 * u64::from(chunks)).unwrap_or(1)
}

impl Lowering<'_, '_> {
    /// Segments a sequence, for a scan of so many columns of V a workgroup; 1 where the scan takes sequences as they are.
    fn segments(&self, columns: u32) -> u32 {
        let call = self.call;
        if !call.key_dim.is_multiple_of(4) {
            return 1;
        }
        let sequences = call.sequences.len.max(1);
        let groups = call.value_dim.max(call.key_dim).div_ceil(columns) * call.value_heads * sequences;
        let chosen = best(call.chunks.len / sequences, AT_ONCE / groups.max(1));
        call.segments.unwrap_or(chosen).clamp(1, MAX_SEGMENTS as u32)
    }

    /// All scans of a call, one or three. `scan` pushes one: params are set.
    pub(super) fn scans(&mut self, columns: u32, scan: &mut dyn FnMut(&mut Self, Pass)) {
        let call = self.call;
        let whole = Pass {
            v: call.v,
            value_dim: call.value_dim,
            state: call.state,
            out: call.out,
            chunk_states: call.chunk_states,
            sequences: call.sequences,
        };
        let segments = self.segments(columns);
        if segments < 2 {
            scan(self, whole);
            return;
        }
        let (keys, values) = (call.key_dim, call.value_dim);
        let count = call.sequences.len * segments;
        let heads = u64::from(count) * u64::from(call.value_heads);
        let [kept_words, added_words] = [keys, values].map(|v| heads * u64::from(keys) * u64::from(v));
        // Four words an entry.
        let table = (self.scratch)("segments", 4 * u64::from(count));
        let kept = (self.scratch)("kept", kept_words);
        let added = (self.scratch)("added", added_words);
        let channels = u64::from(call.value_heads) * u64::from(keys);
        let nothing = (self.scratch)("no values", channels);
        let aside = (self.scratch)("no outputs", channels);
        let elements = kept_words.max(added_words).max(channels).max(u64::from(count));
        let groups = [elements.div_ceil(u64::from(kernels::SEGMENTS_WORKGROUP)) as u32, 1, 1];
        let buffers = vec![call.sequences.buffer, table, kept, added, nothing];
        self.push(kernels::segments_begin(call.chunk, segments), buffers, groups);

        let sequences = Table { buffer: table, len: count };
        let starts = |buffer, words| Slots { buffer, words, at: 0 };
        // Every row has the same values and the same place for outputs.
        let same = |buffer| View { buffer, stride: 0, at: 0 };
        let (of_keys, of_values) = (call.value_heads * keys * keys, call.value_heads * keys * values);
        let from_identity = Pass {
            v: same(nothing),
            value_dim: keys,
            state: starts(kept, of_keys),
            out: same(aside),
            chunk_states: None,
            sequences,
        };
        let segment = Pass { state: starts(added, of_values), chunk_states: None, sequences, ..whole };
        self.pass(from_identity, scan);
        self.pass(segment, scan);
        let buffers = vec![kept, added, call.state.buffer, call.sequences.buffer];
        let groups = [values.div_ceil(kernels::SEGMENTS_COLUMNS), call.value_heads, call.sequences.len];
        self.push(kernels::segments_carry(keys, segments), buffers, groups);
        self.pass(Pass { chunk_states: call.chunk_states, ..segment }, scan);
    }

    /// `scan` with the params of a pass.
    fn pass(&mut self, pass: Pass, scan: &mut dyn FnMut(&mut Self, Pass)) {
        let before = self.params;
        let p = &mut self.params;
        (p.v_stride, p.v_at) = (pass.v.stride, pass.v.at);
        (p.value_dim, p.value_pad) = (pass.value_dim, kernels::padded(pass.value_dim));
        (p.o_stride, p.o_at) = (pass.out.stride, pass.out.at);
        (p.s_words, p.s_at) = (pass.state.words, pass.state.at);
        p.sequences = pass.sequences.len;
        scan(self, pass);
        self.params = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_only_where_they_pay() {
        // Measured: 8,192 rows with 1, 2 and 4 heads take 0.73, 0.79 and 1.15 of the time; 32,768 with 4 heads 0.89.
        assert!(best(128, 16) > 8);
        assert_eq!(best(128, 8), 8);
        assert_eq!(best(128, 4), 1);
        assert_eq!((best(512, 4), best(512, 16), best(512, 100)), (4, 16, 16));
        assert_eq!((best(32, 16), best(0, 16), best(512, 0), best(512, 1)), (1, 1, 1, 1));
    }
}
