// out[r] = x[r] / sqrt(mean x² + eps) ⊙ norm. One workgroup a row; with SOLO, one invocation a row and no barrier.
// WIDE (without SOLO): every place and stride is a multiple of 4. HALF (with WIDE): the result is rounded to f16,
// with TILES in tiles.
//
// Consts: WG; with SOLO also EIGHT, elements a round of the loops, and WIDTH, the same as `width`: where a loop ends at a
// uniform, lavapipe may put the number into the text and compile that anew for every dispatch, in 1 to 16 ms.

#import common/rows
#ifdef HALF
#import common/halves
#endif

struct Params {
    width: u32,      // elements a row
    x_stride: u32,   // elements from row to row of `x`
    x_at: u32,       // first column of `x`
    out_stride: u32, // elements from row to row of `out`
    rows: u32,
    eps: f32,        // inside the root
}

@group(0) @binding(auto) var<uniform> params: Params;
#ifdef WIDE
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;      // [rows, x_stride]
@group(0) @binding(auto) var<storage, read> norm: array<vec4<f32>>;   // [width]
#else
@group(0) @binding(auto) var<storage, read> x: array<f32>;            // [rows, x_stride]
@group(0) @binding(auto) var<storage, read> norm: array<f32>;         // [width]
#endif
#ifdef LAST
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;  // [rows] the row table
#endif
#ifdef WIDE
#ifdef HALF
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f16>>; // [rows, out_stride]
#else
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>; // [rows, out_stride]
#endif
#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;    // [rows, out_stride]
#endif

#ifndef SOLO
var<workgroup> partial: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let out_row = wid.x;
    var row = wid.x;
#ifdef LAST
    row = table[0].z - 1u;
#endif
#ifdef WIDE
    let base = (row * params.x_stride + params.x_at) / 4u;
    let count = params.width / 4u;
    var squares = vec4<f32>(0.0);
    for (var i = lid.x; i < count; i += WG) {
        squares = fma(x[base + i], x[base + i], squares);
    }
    partial[lid.x] = (squares.x + squares.y) + (squares.z + squares.w);
#else
    let base = row * params.x_stride + params.x_at;
    var square = 0.0;
    for (var i = lid.x; i < params.width; i += WG) {
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
    let scale = inverseSqrt(partial[0] / f32(params.width) + params.eps);
#ifdef WIDE
#ifndef HALF
    let to = out_row * params.out_stride / 4u;
#endif
    for (var i = lid.x; i < count; i += WG) {
        let v = x[base + i] * scale * norm[i];
#ifdef HALF
        out[place4(out_row, i, params.out_stride / 4u)] = half4(v);
#else
        out[to + i] = v;
#endif
    }
#else
    for (var i = lid.x; i < params.width; i += WG) {
        out[out_row * params.out_stride + i] = x[base + i] * scale * norm[i];
    }
#endif
}
#else
const WHOLE: u32 = WIDTH - WIDTH % EIGHT;

// Eight partial sums, as eight lanes of a CPU would take them, keep the error that of a tree.
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let out_row = id.x;
    if out_row >= params.rows {
        return;
    }
    var row = out_row;
#ifdef LAST
    row = table[0].z - 1u;
#endif
    let base = row * params.x_stride + params.x_at;
    var lo = vec4<f32>(0.0);
    var hi = vec4<f32>(0.0);
    for (var i = 0u; i < WHOLE; i += EIGHT) {
        let at = base + i;
        let a = vec4<f32>(x[at], x[at + 1u], x[at + 2u], x[at + 3u]);
        let b = vec4<f32>(x[at + 4u], x[at + 5u], x[at + 6u], x[at + 7u]);
        lo = fma(a, a, lo);
        hi = fma(b, b, hi);
    }
    lo += hi;
    var square = (lo.x + lo.y) + (lo.z + lo.w);
    for (var i = WHOLE; i < WIDTH; i++) {
        square = fma(x[base + i], x[base + i], square);
    }
    let scale = inverseSqrt(square / f32(WIDTH) + params.eps);
    let to = out_row * params.out_stride;
    for (var i = 0u; i < WHOLE; i += EIGHT) {
#for j EIGHT
        out[to + i + $ju] = x[base + i + $ju] * scale * norm[i + $ju];
#endfor
    }
    for (var i = WHOLE; i < WIDTH; i++) {
        out[to + i] = x[base + i] * scale * norm[i];
    }
}
#endif
