//! Variants of the kernels around matrix products: embedding, products, norms, row tables.
//!
//! Storage buffers are bound in the order of the kernel's text; each constructor's doc lists them.

mod coop;

pub use coop::{
    COOP_DEEP, COOP_LARGE, COOP_SMALL, COOP_SPLIT_LARGE, COOP_SPLIT_SMALL, CoopInput, CoopTile, DecodeTile,
    decode_coop, gemm_coop,
};

use crate::kernels::Kernel;
use crate::variant::{Features, Variant};

/// Element type of a matrix.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Element {
    /// 32-bit float.
    F32,
    /// IEEE half, unpacked without the f16 feature.
    F16,
    /// bfloat16.
    Bf16,
}

impl Element {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    fn flag(self) -> &'static str {
        match self {
            Self::F32 => "W_F32",
            Self::F16 => "W_F16",
            Self::Bf16 => "W_BF16",
        }
    }
}

/// An output gate and its activation.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Gate {
    /// None.
    None,
    /// x·sigmoid(x).
    Silu,
    /// sigmoid(x).
    Sigmoid,
}

impl Gate {
    pub(crate) fn flags(self, variant: Variant) -> Variant {
        variant.flag("GATED", self != Self::None).flag("GATE_SILU", self == Self::Silu)
    }
}

/// What a product does to its input on the way in.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Prologue {
    /// Nothing.
    Plain,
    /// RMSNorm of the row.
    Rms,
    /// Per head: RMSNorm with `norm`, then the gate. So many heads.
    Head {
        /// Heads a row.
        heads: u32,
        /// Whether there is a norm.
        norm: bool,
        /// The gate.
        gate: Gate,
    },
    /// Per head: the scale of an RMSNorm whose weights and gate have been applied already; aligned, without a tail.
    Scaled {
        /// Sums of squares a head.
        blocks: u32,
    },
    /// SwiGLU.
    SwiGlu,
}

/// Where a product's result goes.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Destination {
    /// Rows of a buffer.
    Rows,
    /// Added to rows of a buffer.
    Add,
    /// The logits in the heads of the rows' sessions.
    Heads,
    /// Rows of a buffer, convolution channels through the convolution and SiLU: so many taps.
    Convolution(u32),
}

/// All that specialises a product, tiles aside.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Product {
    /// The matrix.
    pub element: Element,
    /// Whether it is a texture.
    pub texture: bool,
    /// The input.
    pub prologue: Prologue,
    /// The result.
    pub destination: Destination,
    /// Whether a bias is added.
    pub bias: bool,
    /// Whether every place and stride of the input is a multiple of 4.
    pub aligned: bool,
    /// Whether in_dim is no multiple of 8.
    pub tail: bool,
    /// Whether the one row is the last of its piece.
    pub last: bool,
}

impl Product {
    /// Whether the kernel reads the row table.
    pub fn reads_table(&self) -> bool {
        self.last || matches!(self.destination, Destination::Heads | Destination::Convolution(_))
    }

    fn variant(&self, kernel: Kernel) -> Variant {
        let (norm, heads, gate) = match self.prologue {
            Prologue::Head { norm, gate, heads } => (norm, heads, gate),
            _ => (false, 0, Gate::None),
        };
        let mut v = Variant::new(kernel)
            .flag(self.element.flag(), true)
            .flag("W_TEXTURE", self.texture)
            .flag("IN_RMS", self.prologue == Prologue::Rms)
            .flag("IN_SWIGLU", self.prologue == Prologue::SwiGlu)
            .flag("IN_HEAD", matches!(self.prologue, Prologue::Head { .. }))
            .flag("HEAD_NORM", norm)
            .flag("NORMED", norm || self.prologue == Prologue::Rms);
        if norm {
            v = v.with("HEADS", heads);
        }
        if let Prologue::Scaled { blocks } = self.prologue {
            v = v.with("BLOCKS", blocks).flag("SCALED", true);
        }
        v = gate
            .flags(v)
            .flag("ADD", self.destination == Destination::Add)
            .flag("OUT_HEAD", self.destination == Destination::Heads)
            .flag("BIAS", self.bias)
            .flag("XVEC", self.aligned)
            .flag("TAIL", self.tail)
            .flag("LAST", self.last)
            .flag("TABLE", self.reads_table());
        match self.destination {
            Destination::Convolution(taps) => {
                v.with("TAPS", taps).with("PAST", taps.saturating_sub(1)).flag("CONV_OUT", true)
            }
            _ => v,
        }
    }
}

/// How a one-pass product is spread over lanes.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct GemvTile {
    /// Lanes a workgroup.
    pub workgroup: u32,
    /// Lanes that share an output: a power of two.
    pub team: u32,
    /// Outputs a team.
    pub outputs: u32,
    /// Rows a pass: a power of two.
    pub rows: u32,
    /// Eights that a lane has in flight for each weight row.
    pub unroll: u32,
    /// Whether the last step of unroll · team eights is not full.
    pub masked: bool,
    /// Whether an output is silu(one weight row) · (another): SwiGLU. `outputs` counts outputs, not weight rows.
    pub paired: bool,
    /// The size that every subgroup has, a multiple of `team`, or a part of it where `team` is `workgroup`; 0: lanes meet
    /// in workgroup memory.
    pub subgroup: u32,
}

/// `linear/gemv`: weights, x, norm, gate, sums of squares, bias, pack and state of a convolution, row table, out; those that there are.
/// Groups (⌈outputs of all / (workgroup / team · outputs)⌉, rows / tile.rows).
pub fn gemv(product: &Product, tile: GemvTile) -> Variant {
    let weight_rows = if tile.paired { 2 * tile.outputs } else { tile.outputs };
    let v = product
        .variant(Kernel::Gemv)
        .with("WG", tile.workgroup)
        .with("TEAM", tile.team)
        .with("OUTS", tile.outputs)
        .with("R", tile.rows)
        .with("U", tile.unroll)
        .flag("MASKED", tile.masked)
        .flag("PAIRED", tile.paired);
    if tile.subgroup > 0 {
        let features = Features { subgroups: true, ..Features::default() };
        let ahead = tile.rows * tile.outputs <= tile.team && !product.last;
        let v = v.with("SUBGROUP", tile.subgroup).flag("SUBGROUPS", true).flag("AHEAD", ahead).features(features);
        return if tile.team > tile.subgroup { v.with("SPLIT", tile.team / tile.subgroup) } else { v };
    }
    let sums = weight_rows + u32::from(product.prologue == Prologue::Rms);
    // 12 KiB of workgroup memory at most, and a power of two, so that blocks divide the rows.
    let fit = (3072 / (tile.workgroup * sums)).max(1);
    v.with("BLOCK", tile.rows.min(1 << fit.ilog2()))
}

/// How a product with the rows of a decode of many sessions is spread over lanes.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct PanelTile {
    /// Lanes a workgroup.
    pub workgroup: u32,
    /// Lanes that share an output: a power of two, at least `weight_rows`. `split` times as many are [`GemvTile::team`],
    /// or the sums differ.
    pub team: u32,
    /// Shares of in_dim that a team takes one after the other: subgroups of gemv's team.
    pub split: u32,
    /// Weight rows a team: 8 or 4.
    pub weight_rows: u32,
    /// Rows a team: a multiple of team / weight_rows.
    pub rows: u32,
    /// Teams with the same weights.
    pub sets: u32,
    /// Steps of the input in workgroup memory at a time, 1 or 2.
    pub slabs: u32,
    /// Whether weights are asked for a step ahead.
    pub ahead: bool,
    /// As [`GemvTile::paired`].
    pub paired: bool,
    /// The size that every subgroup has, a multiple of `team`.
    pub subgroup: u32,
}

impl PanelTile {
    /// Rows a workgroup.
    pub const fn group_rows(self) -> u32 {
        self.rows * self.sets
    }
    /// Outputs a workgroup.
    pub const fn group_outputs(self) -> u32 {
        self.workgroup / self.team / self.sets * self.outputs()
    }
    /// Bytes of workgroup memory.
    pub const fn bytes(self) -> u32 {
        32 * self.slabs * self.group_rows() * self.team + 4 * self.group_rows()
    }
    const fn outputs(self) -> u32 {
        if self.paired { self.weight_rows / 2 } else { self.weight_rows }
    }
}

/// `linear/panel`, plain, scaled or RMS-normed input, aligned and without tail: the buffers of [`gemv`].
/// Groups (⌈outputs of all / tile.group_outputs()⌉, rows / tile.group_rows()).
pub fn panel(product: &Product, tile: PanelTile) -> Variant {
    let features = Features { subgroups: true, ..Features::default() };
    product
        .variant(Kernel::Panel)
        .with("WG", tile.workgroup)
        .with("TEAM", tile.team)
        .with("SPLIT", tile.split)
        .with("SUBGROUP", tile.subgroup)
        .with("R", tile.rows)
        .with("SETS", tile.sets)
        .with("OUTS", tile.outputs())
        .with("PASSES", tile.group_rows().div_ceil(tile.workgroup / tile.team))
        .with("SLABS", tile.slabs)
        .with("N", tile.weight_rows)
        .flag("EIGHT", tile.weight_rows == 8)
        .flag("AHEAD", tile.ahead)
        .flag("PAIRED", tile.paired)
        .features(features)
}

/// Tile of a product of many rows.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct GemmTile {
    /// Rows a workgroup.
    pub rows: u32,
    /// Outputs a workgroup.
    pub outputs: u32,
    /// Columns of the input at a time, a multiple of 8.
    pub depth: u32,
    /// Rows and outputs a thread, multiples of 4.
    pub thread: (u32, u32),
}

/// `linear/gemm`, plain input: weights, x, bias, out; those that there are.
/// Groups (⌈out_dim / tile.outputs⌉, ⌈rows / tile.rows⌉).
pub fn gemm(product: &Product, tile: GemmTile, rows: u32) -> Variant {
    product
        .variant(Kernel::Gemm)
        .with("BM", tile.rows)
        .with("BN", tile.outputs)
        .with("BK", tile.depth)
        .with("TM", tile.thread.0)
        .with("TN", tile.thread.1)
        .with("ROWS", rows)
}

/// Tile of a product on a software adapter.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct SoloTile {
    /// Invocations a workgroup.
    pub workgroup: u32,
    /// Outputs an invocation.
    pub outputs: u32,
    /// Rows an invocation: a power of two.
    pub rows: u32,
    /// vec4s of the window of x that is bound as a uniform; 0: x is a storage buffer.
    pub window: u32,
}

/// `linear/solo`, plain input: weights, x, bias, row table, out; those that there are.
/// Groups (⌈out_dim / (workgroup · outputs)⌉, rows / rows a pass).
pub fn solo(product: &Product, tile: SoloTile) -> Variant {
    let v = product
        .variant(Kernel::LinearSolo)
        .with("WG", tile.workgroup)
        .with("N", tile.outputs)
        .with("R", tile.rows)
        .flag("XUNI", tile.window > 0);
    if tile.window > 0 { v.with("XLEN", tile.window) } else { v }
}

/// `linear/embed`: weights, out, then tokens, or (decode) controls, heads, row table, sequences. Groups (rows).
pub fn embed(element: Element, texture: bool, decode: bool) -> Variant {
    Variant::new(Kernel::Embed)
        .with("WG", 64)
        .flag(element.flag(), true)
        .flag("W_TEXTURE", texture)
        .flag("DECODE", decode)
}

/// `common/begin`: tokens, sequences, heads, row table. One group.
pub fn begin() -> Variant {
    Variant::new(Kernel::Begin).with("WG", 256)
}

/// Invocations a workgroup of [`copy_slots`].
pub const COPY_WORKGROUP: u32 = 64;

/// `common/copy_slots`: pairs, data. Groups (any, pairs).
pub fn copy_slots() -> Variant {
    Variant::new(Kernel::CopySlots).with("WG", COPY_WORKGROUP)
}

/// How a norm or an activation is spread, and what it writes.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Spread {
    /// An invocation a row, on software adapters.
    Alone,
    /// A workgroup a row, element by element.
    Single,
    /// Four elements at a time: every place and stride is a multiple of 4.
    Fours,
    /// The same, rounded to f16.
    Halves,
    /// The same in tiles of 16 rows by 16 columns, for [`decode_coop`].
    Tiles,
}

impl Spread {
    fn flags(self, variant: Variant) -> Variant {
        let half = matches!(self, Self::Halves | Self::Tiles);
        variant
            .flag("SOLO", self == Self::Alone)
            .flag("WIDE", half || self == Self::Fours)
            .flag("HALF", half)
            .flag("TILES", self == Self::Tiles)
            .features(Features { f16: half, ..Features::default() })
    }
}

/// `norm/rms` of rows of `width` elements: x, norm, row table (`last`), out. Groups (rows), or alone (⌈rows / 8⌉).
pub fn rms(spread: Spread, last: bool, width: u32) -> Variant {
    let alone = spread == Spread::Alone;
    let workgroup = if alone { SOLO_WORKGROUP } else { 128 };
    let v = spread.flags(Variant::new(Kernel::RmsNorm).with("WG", workgroup)).flag("LAST", last);
    if alone { v.with("EIGHT", 8).with("WIDTH", width) } else { v }
}

/// `norm/head` of heads of `head_dim` elements: x, norm, gate, out; those that there are. Groups (rows, heads), or alone
/// (⌈rows · heads / 8⌉).
pub fn head_norm(spread: Spread, norm: bool, gate: Gate, head_dim: u32) -> Variant {
    let workgroup = match spread {
        Spread::Alone => SOLO_WORKGROUP,
        Spread::Single => 64,
        Spread::Fours | Spread::Halves | Spread::Tiles => 32,
    };
    let v = gate.flags(spread.flags(Variant::new(Kernel::HeadNorm).with("WG", workgroup)).flag("HEAD_NORM", norm));
    if spread == Spread::Alone { v.with("FOUR", 4).with("DIM", head_dim) } else { v }
}

/// Invocations a workgroup of kernels that work alone, on software adapters: one vector of a CPU.
pub const SOLO_WORKGROUP: u32 = 8;

/// Invocations a workgroup of [`swiglu`].
pub const SWIGLU_WORKGROUP: u32 = 64;

/// `norm/swiglu`: x, out. Groups (⌈width / 64⌉, rows), in fours (⌈width / 256⌉, rows).
pub fn swiglu(spread: Spread) -> Variant {
    let spread = if spread == Spread::Alone { Spread::Single } else { spread };
    spread.flags(Variant::new(Kernel::SwiGlu).with("WG", SWIGLU_WORKGROUP))
}

/// `norm/halve`: x, out (f16). Groups (⌈width / 256⌉, rows). `tiles`: as [`Spread::Tiles`].
pub fn halve(tiles: bool) -> Variant {
    let features = Features { f16: true, ..Features::default() };
    Variant::new(Kernel::Halve).with("WG", SWIGLU_WORKGROUP).flag("TILES", tiles).features(features)
}
