//! Variants that models use, the delta rule aside: every flag with every other that it meets, in small and odd sizes.

use super::{Needs, Shipped};
use crate::delta::{Decay, LanesTile};
use crate::linear::{
    COOP_DEEP, COOP_LARGE, COOP_SMALL, COOP_SPLIT_LARGE, COOP_SPLIT_SMALL, CoopInput, DecodeTile, Destination, Element,
    Gate, GemmTile, GemvTile, PanelTile, Product, Prologue, SoloTile, Spread, begin, copy_slots, decode_coop, embed,
    gemm, gemm_coop, gemv, halve, head_norm, panel, rms, solo, swiglu,
};
use crate::mixer::{MixerForm, StepOutput, StepTile, conv_tail, lanes, prep, solo_step, step};
use crate::params::{
    BeginParams, ConvParams, CopyParams, DrawParams, EmbedParams, HalveParams, HeadNormParams, LanesParams,
    LinearParams, PrepParams, RmsParams, SoloStepParams, StepParams, SwiGluParams, Uniform,
};
use crate::sample::{draw, draw_lanes};
use crate::variant::Variant;

fn add<P: Uniform>(all: &mut Vec<Shipped>, variant: Variant) {
    if !all.iter().any(|s| s.variant == variant) {
        all.push(Shipped::base(variant).params::<P>());
    }
}

pub(super) fn list(all: &mut Vec<Shipped>) {
    add::<BeginParams>(all, begin());
    add::<CopyParams>(all, copy_slots());
    for group in [32, 256] {
        add::<DrawParams>(all, draw(group));
    }
    for (vocab, group, subgroup) in [(70_000, 256, 4), (4096, 512, 32), (32_000, 1024, 32)] {
        let needs = Needs { invocations: group.max(256), ..Needs::WEBGPU_DEFAULT };
        all.push(Shipped::base(draw_lanes(vocab, group, subgroup)).params::<DrawParams>().needs(needs));
    }
    let needs = Needs { invocations: 1024, workgroup_bytes: 20 << 10, ..Needs::WEBGPU_DEFAULT };
    all.push(Shipped::base(draw(1024)).params::<DrawParams>().needs(needs));
    add::<HalveParams>(all, halve(false));
    add::<HalveParams>(all, halve(true));
    for element in Element::ALL {
        for texture in [false, true] {
            add::<EmbedParams>(all, embed(element, texture, false));
            add::<EmbedParams>(all, embed(element, texture, true));
        }
    }
    for spread in [Spread::Alone, Spread::Single, Spread::Fours, Spread::Halves, Spread::Tiles] {
        add::<SwiGluParams>(all, swiglu(spread));
        for width in [48, 1003] {
            add::<RmsParams>(all, rms(spread, false, width));
            add::<RmsParams>(all, rms(spread, true, width));
        }
        for gate in [Gate::None, Gate::Silu, Gate::Sigmoid] {
            for norm in [false, true] {
                if norm || gate != Gate::None {
                    add::<HeadNormParams>(all, head_norm(spread, norm, gate, 64));
                    add::<HeadNormParams>(all, head_norm(spread, norm, gate, 19));
                }
            }
        }
    }
    products(all);
    mixers(all);
}

fn products(all: &mut Vec<Shipped>) {
    let mut prologues = vec![Prologue::Plain, Prologue::Rms, Prologue::SwiGlu];
    for gate in [Gate::None, Gate::Silu, Gate::Sigmoid] {
        for norm in [false, true] {
            prologues.push(Prologue::Head { heads: 6, norm, gate });
        }
    }
    prologues.push(Prologue::Scaled { blocks: 8 });
    let destinations = [Destination::Rows, Destination::Add, Destination::Heads, Destination::Convolution(4)];
    for element in Element::ALL {
        for prologue in &prologues {
            for (i, destination) in destinations.into_iter().enumerate() {
                if matches!((prologue, destination), (Prologue::Head { .. }, Destination::Convolution(_))) {
                    continue;
                }
                for (aligned, tail) in [(true, false), (true, true), (false, true)] {
                    if matches!(prologue, Prologue::Scaled { .. }) && (tail || !aligned) {
                        continue;
                    }
                    let product = Product {
                        element,
                        texture: false,
                        prologue: *prologue,
                        destination,
                        // Bias and the last row meet everything once.
                        bias: i % 2 == 1 || tail,
                        aligned,
                        tail,
                        last: destination == Destination::Heads && !aligned,
                    };
                    for rows in [1, 16] {
                        for (subgroup, unroll, team) in [
                            (0, 1, 32),
                            (32, if rows == 1 { 4 } else { 1 }, 32),
                            (32, if rows == 1 { 3 } else { 1 }, 128),
                        ] {
                            let paired = destination == Destination::Rows && aligned && *prologue == Prologue::Rms;
                            let tile = GemvTile {
                                workgroup: 128,
                                team,
                                outputs: if paired { 2 } else { 4 },
                                rows,
                                unroll,
                                masked: tail && unroll > 1,
                                paired,
                                subgroup,
                            };
                            add::<LinearParams>(all, gemv(&product, tile));
                        }
                    }
                    if matches!(prologue, Prologue::Plain | Prologue::Rms | Prologue::Scaled { .. })
                        && aligned
                        && !tail
                        && !product.last
                    {
                        for (team, weight_rows, rows, slabs) in
                            [(32, 8, 8, 2), (32, 4, 8, 1), (16, 4, 8, 2), (8, 8, 4, 1)]
                        {
                            let paired = destination == Destination::Rows && team > 8;
                            let (sets, subgroup, ahead) = (32 / team, team.max(16), slabs == 2);
                            let tile = PanelTile {
                                workgroup: 128,
                                team,
                                split: if team == 32 { 4 } else { 1 },
                                weight_rows,
                                rows,
                                sets,
                                slabs,
                                ahead,
                                paired,
                                subgroup,
                            };
                            let bytes = Needs { workgroup_bytes: tile.bytes(), ..Needs::WEBGPU_DEFAULT };
                            let variant = panel(&product, tile);
                            all.push(Shipped::base(variant).params::<LinearParams>().needs(bytes));
                        }
                    }
                    let convolves = matches!(destination, Destination::Convolution(_));
                    if *prologue == Prologue::Plain {
                        let tile = GemmTile { rows: 64, outputs: 64, depth: 16, thread: (4, 4) };
                        if destination != Destination::Heads && !convolves {
                            add::<LinearParams>(all, gemm(&product, tile, 256));
                            if aligned && !tail && element != Element::F32 {
                                let split = [COOP_SPLIT_LARGE, COOP_SPLIT_SMALL];
                                let whole = [COOP_LARGE, COOP_DEEP, COOP_SMALL];
                                let forms = split.into_iter().map(|tile| (tile, CoopInput::Split));
                                let forms = forms.chain(
                                    whole
                                        .into_iter()
                                        .flat_map(|tile| [(tile, CoopInput::Rounded), (tile, CoopInput::Half)]),
                                );
                                for (i, (tile, input)) in forms.enumerate() {
                                    for bias in [false, true] {
                                        let ragged = (i % 2 == 0) != bias;
                                        let variant = gemm_coop(&Product { bias, ..product }, tile, 256, input, ragged);
                                        let split = input == CoopInput::Split;
                                        let bytes =
                                            Needs { workgroup_bytes: tile.bytes(split), ..Needs::WEBGPU_DEFAULT };
                                        for variant in [variant.clone().emulated(true), variant] {
                                            all.push(Shipped::base(variant).params::<LinearParams>().needs(bytes));
                                        }
                                    }
                                }
                            }
                        }
                        if aligned && !tail && element != Element::F32 {
                            decodes(all, &Product { last: false, ..product });
                        }
                        for (rows, outputs) in [(1, 1), (8, 4)] {
                            let tile = SoloTile { workgroup: 32, outputs, rows, window: 0 };
                            add::<LinearParams>(all, solo(&product, tile));
                            if aligned && !product.last {
                                let product = Product { texture: true, ..product };
                                add::<LinearParams>(all, solo(&product, SoloTile { window: 96 * rows, ..tile }));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Products of a decode with cooperative matrices: whole and ragged tiles.
fn decodes(all: &mut Vec<Shipped>, product: &Product) {
    let rows_only = product.destination == Destination::Rows && !product.bias;
    for (paired, half) in [(false, false), (true, false), (true, true)] {
        if paired && !rows_only {
            continue;
        }
        for (rows, outputs, slice, depth) in [(64, 32, 16, 2), (16, 16, 32, 4)] {
            let outputs = if paired { 16 } else { outputs };
            let tile = DecodeTile { teams: 8, rows, outputs, slice, depth, paired };
            let variant = decode_coop(product, tile, rows - 5, half);
            let needs = Needs { workgroup_bytes: tile.bytes(), ..Needs::WEBGPU_DEFAULT };
            for variant in [variant.clone().emulated(true), variant] {
                all.push(Shipped::base(variant).params::<LinearParams>().needs(needs));
            }
        }
    }
}

fn mixers(all: &mut Vec<Shipped>) {
    add::<ConvParams>(all, conv_tail(4, false));
    add::<ConvParams>(all, conv_tail(8, true));
    let dims = [(2, 4, 32, 48, 4), (1, 1, 4, 300, 8), (3, 3, 60, 20, 1), (2, 2, 256, 256, 2)];
    for (heads, value_heads, key_dim, value_dim, taps) in dims {
        for decay in [Decay::None, Decay::Head, Decay::Channel] {
            for flags in 0..16 {
                let on = |bit: u32| flags >> bit & 1 == 1;
                let form = MixerForm {
                    heads,
                    value_heads,
                    key_dim,
                    value_dim,
                    taps,
                    l2norm: on(0),
                    delta: on(1),
                    beta: on(1) || on(2),
                    longhorn: on(1) && on(2) && on(3),
                    decay,
                    bounded: decay != Decay::None && on(2),
                    apart: decay == Decay::Channel && on(3),
                    precond: on(3),
                };
                for own in [false, true] {
                    add::<PrepParams>(all, prep(&form, own, on(0)));
                }
                let form = MixerForm { precond: false, ..form };
                let whole = value_dim <= 64;
                let tile =
                    if whole { StepTile { columns: value_dim, split: 4 } } else { StepTile { columns: 32, split: 8 } };
                let norm = whole && on(0);
                let gate = if !whole {
                    Gate::None
                } else if on(1) {
                    Gate::Silu
                } else {
                    Gate::Sigmoid
                };
                add::<StepParams>(all, step(&form, tile, StepOutput { norm, gate }, on(3)));
                for subgroup in [4, 32] {
                    if let Some(tile) = LanesTile::new(key_dim, value_dim, 16, 1, subgroup) {
                        let gate = if on(1) { Gate::Silu } else { Gate::None };
                        add::<LanesParams>(all, lanes(&form, tile, StepOutput { norm: on(0), gate }, on(3)));
                    }
                }
                for window in [0, 4096] {
                    add::<SoloStepParams>(all, solo_step(&form, window, taps > 1));
                }
                add::<StepParams>(all, step(&form, tile, StepOutput { norm: false, gate: Gate::None }, taps > 1));
            }
        }
    }
}
