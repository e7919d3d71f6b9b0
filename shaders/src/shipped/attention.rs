//! Variants of `attention/**`: every source of keys, with heads that are small, odd, grouped and largest.

use super::Shipped;
use crate::attention::{Heads, MAX_HEAD_DIM, Prep, Source, combine, decode, prefill, prep, solo, store};
use crate::params::{AttentionCombineParams, AttentionParams, AttentionPrepParams, AttentionStoreParams, Uniform};
use crate::variant::Variant;

const HEADS: [(u32, u32, u32); 7] =
    [(1, 1, 2), (4, 2, 16), (6, 2, 20), (3, 3, 33), (32, 4, 128), (40, 2, 80), (2, 1, MAX_HEAD_DIM)];

fn add<P: Uniform>(all: &mut Vec<Shipped>, variant: Variant) {
    if !all.iter().any(|s| s.variant == variant) {
        all.push(Shipped::base(variant).params::<P>());
    }
}

pub(super) fn list(all: &mut Vec<Shipped>) {
    for (heads, kv_heads, head_dim) in HEADS {
        let heads = Heads { heads, kv_heads, head_dim };
        for source in Source::ALL {
            for flags in 0..16 {
                let on = |bit: u32| flags >> bit & 1 == 1;
                let (norm, rotary, apart, alone) = (on(0), on(1), on(2), on(3));
                add::<AttentionPrepParams>(all, prep(&heads, Prep { to: source, norm, rotary, apart, alone }));
            }
            add::<AttentionParams>(all, prefill(&heads, source));
            add::<AttentionParams>(all, solo(&heads, source));
            if !source.fresh() {
                for splits in [1, 2, 16] {
                    add::<AttentionParams>(all, decode(&heads, source, splits));
                }
            }
        }
        for splits in [2, 16] {
            add::<AttentionCombineParams>(all, combine(&heads, splits));
        }
        add::<AttentionStoreParams>(all, store(&heads));
    }
}
