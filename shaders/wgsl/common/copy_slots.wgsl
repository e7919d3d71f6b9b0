// Copies whole slots of one buffer, `[slots, words]`. WebGPU cannot copy a buffer onto itself; this can.
// No slot may be a destination and a source, or a destination twice, in one run.

#import common/rows

struct Params {
    words: u32, // words a slot
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> pairs: array<vec2<u32>>;         // [pairs] { from, to }, from = NO_SLOT: none
@group(0) @binding(auto) var<storage, read_write> data: array<u32>;          // [slots, words]

@compute @workgroup_size(WG)
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {
    let pair = pairs[wid.y];
    if pair.x == NO_SLOT {
        return;
    }
    for (var i = id.x; i < params.words; i += groups.x * WG) {
        data[pair.y * params.words + i] = data[pair.x * params.words + i];
    }
}
