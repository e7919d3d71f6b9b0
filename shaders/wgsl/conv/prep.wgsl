// Prepares a mixer's inputs: q|k|v = silu(conv(x)), q and k l2-normalised a head (with L2NORM), and the gates.
// Rows without a slot are skipped.
//
// Workgroup (row, part): parts 0 .. 2H are the heads of q and k, the next HV those of v, the rest are gates.
// With SOLO an invocation takes a whole part, and there is no barrier.
// OWN: every row is a session of its own and so the tail advances here; otherwise conv/tail does it afterwards.
//
// Consts: WG, H, HV, K, V, TAPS, GATES (elements a row of gates). Flags: CONV, L2NORM, OWN, SOLO, PACK (there are small
// weights); see conv/gates.

#import common/rows
#import conv/taps
#import conv/gates

struct Params {
    conv: ConvParams,
    gates: GateParams,
    gates_stride: u32, // elements from row to row of `gates`
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;            // [rows, x_stride] projections
#ifdef AUX
@group(0) @binding(auto) var<storage, read> aux: array<f32>;          // [rows, aux_stride] the decay's projection
#endif
#ifdef PACK
@group(0) @binding(auto) var<storage, read> pack: array<f32>;         // the layer's small weights
#endif
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;  // [rows] the row table
#ifdef CONV
@group(0) @binding(auto) var<storage, read_write> state: array<f32>;  // [slots, state_words]
#endif
@group(0) @binding(auto) var<storage, read_write> conved: array<f32>; // [rows, out_stride] q|k|v
#ifdef GATES
@group(0) @binding(auto) var<storage, read_write> gates: array<f32>;  // [rows, gates_stride]
#endif

const L2NORM_EPS: f32 = 1e-6;
const HEADS: u32 = 2u * H + HV;

#ifdef GATES
fn gate(row: u32, element: u32) -> f32 {
    var i = element;
#ifdef BETA
    if i < HV {
        return gate_beta(row, i);
    }
    i -= HV;
#endif
#ifdef DECAY
#ifdef CHANNELS
    let decays = HV * K;
#else
    let decays = HV;
#endif
    if i < decays {
        return gate_decay(row, i);
    }
    i -= decays;
#endif
#ifdef PRECOND
    if i < H {
        return gate_sums_beta(row, i);
    }
    return gate_sums_decay(row, i - H);
#else
    return 0.0;
#endif
}
#endif

#ifndef SOLO
var<workgroup> partial: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let row = wid.x;
    let part = wid.y;
    let entry = table[row];
    if entry.x == NO_SLOT {
        return;
    }
#ifdef GATES
    if part >= HEADS {
        let i = (part - HEADS) * WG + lid.x;
        if i < GATES {
            gates[row * params.gates_stride + i] = gate(row, i);
        }
        return;
    }
#endif
    let is_v = part >= 2u * H;
    let dim = select(K, V, is_v);
    let first = select(part * K, 2u * H * K + (part - 2u * H) * V, is_v);
    let out = row * params.conv.out_stride + first;
    var square = 0.0;
    for (var i = lid.x; i < dim; i += WG) {
        let u = convolve(entry, row, first + i);
        conved[out + i] = u;
        square = fma(u, u, square);
#ifdef CONV
#ifdef OWN
        advance_tail(entry.x, row, 1u, first + i);
#endif
#endif
    }
#ifdef L2NORM
    // The same for the whole workgroup.
    if is_v {
        return;
    }
    partial[lid.x] = square;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lid.x < half {
            partial[lid.x] += partial[lid.x + half];
        }
    }
    workgroupBarrier();
    let scale = inverseSqrt(partial[0] + L2NORM_EPS);
    for (var i = lid.x; i < dim; i += WG) {
        conved[out + i] *= scale;
    }
#endif
}
#else
const GATE_PARTS: u32 = (GATES + 7u) / 8u;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.y;
    let part = id.x;
    let entry = table[row];
    if entry.x == NO_SLOT || part >= HEADS + GATE_PARTS {
        return;
    }
#ifdef GATES
    if part >= HEADS {
        let begin = (part - HEADS) * 8u;
        for (var i = begin; i < min(begin + 8u, GATES); i++) {
            gates[row * params.gates_stride + i] = gate(row, i);
        }
        return;
    }
#endif
    let is_v = part >= 2u * H;
    let dim = select(K, V, is_v);
    let first = select(part * K, 2u * H * K + (part - 2u * H) * V, is_v);
    let out = row * params.conv.out_stride + first;
    var square = 0.0;
    for (var i = 0u; i < dim; i++) {
        let u = convolve(entry, row, first + i);
        conved[out + i] = u;
        square = fma(u, u, square);
#ifdef CONV
#ifdef OWN
        advance_tail(entry.x, row, 1u, first + i);
#endif
#endif
    }
#ifdef L2NORM
    if !is_v {
        let scale = inverseSqrt(square + L2NORM_EPS);
        for (var i = 0u; i < dim; i++) {
            conved[out + i] *= scale;
        }
    }
#endif
}
#endif
