//! Variants of the chunk stages with cooperative matrices: `delta/coop/**`.

use super::{Decay, Parts, padded};
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
pub fn coop_words(key_dim: u32) -> u32 {
    2 * 64 * (12 * sixteens(key_dim) + 16)
}

/// Fours a row of f32 in workgroup memory.
const PITCH: u32 = 17;

/// Fours of f16: slices of 64 channels, or T and a slice, a row 72 wide.
fn pool(parts: Parts) -> u32 {
    COOP_CHUNK * 18 * if parts.write_key || parts.decay == Decay::Channel { 3 } else { 2 }
}

/// f32 elements a chunk and key head of what [`coop_sums`] leaves, see `delta/coop/totals`.
pub fn coop_totals_words(key_dim: u32) -> u32 {
    padded(key_dim) + 4 + 3 * COOP_CHUNK
}

/// Bytes of workgroup memory of [`coop_sums`].
pub fn coop_sums_bytes(key_dim: u32) -> u32 {
    4 * COOP_CHUNK * (1 + 33 + 1) + 16 * COOP_THREADS * key_dim.div_ceil(128)
}

/// `delta/coop/sums`: groups (H, chunks). `normalise`: keys come as they are.
pub fn coop_sums(key_dim: u32, normalise: bool) -> Variant {
    Variant::new(Kernel::CoopSums)
        .with("K", padded(key_dim))
        .with("SLICES", key_dim.div_ceil(128))
        .with("EIGHT", 8)
        .with("SIXTEEN", 16)
        .flag("NORMALISE", normalise)
}

/// Fours of what a chunk's threads know of its rows.
fn facts(parts: Parts) -> u32 {
    if parts.write_key { 64 } else { 48 }
}

/// Bytes of workgroup memory of [`coop_chunk`].
pub fn coop_chunk_bytes(parts: Parts) -> u32 {
    16 * facts(parts) + 8 * pool(parts) + 16 * COOP_CHUNK * PITCH
}

/// `delta/coop/chunk`: groups (HV, chunks). `normalise`: q and k come as they are.
pub fn coop_chunk(parts: Parts, key_dim: u32, normalise: bool) -> Variant {
    Variant::new(Kernel::CoopChunk)
        .features(FEATURES)
        .with("K", padded(key_dim))
        .with("KT", sixteens(key_dim))
        .with("SLICES", sixteens(key_dim).div_ceil(4))
        .with("PITCH", PITCH)
        .with("POOL", pool(parts))
        .with("FACTS", facts(parts))
        .with("TWO", 2)
        .with("THREE", 3)
        .with("FOUR", 4)
        .with("SIXTEEN", 16)
        .flag("HEAD", parts.decay == Decay::Head)
        .flag("CHANNEL", parts.decay == Decay::Channel)
        .flag("DELTA", parts.delta)
        .flag("BETA_GIVEN", parts.beta)
        .flag("WRITE_KEY", parts.write_key)
        .flag("NORMALISE", normalise)
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
    let halves = 8 * (16 * (4 * sixteens(key_dim) + 2) + COOP_CHUNK * 6);
    s + halves + 16 * 2 * COOP_CHUNK * 5
}

/// `delta/coop/scan`: groups (⌈V/16⌉, HV, sequences).
pub fn coop_scan(parts: Parts, key_dim: u32, states: bool) -> Variant {
    let tiles = sixteens(key_dim);
    Variant::new(Kernel::CoopScan)
        .features(FEATURES)
        .with("K", padded(key_dim))
        .with("KT", tiles)
        .with("HALF", tiles / 2)
        .with("OWN", tiles.div_ceil(8))
        .with("TILES", scan_tiles(key_dim))
        .with("SHARE", tiles.div_ceil(4))
        .with("TWO", 2)
        .with("FOUR", 4)
        .flag("HEAD", parts.decay == Decay::Head)
        .flag("CHANNEL", parts.decay == Decay::Channel)
        .flag("DELTA", parts.delta)
        .flag("STATES", states)
}
