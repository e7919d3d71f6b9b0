// The scan over a sequence's chunks with cooperative matrices, and with it the outputs (MATH.md §3, with T moved from E
// to what E is multiplied with):
//   X = V − (e^G K) S;  O = σ (e^G Q S + P T X);  S ← e^{G_C} S + (e^{G_C − G} K̃)ᵀ T X
// Operands are f16, sums and S are f32. With STATES, S before each chunk is kept.
//
// A workgroup is 16 columns of one value head in one sequence: eight subgroups of 32. For X and O each has sixteen rows
// and half of the inner dimension; of S it has every eighth tile. The two halves meet in workgroup memory, where what is
// to be multiplied next becomes f16. A chunk's operands are read once, straight into registers, as soon as those of the
// chunk before have been used. (All at once, or two chunks ahead, took longer.)
//
// K is padded to a multiple of 32 here; V, and all places and strides, are multiples of 4.
// Consts: K; KT, sixteens of it; HALF, KT / 2; OWN, tiles of S a subgroup; TILES, those there is room for, among them one
// for subgroups that have none; SHARE, fours of S a thread.
// Groups: (⌈V/16⌉, HV, sequences).
#import delta/params
#import delta/coop/layout
@group(0) @binding(auto) var<storage, read> operands: array<vec4<f16>>; // [chunks, HV, BLOCK], see the layout
#ifdef HEAD
@group(0) @binding(auto) var<storage, read> keeps: array<f32>; // e^{G_C}: [chunks, HV]
#endif
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read> keeps: array<vec4<f32>>; // the same, [chunks, HV, K]
#endif
@group(0) @binding(auto) var<storage, read> v: array<vec4<f32>>; // view [rows, HV, V]
@group(0) @binding(auto) var<storage, read_write> state: array<f32>; // slots of [HV, key_dim, V]
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>; // view [rows, HV, V]
#ifdef STATES
@group(0) @binding(auto) var<storage, read_write> states: array<f32>; // [chunks, HV, key_dim, V]
#endif
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, first chunk

const THREADS: u32 = 256u;
const K4: u32 = KT * 4u;
// Fours from column to column of S, and from row to row of the others, which keep them on different banks.
const S_PITCH: u32 = TILES * 4u + 1u;
const HALF_PITCH: u32 = K4 + 2u;
const X_PITCH: u32 = 6u;
const OUT_PITCH: u32 = 5u;
const PART: u32 = CHUNK * OUT_PITCH; // fours of a half

var<workgroup> s: array<vec4<f32>, 16u * S_PITCH>;         // [16, K]: S by columns
var<workgroup> s_half: array<vec4<f16>, 16u * HALF_PITCH>; // the same in f16
var<workgroup> x_half: array<vec4<f16>, CHUNK * X_PITCH>;  // [C, 16]: X
var<workgroup> parts: array<vec4<f32>, 2u * PART>;         // [2, C, 16]: halves of (e^G K) S, then of O

#ifdef CHANNEL
// What S keeps of four channels.
fn kept(block: u32, c: u32) -> vec4<f32> {
  if (c < K / 4u) {
    return keeps[block * (K / 4u) + c];
  }
  return vec4<f32>(0.0);
}
#endif

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let sequence = sequences[group.z];
  if (sequence.y == 0u) {
    return;
  }
  let head = group.y;
  let first_column = group.x * 16u;
  let s_from = sequence.z * p.s_words + p.s_at + head * p.key_dim * p.value_dim;
  let team = lid / 32u;
  let r = team % 4u; // rows of X and O, in sixteens
  let h = team / 4u; // half of the inner dimension
  let count = (sequence.y + CHUNK - 1u) / CHUNK;

  // A thread's share of what is not a matrix: four channels of a column of S at a time, four columns of a row of V, X, O.
  let own_row = lid / 4u;
  let own_quad = first_column / 4u + lid % 4u;
  let own_part = own_row * OUT_PITCH + lid % 4u;
  let own_columns = 4u * own_quad < p.value_dim;
  let v_from = (p.v_at + head * p.value_dim) / 4u + own_quad;
  let out_from = (p.o_at + head * p.value_dim) / 4u + own_quad;

  // Where this subgroup's tiles are, and the first chunks' operands, on their way while S is read.
  let first_block = sequence.w * p.value_heads + head;
#for i OWN
  let tile$i = min(team + 8u * $iu, TILES - 1u);
  let s_at$i = 4u * tile$i;
  let key_at$i = KEY_AT + min(tile$i, KT - 1u) * 4u * TILE;
#endfor
#for i HALF
  let half_at$i = (h * HALF + $iu) * 4u;
  let read_at$i = READ_AT + (r * KT + h * HALF + $iu) * TILE;
  let query_at$i = QUERY_AT + (r * KT + h * HALF + $iu) * TILE;
#endfor
#for j TWO
  let score_at$j = SCORE_AT + (r * 4u + h * 2u + $ju) * TILE;
  let x_half_at$j = (h * 2u + $ju) * 16u * X_PITCH;
#endfor
  let first_base = first_block * BLOCK;
#for i OWN
#for j FOUR
  let first_key$i$j = first_base + key_at$i + $ju * TILE;
  var key$i$j = coopLoadT<coop_mat16x16<f16, A>>(&operands[first_key$i$j], 4u);
#endfor
#endfor
#for i HALF
#ifdef DELTA
  let first_read$i = first_base + read_at$i;
  var read$i = coopLoadT<coop_mat16x16<f16, A>>(&operands[first_read$i], 4u);
#endif
  let first_query$i = first_base + query_at$i;
  var query$i = coopLoadT<coop_mat16x16<f16, A>>(&operands[first_query$i], 4u);
#endfor
#for j TWO
  let first_score$j = first_base + score_at$j;
  var score$j = coopLoadT<coop_mat16x16<f16, A>>(&operands[first_score$j], 4u);
#endfor
  var value = vec4<f32>(0.0);
  if (own_row < sequence.y && own_columns) {
    value = v[(sequence.x + own_row) * p.v_stride / 4u + v_from];
  }
#ifdef HEAD
  var keep = keeps[first_block];
#endif
#ifdef CHANNEL
#for i SHARE
  var keep$i = kept(first_block, (lid + $iu * THREADS) % K4);
#endfor
#endif

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
#ifndef CHANNEL
#for i OWN
  var s$i = coopLoad<coop_mat16x16<f32, C>>(&s[s_at$i], S_PITCH);
#endfor
#endif

  // Outputs leave a chunk later, with the next loads: a barrier right behind a store waits for it.
  var sum = vec4<f32>(0.0);

  for (var n = 0u; n < count; n++) {
    let next = min(n + 1u, count - 1u);
    let next_block = first_block + next * p.value_heads;
    let base = next_block * BLOCK;
#for i SHARE
    let e$i = lid + $iu * THREADS;
    if (e$i < 16u * K4) {
      let j = e$i / K4;
      let c = e$i % K4;
      let x = s[j * S_PITCH + c];
      s_half[j * HALF_PITCH + c] = half4(x);
#ifdef STATES
      for (var i = 0u; i < 4u; i++) {
        if (4u * c + i < p.key_dim && first_column + j < p.value_dim) {
          let block = first_block + n * p.value_heads;
          states[(block * p.key_dim + 4u * c + i) * p.value_dim + first_column + j] = x[i];
        }
      }
#endif
#ifdef CHANNEL
      s[j * S_PITCH + c] = keep$i * x;
#endif
    }
#endfor
    workgroupBarrier();

    // Halves of (e^G K) S and e^G Q S.
#ifdef DELTA
    var expected = coop_mat16x16<f32, C>();
#endif
    var o = coop_mat16x16<f32, C>();
#for i HALF
    let s_half$i = coopLoad<coop_mat16x16<f16, B>>(&s_half[half_at$i], HALF_PITCH);
#ifdef DELTA
    expected = coopMultiplyAdd(read$i, s_half$i, expected);
#endif
    o = coopMultiplyAdd(query$i, s_half$i, o);
#endfor
#for i HALF
#ifdef DELTA
    let next_read$i = base + read_at$i;
    read$i = coopLoadT<coop_mat16x16<f16, A>>(&operands[next_read$i], 4u);
#endif
    let next_query$i = base + query_at$i;
    query$i = coopLoadT<coop_mat16x16<f16, A>>(&operands[next_query$i], 4u);
#endfor
#ifdef CHANNEL
#for i SHARE
    keep$i = kept(next_block, e$i % K4);
#endfor
#endif
    if (n > 0u && own_columns) {
      out[(sequence.x + (n - 1u) * CHUNK + own_row) * p.o_stride / 4u + out_from] = sum;
    }
    var x = value;
    let part_at = h * PART + r * 16u * OUT_PITCH;
#ifdef DELTA
    coopStoreT(expected, &parts[part_at], OUT_PITCH);
    workgroupBarrier();
    x -= parts[own_part] + parts[PART + own_part];
#endif
    x_half[own_row * X_PITCH + lid % 4u] = half4(x);
    value = vec4<f32>(0.0);
    if (next * CHUNK + own_row < sequence.y && own_columns) {
      value = v[(sequence.x + next * CHUNK + own_row) * p.v_stride / 4u + v_from];
    }
    workgroupBarrier();

    // P T X and the new S.
#for j FOUR
    let x_at$j = $ju * 16u * X_PITCH;
    let x$j = coopLoadT<coop_mat16x16<f16, B>>(&x_half[x_at$j], X_PITCH);
#endfor
#for j TWO
    let half_of_x$j = coopLoadT<coop_mat16x16<f16, B>>(&x_half[x_half_at$j], X_PITCH);
    o = coopMultiplyAdd(score$j, half_of_x$j, o);
#endfor
#for i OWN
#ifdef CHANNEL
    var s$i = coopLoad<coop_mat16x16<f32, C>>(&s[s_at$i], S_PITCH);
#endif
#ifdef HEAD
    s$i = keep * s$i;
#endif
#for j FOUR
    s$i = coopMultiplyAdd(key$i$j, x$j, s$i);
    let next_key$i$j = base + key_at$i + $ju * TILE;
    key$i$j = coopLoadT<coop_mat16x16<f16, A>>(&operands[next_key$i$j], 4u);
#endfor
    coopStore(s$i, &s[s_at$i], S_PITCH);
#endfor
#ifdef HEAD
    keep = keeps[next_block];
#endif
#for j TWO
    let next_score$j = base + score_at$j;
    score$j = coopLoadT<coop_mat16x16<f16, A>>(&operands[next_score$j], 4u);
#endfor
    coopStoreT(o, &parts[part_at], OUT_PITCH);
    workgroupBarrier();

    sum = p.scale * (parts[own_part] + parts[PART + own_part]);
  }
  if ((count - 1u) * CHUNK + own_row < sequence.y && own_columns) {
    out[(sequence.x + (count - 1u) * CHUNK + own_row) * p.o_stride / 4u + out_from] = sum;
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
