//! Variants of the attention kernels. Storage buffers are bound in the order of the kernel's text; each constructor's
//! doc lists them.

use crate::kernels::Kernel;
use crate::linear::SOLO_WORKGROUP;
use crate::variant::Variant;

/// Tokens a page of the cache of attention without a window.
pub const PAGE: u32 = 64;
/// Rows of a workgroup of [`prefill`].
pub const PREFILL_ROWS: u32 = 32;
/// Largest head that the kernels take: a thread of [`prefill`] holds D / 4 numbers of its output.
pub const MAX_HEAD_DIM: u32 = 512;

/// Heads of an attention layer.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub heads: u32,
    /// Key and value heads, dividing `heads`.
    pub kv_heads: u32,
    /// Channels a head.
    pub head_dim: u32,
}

impl Heads {
    /// Elements of a token's entry `k|v`.
    pub fn entry(&self) -> u32 {
        2 * self.kv_heads * self.head_dim
    }

    fn variant(&self, kernel: Kernel) -> Variant {
        Variant::new(kernel)
            .with("HEADS", self.heads)
            .with("KVH", self.kv_heads)
            .with("D", self.head_dim)
            .with("PAGE", PAGE)
    }

    /// Query heads of one workgroup of [`decode`]: of one key head, as many as 4 KiB hold.
    fn block(&self) -> u32 {
        (self.heads / self.kv_heads.max(1)).min(1024 / self.head_dim.max(1)).clamp(1, 8)
    }

    /// Workgroups of [`decode`] a row and split.
    pub fn blocks(&self) -> u32 {
        self.kv_heads * (self.heads / self.kv_heads.max(1)).div_ceil(self.block())
    }
}

/// Where keys and values are read.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Source {
    /// In the slots' rings.
    Ring,
    /// In the slots' rings, those of the run in its own rows.
    RingAndFresh,
    /// In the slots' pages.
    Paged,
    /// In the run's own rows: there is nothing before them.
    Fresh,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ring, Self::RingAndFresh, Self::Paged, Self::Fresh];

    /// Whether the run's own rows are read.
    pub fn fresh(self) -> bool {
        matches!(self, Self::RingAndFresh | Self::Fresh)
    }

    /// Whether rings or pages are read.
    pub fn cached(self) -> bool {
        self != Self::Fresh
    }

    fn flags(self, variant: Variant) -> Variant {
        variant
            .flag("RING", matches!(self, Self::Ring | Self::RingAndFresh))
            .flag("FRESH", self.fresh())
            .flag("PAGED", self == Self::Paged)
            .flag("CACHE", self.cached())
    }
}

/// What [`prep`] does, and for whom.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Prep {
    /// Where a token's entry is put: the slots' rings or pages, or ([`Source::Fresh`], [`Source::RingAndFresh`]) the
    /// run's own rows.
    pub to: Source,
    /// RMSNorm of q and k.
    pub norm: bool,
    /// Rotary embedding.
    pub rotary: bool,
    /// q, k and v come in buffers of their own.
    pub apart: bool,
    /// For software adapters.
    pub alone: bool,
}

/// `attention/prep`: x (`apart`: q, k, v), pack (with norm or rotary embedding), row table, page table (of pages),
/// prepared queries, entries.
///
/// Groups (HEADS + 2·KVH, rows), or with `alone` (⌈(HEADS + 2·KVH) / 8⌉, rows).
pub fn prep(heads: &Heads, prep: Prep) -> Variant {
    let workgroup = if prep.alone { SOLO_WORKGROUP } else { 64 };
    heads
        .variant(Kernel::AttentionPrep)
        .with("WG", workgroup)
        .flag("RING", prep.to == Source::Ring)
        .flag("PAGED", prep.to == Source::Paged)
        .flag("QK_NORM", prep.norm)
        .flag("ROTARY", prep.rotary)
        .flag("PACK", prep.norm || prep.rotary)
        .flag("APART", prep.apart)
        .flag("SOLO", prep.alone)
}

/// `attention/prefill`: prepared queries, the run's entries (if fresh), rings or pages (if cached), page table (of
/// pages), row table, out. Groups (⌈rows / 32⌉, HEADS).
pub fn prefill(heads: &Heads, source: Source) -> Variant {
    source.flags(heads.variant(Kernel::AttentionPrefill))
}

/// `attention/solo`: bindings as [`prefill`]. Groups (⌈rows · HEADS / 8⌉).
pub fn solo(heads: &Heads, source: Source) -> Variant {
    source.flags(heads.variant(Kernel::AttentionSolo))
}

/// `attention/decode`: prepared queries, rings or pages, page table (of pages), row table, and shares
/// `[rows, HEADS, splits, D + 2]`, or out when there is one split. Groups (splits, [`Heads::blocks`], rows).
///
/// `source`: [`Source::Ring`] or [`Source::Paged`].
pub fn decode(heads: &Heads, source: Source, splits: u32) -> Variant {
    let variant = heads.variant(Kernel::AttentionDecode).with("GB", heads.block()).with("SPLITS", splits);
    source.flags(variant).flag("WHOLE", splits == 1)
}

/// `attention/combine`: shares, row table, out. Groups (HEADS, rows).
pub fn combine(heads: &Heads, splits: u32) -> Variant {
    Variant::new(Kernel::AttentionCombine).with("HEADS", heads.heads).with("D", heads.head_dim).with("SPLITS", splits)
}

/// `attention/store`: the run's entries, row table, ring. Groups (⌈entry / 64⌉, rows).
pub fn store(heads: &Heads) -> Variant {
    Variant::new(Kernel::AttentionStore).with("ENTRY", heads.entry())
}
