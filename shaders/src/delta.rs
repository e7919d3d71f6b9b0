//! Variants of the delta-rule kernels, by the parts that a rule has.
//!
//! A rule's flags: `DECAY` with `HEAD` or `CHANNEL`, `DELTA`, `BETA_GIVEN`, `WRITE_KEY`. Each constructor takes only
//! what its kernel depends on, so that rules share variants where they can. Storage buffers are bound in the order of
//! the kernel's text.

mod apart;
mod coop;
mod segments;

pub use apart::{
    APART_CHUNK, APART_COLUMNS, APART_PAIR_WORDS, apart_bytes, apart_chunk, apart_fits, apart_out, apart_out_columns,
    apart_scan, apart_shuffles, apart_solve, apart_words,
};
pub use coop::{
    COOP_CHUNK, COOP_COLUMNS, COOP_THREADS, coop_chunk, coop_chunk_bytes, coop_scan, coop_scan_bytes, coop_sums,
    coop_sums_bytes, coop_totals_words, coop_words,
};

pub use segments::{SEGMENTS_COLUMNS, SEGMENTS_WORKGROUP, segments_begin, segments_carry};

use crate::kernels::Kernel;
use crate::variant::{Features, Variant};

/// How the state fades.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Decay {
    /// Not at all.
    None,
    /// One number a head.
    Head,
    /// One a channel.
    Channel,
}

/// The parts of a rule that kernels are specialised by.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Parts {
    /// Decay.
    pub decay: Decay,
    /// Whether the value read back is subtracted.
    pub delta: bool,
    /// Whether β is an input (Longhorn's is made by [`prepare`]).
    pub beta: bool,
    /// Whether the write key is a tensor of its own.
    pub write_key: bool,
}

impl Parts {
    fn flags(self, variant: Variant) -> Variant {
        self.decay_flags(variant)
            .flag("DELTA", self.delta)
            .flag("BETA_GIVEN", self.beta)
            .flag("WRITE_KEY", self.write_key)
    }
    fn decay_flags(self, variant: Variant) -> Variant {
        variant
            .flag("DECAY", self.decay != Decay::None)
            .flag("HEAD", self.decay == Decay::Head)
            .flag("CHANNEL", self.decay == Decay::Channel)
    }
}

/// K as kernels see it: a multiple of 4.
pub fn padded(dim: u32) -> u32 {
    dim.next_multiple_of(4)
}

/// f32 elements of a chunk's `pair` block, see `delta/chunk/layout`.
pub fn pair_words(chunk: u32, key_dim: u32, decay: Decay) -> u32 {
    let keeps = if decay == Decay::Channel { padded(key_dim) } else { 4 };
    3 * chunk * chunk + 4 * chunk + keeps
}

/// `delta/prepare`: groups (⌈H/4⌉, rows).
pub fn prepare(key_dim: u32, normalise: bool, longhorn: bool) -> Variant {
    Variant::new(Kernel::DeltaPrepare)
        .with("K", padded(key_dim))
        .flag("NORMALISE", normalise)
        .flag("LONGHORN", longhorn)
}

/// `delta/precond/sums`: groups (⌈H·K/64⌉, chunks).
pub fn precond_sums(key_dim: u32) -> Variant {
    Variant::new(Kernel::PrecondSums).with("K", padded(key_dim))
}

/// f32 elements a chunk and key head of what [`precond_sums`] leaves.
pub fn precond_words(key_dim: u32) -> u32 {
    padded(key_dim) + 4
}

/// `delta/precond/carry`: groups (⌈H·K/64⌉, sequences). `words` a chunk and key head: [`precond_words`] or
/// [`coop_totals_words`].
pub fn precond_carry(key_dim: u32, chunk: u32, words: u32) -> Variant {
    Variant::new(Kernel::PrecondCarry).with("K", padded(key_dim)).with("C", chunk).with("BLOCK", words).with("EIGHT", 8)
}

/// `delta/precond/apply`: groups (⌈H·K/64⌉, chunks or sequences).
pub fn precond_apply(key_dim: u32, chunked: bool) -> Variant {
    Variant::new(Kernel::PrecondApply).with("K", padded(key_dim)).flag("CHUNKED", chunked)
}

/// `delta/step`: groups (⌈V/columns⌉, HV, sequences), `split` threads a column. `normalise`: q and k come as they are;
/// only without a write key of its own.
pub fn step(parts: Parts, key_dim: u32, columns: u32, split: u32, normalise: bool) -> Variant {
    let variant = Variant::new(Kernel::DeltaStep).with("K", padded(key_dim)).with("BV", columns).with("SPLIT", split);
    parts.flags(variant).flag("NORMALISE", normalise)
}

/// How [`lanes`] spreads S over subgroups.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct LanesTile {
    /// The size that every subgroup has.
    pub subgroup: u32,
    /// Fours of columns a subgroup: a power of two that divides `subgroup`.
    pub columns: u32,
    /// Subgroups a workgroup.
    pub teams: u32,
}

impl LanesTile {
    /// Subgroups that share a head.
    pub fn blocks(self, value_dim: u32) -> u32 {
        value_dim.div_ceil(4 * self.columns)
    }

    /// For `batch` heads of these dims, on a device whose subgroups all have `subgroup` lanes, with at most `channels`
    /// a lane: many have more loads in flight, few make less code, which a single step waits for. `None` where the dims
    /// do not fit. Only the number of subgroups a workgroup depends on `batch`, and no result on that.
    pub fn new(key_dim: u32, value_dim: u32, channels: u32, batch: u32, subgroup: u32) -> Option<Self> {
        if !(4..=128).contains(&subgroup) || !subgroup.is_power_of_two() || !value_dim.is_multiple_of(4) {
            return None;
        }
        let fits = |columns: u32| {
            let whole = key_dim.is_multiple_of(4 * subgroup / columns) && key_dim * columns / subgroup <= channels;
            whole && columns <= (value_dim / 4).next_power_of_two()
        };
        let columns = (0..=subgroup.ilog2().min(4)).rev().map(|n| 1 << n).find(|c| fits(*c))?;
        // Few heads: a subgroup a workgroup, so that they spread over the device.
        let all = value_dim.div_ceil(4 * columns);
        let teams = if all * batch <= 1024 { 1 } else { all.min(256 / subgroup) };
        Some(Self { subgroup, columns, teams })
    }

    /// Columns of V a workgroup.
    pub fn width(self) -> u32 {
        4 * self.columns * self.teams
    }
}

/// `delta/lanes`: groups (⌈V / tile.width()⌉, HV, sequences). K is a multiple of `4 · subgroup / columns`, V of 4.
pub fn lanes(parts: Parts, key_dim: u32, tile: LanesTile, normalise: bool) -> Variant {
    let variant = Variant::new(Kernel::DeltaLanes)
        .with("K", key_dim)
        .with("FOURS", key_dim * tile.columns / (4 * tile.subgroup))
        .with("SUBGROUP", tile.subgroup)
        .with("COLUMNS", tile.columns)
        .with("TEAMS", tile.teams)
        .features(Features { subgroups: true, ..Features::default() });
    parts.flags(variant).flag("NORMALISE", normalise)
}

/// Whom [`gram`] leaves its products for.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum GramFor {
    /// [`scan`].
    Scan,
    /// [`wide`].
    Wide,
    /// [`apart_solve`].
    Apart,
}

/// `delta/chunk/gram`: groups (HV, chunks).
pub fn gram(parts: Parts, key_dim: u32, chunk: u32, target: GramFor) -> Variant {
    let variant = Variant::new(Kernel::ChunkGram).with("K", padded(key_dim)).with("C", chunk);
    parts.flags(variant).flag("WIDE", target == GramFor::Wide).flag("BY_COLUMNS", target != GramFor::Scan)
}

/// `delta/chunk/invert`: groups (HV, chunks). Only with the delta term.
pub fn invert(parts: Parts, key_dim: u32, chunk: u32) -> Variant {
    let variant = Variant::new(Kernel::ChunkInvert).with("C", chunk);
    // K only decides the size of a block with channel decays.
    if parts.decay == Decay::Channel { variant.with("K", padded(key_dim)).flag("CHANNEL", true) } else { variant }
}

/// `delta/chunk/solve`: groups (⌈V/64⌉, and with the delta term ⌈K/64⌉ more; chunks; HV). `for_wide`: what it
/// leaves is for [`wide`].
pub fn solve(parts: Parts, key_dim: u32, chunk: u32, for_wide: bool) -> Variant {
    Variant::new(Kernel::ChunkSolve)
        .with("K", padded(key_dim))
        .with("C", chunk)
        .flag("CHANNEL", parts.decay == Decay::Channel)
        .flag("DELTA", parts.delta)
        .flag("WIDE", for_wide)
}

/// Columns of V a workgroup of [`wide`].
pub const WIDE_COLUMNS: u32 = 16;

/// `delta/chunk/wide`: groups (⌈V/16⌉, HV, sequences). `split` is from [`wide_split`].
pub fn wide(parts: Parts, key_dim: u32, chunk: u32, split: u32, states: bool) -> Variant {
    Variant::new(Kernel::ChunkWide)
        .with("K", padded(key_dim))
        .with("C", chunk)
        .with("SPLIT", split)
        .flag("CHANNEL", parts.decay == Decay::Channel)
        .flag("DELTA", parts.delta)
        .flag("STATES", states)
}

/// Groups of threads of [`wide`] on a device, or none if it does not fit there.
pub fn wide_split(key_dim: u32, chunk: u32, workgroup_bytes: u32, invocations: u32) -> Option<u32> {
    [8, 4].into_iter().find(|split| {
        let threads = chunk * split;
        threads <= invocations
            && padded(key_dim) <= threads
            && wide_bytes(key_dim, chunk, *split) <= workgroup_bytes
            && chunk_bytes(key_dim, chunk) <= workgroup_bytes
    })
}

/// Bytes of workgroup memory of [`wide`].
pub fn wide_bytes(key_dim: u32, chunk: u32, split: u32) -> u32 {
    64 * (padded(key_dim) + 2 * chunk + chunk * split)
}

/// `delta/chunk/scan`: groups (⌈V/columns⌉, HV, sequences).
pub fn scan(parts: Parts, key_dim: u32, chunk: u32, columns: u32, states: bool) -> Variant {
    Variant::new(Kernel::ChunkScan)
        .with("K", padded(key_dim))
        .with("C", chunk)
        .with("BV", columns)
        .with("KB", scan_slice(key_dim, chunk, columns))
        .flag("CHANNEL", parts.decay == Decay::Channel)
        .flag("DELTA", parts.delta)
        .flag("WRITE_KEY", parts.write_key && parts.decay != Decay::Channel)
        .flag("STATES", states)
}

/// Channels of W and Q that [`scan`] holds at a time: 32 if that stays within the default limits.
fn scan_slice(key_dim: u32, chunk: u32, columns: u32) -> u32 {
    if scan_bytes(key_dim, chunk, columns, 32) <= 16_384 { 32 } else { 16 }
}

fn scan_bytes(key_dim: u32, chunk: u32, columns: u32, slice: u32) -> u32 {
    4 * (padded(key_dim) * columns + chunk * columns + 2 * chunk * (slice + 1))
}

/// Bytes of workgroup memory that the stages need at a chunk length: the most that any of them does, over all rules.
pub fn chunk_bytes(key_dim: u32, chunk: u32) -> u32 {
    let gram = 4 * ((4 * chunk + chunk / 4) * 17 + chunk);
    let invert = 4 * chunk * chunk;
    let scan = scan_bytes(key_dim, chunk, 8, scan_slice(key_dim, chunk, 8));
    gram.max(invert).max(scan) + 48
}

/// Chunk length of the chunk stages for software adapters.
pub const SOFTWARE_CHUNK: u32 = 16;
/// Threads a workgroup of all kernels for software adapters: one SIMD vector. Their groups are counted in threads, over
/// two dimensions where one does not hold them. V, and all places and strides, are multiples of 4.
pub const SOFTWARE_LANES: u32 = 8;
/// Columns of V a thread of them.
pub const SOFTWARE_COLUMNS: u32 = 16;

/// Rounds of all loops of a thread in one dispatch that a software adapter surely does: lavapipe stops after 65,535.
const SOFTWARE_ROUNDS: u32 = 50_000;

/// Rows of a sequence that one dispatch of [`software_step`] does.
pub fn software_step_rows(key_dim: u32) -> u32 {
    SOFTWARE_ROUNDS / (1 + padded(key_dim) / 4 * 6)
}

/// Rows of a sequence that one dispatch of [`software_scan`] does: whole chunks.
pub fn software_scan_rows(key_dim: u32) -> u32 {
    SOFTWARE_ROUNDS / (64 + 9 * padded(key_dim)) * SOFTWARE_CHUNK
}

/// f32 elements of a chunk's `pair` block in the kernels for software adapters.
pub fn software_pair_words(key_dim: u32) -> u32 {
    3 * SOFTWARE_CHUNK * SOFTWARE_CHUNK + SOFTWARE_CHUNK + padded(key_dim)
}

/// `delta/software/step`: a thread a sequence, value head and 16 columns of V.
pub fn software_step(parts: Parts) -> Variant {
    parts.decay_flags(Variant::new(Kernel::SoftwareStep)).flag("DELTA", parts.delta).flag("BETA_GIVEN", parts.beta)
}

/// `delta/software/decay`: a thread a chunk, value head and four channels.
pub fn software_decay(parts: Parts) -> Variant {
    parts.decay_flags(Variant::new(Kernel::SoftwareDecay)).flag("BETA_GIVEN", parts.beta)
}

/// `delta/software/gram`: a thread a chunk, value head and 4×4 tile.
pub fn software_gram(parts: Parts) -> Variant {
    parts.decay_flags(Variant::new(Kernel::SoftwareGram)).flag("DELTA", parts.delta)
}

/// `delta/software/invert`: a thread a chunk, value head and column. Only with the delta term.
pub fn software_invert() -> Variant {
    Variant::new(Kernel::SoftwareInvert)
}

/// `delta/software/solve`: a thread a chunk, value head and 16 columns of V, and with the delta term of K.
pub fn software_solve(parts: Parts) -> Variant {
    Variant::new(Kernel::SoftwareSolve).flag("DELTA", parts.delta)
}

/// `delta/software/scan`: a thread a sequence, value head and 16 columns of V.
pub fn software_scan(parts: Parts, states: bool) -> Variant {
    Variant::new(Kernel::SoftwareScan).flag("DELTA", parts.delta).flag("STATES", states)
}
