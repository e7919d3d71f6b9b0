//! Variants of the chunk stages with cooperative matrices: `delta/coop/**`.

use super::{Decay, Parts, padded, pair_words};
use crate::kernels::Kernel;
use crate::variant::{Features, Variant};

/// Chunk length of these stages.
pub const COOP_CHUNK: u32 = 64;
/// Columns of V a workgroup of [`coop_scan`].
pub const COOP_COLUMNS: u32 = 16;
/// Threads a workgroup of both stages: eight subgroups of 32.
pub const COOP_THREADS: u32 = 256;

const FEATURES: Features = Features { f16: true, subgroups: false, cooperative_matrix: true };

/// Sixteens of K: an even number.
fn sixteens(key_dim: u32) -> u32 {
    key_dim.div_ceil(32) * 2
}

/// f32 words of one chunk and value head's operands, see `delta/coop/layout`.
pub fn coop_words(key_dim: u32, value_dim: u32) -> u32 {
    2 * (64 * (12 * sixteens(key_dim) + 16) + value_dim.next_multiple_of(16) * COOP_CHUNK / 4)
}

/// How `delta/coop/chunk` uses workgroup memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoopTile {
    /// Channels or columns at a time.
    pub slice: u32,
    /// Fours a row of f32.
    pub pitch: u32,
}

impl CoopTile {
    /// From the fastest to the smallest.
    pub const ALL: [Self; 2] = [Self { slice: 64, pitch: 17 }, Self { slice: 32, pitch: 16 }];

    /// Fours of f16: slices of the two or three products' operands, then T and a slice.
    fn pool(self, parts: Parts) -> u32 {
        let pitch = self.slice / 4 + 2;
        let slices = if parts.decay == Decay::Channel { 1 } else { 2 + u32::from(parts.write_key) };
        COOP_CHUNK * (slices * pitch).max(18 + pitch)
    }

    /// Bytes of workgroup memory of [`coop_chunk`].
    pub fn bytes(self, parts: Parts) -> u32 {
        16 * COOP_CHUNK + 8 * self.pool(parts) + 16 * COOP_CHUNK * self.pitch
    }

    /// The best that fits a device's workgroup memory, as [`coop_scan`] must too.
    pub fn best(parts: Parts, key_dim: u32, workgroup_bytes: u32) -> Option<Self> {
        let fits = |tile: &Self| tile.bytes(parts).max(coop_scan_bytes(key_dim)) <= workgroup_bytes;
        Self::ALL.into_iter().find(fits)
    }
}

/// `delta/coop/chunk`: groups (HV, chunks). `normalise`: q and k come as they are; neither with a write key of its own
/// nor with channel decays, for which `delta/chunk/gram` comes before.
pub fn coop_chunk(parts: Parts, key_dim: u32, tile: CoopTile, normalise: bool) -> Variant {
    let channel = parts.decay == Decay::Channel;
    let variant = Variant::new(Kernel::CoopChunk)
        .features(FEATURES)
        .with("K", padded(key_dim))
        .with("KT", sixteens(key_dim))
        .with("SLICE", tile.slice)
        .with("SLICES", (16 * sixteens(key_dim)).div_ceil(tile.slice))
        .with("DEPTH", tile.slice / 16)
        .with("OUTS", tile.slice / 32)
        .with("PITCH", tile.pitch)
        .with("POOL", tile.pool(parts))
        .with("TWO", 2)
        .with("FOUR", 4)
        .flag("HEAD", parts.decay == Decay::Head)
        .flag("CHANNEL", channel)
        .flag("DELTA", parts.delta);
    if !channel {
        return variant.flag("BETA_GIVEN", parts.beta).flag("WRITE_KEY", parts.write_key).flag("NORMALISE", normalise);
    }
    let square = COOP_CHUNK * COOP_CHUNK;
    variant
        .with("PAIR_BLOCK", pair_words(COOP_CHUNK, key_dim, parts.decay))
        .with("SCORES_AT", square)
        .with("BETA_AT", 3 * square + 3 * COOP_CHUNK)
}

/// Tiles of S that a workgroup of [`coop_scan`] has room for.
fn scan_tiles(key_dim: u32) -> u32 {
    let tiles = sixteens(key_dim);
    // One more for subgroups that have none of their own.
    tiles + u32::from(!tiles.is_multiple_of(8))
}

/// Bytes of workgroup memory of [`coop_scan`].
pub fn coop_scan_bytes(key_dim: u32) -> u32 {
    let s = 16 * 16 * (4 * scan_tiles(key_dim) + 1);
    let halves = 8 * 16 * (4 * sixteens(key_dim) + 2 + COOP_CHUNK / 4 + 2);
    s + halves + 16 * 2 * COOP_CHUNK * 5
}

/// `delta/coop/scan`: groups (⌈V/16⌉, HV, sequences).
pub fn coop_scan(parts: Parts, key_dim: u32, states: bool) -> Variant {
    let tiles = sixteens(key_dim);
    // What the state keeps of itself comes from the stage before, or from `delta/chunk/gram`.
    let (block, at) = match parts.decay {
        Decay::Channel => {
            let words = pair_words(COOP_CHUNK, key_dim, parts.decay);
            (words, words - padded(key_dim))
        }
        _ => (1, 0),
    };
    Variant::new(Kernel::CoopScan)
        .features(FEATURES)
        .with("K", padded(key_dim))
        .with("KT", tiles)
        .with("HALF", tiles / 2)
        .with("OWN", tiles.div_ceil(8))
        .with("TILES", scan_tiles(key_dim))
        .with("TWO", 2)
        .with("FOUR", 4)
        .with("KEEP_BLOCK", block)
        .with("KEEP_AT", at)
        .flag("DECAY", parts.decay != Decay::None)
        .flag("HEAD", parts.decay == Decay::Head)
        .flag("CHANNEL", parts.decay == Decay::Channel)
        .flag("DELTA", parts.delta)
        .flag("STATES", states)
}
