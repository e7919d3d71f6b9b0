// out = x rounded to f16, four elements an invocation. Every place and stride is a multiple of 4. With TILES in
// tiles.
// Grid: x covers the columns in steps of 4 · WG, y the rows.

#import common/halves

struct Params {
    width: u32,      // elements a row
    x_stride: u32,   // elements from row to row of `x`
    x_at: u32,       // first column of `x`
    out_stride: u32, // elements from row to row of `out`
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;         // [rows, x_stride]
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f16>>; // [rows, out_stride]

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let column = 4u * id.x;
    if column < params.width {
        let at = id.y * params.x_stride + params.x_at + column;
        out[place4(id.y, id.x, params.out_stride / 4u)] = half4(x[at / 4u]);
    }
}
