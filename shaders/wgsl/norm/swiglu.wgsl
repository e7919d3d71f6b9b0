// out = silu(x at x_at) ⊙ (x at up_at). Grid: x covers the columns, with WIDE four at a time, y the rows.
// WIDE: every place and stride is a multiple of 4. HALF (with WIDE): the result is rounded to f16, with
// TILES in tiles.

#import common/activation
#ifdef HALF
#import common/halves
#endif

struct Params {
    width: u32,      // elements a row
    x_stride: u32,   // elements from row to row of `x`
    x_at: u32,       // first column of the gate
    up_at: u32,      // first column of what it gates
    out_stride: u32, // elements from row to row of `out`
}

@group(0) @binding(auto) var<uniform> params: Params;
#ifdef WIDE
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;      // [rows, x_stride]
#ifdef HALF
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f16>>; // [rows, out_stride]
#else
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>; // [rows, out_stride]
#endif
#else
@group(0) @binding(auto) var<storage, read> x: array<f32>;            // [rows, x_stride]
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;    // [rows, out_stride]
#endif

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
#ifdef WIDE
    let column = 4u * id.x;
    if column < params.width {
        let base = id.y * params.x_stride + column;
        let v = silu4(x[(base + params.x_at) / 4u]) * x[(base + params.up_at) / 4u];
    #ifdef HALF
        out[place4(id.y, id.x, params.out_stride / 4u)] = half4(v);
#else
        out[(id.y * params.out_stride + column) / 4u] = v;
#endif
    }
#else
    if id.x < params.width {
        let base = id.y * params.x_stride + id.x;
        out[id.y * params.out_stride + id.x] = silu(x[base + params.x_at]) * x[base + params.up_at];
    }
#endif
}
