//! A plan: ops over numbered buffers, made once for a model and a row bucket.

use crate::ops::{BufId, Op};

/// What a plan is for.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanKind {
    /// Up to `rows` tokens of one session; logits of the last one.
    Prefill,
    /// Up to `rows` tokens of one session; logits of all of them.
    Score,
    /// One token each of up to `rows` sessions; logits of all of them.
    Decode,
}

/// How long a buffer lives. (Weights and session state are not plan buffers: ops name them by weight id and layer.)
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Life {
    /// Between two ops. Engines share scratch of equal size whose uses do not overlap, as whole buffers.
    Scratch,
    /// Kept to the end of a run, for whoever reads it (logits), or for a backward pass later.
    Saved,
}

/// One buffer of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufSpec {
    /// For listings: `x`, `qkv`, `logits`.
    pub name: &'static str,
    /// f32 elements a row.
    pub width: usize,
    /// Rows: the plan's, or 1 for a prefill's logits.
    pub rows: usize,
    /// Lifetime.
    pub life: Life,
}

/// A model's work for one row bucket, for any engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What it is for.
    pub kind: PlanKind,
    /// Most rows a run may have.
    pub rows: usize,
    /// Ops in order.
    pub ops: Vec<Op>,
    /// What each op is in its model, for listings: `layers.3 q|k|v|g|a|b`. As long as `ops`, or empty.
    pub labels: Vec<String>,
    /// Buffers, by [`BufId`].
    pub buffers: Vec<BufSpec>,
    /// `[rows or 1, vocab]`: written by the last op.
    pub logits: BufId,
}
