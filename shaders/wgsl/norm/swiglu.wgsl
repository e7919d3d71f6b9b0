// out = silu(x at x_at) ⊙ (x at up_at). Grid: x covers the columns, y the rows.

#import common/activation

struct Params {
    width: u32,      // elements a row
    x_stride: u32,   // elements from row to row of `x`
    x_at: u32,       // first column of the gate
    up_at: u32,      // first column of what it gates
    out_stride: u32, // elements from row to row of `out`
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;            // [rows, x_stride]
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;    // [rows, out_stride]

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.width {
        let base = id.y * params.x_stride + id.x;
        out[id.y * params.out_stride + id.x] = silu(x[base + params.x_at]) * x[base + params.up_at];
    }
}
