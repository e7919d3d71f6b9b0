// One decode step of a mixer after its projection and convolution, for adapters that are a CPU in disguise: l2norm of
// q and k, gates, and the delta rule (MATH.md §2), with no barrier and no workgroup memory.
//
// An invocation has four columns of one value head's S in one session. It passes over them twice: the first pass gives
// k·S̄, q·S̄, q·k, k·k and q·q, with S̄ the decayed state, and the second writes S. The sums over q and k are repeated by
// the invocations of a head: cheaper there than telling one another.
// Grid: (⌈V / 4 / WG⌉, HV, rows).
//
// Consts: WG, H, HV, K, V (a multiple of 4); STEP, key channels a round of the loops, which divides K (browsers put a
// counter into every loop, which keeps drivers from unrolling it); XLEN with XUNI: x is a uniform window of so many vec4, which such adapters
// read without a check a lane. Flags: L2NORM, DELTA, LONGHORN; CONV, whether x is q|k|v after convolution and SiLU
// (otherwise SiLU is applied here); see conv/gates.

#import common/rows
#import conv/gates

struct Params {
    gates: GateParams,
    x_at: u32,         // q's first column in `x`; k and v follow
    out_stride: u32,   // elements from row to row of `out`
    state_words: u32,  // f32 words a slot of the layer, a multiple of 4
    state_at: u32,     // S's place in a slot, a multiple of 4
    scale: f32,        // σ
    first_row: u32,    // `x` begins at this row of the plan
}

@group(0) @binding(auto) var<uniform> params: Params;
#ifdef XUNI
@group(0) @binding(auto) var<uniform> x: array<vec4<f32>, XLEN>;            // [rows of the window, x_stride]
#else
@group(0) @binding(auto) var<storage, read> x: array<f32>;                  // [rows, x_stride] q|k|v and projections
#endif
#ifdef AUX
@group(0) @binding(auto) var<storage, read> aux: array<f32>;                // [rows, aux_stride] the decay's projection
#endif
#ifdef PACK
@group(0) @binding(auto) var<storage, read> pack: array<f32>;               // the layer's small weights
#endif
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;        // [rows] the row table
@group(0) @binding(auto) var<storage, read_write> state: array<vec4<f32>>;  // [slots, state_words]
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;          // [rows, out_stride]

const L2NORM_EPS: f32 = 1e-6;
const MIN_LOG_DECAY: f32 = -1e4;
const QUADS: u32 = V / 4u;

fn activated(i: u32) -> f32 {
#ifdef CONV
    return x_value(i);
#else
    return silu(x_value(i));
#endif
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let quad = wid.x * WG + lane;
    let head = wid.y;
    let row = wid.z; // of the window
    let entry = table[params.first_row + row];
    if entry.x == NO_SLOT || quad >= QUADS {
        return;
    }
    let q_from = row * params.gates.x_stride + params.x_at + (head / (HV / H)) * K;
    let k_from = q_from + H * K;
    let v_from = row * params.gates.x_stride + params.x_at + 2u * H * K + head * V + quad * 4u;
    let s_from = ((entry.x * params.state_words + params.state_at) >> 2u) + head * K * QUADS + quad;
#ifdef DECAY
#ifndef CHANNELS
    let decay = exp(max(gate_decay(row, head), MIN_LOG_DECAY));
#endif
#endif

    var read = vec4<f32>(0.0);    // k·S̄
    var asked = vec4<f32>(0.0);   // q·S̄
    var squares = vec3<f32>(0.0); // q·k, k·k, q·q
    for (var c0 = 0u; c0 < K; c0 += STEP) {
#for i STEP
        let c$i = c0 + $iu;
        let q$i = activated(q_from + c$i);
        let k$i = activated(k_from + c$i);
        var s$i = state[s_from + c$i * QUADS];
#ifdef DECAY
#ifdef CHANNELS
        s$i *= exp(max(gate_decay(row, head * K + c$i), MIN_LOG_DECAY));
#else
        s$i *= decay;
#endif
#endif
        read = fma(vec4<f32>(k$i), s$i, read);
        asked = fma(vec4<f32>(q$i), s$i, asked);
        squares = fma(vec3<f32>(q$i, k$i, q$i), vec3<f32>(k$i, k$i, q$i), squares);
#endfor
    }
    // 1/‖k‖ and σ/‖q‖.
    var k_scale = 1.0;
    var q_scale = params.scale;
#ifdef L2NORM
    k_scale = inverseSqrt(squares.y + L2NORM_EPS);
    q_scale *= inverseSqrt(squares.z + L2NORM_EPS);
#endif
    var e = vec4<f32>(activated(v_from), activated(v_from + 1u), activated(v_from + 2u), activated(v_from + 3u));
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
    for (var c0 = 0u; c0 < K; c0 += STEP) {
#for i STEP
        let c$i = c0 + $iu;
        let k$i = activated(k_from + c$i);
        var s$i = state[s_from + c$i * QUADS];
#ifdef DECAY
#ifdef CHANNELS
        s$i *= exp(max(gate_decay(row, head * K + c$i), MIN_LOG_DECAY));
#else
        s$i *= decay;
#endif
#endif
        state[s_from + c$i * QUADS] = fma(vec4<f32>(k$i), write, s$i);
#endfor
    }
    let o = q_scale * fma(vec4<f32>(squares.x), write, asked);
    let to = (params.first_row + row) * params.out_stride + head * V + quad * 4u;
    out[to] = o.x;
    out[to + 1u] = o.y;
    out[to + 2u] = o.z;
    out[to + 3u] = o.w;
}
