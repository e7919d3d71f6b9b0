// The write key k̃ = B ⊙ k of every token, from the running sums. With CHUNKED the sums before each chunk are known and
// all chunks run at once; without it a thread walks its whole sequence and leaves the new sums in the slot.
//
// A thread is one channel of one key head of one span of rows. Groups: (⌈H·K/64⌉, spans).
#import delta/precond/gates
@group(0) @binding(auto) var<storage, read> mu: array<f32>; // [H]
#ifdef CHUNKED
@group(0) @binding(auto) var<storage, read> totals: array<f32>; // [chunks, H, K + 4]: sums before the chunk
#else
@group(0) @binding(auto) var<storage, read_write> sums: array<f32>; // slots of [H, key_dim]
#endif
@group(0) @binding(auto) var<storage, read_write> keys: array<f32>; // [rows, H, 2, K]: k, k̃
@group(0) @binding(auto) var<storage, read> spans: array<vec4<u32>>; // chunks or sequences: first row, length, slot, –

const LOG_X: f32 = 0.4054651081081644; // ln 1.5

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let head = id.x / K;
  let c = id.x % K;
  let span = spans[id.y];
  if (head >= p.heads || span.y == 0u) {
    return;
  }
#ifdef CHUNKED
  var sum = 0.0;
  if (c < p.key_dim) {
    sum = totals[(id.y * p.heads + head) * (K + 4u) + c];
  }
#else
  let slot = span.z * p.a_words + p.a_at + head * p.key_dim + c;
  var sum = 0.0;
  if (c < p.key_dim) {
    sum = sums[slot];
  }
#endif
  for (var i = 0u; i < span.y; i++) {
    let row = span.x + i;
    let x = key(row, head, c);
    sum = sum * exp(log_keep(row, head)) + strength(row, head) * x * x;
    let r = log(sum + 1e-6) - mu[p.mu_at + head];
    let to = (row * p.heads + head) * 2u * K + c;
    keys[to] = x;
    keys[to + K] = exp(-LOG_X * r / (1.0 + abs(r))) * x;
  }
#ifndef CHUNKED
  if (c < p.key_dim) {
    sums[slot] = sum;
  }
#endif
}
