// What each chunk adds to the preconditioner's sums, starting from zero, and how much of what was there it keeps.
//
// A thread is one channel of one key head of one chunk. Groups: (⌈H·K/64⌉, chunks).
#import delta/precond/gates
@group(0) @binding(auto) var<storage, read_write> totals: array<f32>; // [chunks, H, K + 4]: K sums, the kept share
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let head = id.x / K;
  let c = id.x % K;
  let chunk = chunks[id.y];
  if (head >= p.heads || chunk.y == 0u) {
    return;
  }
  var sum = 0.0;
  var log_kept = 0.0;
  for (var i = 0u; i < chunk.y; i++) {
    let row = chunk.x + i;
    let keep = log_keep(row, head);
    let x = key(row, head, c);
    sum = sum * exp(keep) + strength(row, head) * x * x;
    log_kept += keep;
  }
  let to = (id.y * p.heads + head) * (K + 4u);
  totals[to + c] = sum;
  if (c == 0u) {
    totals[to + K] = exp(log_kept);
  }
}
