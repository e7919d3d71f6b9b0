// What each chunk adds to the preconditioner's sums (MATH.md §8.4), starting from zero, and what delta/coop/chunk needs
// to know of each row. With NORMALISE the keys are made unit on the way.
//
// A workgroup is one chunk of one key head. A thread brings every fourth four of a row, like delta/coop/chunk's.
// K, places and strides are multiples of 4. Consts: K; SLICES, sixty-fours of it; PITCH, fours a row of `square`.
// Groups: (H, chunks).
#import delta/params
#import delta/coop/totals
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> gate_b: array<f32>; // view [rows, H]
@group(0) @binding(auto) var<storage, read> gate_g: array<f32>; // view [rows, H]
@group(0) @binding(auto) var<storage, read> mu: array<f32>; // [H]
@group(0) @binding(auto) var<storage, read_write> totals: array<vec4<f32>>; // [chunks, H, TOTALS]
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const THREADS: u32 = 256u;
const CHUNK: u32 = 64u;

var<workgroup> logs: array<f32, CHUNK>;
var<workgroup> square: array<vec4<f32>, CHUNK * PITCH>; // [C, 64]

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let chunk = chunks[group.y];
  if (chunk.y == 0u) {
    return;
  }
  let head = group.x;
  let totals_at = (group.y * p.heads + head) * TOTALS;
  let row = lid / 32u * 8u + lid % 8u;
  let lane = lid / 8u % 4u;
  let inside = row < chunk.y;
  let k_from = ((chunk.x + row) * p.k_stride + p.k_at + head * p.k_head) / 4u;
#for s SLICES
#for m FOUR
  let c$s$m = 16u * $su + 4u * $mu + lane;
  var k$s$m = vec4<f32>(0.0);
  if (inside && c$s$m < K / 4u) {
    k$s$m = k[k_from + c$s$m];
  }
#endfor
#endfor
  var log_keep = 0.0;
  var strength = 0.0;
  if (inside) {
    log_keep = max(gate_g[(chunk.x + row) * p.pg_stride + p.pg_at + head], MIN_LOG_DECAY);
    strength = gate_b[(chunk.x + row) * p.pb_stride + p.pb_at + head];
  }
  if (lane == 0u) {
    logs[row] = log_keep;
  }
#ifdef NORMALISE
  var mine = 0.0;
#for s SLICES
#for m FOUR
  mine += dot(k$s$m, k$s$m);
#endfor
#endfor
  square[lid] = vec4<f32>(mine);
#endif
  workgroupBarrier();
  // Sums of log keeps: of all rows, after this one, and of its sixteen up to it.
  var whole = 0.0;
  var after = 0.0;
  var sixteen = 0.0;
  for (var i = 0u; i < CHUNK; i++) {
    whole += logs[i];
    after += select(0.0, logs[i], i > row);
    sixteen += select(0.0, logs[i], i <= row && i / 16u == row / 16u);
  }
  var weight = strength * exp(after);
#ifdef NORMALISE
  let first = lid / 32u * 32u + lid % 8u;
  weight /= square[first].x + square[first + 8u].x + square[first + 16u].x + square[first + 24u].x + 1e-6;
#endif
  if (lane == 0u) {
    totals[totals_at + KEEPS_AT + row / 4u][row % 4u] = exp(log_keep);
    totals[totals_at + PRODUCTS_AT + row / 4u][row % 4u] = exp(sixteen);
    totals[totals_at + STRENGTHS_AT + row / 4u][row % 4u] = strength;
  }
  if (lid == 0u) {
    totals[totals_at + KEPT_AT] = vec4<f32>(exp(whole), mu[p.mu_at + head], 0.0, 0.0);
  }
#for s SLICES
  workgroupBarrier();
#for m FOUR
  square[row * PITCH + lane + 4u * $mu] = weight * k$s$m * k$s$m;
#endfor
  workgroupBarrier();
  // A thread a four of channels and sixteenth of the rows, then one a four.
  var sum$s = vec4<f32>(0.0);
  for (var i = 0u; i < 4u; i++) {
    sum$s += square[(lid / 16u * 4u + i) * PITCH + lid % 16u];
  }
  workgroupBarrier();
  square[lid] = sum$s;
  workgroupBarrier();
  if (lid < 16u && 16u * $su + lid < K / 4u) {
    for (var i = 1u; i < 16u; i++) {
      sum$s += square[16u * i + lid];
    }
    totals[totals_at + 16u * $su + lid] = sum$s;
  }
#endfor
}
