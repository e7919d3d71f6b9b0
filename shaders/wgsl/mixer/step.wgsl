// One decode step of a mixer after its projection and convolution: l2norm of q and k, gates, the delta rule
// (MATH.md §2) and, with NORM or GATED, the norm and gate of its output. S is read and written once.
//
// A workgroup is BV columns of one value head's S in one session, SPLIT threads a column, each with the 4 · FOURS
// channels from part · 4 · FOURS on, in registers. With S̄ the decayed state, one pass gives k·S̄, q·S̄, q·k, k·k and q·q, from which all else
// follows: the norms scale these sums, and q·S = q·S̄ + (q·k) e.
// Grid: (⌈V / BV⌉, HV, rows).
//
// Consts: BV, SPLIT, FOURS (⌈K / 4 / SPLIT⌉), H, HV, K, V. Flags: L2NORM, DELTA, LONGHORN; CONV, whether x is q|k|v after convolution and SiLU
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
const WIDTH: u32 = 4u * FOURS * SPLIT; // K with its padding
const THREADS: u32 = BV * SPLIT;

var<workgroup> qs: array<vec4<f32>, WIDTH / 4u>;
var<workgroup> ks: array<vec4<f32>, WIDTH / 4u>;
#ifdef CHANNELS
var<workgroup> keep: array<vec4<f32>, WIDTH / 4u>;
#endif
// k·S̄, q·S̄, q·k, k·k of each thread's channels; and q·q.
var<workgroup> shares: array<vec4<f32>, THREADS>;
#ifdef L2NORM
var<workgroup> squares: array<f32, THREADS>;
#endif
// What is added to each column of S, along k.
var<workgroup> writes: array<f32, BV>;
#ifdef NORM
var<workgroup> outputs: array<vec4<f32>, (BV + 3u) / 4u>;
#endif

// Four channels of a column of S, from channel `c` on; zeros beyond K.
fn load4(at: u32, c: u32) -> vec4<f32> {
    var s = vec4<f32>(0.0);
    if c + 3u < K {
        s = vec4<f32>(state[at], state[at + V], state[at + 2u * V], state[at + 3u * V]);
    } else {
        for (var i = 0u; c + i < K; i++) {
            s[i] = state[at + i * V];
        }
    }
    return s;
}

fn store4(at: u32, c: u32, s: vec4<f32>) {
    for (var i = 0u; i < 4u; i++) {
        if c + i < K {
            state[at + i * V] = s[i];
        }
    }
}

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
    let first = part * FOURS; // in fours of channels
    let inside = column < V;

    // Everything is asked for before anything is waited for.
    let s_from = entry.x * params.state_words + params.state_at + head * K * V + column;
#for j FOURS
    var s$j = vec4<f32>(0.0);
    if inside {
        s$j = load4(s_from + 4u * (first + $ju) * V, 4u * (first + $ju));
    }
#endfor
    let start = row * params.gates.x_stride + params.x_at;
    var value = 0.0;
#ifdef GATED
    var gate = 0.0;
#endif
#ifdef NORM
    var norm = 0.0;
#endif
    if part == 0u && inside {
        value = activate(x[start + 2u * H * K + head * V + column]);
#ifdef GATED
        gate = z[row * params.z_stride + params.z_at + head * V + column];
#endif
#ifdef NORM
        norm = pack[params.norm + lane % BV];
#endif
    }
    for (var c = lane; c < WIDTH; c += THREADS) {
        let real = c < K;
        let at = start + key_head * K + min(c, K - 1u);
        qs[c / 4u][c % 4u] = select(0.0, activate(x[at]), real);
        ks[c / 4u][c % 4u] = select(0.0, activate(x[at + H * K]), real);
#ifdef CHANNELS
        keep[c / 4u][c % 4u] = exp(max(gate_decay(row, head * K + min(c, K - 1u)), MIN_LOG_DECAY));
#endif
    }
#ifdef DECAY
#ifndef CHANNELS
    let decay = exp(max(gate_decay(row, head), MIN_LOG_DECAY));
#endif
#endif
    workgroupBarrier();

    var share = vec4<f32>(0.0);
    var square = 0.0;
#for j FOURS
    {
        let q = qs[first + $ju];
        let k = ks[first + $ju];
#ifdef DECAY
#ifdef CHANNELS
        s$j *= keep[first + $ju];
#else
        s$j *= decay;
#endif
#endif
        share += vec4<f32>(dot(k, s$j), dot(q, s$j), dot(q, k), dot(k, k));
        square += dot(q, q);
    }
#endfor
    shares[lane] = share;
#ifdef L2NORM
    squares[lane] = square;
#endif
    workgroupBarrier();
    var o = 0.0;
    if part == 0u {
        share = vec4<f32>(0.0);
        square = 0.0;
        for (var i = 0u; i < SPLIT; i++) {
            share += shares[i * BV + lane];
#ifdef L2NORM
            square += squares[i * BV + lane];
#endif
        }
        // 1/‖k‖ and σ/‖q‖.
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
        var beta = gate_beta(row, head);
#ifdef LONGHORN
        beta /= 1.0 + beta * share.w * k_scale * k_scale;
#endif
        e *= beta;
#endif
        writes[lane] = k_scale * e;
        o = q_scale * fma(share.z, k_scale * e, share.y);
#ifdef NORM
        outputs[lane / 4u][lane % 4u] = select(0.0, o, inside);
#endif
    }
    workgroupBarrier();
    if inside {
        let write = writes[lane % BV];
#for j FOURS
        store4(s_from + 4u * (first + $ju) * V, 4u * (first + $ju), fma(ks[first + $ju], vec4<f32>(write), s$j));
#endfor
    }
    if inside && part == 0u {
#ifdef NORM
        var fours = vec4<f32>(0.0);
        for (var i = 0u; i < BV / 4u; i++) {
            fours = fma(outputs[i], outputs[i], fours);
        }
        var sum = (fours.x + fours.y) + (fours.z + fours.w);
        for (var i = BV / 4u * 4u; i < BV; i++) {
            sum = fma(outputs[i / 4u][i % 4u], outputs[i / 4u][i % 4u], sum);
        }
        o *= inverseSqrt(sum / f32(V) + params.eps) * norm;
#endif
#ifdef GATED
#ifdef GATE_SILU
        o *= silu(gate);
#else
        o *= sigmoid(gate);
#endif
#endif
        out[row * params.out_stride + head * V + column] = o;
    }
}
