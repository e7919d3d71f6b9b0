// Begins a piece of a prompt: writes the row table, marks the tokens as seen and advances the session's position.
// One workgroup; all rows belong to one session.

#import common/rows
#import common/head

struct Params {
    rows: u32,       // rows of the plan
    head_words: u32, // words a slot of the head
    seen_at: u32,    // the mask's place in a slot
    vocab: u32,
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> tokens: array<u32>;                // [rows]
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>;       // [1] { 0, tokens, slot, 0 }
@group(0) @binding(auto) var<storage, read_write> head: array<atomic<u32>>;    // [slots, head_words]
@group(0) @binding(auto) var<storage, read_write> table: array<vec4<u32>>;     // [rows] the row table

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_id) lid: vec3<u32>) {
    let length = sequences[0].y;
    let slot = sequences[0].z;
    let at = slot * params.head_words;
    let position = atomicLoad(&head[at + HEAD_POSITION]);
    // Everyone has read the position before one of them advances it.
    storageBarrier();
    workgroupBarrier();
    for (var row = lid.x; row < params.rows; row += WG) {
        if row < length {
            table[row] = vec4<u32>(slot, row, length, position + row);
            let token = min(tokens[row], params.vocab - 1u);
            atomicOr(&head[at + params.seen_at + (token >> 5u)], 1u << (token & 31u));
        } else {
            table[row] = vec4<u32>(NO_SLOT, 0u, 0u, 0u);
        }
    }
    if lid.x == 0u {
        atomicStore(&head[at + HEAD_POSITION], position + length);
    }
}
