//! Variants of `delta/**`: every combination of a rule's parts, with dims that are small, odd, usual and largest.

use super::{Needs, Shipped};
use crate::delta::{
    APART_CHUNK, Decay, GramFor, LanesTile, Parts, apart_bytes, apart_chunk, apart_out, apart_scan, apart_solve,
    chunk_bytes, coop_chunk, coop_chunk_bytes, coop_scan, coop_scan_bytes, coop_sums, coop_sums_bytes,
    coop_totals_words, gram, invert, lanes, precond_apply, precond_carry, precond_sums, precond_words, prepare, scan,
    segments_begin, segments_carry, software_decay, software_gram, software_invert, software_scan, software_solve,
    software_step, solve, step, wide, wide_bytes,
};
use crate::params::DeltaParams;
use crate::variant::Variant;

const KEY_DIMS: [u32; 4] = [4, 60, 128, 256];

fn parts() -> Vec<Parts> {
    let mut all = Vec::new();
    for decay in [Decay::None, Decay::Head, Decay::Channel] {
        for delta in [false, true] {
            for beta in [false, true] {
                for write_key in [false, true] {
                    all.push(Parts { decay, delta, beta, write_key });
                }
            }
        }
    }
    all
}

pub(super) fn list(all: &mut Vec<Shipped>) {
    let mut add = |variant: Variant| {
        // Kernels that depend on some parts only would come more than once.
        if !all.iter().any(|s| s.variant == variant) {
            all.push(Shipped::base(variant).params::<DeltaParams>());
        }
    };
    for k in KEY_DIMS {
        for flags in 0..4 {
            add(prepare(k, flags & 1 != 0, flags & 2 != 0));
        }
        add(segments_begin(64, 4));
        add(segments_carry(k, 4));
        add(precond_sums(k));
        add(precond_carry(k, 32, precond_words(k)));
        add(precond_apply(k, false));
        add(precond_apply(k, true));
        for p in parts() {
            add(step(p, k, 32, 8, false));
            if !p.write_key {
                add(step(p, k, 32, 8, true));
            }
            for tile in
                [LanesTile { subgroup: 32, columns: 2, teams: 1 }, LanesTile { subgroup: 4, columns: 1, teams: 4 }]
            {
                if k.is_multiple_of(4 * tile.subgroup / tile.columns) {
                    add(lanes(p, k, tile, !p.write_key));
                    add(lanes(p, k, tile, false));
                }
            }
            for chunk in [16, 32] {
                add(gram(p, k, chunk, GramFor::Scan));
                if p.delta {
                    add(invert(p, k, chunk));
                }
                add(solve(p, k, chunk, false));
                for states in [false, true] {
                    add(scan(p, k, chunk, 8, states));
                }
            }
        }
    }
    for p in parts() {
        add(software_step(p));
        add(software_decay(p));
        add(software_gram(p));
        add(software_invert());
        add(software_solve(p));
        add(software_scan(p, false));
        add(software_scan(p, true));
    }
    // Chunks of 64 rows need more workgroup memory than the default.
    for p in parts() {
        let (k, chunk) = (128, 64);
        let mut add = |variant: Variant| {
            if !all.iter().any(|s| s.variant == variant) {
                let needs = Needs { workgroup_bytes: chunk_bytes(k, chunk), ..Needs::WEBGPU_DEFAULT };
                all.push(Shipped::base(variant).params::<DeltaParams>().needs(needs));
            }
        };
        add(gram(p, k, chunk, GramFor::Scan));
        if p.delta {
            add(invert(p, k, chunk));
        }
        add(solve(p, k, chunk, false));
        add(scan(p, k, chunk, 8, false));
    }
    coop(all);
    apart(all);
    // The wide scan, at the workgroup sizes that devices take.
    for (k, chunk, split) in [(60, 32, 8), (128, 32, 4), (256, 32, 8), (128, 64, 8), (128, 64, 4), (256, 64, 4)] {
        for p in parts() {
            let bytes = wide_bytes(k, chunk, split).max(chunk_bytes(k, chunk));
            let base = Needs::WEBGPU_DEFAULT;
            let needs = Needs { workgroup_bytes: bytes, invocations: (chunk * split).max(256), ..base };
            for variant in [
                gram(p, k, chunk, GramFor::Wide),
                solve(p, k, chunk, true),
                wide(p, k, chunk, split, false),
                wide(p, k, chunk, split, true),
            ] {
                if !all.iter().any(|s| s.variant == variant) {
                    all.push(Shipped::base(variant).params::<DeltaParams>().needs(needs));
                }
            }
        }
    }
}

/// With outputs apart from the scan.
fn apart(all: &mut Vec<Shipped>) {
    let mut add = |variant: Variant, bytes: u32| {
        let base = Needs::WEBGPU_DEFAULT;
        let needs = Needs { workgroup_bytes: bytes.max(base.workgroup_bytes), ..base };
        if !all.iter().any(|s| s.variant == variant) {
            all.push(Shipped::base(variant).params::<DeltaParams>().needs(needs));
        }
    };
    for p in parts() {
        for k in KEY_DIMS {
            for shuffles in [false, true] {
                let bytes = apart_bytes(k, shuffles);
                if p.decay == Decay::Channel {
                    add(gram(p, k, APART_CHUNK, GramFor::Apart), chunk_bytes(k, APART_CHUNK));
                    add(apart_solve(p, k), bytes);
                } else {
                    add(apart_chunk(p, k, false), bytes);
                    if !p.write_key {
                        add(apart_chunk(p, k, true), bytes);
                    }
                }
                add(apart_scan(p, k, shuffles, false), bytes);
                add(apart_scan(p, k, shuffles, true), bytes);
                for v in [64, 128] {
                    add(apart_out(p, k, v), bytes);
                }
            }
        }
    }
}

/// With cooperative matrices, and emulated.
fn coop(all: &mut Vec<Shipped>) {
    for k in [20, 60, 128, 160, 256] {
        let needs = Needs { workgroup_bytes: coop_sums_bytes(k), ..Needs::WEBGPU_DEFAULT };
        add_coop(all, coop_sums(k, false), needs);
        add_coop(all, coop_sums(k, true), needs);
        add_coop(all, precond_carry(k, 64, coop_totals_words(k)), Needs::WEBGPU_DEFAULT);
    }
    for p in parts() {
        for k in [20, 60, 128, 160, 256] {
            let needs = Needs { workgroup_bytes: coop_chunk_bytes(p), ..Needs::WEBGPU_DEFAULT };
            add_coop(all, coop_chunk(p, k, false), needs);
            add_coop(all, coop_chunk(p, k, true), needs);
            let needs = Needs { workgroup_bytes: coop_scan_bytes(k), ..Needs::WEBGPU_DEFAULT };
            add_coop(all, coop_scan(p, k, false), needs);
            add_coop(all, coop_scan(p, k, true), needs);
        }
    }
}

fn add_coop(all: &mut Vec<Shipped>, variant: Variant, needs: Needs) {
    for variant in [variant.clone().emulated(true), variant] {
        if !all.iter().any(|s| s.variant == variant) {
            all.push(Shipped::base(variant).params::<DeltaParams>().needs(needs));
        }
    }
}
