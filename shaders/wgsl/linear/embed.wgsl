// Embedding rows of token ids. One workgroup a row.
//
// DECODE: the token is the one that the sampling kernel drew into the session's head, unless the session is done; the
// tables for the kernels that follow are written here. Otherwise the host wrote the tables, and the tokens with them.
// A table larger than one binding comes in parts: this one holds rows first .. first + count.

#import common/weights
#import common/rows
#import common/head

struct Params {
    groups: u32,     // eights a row of the table
    width: u32,      // elements written of a row of `out`
    first: u32,      // first table row of this part
    count: u32,      // table rows of this part
    head_words: u32, // words a slot of the head
    vocab: u32,
    out_stride: u32, // elements from row to row of `out`
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;               // [rows, out_stride]
#ifdef DECODE
@group(0) @binding(auto) var<storage, read> controls: array<u32>;                // [rows, CONTROL_WORDS]
@group(0) @binding(auto) var<storage, read> head: array<u32>;                    // [slots, head_words]
@group(0) @binding(auto) var<storage, read_write> table: array<vec4<u32>>;       // [rows] the row table
@group(0) @binding(auto) var<storage, read_write> sequences: array<vec4<u32>>;   // [rows] { row, 0 or 1, slot, row }
#else
@group(0) @binding(auto) var<storage, read> tokens: array<u32>;                  // [rows]
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let row = wid.x;
    var token = 0u;
#ifdef DECODE
    let slot = controls[row * CONTROL_WORDS + CONTROL_SLOT];
    var live = slot != NO_SLOT;
    var position = 0u;
    if live {
        let at = slot * params.head_words;
        live = head[at + HEAD_DONE] == 0u;
        token = select(0u, head[at + HEAD_TOKEN], live);
        position = head[at + HEAD_POSITION] - 1u;
    }
    if lid.x == 0u && params.first == 0u {
        table[row] = vec4<u32>(select(NO_SLOT, slot, live), 0u, 1u, position);
        sequences[row] = vec4<u32>(row, select(0u, 1u, live), select(0u, slot, live), row);
    }
#else
    token = tokens[row];
#endif
    token = min(token, params.vocab - 1u);
    if token < params.first || token >= params.first + params.count {
        return;
    }
    for (var g = lid.x; g < params.groups; g += WG) {
        let e = weight8(token - params.first, params.groups, g);
        for (var i = 0u; i < 4u; i++) {
            let c = g * 8u + i;
            if c < params.width {
                out[row * params.out_stride + c] = e.lo[i];
            }
            if c + 4u < params.width {
                out[row * params.out_stride + c + 4u] = e.hi[i];
            }
        }
    }
}
