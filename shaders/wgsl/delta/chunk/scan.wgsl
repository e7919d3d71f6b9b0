// The scan over a sequence's chunks, and with it the outputs (MATH.md §3):
//   E = U − W S;  O = σ e^G Q S + P E;  S ← e^{G_C} S + (e^{G_C − G} K̃)ᵀ E
// Columns of S do not meet, so V is split over workgroups without bound. With STATES, S before each chunk is kept.
//
// A workgroup is BV columns of one value head in one sequence, with S in workgroup memory throughout; C·BV/2 threads.
// The rows of W and Q go through workgroup memory KB channels at a time, so that one pass over S serves both.
// Groups: (⌈V/BV⌉, HV, sequences).
#import delta/params
#import delta/chunk/layout
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read> keys: array<f32>; // [chunks, HV, 3, C, K]
#else
@group(0) @binding(auto) var<storage, read> q: array<f32>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<f32>; // view [rows, H, K], write keys kt_at further on
#endif
@group(0) @binding(auto) var<storage, read> uw: array<f32>; // [chunks, HV, C, value_pad + K]: U, W
@group(0) @binding(auto) var<storage, read> pairs: array<f32>; // [chunks, HV, PAIR]
@group(0) @binding(auto) var<storage, read_write> state: array<f32>; // slots of [HV, key_dim, V]
@group(0) @binding(auto) var<storage, read_write> out: array<f32>; // view [rows, HV, V]
#ifdef STATES
@group(0) @binding(auto) var<storage, read_write> states: array<f32>; // [chunks, HV, key_dim, V]
#endif
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, first chunk

const THREADS: u32 = C * BV / 2u;
const ROW_GROUPS: u32 = THREADS / BV; // C/2: a thread has rows i and i + C/2 of E and of O, in one column
const PITCH: u32 = KB + 1u;

var<workgroup> s: array<f32, K * BV>;
var<workgroup> es: array<f32, C * BV>;
var<workgroup> rows: array<f32, 2u * C * PITCH>; // a slice of W, then of Q

#ifdef CHANNEL
fn query(block: u32, row: u32, head: u32, i: u32, c: u32) -> f32 {
  return keys[((block * 3u + 1u) * C + i) * K + c];
}
fn write_key(block: u32, row: u32, head: u32, i: u32, c: u32) -> f32 {
  return keys[((block * 3u + 2u) * C + i) * K + c];
}
#else
fn query(block: u32, row: u32, head: u32, i: u32, c: u32) -> f32 {
  return q[row * p.q_stride + p.q_at + head / p.group * p.q_head + c];
}
fn write_key(block: u32, row: u32, head: u32, i: u32, c: u32) -> f32 {
#ifdef WRITE_KEY
  return k[row * p.k_stride + p.k_at + head / p.group * p.k_head + p.kt_at + c];
#else
  return k[row * p.k_stride + p.k_at + head / p.group * p.k_head + c];
#endif
}
#endif

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let sequence = sequences[group.z];
  if (sequence.y == 0u) {
    return;
  }
  let head = group.y;
  let first_column = group.x * BV;
  let own = lane % BV;
  let column = first_column + own;
  let inside = column < p.value_dim;
  let i0 = lane / BV;
  let width = p.value_pad + K;
  let s_from = sequence.z * p.s_words + p.s_at + head * p.key_dim * p.value_dim;
  for (var e = lane; e < K * BV; e += THREADS) {
    let c = e / BV;
    let j = first_column + e % BV;
    var x = 0.0;
    if (c < p.key_dim && j < p.value_dim) {
      x = state[s_from + c * p.value_dim + j];
    }
    s[e] = x;
  }

  let count = (sequence.y + C - 1u) / C;
  for (var n = 0u; n < count; n++) {
    let chunk = sequence.w + n;
    let first = sequence.x + n * C;
    let length = min(C, sequence.y - n * C);
    let block = chunk * p.value_heads + head;
    let pair = block * PAIR;
#ifdef STATES
    workgroupBarrier();
    for (var e = lane; e < p.key_dim * BV; e += THREADS) {
      let j = first_column + e % BV;
      if (j < p.value_dim) {
        states[(block * p.key_dim + e / BV) * p.value_dim + j] = s[e];
      }
    }
#endif

    // Rows i0 and i0 + C/2 of W S and of Q S.
    var ws = vec2<f32>(0.0);
    var qs = vec2<f32>(0.0);
    for (var slice = 0u; slice < K; slice += KB) {
      workgroupBarrier();
      for (var e = lane; e < C * KB; e += THREADS) {
        let i = e / KB;
        let c = slice + e % KB;
        let valid = i < length && c < K;
        let to = i * PITCH + e % KB;
        let at = select(0u, i, valid);
        let channel = select(0u, c, valid);
#ifdef DELTA
        rows[to] = select(0.0, uw[(block * C + at) * width + p.value_pad + channel], valid);
#endif
        rows[C * PITCH + to] = select(0.0, query(block, first + at, head, at, channel), valid);
      }
      workgroupBarrier();
      for (var c = 0u; c < KB; c++) {
        var x = 0.0;
        if (slice + c < K) {
          x = s[(slice + c) * BV + own];
        }
        let at = i0 * PITCH + c;
#ifdef DELTA
        ws += vec2<f32>(rows[at], rows[at + ROW_GROUPS * PITCH]) * x;
#endif
        qs += vec2<f32>(rows[at + C * PITCH], rows[at + (C + ROW_GROUPS) * PITCH]) * x;
      }
    }
    for (var m = 0u; m < 2u; m++) {
      let i = i0 + m * ROW_GROUPS;
      var e = 0.0;
      if (i < length && inside) {
        e = uw[(block * C + i) * width + column] - ws[m];
      }
      es[i * BV + own] = e;
    }
    workgroupBarrier();
    for (var m = 0u; m < 2u; m++) {
      let i = i0 + m * ROW_GROUPS;
      if (i < length && inside) {
#ifdef CHANNEL
        var o = qs[m];
#else
        var o = pairs[pair + QUERY + i] * qs[m];
#endif
        for (var j = 0u; j <= i; j++) {
          o += pairs[pair + SCORES + i * C + j] * es[j * BV + own];
        }
        out[(first + i) * p.o_stride + p.o_at + head * p.value_dim + column] = o;
      }
    }

    // S, four channels and two columns at a time.
    for (var tile = lane; tile < K / 4u * (BV / 2u); tile += THREADS) {
      let c0 = tile % (K / 4u) * 4u;
      let j0 = tile / (K / 4u) * 2u;
      var acc: array<vec2<f32>, 4>;
      for (var c = 0u; c < 4u; c++) {
#ifdef CHANNEL
        let keep = pairs[pair + KEEP + c0 + c];
#else
        let keep = pairs[pair + KEEP];
#endif
        acc[c] = vec2<f32>(s[(c0 + c) * BV + j0], s[(c0 + c) * BV + j0 + 1u]) * keep;
      }
      for (var i = 0u; i < length; i++) {
        var e = vec2<f32>(es[i * BV + j0], es[i * BV + j0 + 1u]);
#ifndef CHANNEL
        e *= pairs[pair + WRITE + i];
#endif
        for (var c = 0u; c < 4u; c++) {
          acc[c] += write_key(block, first + i, head, i, c0 + c) * e;
        }
      }
      for (var c = 0u; c < 4u; c++) {
        s[(c0 + c) * BV + j0] = acc[c].x;
        s[(c0 + c) * BV + j0 + 1u] = acc[c].y;
      }
    }
    workgroupBarrier();
  }

  for (var e = lane; e < p.key_dim * BV; e += THREADS) {
    let j = first_column + e % BV;
    if (j < p.value_dim) {
      state[s_from + e / BV * p.value_dim + j] = s[e];
    }
  }
}
