// The recurrent form (MATH.md §2): token by token, S in registers from the first to the last.
//
// A workgroup is BV columns of one value head's S in one sequence, SPLIT threads a column, each with the ROWS channels
// from part · ROWS on. S is read and written once, BV consecutive columns at a time. One exchange between threads a
// token: with S̄ the decayed state, both r = k·S̄ and q·S̄ come from the same pass, and q·S = q·S̄ + (q·k̃) e.
// With NORMALISE, q and k come as they are: their lengths are found in the same pass, x / sqrt(Σx² + 1e-6).
// Groups: (⌈V/BV⌉, HV, sequences).
#import delta/params
@group(0) @binding(auto) var<storage, read> q: array<f32>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<f32>; // view [rows, H, K], write keys kt_at further on
@group(0) @binding(auto) var<storage, read> v: array<f32>; // view [rows, HV, V]
#ifdef BETA_GIVEN
@group(0) @binding(auto) var<storage, read> beta: array<f32>; // view [rows, HV]
#endif
#ifdef DECAY
@group(0) @binding(auto) var<storage, read> g: array<f32>; // view [rows, HV], with CHANNEL [rows, HV, key_dim]
#endif
@group(0) @binding(auto) var<storage, read_write> state: array<f32>; // slots of [HV, key_dim, V]
@group(0) @binding(auto) var<storage, read_write> out: array<f32>; // view [rows, HV, V]
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, –

const ROWS: u32 = (K + 4u * SPLIT - 1u) / (4u * SPLIT) * 4u;
const WIDTH: u32 = ROWS * SPLIT; // K with its padding
const THREADS: u32 = BV * SPLIT;

// One token, twice: while one is used the next is filled.
var<workgroup> qs: array<f32, 2u * WIDTH>;
var<workgroup> ks: array<f32, 2u * WIDTH>;
#ifdef WRITE_KEY
var<workgroup> kts: array<f32, 2u * WIDTH>;
#endif
#ifdef CHANNEL
var<workgroup> keep: array<f32, 2u * WIDTH>;
#endif
#ifdef NORMALISE
var<workgroup> squares: array<vec2<f32>, THREADS>; // Σk², Σq² of each thread's channels
#endif
var<workgroup> shares: array<vec3<f32>, THREADS>; // k·S̄, q·S̄, q·k̃ of each thread's channels

fn fill(row: u32, head: u32, lane: u32, to: u32) {
  let key_head = head / p.group;
  let q_from = row * p.q_stride + p.q_at + key_head * p.q_head;
  let k_from = row * p.k_stride + p.k_at + key_head * p.k_head;
  for (var c = lane; c < WIDTH; c += THREADS) {
    let inside = c < K;
    let at = select(0u, c, inside);
    qs[to + c] = select(0.0, q[q_from + at], inside);
    ks[to + c] = select(0.0, k[k_from + at], inside);
#ifdef WRITE_KEY
    kts[to + c] = select(0.0, k[k_from + p.kt_at + at], inside);
#endif
#ifdef CHANNEL
    let real = c < p.key_dim;
    let log_decay = g[row * p.g_stride + p.g_at + head * p.key_dim + select(0u, c, real)];
    keep[to + c] = select(1.0, exp(max(log_decay, MIN_LOG_DECAY)), real);
#endif
  }
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let sequence = sequences[group.z];
  let length = sequence.y;
  if (length == 0u) {
    return;
  }
  let head = group.y;
  let column = group.x * BV + lane % BV;
  let part = lane / BV;
  let first = part * ROWS;
  let inside = column < p.value_dim;

  var s: array<f32, ROWS>;
  let s_from = sequence.z * p.s_words + p.s_at + head * p.key_dim * p.value_dim + column;
  for (var i = 0u; i < ROWS; i++) {
    s[i] = 0.0;
    if (inside && first + i < p.key_dim) {
      s[i] = state[s_from + (first + i) * p.value_dim];
    }
  }

  fill(sequence.x, head, lane, 0u);
  for (var t = 0u; t < length; t++) {
    let row = sequence.x + t;
    let at = (t % 2u) * WIDTH + first;
    workgroupBarrier();
#ifdef HEAD
    let decay = exp(max(g[row * p.g_stride + p.g_at + head], MIN_LOG_DECAY));
#endif
    var share = vec3<f32>(0.0);
    var square = vec2<f32>(0.0);
    for (var i = 0u; i < ROWS; i++) {
#ifdef HEAD
      s[i] *= decay;
#endif
#ifdef CHANNEL
      s[i] *= keep[at + i];
#endif
#ifdef WRITE_KEY
      let kt = kts[at + i];
#else
      let kt = ks[at + i];
#endif
      share += vec3<f32>(ks[at + i] * s[i], qs[at + i] * s[i], qs[at + i] * kt);
#ifdef NORMALISE
      square += vec2<f32>(ks[at + i] * ks[at + i], qs[at + i] * qs[at + i]);
#endif
    }
    shares[lane] = share;
#ifdef NORMALISE
    squares[lane] = square;
#endif
    workgroupBarrier();
    if (t + 1u < length) {
      fill(row + 1u, head, lane, ((t + 1u) % 2u) * WIDTH);
    }
    share = vec3<f32>(0.0);
    square = vec2<f32>(0.0);
    for (var i = 0u; i < SPLIT; i++) {
      share += shares[i * BV + lane % BV];
#ifdef NORMALISE
      square += squares[i * BV + lane % BV];
#endif
    }
    var unit = vec2<f32>(1.0); // of k, of q
#ifdef NORMALISE
    unit = 1.0 / sqrt(square + 1e-6);
#endif
    var e = 0.0;
    if (inside) {
      e = v[row * p.v_stride + p.v_at + head * p.value_dim + column];
    }
#ifdef DELTA
    e -= unit.x * share.x;
#endif
#ifdef BETA_GIVEN
    e *= beta[row * p.b_stride + p.b_at + head];
#endif
    e *= unit.x;
    for (var i = 0u; i < ROWS; i++) {
#ifdef WRITE_KEY
      s[i] += kts[at + i] * e;
#else
      s[i] += ks[at + i] * e;
#endif
    }
    if (inside && part == 0u) {
      out[row * p.o_stride + p.o_at + head * p.value_dim + column] = p.scale * unit.y * (share.y + share.z * e);
    }
  }

  for (var i = 0u; i < ROWS; i++) {
    if (inside && first + i < p.key_dim) {
      state[s_from + (first + i) * p.value_dim] = s[i];
    }
  }
}
