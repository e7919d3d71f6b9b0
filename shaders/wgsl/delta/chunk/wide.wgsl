// The scan of delta/chunk/scan for devices with more workgroup memory: the same result from operands that are laid out
// for it, with every product in register tiles of 4×4.
//
// A workgroup is 16 columns of one value head in one sequence, with S in workgroup memory throughout. Its threads are
// SPLIT groups; each group has all C/4 × 4 tiles of E and of O and goes over its share of the inner dimension, and
// what the groups found is added up through `shares`. Operands that all workgroups of a head read come from global
// memory as they lie, neighbours side by side; what is multiplied with them is the same for most threads at a time.
// V, and all places and strides, are multiples of 4. Groups: (⌈V/16⌉, HV, sequences).
#import delta/params
#import delta/chunk/layout
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read> keys: array<vec4<f32>>; // [chunks, HV, 3, C, K]: the last is e^{G_C − G} ⊙ K̃
#else
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K], write keys kt_at further on
#endif
@group(0) @binding(auto) var<storage, read> tiles: array<vec4<f32>>; // [chunks, HV, 2, K, C]: Wᵀ, (σ e^G ⊙ Q)ᵀ
@group(0) @binding(auto) var<storage, read> uw: array<vec4<f32>>; // [chunks, HV, C, value_pad]: U
@group(0) @binding(auto) var<storage, read> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]: SCORES by columns
@group(0) @binding(auto) var<storage, read_write> state: array<vec4<f32>>; // slots of [HV, key_dim, V]
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>; // view [rows, HV, V]
#ifdef STATES
@group(0) @binding(auto) var<storage, read_write> states: array<vec4<f32>>; // [chunks, HV, key_dim, V]
#endif
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, first chunk

const QUADS: u32 = 4u; // columns, in fours
const ROWS: u32 = C / 4u; // rows of a chunk, in fours
const TILES: u32 = ROWS * QUADS; // of E and O
const THREADS: u32 = TILES * SPLIT;
const S_TILES: u32 = K / 4u * QUADS; // of S
const S_SPLIT: u32 = THREADS / S_TILES; // groups of threads that share the rows of a chunk
const K_ROUNDS: u32 = (K + SPLIT - 1u) / SPLIT;
const C_ROUNDS: u32 = C / SPLIT;
const S_ROUNDS: u32 = (C + S_SPLIT - 1u) / S_SPLIT;

var<workgroup> s: array<vec4<f32>, K * QUADS>;
var<workgroup> es: array<vec4<f32>, C * QUADS>; // E
#ifndef CHANNEL
var<workgroup> faded: array<vec4<f32>, C * QUADS>; // e^{G_C − G} ⊙ E
#endif
var<workgroup> shares: array<vec4<f32>, THREADS * 4u>; // [row of the tile][thread]

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let sequence = sequences[group.z];
  if (sequence.y == 0u) {
    return;
  }
  let head = group.y;
  let columns = p.value_dim / 4u;
  let width = p.value_pad / 4u;
  let s_from = (sequence.z * p.s_words + p.s_at + head * p.key_dim * p.value_dim) / 4u;
  // Workgroups that reach beyond V do their last four columns several times, and write the same thing there.
  let first_quad = group.x * QUADS;

  // This thread's tile of E and O, and its share of the inner dimension.
  let tile = lane % TILES;
  let split = lane / TILES;
  let r = tile % ROWS;
  let j = tile / ROWS;
  // Of S.
  let s_tile = lane % S_TILES;
  let s_split = lane / S_TILES;
  let c_s = s_tile % (K / 4u);
  let j_s = s_tile / (K / 4u);
  // One row of four columns of E and O, added up by this thread: for the first 4 · TILES threads.
  let row = r * 4u + split;
  let adds = split < 4u;
  let quad = min(first_quad + j, columns - 1u);

  for (var e = lane; e < K * QUADS; e += THREADS) {
    let c = e / QUADS;
    s[e] = vec4<f32>(0.0);
    if (c < p.key_dim) {
      s[e] = state[s_from + c * columns + min(first_quad + e % QUADS, columns - 1u)];
    }
  }
  workgroupBarrier();

  let count = (sequence.y + C - 1u) / C;
  for (var n = 0u; n < count; n++) {
    let first = sequence.x + n * C;
    let length = min(C, sequence.y - n * C);
    let block = (sequence.w + n) * p.value_heads + head;
    let pair = block * (PAIR / 4u);
    let w_from = block * 2u * K * ROWS + r;
#ifdef STATES
    for (var e = lane; e < p.key_dim * QUADS; e += THREADS) {
      states[(block * p.key_dim + e / QUADS) * columns + min(first_quad + e % QUADS, columns - 1u)] = s[e];
    }
#endif
    var value = vec4<f32>(0.0);
    if (adds) {
      value = uw[(block * C + row) * width + quad];
    }

    // E = U − W S.
    var acc: array<vec4<f32>, 4>;
    var ahead: array<vec4<f32>, K_ROUNDS>; // operands on their way
#ifdef DELTA
    for (var i = 0u; i < 4u; i++) {
      acc[i] = vec4<f32>(0.0);
    }
    for (var m = 0u; m < K_ROUNDS; m++) {
      ahead[m] = tiles[w_from + min(m * SPLIT + split, K - 1u) * ROWS];
    }
    for (var m = 0u; m < K_ROUNDS; m++) {
      let c = m * SPLIT + split;
      if (K % SPLIT == 0u || c < K) {
        let w = ahead[m];
        let x = s[c * QUADS + j];
        acc[0] += w.x * x;
        acc[1] += w.y * x;
        acc[2] += w.z * x;
        acc[3] += w.w * x;
      }
    }
    for (var i = 0u; i < 4u; i++) {
      shares[i * THREADS + lane] = acc[i];
    }
#endif
    for (var m = 0u; m < K_ROUNDS; m++) {
      ahead[m] = tiles[w_from + (K + min(m * SPLIT + split, K - 1u)) * ROWS];
    }
#ifdef DELTA
    workgroupBarrier();
    if (adds) {
      for (var i = 0u; i < SPLIT; i++) {
        value -= shares[split * THREADS + i * TILES + tile];
      }
    }
#endif
    if (adds) {
      es[row * QUADS + j] = value;
#ifndef CHANNEL
      faded[row * QUADS + j] = pairs[pair + WRITE / 4u + row / 4u][row % 4u] * value;
#endif
    }
    workgroupBarrier();

    // O = σ e^G Q S + P E.
    var scores: array<vec4<f32>, C_ROUNDS>;
    for (var m = 0u; m < C_ROUNDS; m++) {
      scores[m] = pairs[pair + SCORES / 4u + (m * SPLIT + split) * ROWS + r];
    }
    for (var i = 0u; i < 4u; i++) {
      acc[i] = vec4<f32>(0.0);
    }
    for (var m = 0u; m < K_ROUNDS; m++) {
      let c = m * SPLIT + split;
      if (K % SPLIT == 0u || c < K) {
        let y = ahead[m];
        let x = s[c * QUADS + j];
        acc[0] += y.x * x;
        acc[1] += y.y * x;
        acc[2] += y.z * x;
        acc[3] += y.w * x;
      }
    }
    var next: array<vec4<f32>, S_ROUNDS>;
    for (var m = 0u; m < S_ROUNDS; m++) {
      let i = min(m * S_SPLIT + s_split, length - 1u);
#ifdef CHANNEL
      next[m] = keys[((block * 3u + 2u) * C + i) * (K / 4u) + c_s];
#else
      next[m] = k[((first + i) * p.k_stride + p.k_at + head / p.group * p.k_head + p.kt_at) / 4u + c_s];
#endif
    }
    for (var m = 0u; m < C_ROUNDS; m++) {
      let i = m * SPLIT + split;
      let score = scores[m];
      let x = es[i * QUADS + j];
      acc[0] += score.x * x;
      acc[1] += score.y * x;
      acc[2] += score.z * x;
      acc[3] += score.w * x;
    }
    for (var i = 0u; i < 4u; i++) {
      shares[i * THREADS + lane] = acc[i];
    }

    // (e^{G_C − G} ⊙ K̃)ᵀ E.
    for (var i = 0u; i < 4u; i++) {
      acc[i] = vec4<f32>(0.0);
    }
    if (s_split < S_SPLIT) {
      for (var m = 0u; m < S_ROUNDS; m++) {
        let i = m * S_SPLIT + s_split;
        if (C % S_SPLIT == 0u || i < C) {
          let key = next[m];
#ifdef CHANNEL
          let x = es[i * QUADS + j_s];
#else
          let x = faded[i * QUADS + j_s];
#endif
          acc[0] += key.x * x;
          acc[1] += key.y * x;
          acc[2] += key.z * x;
          acc[3] += key.w * x;
        }
      }
    }
    workgroupBarrier();
    if (adds && row < length) {
      var o = vec4<f32>(0.0);
      for (var i = 0u; i < SPLIT; i++) {
        o += shares[split * THREADS + i * TILES + tile];
      }
      out[((first + row) * p.o_stride + p.o_at) / 4u + head * columns + quad] = o;
    }
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
      shares[i * THREADS + lane] = acc[i];
    }
    workgroupBarrier();
    for (var e = lane; e < K * QUADS; e += THREADS) {
      let c = e % S_TILES % (K / 4u) * 4u + e / S_TILES;
      let at = c * QUADS + e % S_TILES / (K / 4u);
#ifdef CHANNEL
      let keep = pairs[pair + KEEP / 4u + c / 4u][c % 4u];
#else
      let keep = pairs[pair + KEEP / 4u].x;
#endif
      var sum = keep * s[at];
      for (var i = 0u; i < S_SPLIT; i++) {
        sum += shares[e / S_TILES * THREADS + i * S_TILES + e % S_TILES];
      }
      s[at] = sum;
    }
    workgroupBarrier();
  }

  for (var e = lane; e < p.key_dim * QUADS; e += THREADS) {
    state[s_from + e / QUADS * columns + min(first_quad + e % QUADS, columns - 1u)] = s[e];
  }
}
