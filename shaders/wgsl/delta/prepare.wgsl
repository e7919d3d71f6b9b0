// Queries and keys padded to K channels and, with NORMALISE, made unit: x / sqrt(Σx² + 1e-6). With LONGHORN also
// β = b / (1 + b‖k‖²) of that key.
//
// A workgroup is one row and four key heads, 16 threads a head. Groups: (⌈H/4⌉, rows).
#import delta/params
@group(0) @binding(auto) var<storage, read> q: array<f32>; // view [rows, H, key_dim]
@group(0) @binding(auto) var<storage, read> k: array<f32>; // view [rows, H, key_dim]
@group(0) @binding(auto) var<storage, read_write> qk: array<f32>; // [rows, H, 2, K]: q, k
#ifdef LONGHORN
@group(0) @binding(auto) var<storage, read> b: array<f32>; // view [rows, HV]
@group(0) @binding(auto) var<storage, read_write> beta: array<f32>; // [rows, HV]
#endif

const LANES: u32 = 16u; // threads a head
const HEADS: u32 = 4u; // heads a workgroup

var<workgroup> partial: array<vec2<f32>, LANES * HEADS>; // Σq², Σk² of each thread's channels

@compute @workgroup_size(LANES * HEADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.y;
  let head = group.x * HEADS + lane / LANES;
  let first = lane % LANES;
  let q_from = row * p.q_stride + p.q_at + head * p.q_head;
  let k_from = row * p.k_stride + p.k_at + head * p.k_head;
  var squares = vec2<f32>(0.0);
  if (head < p.heads) {
    for (var c = first; c < p.key_dim; c += LANES) {
      let x = vec2<f32>(q[q_from + c], k[k_from + c]);
      squares += x * x;
    }
  }
  partial[lane] = squares;
  workgroupBarrier();
  if (head >= p.heads) {
    return;
  }
  squares = vec2<f32>(0.0);
  for (var i = 0u; i < LANES; i++) {
    squares += partial[lane - first + i];
  }
  var unit = vec2<f32>(1.0);
#ifdef NORMALISE
  unit = 1.0 / sqrt(squares + 1e-6);
#endif
  let to = (row * p.heads + head) * 2u * K;
  for (var c = first; c < K; c += LANES) {
    var x = vec2<f32>(0.0);
    if (c < p.key_dim) {
      x = vec2<f32>(q[q_from + c], k[k_from + c]) * unit;
    }
    qk[to + c] = x.x;
    qk[to + K + c] = x.y;
  }
#ifdef LONGHORN
  let norm = squares.y * unit.y * unit.y;
  for (var r = first; r < p.group; r += LANES) {
    let h = head * p.group + r;
    let x = b[row * p.b_stride + p.b_at + h];
    beta[row * p.value_heads + h] = x / (1.0 + x * norm);
  }
#endif
}
