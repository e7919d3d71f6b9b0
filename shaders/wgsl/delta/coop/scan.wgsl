// The scan over a sequence's chunks with cooperative matrices, and with it the outputs (MATH.md §3):
//   E = U − W S;  O = σ (e^G Q S + P E);  S ← e^{G_C} S + (e^{G_C − G} K̃)ᵀ E
// Operands are f16, sums and S are f32. With STATES, S before each chunk is kept.
//
// A workgroup is 16 columns of one value head in one sequence: eight subgroups of 32. For E and O each has sixteen rows
// and half of the inner dimension; of S it has every eighth tile. The two halves meet in workgroup memory, where what is
// to be multiplied next becomes f16. A chunk's operands are read once, straight into registers, as soon as those of the
// chunk before have been used: they have half of a chunk's time to arrive.
//
// K is padded to a multiple of 32 here; V, and all places and strides, are multiples of 4.
// Consts: K; KT, sixteens of it; HALF, KT / 2; OWN, tiles of S a subgroup; TILES, those there is room for, among them one
// for subgroups that have none; FOUR; KEEP_AT and KEEP_BLOCK. Groups: (⌈V/16⌉, HV, sequences).
#import delta/params
#import delta/coop/layout
@group(0) @binding(auto) var<storage, read> operands: array<vec4<f16>>; // [chunks, HV, block_size], see the layout
#ifdef DECAY
@group(0) @binding(auto) var<storage, read> keeps: array<f32>; // e^{G_C}: [chunks, HV, KEEP_BLOCK], from KEEP_AT on
#endif
@group(0) @binding(auto) var<storage, read_write> state: array<f32>; // slots of [HV, key_dim, V]
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>; // view [rows, HV, V]
#ifdef STATES
@group(0) @binding(auto) var<storage, read_write> states: array<f32>; // [chunks, HV, key_dim, V]
#endif
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, first chunk

const THREADS: u32 = 256u;
const K4: u32 = KT * 4u;
// Fours from column to column, which keep columns on different banks.
const S_PITCH: u32 = TILES * 4u + 1u;
const HALF_PITCH: u32 = K4 + 2u;
const E_PITCH: u32 = CHUNK / 4u + 2u;
// Of a half of E by columns, and of O by rows; and fours of a half.
const SHARE_PITCH: u32 = CHUNK / 4u + 1u;
const SHARE_E: u32 = 16u * SHARE_PITCH;
const OUT_PITCH: u32 = 5u;
const SHARE_O: u32 = CHUNK * OUT_PITCH;

var<workgroup> s: array<vec4<f32>, 16u * S_PITCH>;        // [16, K]: S by columns
var<workgroup> s_half: array<vec4<f16>, 16u * HALF_PITCH>; // the same in f16
var<workgroup> e_half: array<vec4<f16>, 16u * E_PITCH>;   // [16, C]: E by columns
var<workgroup> shares: array<vec4<f32>, 2u * SHARE_O>;    // of E, [2, 16, C]; of O, [2, C, 16]

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let sequence = sequences[group.z];
  if (sequence.y == 0u) {
    return;
  }
  let head = group.y;
  let first_column = group.x * 16u;
  let size = block_size();
  let s_from = sequence.z * p.s_words + p.s_at + head * p.key_dim * p.value_dim;
  let team = lid / 32u;
  let r = team % 4u; // rows of E and O, in sixteens
  let h = team / 4u; // half of the inner dimension
  let count = (sequence.y + CHUNK - 1u) / CHUNK;

  // A thread's share of what is not a matrix: four channels of a column of S at a time, four rows of a column of E, four
  // columns of a row of O.
  let u_at = U_AT + (first_column + lid / 16u) * (CHUNK / 4u) + lid % 16u;
  let e_at = lid / 16u * SHARE_PITCH + lid % 16u;
  let o_row = lid / 4u;
  let o_quad = first_column / 4u + lid % 4u;

  for (var e = lid; e < 16u * K4; e += THREADS) {
    let j = first_column + e % 16u;
    let c = e / 16u * 4u;
    var x = vec4<f32>(0.0);
    for (var i = 0u; i < 4u; i++) {
      if (c + i < p.key_dim && j < p.value_dim) {
        x[i] = state[s_from + (c + i) * p.value_dim + j];
      }
    }
    s[e % 16u * S_PITCH + e / 16u] = x;
  }
  workgroupBarrier();

  // Where this subgroup's tiles of S are, and the first chunk's operands.
  let first_block = sequence.w * p.value_heads + head;
  var base = first_block * size;
#for i OWN
  let tile$i = min(team + 8u * $iu, TILES - 1u);
  let s_at$i = 4u * tile$i;
  let key_at$i = KEY_AT + min(tile$i, KT - 1u) * 4u * TILE;
#ifndef CHANNEL
  var s$i = coopLoad<coop_mat16x16<f32, C>>(&s[s_at$i], S_PITCH);
#endif
#for j FOUR
  let first_key$i$j = base + key_at$i + $ju * TILE;
  var key$i$j = coopLoadT<coop_mat16x16<f16, A>>(&operands[first_key$i$j], 4u);
#endfor
#endfor
#for i HALF
#ifdef DELTA
  let w_at$i = W_AT + (r * KT + h * HALF + $iu) * TILE;
  let first_w$i = base + w_at$i;
  var w$i = coopLoadT<coop_mat16x16<f16, A>>(&operands[first_w$i], 4u);
#endif
  let query_at$i = QUERY_AT + (r * KT + h * HALF + $iu) * TILE;
  let first_query$i = base + query_at$i;
  var query$i = coopLoadT<coop_mat16x16<f16, A>>(&operands[first_query$i], 4u);
#endfor
#for j TWO
  let score_at$j = SCORE_AT + (r * 4u + h * 2u + $ju) * TILE;
  let first_score$j = base + score_at$j;
  var score$j = coopLoadT<coop_mat16x16<f16, A>>(&operands[first_score$j], 4u);
  let e_half_at$j = (h * 2u + $ju) * 4u;
#endfor
  var u = operands[base + u_at];

  for (var n = 0u; n < count; n++) {
    let block = first_block + n * p.value_heads;
    let next = first_block + min(n + 1u, count - 1u) * p.value_heads;
    base = next * size;
    let length = min(CHUNK, sequence.y - n * CHUNK);

    for (var e = lid; e < 16u * K4; e += THREADS) {
      let j = e / K4;
      let c = e % K4;
      let x = s[j * S_PITCH + c];
      s_half[j * HALF_PITCH + c] = half4(x);
#ifdef STATES
      for (var i = 0u; i < 4u; i++) {
        if (4u * c + i < p.key_dim && first_column + j < p.value_dim) {
          states[(block * p.key_dim + 4u * c + i) * p.value_dim + first_column + j] = x[i];
        }
      }
#endif
#ifdef CHANNEL
      var keep = vec4<f32>(0.0);
      for (var i = 0u; i < 4u; i++) {
        if (4u * c + i < K) {
          keep[i] = keeps[block * KEEP_BLOCK + KEEP_AT + 4u * c + i];
        }
      }
      s[j * S_PITCH + c] = keep * x;
#endif
    }
    workgroupBarrier();

    // Halves of W S and e^G Q S.
#ifdef DELTA
    var ws = coop_mat16x16<f32, C>();
#endif
    var o = coop_mat16x16<f32, C>();
#for i HALF
    let half_at$i = (h * HALF + $iu) * 4u;
    let s_half$i = coopLoad<coop_mat16x16<f16, B>>(&s_half[half_at$i], HALF_PITCH);
#ifdef DELTA
    ws = coopMultiplyAdd(w$i, s_half$i, ws);
#endif
    o = coopMultiplyAdd(query$i, s_half$i, o);
#endfor
#for i HALF
#ifdef DELTA
    let next_w$i = base + w_at$i;
    w$i = coopLoadT<coop_mat16x16<f16, A>>(&operands[next_w$i], 4u);
#endif
    let next_query$i = base + query_at$i;
    query$i = coopLoadT<coop_mat16x16<f16, A>>(&operands[next_query$i], 4u);
#endfor
#ifdef DELTA
    let ws_at = h * SHARE_E + r * 4u;
    coopStore(ws, &shares[ws_at], SHARE_PITCH);
    workgroupBarrier();
    e_half[lid / 16u * E_PITCH + lid % 16u] = half4(vec4<f32>(u) - shares[e_at] - shares[SHARE_E + e_at]);
#else
    e_half[lid / 16u * E_PITCH + lid % 16u] = u;
#endif
    u = operands[base + u_at];
    workgroupBarrier();

    // P E and the new S.
#for j FOUR
    let e_at$j = 4u * $ju;
    let e$j = coopLoad<coop_mat16x16<f16, B>>(&e_half[e_at$j], E_PITCH);
#endfor
#for j TWO
    let half_of_e$j = coopLoad<coop_mat16x16<f16, B>>(&e_half[e_half_at$j], E_PITCH);
    o = coopMultiplyAdd(score$j, half_of_e$j, o);
#endfor
#ifdef HEAD
    let keep = keeps[block * KEEP_BLOCK + KEEP_AT];
#endif
#for i OWN
#ifdef CHANNEL
    var s$i = coopLoad<coop_mat16x16<f32, C>>(&s[s_at$i], S_PITCH);
#endif
#ifdef HEAD
    s$i = keep * s$i;
#endif
#for j FOUR
    s$i = coopMultiplyAdd(key$i$j, e$j, s$i);
    let next_key$i$j = base + key_at$i + $ju * TILE;
    key$i$j = coopLoadT<coop_mat16x16<f16, A>>(&operands[next_key$i$j], 4u);
#endfor
    coopStore(s$i, &s[s_at$i], S_PITCH);
#endfor
#for j TWO
    let next_score$j = base + score_at$j;
    score$j = coopLoadT<coop_mat16x16<f16, A>>(&operands[next_score$j], 4u);
#endfor
    let o_at = h * SHARE_O + r * 16u * OUT_PITCH;
    coopStoreT(o, &shares[o_at], OUT_PITCH);
    workgroupBarrier();

    if (o_row < length && 4u * o_quad < p.value_dim) {
      let at = o_row * OUT_PITCH + lid % 4u;
      var sum = shares[at] + shares[SHARE_O + at];
#ifndef CHANNEL
      sum *= p.scale;
#endif
      let row = sequence.x + n * CHUNK + o_row;
      out[(row * p.o_stride + p.o_at + head * p.value_dim) / 4u + o_quad] = sum;
    }
  }

  for (var e = lid; e < 16u * K4; e += THREADS) {
    let j = first_column + e % 16u;
    let x = s[e % 16u * S_PITCH + e / 16u];
    for (var i = 0u; i < 4u; i++) {
      let c = e / 16u * 4u + i;
      if (c < p.key_dim && j < p.value_dim) {
        state[s_from + c * p.value_dim + j] = x[i];
      }
    }
  }
}
