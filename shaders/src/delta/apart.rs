//! Variants of the chunk stages with outputs apart from the scan: `delta/apart/**`.

use super::{Decay, Parts, chunk_bytes, padded};
use crate::kernels::Kernel;
use crate::variant::{Features, Variant};

/// Chunk length of these stages.
pub const APART_CHUNK: u32 = 64;
/// Columns of V a workgroup of [`apart_scan`].
pub const APART_COLUMNS: u32 = 16;
/// Threads of it.
const THREADS: u32 = 256;
/// Its threads that share the product with keys.
const KEY_SPLIT: u32 = 16;

/// Whether neighbours can trade sums where every subgroup has this size (0: sizes vary, or there are none).
pub fn apart_shuffles(subgroup: u32) -> bool {
    subgroup.is_multiple_of(KEY_SPLIT) && subgroup.is_power_of_two()
}

/// Whether a device has room for these stages.
pub fn apart_fits(key_dim: u32, shuffles: bool, workgroup_bytes: u32, invocations: u32) -> bool {
    let bytes = apart_bytes(key_dim, shuffles).max(chunk_bytes(key_dim, APART_CHUNK));
    invocations >= THREADS && bytes <= workgroup_bytes
}

fn key_rounds(key_dim: u32) -> u32 {
    (padded(key_dim) / 4).div_ceil(KEY_SPLIT)
}

/// Bytes of workgroup memory of [`apart_chunk`] with a write key: what these stages need at least, since the scan needs more only for a
/// large K or without shuffles.
const PRODUCT_BYTES: u32 = 16 * 8 * (3 * 8 * 5 + 4) + 4 * (11 * 64 + 8);

/// Bytes of workgroup memory that these stages need.
pub fn apart_bytes(key_dim: u32, shuffles: bool) -> u32 {
    let pitches = ((key_rounds(key_dim) * KEY_SPLIT) | 1) + APART_CHUNK / 4 + 1;
    let scan = 16 * (APART_COLUMNS * pitches + if shuffles { 0 } else { 4 * THREADS });
    scan.max(PRODUCT_BYTES)
}

fn base(kernel: Kernel, key_dim: u32) -> Variant {
    Variant::new(kernel).with("K", padded(key_dim)).with("C", APART_CHUNK)
}

/// f32 elements of one chunk and value head's operands, see `delta/apart/layout`.
pub fn apart_words(key_dim: u32) -> u32 {
    (key_dim.next_multiple_of(8) + APART_CHUNK) * APART_CHUNK
}

/// f32 elements of one chunk and value head's factors, see `delta/apart/layout`. With a decay a channel they are
/// [`super::pair_words`].
pub const APART_PAIR_WORDS: u32 = 2 * APART_CHUNK + 4;

/// `delta/apart/chunk`: groups (HV, chunks). Not with a decay a channel; `normalise`, where q and k come as they are, not
/// with a write key of its own.
pub fn apart_chunk(parts: Parts, key_dim: u32, normalise: bool) -> Variant {
    base(Kernel::ApartChunk, key_dim)
        .with("TWO", 2)
        .with("FOUR", 4)
        .with("EIGHT", 8)
        .flag("HEAD", parts.decay == Decay::Head)
        .flag("DELTA", parts.delta)
        .flag("BETA_GIVEN", parts.beta)
        .flag("WRITE_KEY", parts.write_key)
        .flag("NORMALISE", normalise)
}

/// `delta/apart/solve`: groups (HV, chunks). With a decay a channel, after `delta/chunk/gram`.
pub fn apart_solve(parts: Parts, key_dim: u32) -> Variant {
    base(Kernel::ApartSolve, key_dim).with("FOUR", 4).with("EIGHT", 8).flag("CHANNEL", true).flag("DELTA", parts.delta)
}

/// `delta/apart/scan`: groups (⌈V/16⌉, HV, sequences).
pub fn apart_scan(parts: Parts, key_dim: u32, shuffles: bool, states: bool) -> Variant {
    let split = if key_dim <= 128 { 8 } else { 4 };
    base(Kernel::ApartScan, key_dim)
        .features(Features { subgroups: shuffles, ..Features::default() })
        .with("KEY_ROUNDS", key_rounds(key_dim))
        .with("TOKEN_SPLIT", split)
        .with("TOKEN_ROUNDS", APART_CHUNK / 4 / split)
        .with("OWN", APART_COLUMNS / split)
        .with("FOUR", 4)
        .flag("IN_FOURS", split == 4)
        .flag("SHUFFLES", shuffles)
        .flag("CHANNEL", parts.decay == Decay::Channel)
        .flag("DELTA", parts.delta)
        .flag("STATES", states)
}

/// Columns of V a workgroup of [`apart_out`].
pub fn apart_out_columns(value_dim: u32) -> u32 {
    if value_dim <= 64 { 64 } else { 128 }
}

/// `delta/apart/out`: groups (⌈V / [`apart_out_columns`]⌉, HV, chunks).
pub fn apart_out(parts: Parts, key_dim: u32, value_dim: u32) -> Variant {
    let columns = apart_out_columns(value_dim);
    base(Kernel::ApartOut, key_dim)
        .with("COLUMNS", columns)
        .with("ROW_ROUNDS", APART_CHUNK * 4 / columns)
        .with("TWO", 2)
        .with("FOUR", 4)
        .with("EIGHT", 8)
        .flag("CHANNEL", parts.decay == Decay::Channel)
}
