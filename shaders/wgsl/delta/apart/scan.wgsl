// The scan over a sequence's chunks without the outputs, for devices with subgroups (MATH.md §3, with T moved from E to
// what E is multiplied with):
//   X = V − (e^G K) S;  S ← e^{G_C} S + (e^{G_C − G} K̃)ᵀ T X
// Only what the next chunk waits for is here: S before each chunk and X are left for delta/apart/out.
//
// A workgroup is 16 columns of one value head in one sequence. Threads have four rows of all 16 columns; neighbours have
// the same rows and share the inner dimension, of which they take every so manieth four. So each element of keys is
// loaded once, straight into the registers of the thread that wants it, as soon as the chunk before has been done with.
// What neighbours found they trade among one another, until each has the sums of its own columns: by shuffles or, for tests
// without SHUFFLES, through workgroup memory. S is in registers, a column of four channels at a time, and in workgroup memory.
//
// V, and all places and strides, are multiples of 4. Consts: K; KEY_ROUNDS, fours of K a thread; TOKEN_SPLIT, 4 or 8
// threads that share the second product; TOKEN_ROUNDS, its fours of tokens a thread; OWN, columns of S a thread.
// Groups: (⌈V/16⌉, HV, sequences).
#import delta/params
#import delta/apart/layout
#ifdef DELTA
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read> keys: array<vec4<f32>>; // [chunks, HV, 3, C, K]: e^G ⊙ K first
#else
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K]
#endif
#endif
@group(0) @binding(auto) var<storage, read> operands: array<vec4<f32>>; // [chunks, HV, BLOCK], see the layout
@group(0) @binding(auto) var<storage, read> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]
@group(0) @binding(auto) var<storage, read> v: array<f32>; // view [rows, HV, V]
@group(0) @binding(auto) var<storage, read_write> state: array<f32>; // slots of [HV, key_dim, V]
@group(0) @binding(auto) var<storage, read_write> left: array<vec4<f32>>; // [chunks, HV, LEFT, V], see the layout
#ifdef STATES
@group(0) @binding(auto) var<storage, read_write> states: array<f32>; // [chunks, HV, key_dim, V]
#endif
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, first chunk

const THREADS: u32 = 256u;
const COLUMNS: u32 = 16u;
const KEY_SPLIT: u32 = 16u; // threads that share the first product, and columns of it
// Fours from column to column: odd, so that columns are on different banks.
const S_PITCH: u32 = KEY_ROUNDS * KEY_SPLIT | 1u;
const X_PITCH: u32 = ROWS + 1u;

// By columns: where an index is no const, it is one that a thread has once, and so is its check.
var<workgroup> s: array<array<vec4<f32>, S_PITCH>, COLUMNS>;
var<workgroup> xs: array<array<vec4<f32>, X_PITCH>, COLUMNS>;
#ifdef SHUFFLES
// The sum over this thread and the one that differs in one bit of its number: of the first where that bit is 0.
fn trade(first: vec4<f32>, second: vec4<f32>, lid: u32, bit: u32) -> vec4<f32> {
  let upper = (lid & bit) != 0u;
  return select(first, second, upper) + subgroupShuffleXor(select(second, first, upper), bit);
}
#else
var<workgroup> shares: array<vec4<f32>, 4u * THREADS>; // of four columns: [column][thread]

// Sums over `split` neighbours of columns own, own + split, ...
fn meet(sums: array<vec4<f32>, COLUMNS>, lid: u32, split: u32) -> array<vec4<f32>, 4> {
  var mine = sums;
  var total: array<vec4<f32>, 4>;
  for (var w = 0u; w < 4u; w++) {
    total[w] = vec4<f32>(0.0);
  }
  let own = lid % split;
  for (var g = 0u; g < 4u; g++) {
    workgroupBarrier();
    for (var j = 0u; j < 4u; j++) {
      shares[j * THREADS + lid] = mine[4u * g + j];
    }
    workgroupBarrier();
    for (var w = 0u; w < COLUMNS / split; w++) {
      if ((own + w * split) / 4u == g) {
        for (var i = 0u; i < split; i++) {
          total[w] += shares[own % 4u * THREADS + lid - own + (i + own) % split];
        }
      }
    }
  }
  return total;
}
#endif

// Chunk n's place in scratch.
fn block_of(sequence: vec4<u32>, head: u32, n: u32) -> u32 {
  return (sequence.w + n) * p.value_heads + head;
}

#ifdef DELTA
// Where row i of chunk n's read keys begins.
fn key_row(sequence: vec4<u32>, head: u32, n: u32, i: u32) -> u32 {
#ifdef CHANNEL
  return (block_of(sequence, head, n) * 3u * C + i) * FOURS;
#else
  let row = sequence.x + min(n * C + i, sequence.y - 1u);
  return (row * p.k_stride + p.k_at + head / p.group * p.k_head) / 4u;
#endif
}
fn key(at: u32) -> vec4<f32> {
#ifdef CHANNEL
  return keys[at];
#else
  return k[at];
#endif
}
#endif

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
#ifdef SHUFFLES
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) lane: u32,
  @builtin(subgroup_size) size: u32,
#else
  @builtin(local_invocation_index) lid: u32,
#endif
) {
#ifdef SHUFFLES
  // Neighbours are those of a subgroup, whichever invocations a device makes one of.
  let lid = subgroup * size + lane;
#endif
  let sequence = sequences[group.z];
  if (sequence.y == 0u) {
    return;
  }
  let head = group.y;
  let first_column = group.x * COLUMNS;
  let s_from = sequence.z * p.s_words + p.s_at + head * p.key_dim * p.value_dim;
  let count = (sequence.y + C - 1u) / C;
  // So the loop surely has a first round, which compilers do not conclude from the length.
  if (count == 0u) {
    return;
  }

  // Rows 4·key_tile to 4·key_tile + 3 of X; the column that this thread ends up with.
  let key_share = lid % KEY_SPLIT;
  let key_tile = lid / KEY_SPLIT;
  let column = first_column + key_share;
  let x_inside = column < p.value_dim;
  let v_from = p.v_at + head * p.value_dim + min(column, p.value_dim - 1u);
  // Channels 4·token_tile to 4·token_tile + 3 of S, and columns.
  let token_share = lid % TOKEN_SPLIT;
  let token_tile = lid / TOKEN_SPLIT;
  let has_tile = token_tile < FOURS;
  let tile = min(token_tile, FOURS - 1u);
  // Its rows of the operand, four of an eight.
  let token_from = KEY_AT + (tile % 2u * 4u * TILES + tile / 2u) * 4u;

#for w OWN
  let own$w = token_share + $wu * TOKEN_SPLIT;
  let own_inside$w = has_tile && first_column + own$w < p.value_dim;
  var s$w = vec4<f32>(0.0);
  if (own_inside$w) {
#for i FOUR
    if (4u * tile + $iu < p.key_dim) {
      s$w[$i] = state[s_from + (4u * tile + $iu) * p.value_dim + first_column + own$w];
    }
#endfor
  }
  if (has_tile) {
    s[own$w][tile] = s$w;
  }
#endfor
  // Fours beyond K, where threads share more than there is.
  if (lid < COLUMNS) {
    for (var e = FOURS; e < S_PITCH; e++) {
      s[lid][e] = vec4<f32>(0.0);
    }
  }

  // The first chunk's operands.
  let first_block = block_of(sequence, head, 0u);
#for r FOUR
#ifdef DELTA
  let k_first$r = key_row(sequence, head, 0u, 4u * key_tile + $ru);
#for m KEY_ROUNDS
  var k$r$m = key(k_first$r + min($mu * KEY_SPLIT + key_share, FOURS - 1u));
#endfor
#endif
#for m TOKEN_ROUNDS
  let four$r$m = token_share + $mu * TOKEN_SPLIT;
  let t_at$r$m = token_from + (four$r$m / 4u * 8u + $ru) * TILES * 4u + four$r$m % 4u;
  var t$r$m = operands[first_block * BLOCK + t_at$r$m];
#endfor
#endfor
  var x_next = vec4<f32>(0.0);
#for i FOUR
  let row$i = 4u * key_tile + $iu;
  x_next[$i] = v[(sequence.x + min(row$i, sequence.y - 1u)) * p.v_stride + v_from];
#endfor
  // What rows of K S are multiplied with, and the state.
  let first_pair = first_block * (PAIR / 4u);
#ifdef CHANNEL
  let keep_at = KEEP / 4u + tile;
#else
  let keep_at = KEEP / 4u;
#ifdef DELTA
  var factor = pairs[first_pair + READ / 4u + key_tile];
#endif
#endif
  var keep = pairs[first_pair + keep_at];
  workgroupBarrier();

  for (var n = 0u; n < count; n++) {
    let length = min(C, sequence.y - n * C);
    let next = min(n + 1u, count - 1u);
    let block = block_of(sequence, head, n);
    let next_block = block_of(sequence, head, next);
    let next_base = next_block * BLOCK;
    let next_pair = next_block * (PAIR / 4u);
    let left_from = block * LEFT * p.value_dim + first_column;

#for w OWN
    if (own_inside$w) {
      left[left_from + tile * p.value_dim + own$w] = s$w;
#ifdef STATES
#for i FOUR
      if (4u * tile + $iu < p.key_dim) {
        states[(block * p.key_dim + 4u * tile + $iu) * p.value_dim + first_column + own$w] = s$w[$i];
      }
#endfor
#endif
    }
#endfor
    var x = x_next;
#ifdef DELTA
    // K S, a column of four rows at a time.
#for j FOUR
    var a$j = vec4<f32>(0.0); // columns 0 to 3
    var b$j = vec4<f32>(0.0); // 4 to 7, and so on
    var c$j = vec4<f32>(0.0);
    var d$j = vec4<f32>(0.0);
#endfor
#for m KEY_ROUNDS
    let by_key$m = transpose(mat4x4<f32>(k0$m, k1$m, k2$m, k3$m));
#for j FOUR
    let sa$m$j = s[$ju][$mu * KEY_SPLIT + key_share];
    let sb$m$j = s[4u + $ju][$mu * KEY_SPLIT + key_share];
    let sc$m$j = s[8u + $ju][$mu * KEY_SPLIT + key_share];
    let sd$m$j = s[12u + $ju][$mu * KEY_SPLIT + key_share];
#for i FOUR
    a$j += by_key$m[$i] * sa$m$j[$i];
    b$j += by_key$m[$i] * sb$m$j[$i];
    c$j += by_key$m[$i] * sc$m$j[$i];
    d$j += by_key$m[$i] * sd$m$j[$i];
#endfor
#endfor
#endfor
#for r FOUR
    let k_from$r = key_row(sequence, head, next, 4u * key_tile + $ru);
#for m KEY_ROUNDS
    k$r$m = key(k_from$r + min($mu * KEY_SPLIT + key_share, FOURS - 1u));
#endfor
#endfor
#ifdef SHUFFLES
#for j FOUR
    a$j = trade(a$j, c$j, lid, 8u);
    b$j = trade(b$j, d$j, lid, 8u);
    a$j = trade(a$j, b$j, lid, 4u);
#endfor
    a0 = trade(a0, a2, lid, 2u);
    a1 = trade(a1, a3, lid, 2u);
    var expected = trade(a0, a1, lid, 1u);
#else
    let met = meet(array<vec4<f32>, COLUMNS>(a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3), lid, KEY_SPLIT);
    var expected = met[0];
#endif
#ifndef CHANNEL
    expected *= factor;
    factor = pairs[next_pair + READ / 4u + key_tile];
#endif
    x -= expected;
#endif
    x = select(vec4<f32>(0.0), x, vec4<u32>(4u * key_tile) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(length));
    xs[key_share][key_tile] = x;
#for i FOUR
    x_next[$i] = v[(sequence.x + min(next * C + row$i, sequence.y - 1u)) * p.v_stride + v_from];
#endfor
    workgroupBarrier();

    // (e^{G_C − G} K̃)ᵀ T X, a column of four channels at a time.
    if (x_inside) {
      left[left_from + (FOURS + key_tile) * p.value_dim + key_share] = x;
    }
#for j FOUR
    var e$j = vec4<f32>(0.0);
    var f$j = vec4<f32>(0.0);
    var g$j = vec4<f32>(0.0);
    var h$j = vec4<f32>(0.0);
#endfor
#for m TOKEN_ROUNDS
    let by_token$m = transpose(mat4x4<f32>(t0$m, t1$m, t2$m, t3$m));
#for j FOUR
    let xa$m$j = xs[$ju][$mu * TOKEN_SPLIT + token_share];
    let xb$m$j = xs[4u + $ju][$mu * TOKEN_SPLIT + token_share];
    let xc$m$j = xs[8u + $ju][$mu * TOKEN_SPLIT + token_share];
    let xd$m$j = xs[12u + $ju][$mu * TOKEN_SPLIT + token_share];
#for i FOUR
    e$j += by_token$m[$i] * xa$m$j[$i];
    f$j += by_token$m[$i] * xb$m$j[$i];
    g$j += by_token$m[$i] * xc$m$j[$i];
    h$j += by_token$m[$i] * xd$m$j[$i];
#endfor
#endfor
#endfor
#for r FOUR
#for m TOKEN_ROUNDS
    t$r$m = operands[next_base + t_at$r$m];
#endfor
#endfor
#ifdef SHUFFLES
#ifdef IN_FOURS
    e0 = trade(e0, e2, lid, 2u);
    e1 = trade(e1, e3, lid, 2u);
    f0 = trade(f0, f2, lid, 2u);
    f1 = trade(f1, f3, lid, 2u);
    g0 = trade(g0, g2, lid, 2u);
    g1 = trade(g1, g3, lid, 2u);
    h0 = trade(h0, h2, lid, 2u);
    h1 = trade(h1, h3, lid, 2u);
    s0 = keep * s0 + trade(e0, e1, lid, 1u);
    s1 = keep * s1 + trade(f0, f1, lid, 1u);
    s2 = keep * s2 + trade(g0, g1, lid, 1u);
    s3 = keep * s3 + trade(h0, h1, lid, 1u);
#else
#for j FOUR
    e$j = trade(e$j, f$j, lid, 4u);
    g$j = trade(g$j, h$j, lid, 4u);
#endfor
    e0 = trade(e0, e2, lid, 2u);
    e1 = trade(e1, e3, lid, 2u);
    g0 = trade(g0, g2, lid, 2u);
    g1 = trade(g1, g3, lid, 2u);
    s0 = keep * s0 + trade(e0, e1, lid, 1u);
    s1 = keep * s1 + trade(g0, g1, lid, 1u);
#endif
#else
    let added = meet(array<vec4<f32>, COLUMNS>(e0, e1, e2, e3, f0, f1, f2, f3, g0, g1, g2, g3, h0, h1, h2, h3), lid, TOKEN_SPLIT);
#for w OWN
    s$w = keep * s$w + added[$w];
#endfor
#endif
    keep = pairs[next_pair + keep_at];
    // Nobody reads S before the barrier, and all have read it before the last one.
    if (has_tile) {
#for w OWN
      s[own$w][tile] = s$w;
#endfor
    }
    workgroupBarrier();
  }

#for w OWN
  if (own_inside$w) {
#for i FOUR
    if (4u * tile + $iu < p.key_dim) {
      state[s_from + (4u * tile + $iu) * p.value_dim + first_column + own$w] = s$w[$i];
    }
#endfor
  }
#endfor
}
