// Puts the shares of attention/decode together. Grid: (HEADS, rows).
// Consts: HEADS, D, SPLITS.

#import common/rows

struct Params {
    out_stride: u32, // elements from row to row of `out`
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> shares: array<f32>;         // [rows, HEADS, SPLITS, D + 2] output, maximum, sum
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;    // [rows] the row table
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;      // [rows, out_stride]

const SHARE: u32 = D + 2u;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = wid.y;
    let head = wid.x;
    if table[row].x == NO_SLOT {
        return;
    }
    let base = (row * HEADS + head) * SPLITS * SHARE;
    var top = shares[base + D];
    for (var i = 1u; i < SPLITS; i++) {
        top = max(top, shares[base + i * SHARE + D]);
    }
    var total = 0.0;
    for (var i = 0u; i < SPLITS; i++) {
        let at = base + i * SHARE + D;
        total += exp(shares[at] - top) * shares[at + 1u];
    }
    for (var c = lane; c < D; c += 64u) {
        var sum = 0.0;
        for (var i = 0u; i < SPLITS; i++) {
            let at = base + i * SHARE;
            sum = fma(exp(shares[at + D] - top), shares[at + c], sum);
        }
        out[row * params.out_stride + head * D + c] = sum / total;
    }
}
