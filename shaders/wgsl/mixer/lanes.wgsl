// One decode step of a mixer as in mixer/step, where subgroups have one size: each works alone, without a barrier, on
// COLUMNS fours of columns of one value head's S in one session, and so a head is spread over several multiprocessors.
// The lanes of a four split the channels: 4 · FOURS each, in registers.
//
// With S̄ the decayed state, one pass gives k·S̄, q·S̄, q·k, k·k and q·q, from which all else follows: the norms scale
// these sums, and q·S = q·S̄ + (q·k) e. With NORM, `out` is the output times the norm's weights, and `sums` has what the
// product that follows makes the norm's scale of: Σo² of each subgroup's columns, in their order.
// Grid: (⌈V / 4 / COLUMNS / TEAMS⌉, HV, rows), TEAMS subgroups each.
//
// Consts: SUBGROUP, COLUMNS, TEAMS, BLOCKS (⌈V / 4 / COLUMNS⌉), FOURS, H, HV, K (4 · FOURS · SUBGROUP / COLUMNS), V (a
// multiple of 4, as are places and strides). Flags as in mixer/step.

#import common/rows
#import conv/gates

struct Params {
    gates: GateParams,
    x_at: u32,         // q's first column in `x`; k and v follow
    out_stride: u32,   // elements from row to row of `out`
    state_words: u32,  // f32 words a slot of the layer
    state_at: u32,     // S's place in a slot
    scale: f32,        // σ
    norm: u32,         // NORM: the norm's weights in `pack`, [V]
    sums_stride: u32,  // NORM: elements from row to row of `sums`
    z_stride: u32,     // GATED: elements from row to row of what holds the output gate
    z_at: u32,         // its first column
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;           // [rows, x_stride] q|k|v and projections
#ifdef AUX
@group(0) @binding(auto) var<storage, read> aux: array<f32>;               // [rows, aux_stride] the decay's projection
#endif
#ifdef GATED
@group(0) @binding(auto) var<storage, read> z: array<vec4<f32>>;           // [rows, z_stride] the output gate
#endif
#ifdef PACK
@group(0) @binding(auto) var<storage, read> pack: array<f32>;              // the layer's small weights
#endif
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;       // [rows] the row table
@group(0) @binding(auto) var<storage, read_write> state: array<vec4<f32>>; // [slots, state_words]
#ifdef NORM
@group(0) @binding(auto) var<storage, read_write> sums: array<f32>;        // [rows, HV, BLOCKS]
#endif
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>;   // [rows, out_stride]

const L2NORM_EPS: f32 = 1e-6;
const MIN_LOG_DECAY: f32 = -1e4;
const QUADS: u32 = V / 4u;

fn activate(v: vec4<f32>) -> vec4<f32> {
#ifdef CONV
    return v;
#else
    return silu4(v);
#endif
}

@compute @workgroup_size(TEAMS * SUBGROUP)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let row = wid.z;
    let slot = table[row].x;
    let head = wid.y;
    let block = wid.x * TEAMS + subgroup;
    let quad = block * COLUMNS + lane % COLUMNS;
    let inside = quad < QUADS;
    let column = min(quad, QUADS - 1u);
    let first = lane / COLUMNS * FOURS; // in fours of channels

    // Everything is asked for before anything is waited for: what does not depend on the slot, then S.
    let q_from = (row * params.gates.x_stride + params.x_at) / 4u + head / (HV / H) * (K / 4u) + first;
#for j FOURS
    let q$j = activate(x[q_from + $ju]);
    let k$j = activate(x[q_from + H * K / 4u + $ju]);
#endfor
    let value = activate(x[(row * params.gates.x_stride + params.x_at) / 4u + H * K / 2u + head * QUADS + column]);
#ifdef GATED
    let gate = z[(row * params.z_stride + params.z_at) / 4u + head * QUADS + column];
#endif
#ifdef NORM
    let norm_at = params.norm + 4u * column;
    let norm = vec4<f32>(pack[norm_at], pack[norm_at + 1u], pack[norm_at + 2u], pack[norm_at + 3u]);
#endif
    // Rows without a session read some slot and write none.
    let live = slot != NO_SLOT;
    let s_from = (select(0u, slot, live) * params.state_words + params.state_at) / 4u + (head * K + 4u * first) * QUADS + column;
#for j FOURS
    var s$jx = state[s_from + (4u * $ju) * QUADS];
    var s$jy = state[s_from + (4u * $ju + 1u) * QUADS];
    var s$jz = state[s_from + (4u * $ju + 2u) * QUADS];
    var s$jw = state[s_from + (4u * $ju + 3u) * QUADS];
#endfor
#ifdef DECAY
#ifndef CHANNELS
    let decay = exp(max(gate_decay(row, head), MIN_LOG_DECAY));
#endif
#endif

    var read = vec4<f32>(0.0);    // k·S̄
    var asked = vec4<f32>(0.0);   // q·S̄
    var squares = vec3<f32>(0.0); // q·k, k·k, q·q
#for j FOURS
    {
#ifdef DECAY
#ifdef CHANNELS
        let c = head * K + 4u * (first + $ju);
        s$jx *= exp(max(gate_decay(row, c), MIN_LOG_DECAY));
        s$jy *= exp(max(gate_decay(row, c + 1u), MIN_LOG_DECAY));
        s$jz *= exp(max(gate_decay(row, c + 2u), MIN_LOG_DECAY));
        s$jw *= exp(max(gate_decay(row, c + 3u), MIN_LOG_DECAY));
#else
        s$jx *= decay;
        s$jy *= decay;
        s$jz *= decay;
        s$jw *= decay;
#endif
#endif
        read += k$j.x * s$jx + k$j.y * s$jy + k$j.z * s$jz + k$j.w * s$jw;
        asked += q$j.x * s$jx + q$j.y * s$jy + q$j.z * s$jz + q$j.w * s$jw;
        squares += vec3<f32>(dot(q$j, k$j), dot(k$j, k$j), dot(q$j, q$j));
    }
#endfor
    for (var far = COLUMNS; far < SUBGROUP; far *= 2u) {
        read += subgroupShuffleXor(read, far);
        asked += subgroupShuffleXor(asked, far);
        squares += subgroupShuffleXor(squares, far);
    }
    // 1/‖k‖ and σ/‖q‖.
    var k_scale = 1.0;
    var q_scale = params.scale;
#ifdef L2NORM
    k_scale = inverseSqrt(squares.y + L2NORM_EPS);
    q_scale *= inverseSqrt(squares.z + L2NORM_EPS);
#endif
    var e = value;
#ifdef DELTA
    e -= k_scale * read;
#endif
#ifdef BETA
    var beta = gate_beta(row, head);
#ifdef LONGHORN
    beta /= 1.0 + beta * squares.y * k_scale * k_scale;
#endif
    e *= beta;
#endif
    let write = k_scale * e;
    if inside && live {
#for j FOURS
        state[s_from + (4u * $ju) * QUADS] = s$jx + k$j.x * write;
        state[s_from + (4u * $ju + 1u) * QUADS] = s$jy + k$j.y * write;
        state[s_from + (4u * $ju + 2u) * QUADS] = s$jz + k$j.z * write;
        state[s_from + (4u * $ju + 3u) * QUADS] = s$jw + k$j.w * write;
#endfor
    }
    var o = q_scale * (asked + squares.x * write);
#ifdef NORM
    var sum = select(0.0, dot(o, o), inside);
    for (var far = 1u; far < COLUMNS; far *= 2u) {
        sum += subgroupShuffleXor(sum, far);
    }
    if lane == 0u && block < BLOCKS {
        sums[row * params.sums_stride + head * BLOCKS + block] = sum;
    }
    o *= norm;
#endif
#ifdef GATED
#ifdef GATE_SILU
    o *= silu4(gate);
#else
    o *= sigmoid4(gate);
#endif
#endif
    if inside && first == 0u {
        out[row * params.out_stride / 4u + head * QUADS + column] = o;
    }
}
