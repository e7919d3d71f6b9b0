// Keeps the entries of a run's last `window` rows in the slot's ring. Grid: (⌈entry / 64⌉, rows).
// Consts: ENTRY.

#import common/rows

struct Params {
    slot_words: u32,   // f32 words a slot
    window: u32,       // entries of the ring
    fresh_stride: u32, // elements from row to row of `fresh`
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> fresh: array<f32>;          // [rows, fresh_stride]
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;    // [rows] the row table
@group(0) @binding(auto) var<storage, read_write> ring: array<f32>;     // [slots, slot_words]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let entry = table[id.y];
    // Older rows would be overwritten anyway, by whoever came last.
    if id.x < ENTRY && entry.x != NO_SLOT && entry.z - entry.y <= params.window {
        let at = entry.x * params.slot_words + (entry.w % params.window) * ENTRY;
        ring[at + id.x] = fresh[id.y * params.fresh_stride + id.x];
    }
}
