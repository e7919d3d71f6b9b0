//! Variants of products with cooperative matrices: `linear/coop` for prompts, `linear/coop_decode` for many sessions.

use super::Product;
use crate::kernels::Kernel;
use crate::variant::{Features, Variant};

/// Tile of a product with cooperative matrices.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct CoopTile {
    /// Rows a workgroup.
    pub rows: u32,
    /// Outputs a workgroup.
    pub outputs: u32,
    /// Columns of the input at a time.
    pub depth: u32,
    /// Rows and outputs a subgroup, multiples of 16.
    pub subgroup: (u32, u32),
    /// Whether operands are asked for a step ahead.
    pub ahead: bool,
}

impl CoopTile {
    /// Threads a workgroup: subgroups of 32.
    pub const fn threads(self) -> u32 {
        32 * (self.rows / self.subgroup.0) * (self.outputs / self.subgroup.1)
    }
    /// Bytes of workgroup memory. `split`: see [`gemm_coop`].
    pub const fn bytes(self, split: bool) -> u32 {
        let rows = if split { 2 * self.rows } else { self.rows };
        2 * (rows + self.outputs) * (self.depth + 8) + 32 * self.threads()
    }
}

/// For products with several tiles a multiprocessor of a large device.
pub const COOP_LARGE: CoopTile = CoopTile { rows: 128, outputs: 128, depth: 32, subgroup: (64, 64), ahead: true };
/// For products with about one.
pub const COOP_DEEP: CoopTile = CoopTile { rows: 128, outputs: 128, depth: 64, subgroup: (64, 32), ahead: true };
/// For the others.
pub const COOP_SMALL: CoopTile = CoopTile { rows: 64, outputs: 64, depth: 64, subgroup: (32, 32), ahead: true };
/// The first of the three where x is split in two.
pub const COOP_SPLIT_LARGE: CoopTile = CoopTile { rows: 128, outputs: 128, depth: 32, subgroup: (64, 32), ahead: true };
/// The last of the three where x is split in two.
pub const COOP_SPLIT_SMALL: CoopTile = CoopTile { rows: 64, outputs: 64, depth: 32, subgroup: (32, 32), ahead: true };

/// What a product with cooperative matrices takes of its input.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum CoopInput {
    /// f32, each as the sum of two f16.
    Split,
    /// f32, rounded to f16.
    Rounded,
    /// f16.
    Half,
}

/// `linear/coop`, a matrix of 16-bit elements, plain aligned input without tail, rows that go to a buffer: weights, x,
/// bias, out; those that there are.
/// Groups (⌈out_dim / tile.outputs⌉, ⌈rows / tile.rows⌉).
/// `ragged`: in_dim is no multiple of the tile's depth.
pub fn gemm_coop(product: &Product, tile: CoopTile, rows: u32, input: CoopInput, ragged: bool) -> Variant {
    let half = input == CoopInput::Half;
    let pieces = tile.rows * tile.depth / if half { 8 } else { 4 };
    product
        .variant(Kernel::GemmCoop)
        .features(Features { f16: true, subgroups: false, cooperative_matrix: true })
        .flag("DIRECT", !product.bias)
        .flag("SPLIT", input == CoopInput::Split)
        .flag("XHALF", half)
        .flag("AHEAD", tile.ahead)
        .flag("RAGGED", ragged)
        .with("BM", tile.rows)
        .with("BN", tile.outputs)
        .with("BK", tile.depth)
        .with("SM", tile.subgroup.0)
        .with("SN", tile.subgroup.1)
        .with("ROWS16", tile.subgroup.0 / 16)
        .with("OUTS16", tile.subgroup.1 / 16)
        .with("PIECES", pieces / tile.threads())
        .with("EIGHTS", tile.outputs * tile.depth / 8 / tile.threads())
        .with("ROWS", rows)
}

/// Tile of a product of a decode's rows with cooperative matrices.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct DecodeTile {
    /// Subgroups of 32 threads, which share in_dim: at least 8.
    pub teams: u32,
    /// Rows a workgroup, a multiple of 16.
    pub rows: u32,
    /// Outputs a workgroup, a multiple of 16.
    pub outputs: u32,
    /// Columns of the input that a subgroup has at a time, a multiple of 16.
    pub slice: u32,
    /// How many times that are asked for ahead.
    pub depth: u32,
    /// As [`super::GemvTile::paired`].
    pub paired: bool,
}

impl DecodeTile {
    const fn weight_rows(self) -> u32 {
        if self.paired { 2 * self.outputs } else { self.outputs }
    }
    /// Whether the sums of all rows have room at the same time.
    const fn once(self) -> bool {
        self.bytes_with(self.rows / 16) <= 48 << 10
    }
    /// Bytes of workgroup memory with the sums of so many times sixteen rows.
    const fn bytes_with(self, sixteens: u32) -> u32 {
        let weights = 2 * self.weight_rows() * (self.slice + 8) + 64;
        self.teams * (weights + 1024 * sixteens * (self.weight_rows() / 16))
    }
    /// Threads a workgroup.
    pub const fn threads(self) -> u32 {
        32 * self.teams
    }
    /// Bytes of workgroup memory.
    pub const fn bytes(self) -> u32 {
        self.bytes_with(if self.once() { self.rows / 16 } else { 1 })
    }
}

/// `linear/coop_decode`, a matrix of 16-bit elements, plain input in [`super::Spread::Tiles`]: the buffers of
/// [`super::gemv`]. Groups (⌈outputs of all / tile.outputs⌉, ⌈rows / tile.rows⌉). `half`: so is `out`; rows only.
pub fn decode_coop(product: &Product, tile: DecodeTile, rows: u32, half: bool) -> Variant {
    product
        .variant(Kernel::DecodeCoop)
        .features(Features { f16: true, subgroups: false, cooperative_matrix: true })
        .flag("XHALF", true)
        .flag("PAIRED", tile.paired)
        .flag("OUT_HALF", half)
        .with("TEAMS", tile.teams)
        .with("ROWS16", tile.rows / 16)
        .with("OUTS16", tile.outputs / 16)
        .with("BK", tile.slice)
        .with("K16", tile.slice / 16)
        .with("DEPTH", tile.depth)
        .flag("ONCE", tile.once())
        .with("EIGHTS", tile.weight_rows() * tile.slice / 256)
        .with("ROWS", rows)
}
