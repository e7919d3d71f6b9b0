// One decode step of a mixer after its projection and convolution: l2norm of q and k, gates, the delta rule
// (MATH.md §2) and, with NORM or GATED, the norm and gate of its output. S is read and written once.
//
// A workgroup is BV columns of one value head's S in one session, SPLIT threads a column, each with the ROWS channels
// from part · ROWS on. With S̄ the decayed state, one pass gives k·S̄, q·S̄, q·k, k·k and q·q, from which all else
// follows: the norms scale these sums, and q·S = q·S̄ + (q·k) e.
// Grid: (⌈V / BV⌉, HV, rows).
//
// Consts: BV, SPLIT, H, HV, K, V. Flags: L2NORM, DELTA, LONGHORN; CONV, whether x is q|k|v after convolution and SiLU
// (otherwise SiLU is applied here); NORM and GATED (GATE_SILU or sigmoid), which want BV = V; see conv/gates.

#import common/rows
#import conv/gates

struct Params {
    gates: GateParams,
    x_at: u32,         // q's first column in `x`; k and v follow
    out_stride: u32,   // elements from row to row of `out`
    state_words: u32,  // f32 words a slot of the layer
    state_at: u32,     // S's place in a slot
    scale: f32,        // σ
    eps: f32,          // NORM: inside the root
    norm: u32,         // NORM: the norm's weights in `pack`, [V]
    z_stride: u32,     // GATED: elements from row to row of what holds the output gate
    z_at: u32,         // its first column
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;            // [rows, x_stride] q|k|v and projections
#ifdef AUX
@group(0) @binding(auto) var<storage, read> aux: array<f32>;          // [rows, aux_stride] the decay's projection
#endif
#ifdef GATED
@group(0) @binding(auto) var<storage, read> z: array<f32>;            // [rows, z_stride] the output gate
#endif
#ifdef PACK
@group(0) @binding(auto) var<storage, read> pack: array<f32>;         // the layer's small weights
#endif
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;  // [rows] the row table
@group(0) @binding(auto) var<storage, read_write> state: array<f32>;  // [slots, state_words]
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;    // [rows, out_stride]

const L2NORM_EPS: f32 = 1e-6;
const MIN_LOG_DECAY: f32 = -1e4;
const ROWS: u32 = (K + SPLIT - 1u) / SPLIT;
const WIDTH: u32 = ROWS * SPLIT; // K with its padding
const THREADS: u32 = BV * SPLIT;

var<workgroup> qs: array<f32, WIDTH>;
var<workgroup> ks: array<f32, WIDTH>;
#ifdef CHANNELS
var<workgroup> keep: array<f32, WIDTH>;
#endif
// k·S̄, q·S̄, q·k, k·k of each thread's channels; and q·q.
var<workgroup> shares: array<vec4<f32>, THREADS>;
#ifdef L2NORM
var<workgroup> squares: array<f32, THREADS>;
#endif
#ifdef NORM
var<workgroup> outputs: array<f32, BV>;
#endif

fn activate(v: f32) -> f32 {
#ifdef CONV
    return v;
#else
    return silu(v);
#endif
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = wid.z;
    let entry = table[row];
    if entry.x == NO_SLOT {
        return;
    }
    let head = wid.y;
    let key_head = head / (HV / H);
    let column = wid.x * BV + lane % BV;
    let part = lane / BV;
    let first = part * ROWS;
    let inside = column < V;

    // The state is asked for before anything is waited for.
    var s: array<f32, ROWS>;
    let s_from = entry.x * params.state_words + params.state_at + head * K * V + column;
    for (var i = 0u; i < ROWS; i++) {
        s[i] = 0.0;
        if inside && first + i < K {
            s[i] = state[s_from + (first + i) * V];
        }
    }

    let start = row * params.gates.x_stride + params.x_at;
    for (var c = lane; c < WIDTH; c += THREADS) {
        let real = c < K;
        let at = start + key_head * K + min(c, K - 1u);
        qs[c] = select(0.0, activate(x[at]), real);
        ks[c] = select(0.0, activate(x[at + H * K]), real);
#ifdef CHANNELS
        keep[c] = exp(max(gate_decay(row, head * K + min(c, K - 1u)), MIN_LOG_DECAY));
#endif
    }
    var value = 0.0;
    if inside {
        value = activate(x[start + 2u * H * K + head * V + column]);
    }
#ifdef DECAY
#ifndef CHANNELS
    let decay = exp(max(gate_decay(row, head), MIN_LOG_DECAY));
#endif
#endif
#ifdef BETA
    var beta = gate_beta(row, head);
#endif
    workgroupBarrier();

    var share = vec4<f32>(0.0);
    var square = 0.0;
    for (var i = 0u; i < ROWS; i++) {
        let q = qs[first + i];
        let k = ks[first + i];
#ifdef DECAY
#ifdef CHANNELS
        s[i] *= keep[first + i];
#else
        s[i] *= decay;
#endif
#endif
        share = fma(vec4<f32>(k, q, q, k), vec4<f32>(s[i], s[i], k, k), share);
        square = fma(q, q, square);
    }
    shares[lane] = share;
#ifdef L2NORM
    squares[lane] = square;
#endif
    workgroupBarrier();
    share = vec4<f32>(0.0);
    square = 0.0;
    for (var i = 0u; i < SPLIT; i++) {
        share += shares[i * BV + lane % BV];
#ifdef L2NORM
        square += squares[i * BV + lane % BV];
#endif
    }
    // 1/‖k‖ and 1/‖q‖.
    var k_scale = 1.0;
    var q_scale = params.scale;
#ifdef L2NORM
    k_scale = inverseSqrt(share.w + L2NORM_EPS);
    q_scale *= inverseSqrt(square + L2NORM_EPS);
#endif
    var e = value;
#ifdef DELTA
    e -= k_scale * share.x;
#endif
#ifdef BETA
#ifdef LONGHORN
    beta /= 1.0 + beta * share.w * k_scale * k_scale;
#endif
    e *= beta;
#endif
    let write = k_scale * e;
    for (var i = 0u; i < ROWS; i++) {
        if inside && first + i < K {
            state[s_from + (first + i) * V] = fma(ks[first + i], write, s[i]);
        }
    }
    var o = q_scale * fma(share.z, write, share.y);
#ifdef NORM
    if part == 0u {
        outputs[lane] = select(0.0, o, inside);
    }
    workgroupBarrier();
    var fours = vec4<f32>(0.0);
    for (var i = 0u; i + 4u <= BV; i += 4u) {
        let v = vec4<f32>(outputs[i], outputs[i + 1u], outputs[i + 2u], outputs[i + 3u]);
        fours = fma(v, v, fours);
    }
    var sum = (fours.x + fours.y) + (fours.z + fours.w);
    for (var i = BV & 0xfffffffcu; i < BV; i++) {
        sum = fma(outputs[i], outputs[i], sum);
    }
    o *= inverseSqrt(sum / f32(V) + params.eps) * pack[params.norm + lane % BV];
#endif
    if inside && part == 0u {
#ifdef GATED
        let gate = z[row * params.z_stride + params.z_at + head * V + column];
#ifdef GATE_SILU
        o *= silu(gate);
#else
        o *= sigmoid(gate);
#endif
#endif
        out[row * params.out_stride + head * V + column] = o;
    }
}
