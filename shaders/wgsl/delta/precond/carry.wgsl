// The only sequential part of the preconditioner's sums: from each chunk's own sums to the sums before it, in place;
// the slots get the sums after the last chunk.
//
// A thread is one channel of one key head of one sequence. Consts: K; C; BLOCK, elements a chunk and head: K sums, the
// kept share, and what else there may be. Groups: (⌈H·K/64⌉, sequences).
#import delta/params
@group(0) @binding(auto) var<storage, read_write> totals: array<f32>; // [chunks, H, BLOCK], see delta/precond/sums and delta/coop/totals
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
  for (var first = 0u; first < count; first += EIGHT) {
    // The loads of eight chunks are under way at once: nothing else takes time here.
#for m EIGHT
    let at$m = ((sequence.w + min(first + $mu, count - 1u)) * p.heads + head) * BLOCK;
    let own$m = totals[at$m + c];
    let kept$m = totals[at$m + K];
#endfor
#for m EIGHT
    if (first + $mu < count) {
      totals[at$m + c] = sum;
      sum = sum * kept$m + own$m;
    }
#endfor
  }
  sums[slot] = sum;
}
