// Per head: out = x / sqrt(mean x² + eps) ⊙ norm (with HEAD_NORM), times the activated gate (with GATED: GATE_SILU or
// sigmoid). One workgroup a row and head; with SOLO one invocation, and no barrier.
// WIDE (without SOLO): every place, stride and head is a multiple of 4. HALF (with WIDE): the result is rounded to
// f16, with TILES in tiles.
//
// Consts: WG; with SOLO also FOUR, elements a round of the loops, and DIM, the same as `head_dim`: see norm/rms.

#import common/activation
#ifdef HALF
#import common/halves
#endif

struct Params {
    head_dim: u32,    // elements a head
    heads: u32,
    x_stride: u32,    // elements from row to row of `x`
    x_at: u32,        // first column of `x`
    gate_stride: u32, // likewise of `gate`
    gate_at: u32,
    out_stride: u32,  // elements from row to row of `out`
    eps: f32,         // inside the root
    rows: u32,
}

@group(0) @binding(auto) var<uniform> params: Params;
#ifdef WIDE
alias Some = vec4<f32>;
#else
alias Some = f32;
#endif
@group(0) @binding(auto) var<storage, read> x: array<Some>;           // [rows, x_stride]
#ifdef HEAD_NORM
@group(0) @binding(auto) var<storage, read> norm: array<Some>;        // [head_dim]
#endif
#ifdef GATED
@group(0) @binding(auto) var<storage, read> gate: array<Some>;        // [rows, gate_stride]
#endif
#ifdef HALF
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f16>>; // [rows, out_stride]
#else
@group(0) @binding(auto) var<storage, read_write> out: array<Some>;   // [rows, out_stride]
#endif

#ifdef WIDE
// Column and i count fours.
fn write(row: u32, column: u32, i: u32, scale: f32) {
    var v = x[(row * params.x_stride + params.x_at) / 4u + column];
#ifdef HEAD_NORM
    v = v * scale * norm[i];
#endif
#ifdef GATED
    let z = gate[(row * params.gate_stride + params.gate_at) / 4u + column];
#ifdef GATE_SILU
    v *= silu4(z);
#else
    v *= sigmoid4(z);
#endif
#endif
#ifdef HALF
    out[place4(row, column, params.out_stride / 4u)] = half4(v);
#else
    out[row * params.out_stride / 4u + column] = v;
#endif
}
#else
fn write(row: u32, column: u32, i: u32, scale: f32) {
    var v = x[row * params.x_stride + params.x_at + column];
#ifdef HEAD_NORM
    v = v * scale * norm[i];
#endif
#ifdef GATED
    let z = gate[row * params.gate_stride + params.gate_at + column];
#ifdef GATE_SILU
    v *= silu(z);
#else
    v *= sigmoid(z);
#endif
#endif
    out[row * params.out_stride + column] = v;
}
#endif

#ifndef SOLO
var<workgroup> partial: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let row = wid.x;
#ifdef WIDE
    let count = params.head_dim / 4u;
#else
    let count = params.head_dim;
#endif
    let first = wid.y * count;
    var scale = 1.0;
#ifdef HEAD_NORM
#ifdef WIDE
    let base = (row * params.x_stride + params.x_at) / 4u + first;
    var squares = vec4<f32>(0.0);
    for (var i = lid.x; i < count; i += WG) {
        squares = fma(x[base + i], x[base + i], squares);
    }
    partial[lid.x] = (squares.x + squares.y) + (squares.z + squares.w);
#else
    let base = row * params.x_stride + params.x_at + first;
    var square = 0.0;
    for (var i = lid.x; i < count; i += WG) {
        square = fma(x[base + i], x[base + i], square);
    }
    partial[lid.x] = square;
#endif
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lid.x < half {
            partial[lid.x] += partial[lid.x + half];
        }
    }
    workgroupBarrier();
    scale = inverseSqrt(partial[0] / f32(params.head_dim) + params.eps);
#endif
    for (var i = lid.x; i < count; i += WG) {
        write(row, first + i, i, scale);
    }
}
#else
const WHOLE: u32 = DIM - DIM % FOUR;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = id.x / params.heads;
    let first = (id.x % params.heads) * DIM;
    if row >= params.rows {
        return;
    }
    var scale = 1.0;
#ifdef HEAD_NORM
    let base = row * params.x_stride + params.x_at + first;
    var squares = vec4<f32>(0.0);
    for (var i = 0u; i < WHOLE; i += FOUR) {
        let at = base + i;
        let v = vec4<f32>(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
        squares = fma(v, v, squares);
    }
    var square = (squares.x + squares.y) + (squares.z + squares.w);
    for (var i = WHOLE; i < DIM; i++) {
        square = fma(x[base + i], x[base + i], square);
    }
    scale = inverseSqrt(square / f32(DIM) + params.eps);
#endif
    for (var i = 0u; i < WHOLE; i += FOUR) {
#for j FOUR
        write(row, first + i + $ju, i + $ju, scale);
#endfor
    }
    for (var i = WHOLE; i < DIM; i++) {
        write(row, first + i, i, scale);
    }
}
#endif
