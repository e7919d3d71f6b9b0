// What each chunk adds to the preconditioner's sums (MATH.md §8.4), starting from zero, and what delta/coop/chunk needs
// to know of each row. With NORMALISE the keys are made unit on the way.
//
// A workgroup is one chunk of one key head: eight teams of 32 threads with eight rows each, so that a team reads a row in
// a piece, and a thread adds up its rows by itself.
// K, places and strides are multiples of 4. Consts: K; SLICES, hundred-and-twenty-eights of it. Groups: (H, chunks).
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
const TEAM: u32 = 32u;
// One more from row to row keeps them on different banks.
const PITCH: u32 = TEAM + 1u;

var<workgroup> logs: array<vec4<f32>, CHUNK / 4u>;                // what rows keep
var<workgroup> squares: array<f32, CHUNK * PITCH>;                // [C, 32]: shares of ‖k‖²
var<workgroup> weights: array<f32, CHUNK>;                        // what a row's squares count in the end
var<workgroup> parts: array<vec4<f32>, SLICES * THREADS>;         // [SLICES, teams, 32]: sums of a team's rows

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let chunk = chunks[group.y];
  if (chunk.y == 0u) {
    return;
  }
  let head = group.x;
  let totals_at = (group.y * p.heads + head) * TOTALS;
  let lane = lid % TEAM;
  let first = lid / TEAM * 8u;
#for r EIGHT
  let k_from$r = ((chunk.x + first + $ru) * p.k_stride + p.k_at + head * p.k_head) / 4u;
  var square$r = 0.0;
#for s SLICES
  var k$r_$s = vec4<f32>(0.0);
  if (first + $ru < chunk.y && TEAM * $su + lane < K / 4u) {
    k$r_$s = k[k_from$r + TEAM * $su + lane];
  }
#endfor
#endfor
  var log_keep = 0.0;
  var strength = 0.0;
  if (lid < chunk.y) {
    log_keep = max(gate_g[(chunk.x + lid) * p.pg_stride + p.pg_at + head], MIN_LOG_DECAY);
    strength = gate_b[(chunk.x + lid) * p.pb_stride + p.pb_at + head];
  }
  if (lid < CHUNK) {
    logs[lid / 4u][lid % 4u] = log_keep;
  }
#for r EIGHT
#for s SLICES
  k$r_$s *= k$r_$s;
  square$r += dot(k$r_$s, vec4<f32>(1.0));
#endfor
#ifdef NORMALISE
  squares[(first + $ru) * PITCH + lane] = square$r;
#endif
#endfor
  workgroupBarrier();

  // A thread a row: sums of log keeps, of all rows, after this one, and of its sixteen up to it.
  if (lid < CHUNK) {
    var whole = 0.0;
    var after = 0.0;
    var sixteen = 0.0;
#for m SIXTEEN
    let logs$m = logs[$mu];
    let upto$m = vec4<u32>(4u * $mu, 4u * $mu + 1u, 4u * $mu + 2u, 4u * $mu + 3u) <= vec4<u32>(lid);
    whole += dot(logs$m, vec4<f32>(1.0));
    after += dot(logs$m, select(vec4<f32>(1.0), vec4<f32>(0.0), upto$m));
    if (lid / 16u == $mu / 4u) {
      sixteen += dot(logs$m, select(vec4<f32>(0.0), vec4<f32>(1.0), upto$m));
    }
#endfor
    var weight = strength * exp(after);
#ifdef NORMALISE
    var square = 1e-6;
    for (var i = 0u; i < TEAM; i++) {
      square += squares[lid * PITCH + i];
    }
    weight /= square;
#endif
    weights[lid] = weight;
    totals[totals_at + KEEPS_AT + lid / 4u][lid % 4u] = exp(log_keep);
    totals[totals_at + PRODUCTS_AT + lid / 4u][lid % 4u] = exp(sixteen);
    totals[totals_at + STRENGTHS_AT + lid / 4u][lid % 4u] = strength;
    if (lid == 0u) {
      totals[totals_at + KEPT_AT] = vec4<f32>(exp(whole), mu[p.mu_at + head], 0.0, 0.0);
    }
  }
  workgroupBarrier();

#for s SLICES
  var sum$s = vec4<f32>(0.0);
#for r EIGHT
  sum$s += weights[first + $ru] * k$r_$s;
#endfor
  parts[THREADS * $su + lid] = sum$s;
#endfor
  workgroupBarrier();
  if (lid < K / 4u) {
    var sum = vec4<f32>(0.0);
    for (var i = 0u; i < THREADS / TEAM; i++) {
      sum += parts[lid / TEAM * THREADS + TEAM * i + lid % TEAM];
    }
    totals[totals_at + lid] = sum;
  }
}
