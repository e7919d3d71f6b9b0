// Advances the convolution's tail of one session past the piece that was just convolved. One invocation a channel.

#import common/rows
#import conv/taps

struct Params {
    conv: ConvParams,
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;               // [rows, x_stride]
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;     // [rows] the row table
@group(0) @binding(auto) var<storage, read_write> state: array<f32>;     // [slots, state_words]

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let entry = table[0];
    if id.x < params.conv.channels && entry.x != NO_SLOT {
        advance_tail(entry.x, 0u, entry.z, id.x);
    }
}
