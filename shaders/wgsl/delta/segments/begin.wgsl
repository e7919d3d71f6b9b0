// Splits each sequence into SEGMENTS of whole chunks, which the scan takes as sequences of their own (MATH.md §3: over
// any run of chunks the state goes from S to A S + B). Here: their table, and the states that two scans start from,
// zeros for B and the identity for A, whose values are zero too. A segment without rows keeps both as they are.
//
// A thread is an element of each. Consts: C, rows a chunk; SEGMENTS. Groups: (elements in workgroups of 256).
#import delta/params
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, first chunk
@group(0) @binding(auto) var<storage, read_write> segments: array<vec4<u32>>; // [sequences, SEGMENTS], likewise
@group(0) @binding(auto) var<storage, read_write> kept: array<f32>; // A: [sequences, SEGMENTS, HV, key_dim, key_dim]
@group(0) @binding(auto) var<storage, read_write> added: array<f32>; // B: [sequences, SEGMENTS, HV, key_dim, V]
@group(0) @binding(auto) var<storage, read_write> nothing: array<f32>; // [HV, key_dim]: values of every row

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.x;
  if (i < arrayLength(&kept)) {
    kept[i] = select(0.0, 1.0, i / p.key_dim % p.key_dim == i % p.key_dim);
  }
  if (i < arrayLength(&added)) {
    added[i] = 0.0;
  }
  if (i < arrayLength(&nothing)) {
    nothing[i] = 0.0;
  }
  if (i < p.sequences * SEGMENTS) {
    let sequence = sequences[i / SEGMENTS];
    let chunks = (sequence.y + C - 1u) / C;
    let each = (chunks + SEGMENTS - 1u) / SEGMENTS;
    let first = min(i % SEGMENTS * each, chunks);
    let from_row = min(first * C, sequence.y);
    let rows = min(each * C, sequence.y - from_row);
    segments[i] = vec4<u32>(sequence.x + from_row, rows, i, sequence.w + first);
  }
}
