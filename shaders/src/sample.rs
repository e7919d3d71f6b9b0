//! Variants of the sampling kernels.

use crate::kernels::Kernel;
use crate::variant::{Features, Variant};

/// `sample/draw`: controls, heads, emits. Groups (rows). `group`: invocations a workgroup, a power of two.
pub fn draw(group: u32) -> Variant {
    Variant::new(Kernel::Draw).with("GROUP", group)
}

/// Fours of logits that a thread of [`draw_lanes`] has in flight at most: 32 tokens, a bit each.
const WIDE: u32 = 8;

/// `sample/lanes`: the same for a vocabulary, where all subgroups have `subgroup` lanes.
pub fn draw_lanes(vocab: u32, group: u32, subgroup: u32) -> Variant {
    let rounds = vocab.div_ceil(4 * group).max(1);
    Variant::new(Kernel::DrawLanes)
        .with("GROUP", group)
        .with("WIDE", rounds.min(WIDE))
        .with("SUBGROUP", subgroup)
        .flag("HELD", rounds <= WIDE)
        .features(Features { subgroups: true, ..Features::default() })
}
