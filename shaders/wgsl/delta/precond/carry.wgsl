// The only sequential part of the preconditioner's sums: from each chunk's own sums to the sums before it, in place;
// the slots get the sums after the last chunk.
//
// A thread is one channel of one key head of one sequence. Groups: (⌈H·K/64⌉, sequences).
#import delta/params
@group(0) @binding(auto) var<storage, read_write> totals: array<f32>; // [chunks, H, K + 4], see delta/precond/sums
@group(0) @binding(auto) var<storage, read_write> sums: array<f32>; // slots of [H, key_dim]
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, first chunk

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let head = id.x / K;
  let c = id.x % K;
  let sequence = sequences[id.y];
  if (head >= p.heads || c >= p.key_dim || sequence.y == 0u) {
    return;
  }
  let slot = sequence.z * p.a_words + p.a_at + head * p.key_dim + c;
  let count = (sequence.y + C - 1u) / C;
  var sum = sums[slot];
  for (var i = 0u; i < count; i++) {
    let at = ((sequence.w + i) * p.heads + head) * (K + 4u);
    let own = totals[at + c];
    totals[at + c] = sum;
    sum = sum * totals[at + K] + own;
  }
  sums[slot] = sum;
}
