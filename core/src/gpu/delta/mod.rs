//! The delta rule on the GPU: one call described over a buffer table, lowered to dispatches.
//!
//! [`lower_recurrent`] and [`lower_chunk`] serve the operators of this module and the models alike. Sizes and strides
//! are plan-time; which rows belong to which state is run-time data, in two small tables that the caller fills:
//!
//! * sequences, `array<vec4<u32>>`: `(first row, length, state slot, first chunk)`;
//! * chunks, `array<vec4<u32>>`: `(first row, length, state slot, index of the chunk in its sequence)`.
//!
//! A length of 0 means nothing to do: entries beyond those in use are all zero. [`Spans`] builds both.

mod host;
mod lower;
mod lower_apart;
mod lower_coop;
mod lower_precond;
mod lower_scan;
mod lower_segments;
mod lower_software;
mod operator;

pub use host::{chunk, recurrent, run};
pub use lower::{Scratch, chunk_length, describe_chunk, lower_chunk, lower_recurrent};
pub use operator::{Buffers, Form, Kernels, Operator, PrecondBuffers};

use crate::rule::Rule;

/// Columns of a row-major f32 buffer: element `(row, i)` is at `row · stride + at + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Index into the buffer table.
    pub buffer: usize,
    /// Elements a row.
    pub stride: u32,
    /// First column.
    pub at: u32,
}

/// A tensor that every state slot holds: slot `s` begins at `s · words + at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Index into the buffer table.
    pub buffer: usize,
    /// f32 elements a slot.
    pub words: u32,
    /// Place in the slot.
    pub at: u32,
}

/// A table of `array<vec4<u32>>`, see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Index into the buffer table.
    pub buffer: usize,
    /// Entries: what the dispatches cover. Entries of length 0 cost next to nothing.
    pub len: u32,
}

/// Inputs of the preconditioner (MATH.md §8.3), per key head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrecondViews {
    /// Log decay of the sums, `[rows, H]`.
    pub g: View,
    /// Their write strength, `[rows, H]`.
    pub beta: View,
    /// μ, `[H]` at `at`; `stride` is not used.
    pub log_scale: View,
    /// Running sums A, `[H, K]` a slot; updated in place. May be the buffer of the states.
    pub sums: Slots,
}

/// One call of the delta rule over buffers of a table. All tensors are f32.
///
/// q, k and v may lie in one buffer, and so may beta, g and the preconditioner's inputs. `out`, the states and the
/// scratch must be other buffers than the inputs: WebGPU refuses a buffer that one dispatch both reads and writes.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaCall {
    /// The rule.
    pub rule: Rule,
    /// H.
    pub heads: u32,
    /// HV, a multiple of H.
    pub value_heads: u32,
    /// K, at most 256.
    pub key_dim: u32,
    /// V.
    pub value_dim: u32,
    /// Most rows of a run: sizes scratch.
    pub rows: u32,
    /// σ.
    pub scale: f32,
    /// Normalise q and k first; off when they come normalised.
    pub l2norm: bool,
    /// `[rows, H·K]`.
    pub q: View,
    /// `[rows, H·K]`.
    pub k: View,
    /// `[rows, HV·V]`.
    pub v: View,
    /// `[rows, HV]`, unless the rule's beta is one.
    pub beta: Option<View>,
    /// `[rows, HV]` or `[rows, HV·K]`, if the rule decays.
    pub g: Option<View>,
    /// For rules with a preconditioned write key.
    pub precond: Option<PrecondViews>,
    /// `[rows, HV·V]`, written.
    pub out: View,
    /// S, `[HV, K, V]` a slot; updated in place.
    pub state: Slots,
    /// Which rows make up which sequence.
    pub sequences: Table,
    /// How they fall into chunks of [`DeltaCall::chunk`] rows. Only the chunkwise form reads it.
    pub chunks: Table,
    /// C, from [`chunk_length`]; 16, 32 or 64.
    pub chunk: u32,
    /// Buffer for the state before each chunk, `[chunks, HV, K, V]`. Only the chunkwise form writes it.
    pub chunk_states: Option<usize>,
    /// Segments of a sequence that are scanned side by side, see [`crate::delta::Options::segments`].
    pub segments: Option<u32>,
}

/// Both tables of a run, as they are uploaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// `(first row, length, slot, first chunk)`.
    pub sequences: Vec<[u32; 4]>,
    /// `(first row, length, slot, index in its sequence)`.
    pub chunks: Vec<[u32; 4]>,
}

impl Spans {
    /// Tables of sequences given as `(first row, length, slot)`, in chunks of `chunk` rows that restart at each
    /// sequence.
    pub fn new(sequences: &[(u32, u32, u32)], chunk: u32) -> Self {
        let mut spans = Self::default();
        for &(first, length, slot) in sequences {
            spans.sequences.push([first, length, slot, spans.chunks.len() as u32]);
            for index in 0..length.div_ceil(chunk.max(1)) {
                let done = index * chunk;
                spans.chunks.push([first + done, chunk.min(length - done), slot, index]);
            }
        }
        spans
    }

    /// Appends empty entries up to the given numbers of entries, those of [`DeltaCall::sequences`] and
    /// [`DeltaCall::chunks`].
    #[must_use]
    pub fn padded(mut self, sequences: u32, chunks: u32) -> Self {
        self.sequences.resize((sequences as usize).max(self.sequences.len()), [0; 4]);
        self.chunks.resize((chunks as usize).max(self.chunks.len()), [0; 4]);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_restart_at_each_sequence() {
        let spans = Spans::new(&[(0, 1, 0), (1, 0, 1), (1, 33, 2)], 32);
        assert_eq!(spans.sequences, [[0, 1, 0, 0], [1, 0, 1, 1], [1, 33, 2, 1]]);
        assert_eq!(spans.chunks, [[0, 1, 0, 0], [1, 32, 2, 0], [33, 1, 2, 1]]);
    }
}
