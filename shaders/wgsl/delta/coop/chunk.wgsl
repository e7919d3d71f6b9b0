// Everything about a chunk that the state has no part in, with cooperative matrices (MATH.md §3): decays, the products
// K K̃ᵀ and Q K̃ᵀ, and T = (I + L)⁻¹ diag(β). The scan wants E = T X with X = V − e^G K S only to multiply it with P and
// with (e^{G_C − G} K̃)ᵀ: these two take T in here, once a head, and values stay out of it. Operands of products are f16,
// sums and decays f32.
//
// With a decay a channel, blocks of sixteen rows below the diagonal have it in their operands, from and to the first row
// of the later block, which is never more than 1; those on the diagonal are added up pair by pair in f32. With NORMALISE
// queries and keys are made unit here; with WRITE_KEY a preconditioner makes the write keys, see delta/coop/write_keys.
//
// A workgroup is one chunk of one value head: eight subgroups of 32, each with sixteen rows and half of the columns of a
// product. A thread brings every fourth four of a row: a subgroup reads and writes eight rows of 64 or 32 bytes at once,
// on different banks. Queries and keys are read once, and wait in registers.
//
// K, places and strides are multiples of 4. Consts: K; KT, sixteens of it; SLICES, sixty-fours of it; PITCH, fours a row
// of `square`; POOL; FACTS. Groups: (HV, chunks), chunks in falling order: the scan begins with those made last.
#import delta/params
#import delta/coop/layout
#ifdef WRITE_KEY
#import delta/coop/totals
#endif
#ifdef DELTA
#import delta/coop/invert
#endif
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K]
#ifdef BETA_GIVEN
@group(0) @binding(auto) var<storage, read> beta: array<f32>; // view [rows, HV]
#endif
#ifdef HEAD
@group(0) @binding(auto) var<storage, read> g: array<f32>; // view [rows, HV]
@group(0) @binding(auto) var<storage, read_write> keeps: array<f32>; // [chunks, HV]: e^{G_C}
#endif
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read> g: array<vec4<f32>>; // view [rows, HV, K]
@group(0) @binding(auto) var<storage, read_write> keeps: array<vec4<f32>>; // [chunks, HV, K]: e^{G_C}
#endif
#ifdef WRITE_KEY
@group(0) @binding(auto) var<storage, read> totals: array<vec4<f32>>; // [chunks, H, TOTALS], see delta/coop/sums
#endif
@group(0) @binding(auto) var<storage, read_write> operands: array<vec4<f16>>; // [chunks, HV, BLOCK], see the layout
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const THREADS: u32 = 256u;
// Workgroups that a large device runs at once.
const RUNNING: u32 = 128u;
// Fours from row to row in the pool: eight elements more keep rows on different banks.
const HALF_PITCH: u32 = CHUNK / 4u + 2u;
// Places in the pool: slices of K, Q and K̃; then T, and P or a slice of keys.
const X_FROM: u32 = CHUNK * HALF_PITCH;
#ifdef WRITE_KEY
const WRITE_FROM: u32 = 2u * CHUNK * HALF_PITCH;
#else
const WRITE_FROM: u32 = 0u;
#endif
// exp of less is 0, and sums of 64 of it still tell the small ones apart.
const LEAST_LOG_DECAY: f32 = -120.0;
#ifdef CHANNEL
// Rows of the pool with what is multiplied below the diagonal: keys and queries of the blocks 1 to 3; write keys of 0 to
// 2 on their way to the next block, of 0 and 1 to the one after it, and of 0 to the last.
const QUERIES: u32 = 48u;
const NEXT: u32 = 96u;
const AFTER_NEXT: u32 = 144u;
const LAST: u32 = 176u;
#endif

// Of a query or key, or less of it.
fn key4(x: vec4<f32>) -> vec4<f16> {
#ifdef NORMALISE
  return vec4<f16>(x);
#else
  return half4(x);
#endif
}

// In fours of rows: log decays, their sums G, β, and what the preconditioner keeps.
var<workgroup> facts: array<vec4<f32>, FACTS>;
const SUMS: u32 = 16u;
const BETAS: u32 = 32u;
#ifdef WRITE_KEY
const KEEPS: u32 = 48u;
#endif
var<workgroup> pool: array<vec4<f16>, POOL>;
var<workgroup> square: array<vec4<f32>, CHUNK * PITCH>; // [C, C] or [C, 64]

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let index = p.chunks - 1u - group.y;
  let chunk = chunks[index];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let head = group.x;
  let block = index * p.value_heads + head;
  let base = block * BLOCK;
  let team = lid / 32u;
  let r = team / 2u; // rows of a product, in sixteens
  let h = team % 2u; // half of its columns
  // What a thread brings: of `row`, the fours lane, lane + 4, lane + 8, ...
  let row = lid / 32u * 8u + lid % 8u;
  let lane = lid / 8u % 4u;
  let inside = row < length;
  // In the tiles of an operand, the first of them.
  let in_key_tiles = base + row / 16u * KT * TILE + row % 16u * 4u + lane;
  let in_token_tiles = base + row / 16u * 4u * TILE + row % 16u * 4u + lane;
#for m FOUR
  let square_at$m = row * PITCH + lane + 4u * $mu;
  let half_at$m = row * HALF_PITCH + lane + 4u * $mu;
#endfor
  var strength = 1.0;

  let key_head = head / p.group;
#ifdef WRITE_KEY
  let totals_at = (index * p.heads + key_head) * TOTALS;
#endif
  let q_from = ((chunk.x + row) * p.q_stride + p.q_at + key_head * p.q_head) / 4u;
  let k_from = ((chunk.x + row) * p.k_stride + p.k_at + key_head * p.k_head) / 4u;
  var squares = vec2<f32>(0.0);
#for s SLICES
#for m FOUR
  let c$s$m = 16u * $su + 4u * $mu + lane;
  var q$s$m = vec4<f32>(0.0);
  var k$s$m = vec4<f32>(0.0);
  if (inside && c$s$m < K / 4u) {
    q$s$m = q[q_from + c$s$m];
    k$s$m = k[k_from + c$s$m];
  }
#endfor
#endfor
#ifdef DELTA
#ifndef CHANNEL
  // A word of every line that a workgroup will read which comes when those now running are done, so that it waits in L2.
  let then = chunks[index - min(index, max(1u, RUNNING / p.value_heads))];
  let then_row = then.x + min(lid / 4u, max(then.y, 1u) - 1u);
  let then_at = min(8u * (lid % 4u), K / 4u - 1u);
  let then_query = q[(then_row * p.q_stride + p.q_at + key_head * p.q_head) / 4u + then_at].x;
  let then_key = k[(then_row * p.k_stride + p.k_at + key_head * p.k_head) / 4u + then_at].x;
#endif
#endif
  var log_decay = 0.0;
  if (inside) {
#ifdef HEAD
    log_decay = max(g[(chunk.x + row) * p.g_stride + p.g_at + head], LEAST_LOG_DECAY);
#endif
#ifdef BETA_GIVEN
    strength = beta[(chunk.x + row) * p.b_stride + p.b_at + head];
#endif
  }
#ifdef NORMALISE
#for s SLICES
#for m FOUR
  squares += vec2<f32>(dot(q$s$m, q$s$m), dot(k$s$m, k$s$m));
#endfor
#endfor
  square[lid] = vec4<f32>(squares, 0.0, 0.0);
#endif
  if (lane == 0u) {
    facts[row / 4u][row % 4u] = log_decay;
    facts[BETAS + row / 4u][row % 4u] = strength;
#ifdef WRITE_KEY
    facts[KEEPS + row / 4u][row % 4u] = totals[totals_at + KEEPS_AT + row / 4u][row % 4u];
#endif
  }
  workgroupBarrier();

  // G of this row and of the whole chunk; unit queries and keys.
  var sum = 0.0;
  var whole = 0.0;
#ifdef HEAD
#for m SIXTEEN
  let logs$m = facts[$mu];
  let upto$m = vec4<u32>(4u * $mu, 4u * $mu + 1u, 4u * $mu + 2u, 4u * $mu + 3u) <= vec4<u32>(row);
  sum += dot(logs$m, select(vec4<f32>(0.0), vec4<f32>(1.0), upto$m));
  whole += dot(logs$m, vec4<f32>(1.0));
#endfor
  if (lane == 0u) {
    facts[SUMS + row / 4u][row % 4u] = sum;
  }
  if (lid == 0u) {
    keeps[block] = exp(whole);
  }
#endif
  let from_start = exp(sum);
  let to_end = exp(whole - sum);
#ifdef NORMALISE
  let first = lid / 32u * 32u + lid % 8u;
  let unit = 1.0 / sqrt(square[first].xy + square[first + 8u].xy + square[first + 16u].xy + square[first + 24u].xy + 1e-6);
#endif
#ifdef NORMALISE
#for s SLICES
#for m FOUR
  q$s$m *= unit.x;
  k$s$m *= unit.y;
#endfor
#endfor
#endif
#ifdef WRITE_KEY
#import delta/coop/write_keys
#endif
#for s SLICES
#for m FOUR
#ifndef CHANNEL
  if (c$s$m < 4u * KT) {
    operands[in_key_tiles + QUERY_AT + (4u * $su + $mu) * TILE] = key4(from_start * q$s$m);
#ifdef DELTA
    operands[in_key_tiles + READ_AT + (4u * $su + $mu) * TILE] = key4(from_start * k$s$m);
#endif
  }
#endif
  let query$s$m = key4(q$s$m);
  let read$s$m = key4(k$s$m);
#ifdef WRITE_KEY
  let write$s$m = half4(w$s$m);
#else
  let write$s$m = read$s$m;
#endif
#ifdef CHANNEL
  var key$s$m = vec4<f16>();
#else
#ifdef WRITE_KEY
  let key$s$m = half4(to_end * w$s$m);
#else
  let key$s$m = key4(to_end * k$s$m);
#endif
#endif
#endfor
#endfor

#ifdef CHANNEL
#import delta/coop/channel_products
#else
#import delta/coop/head_products
#endif

  // P = tril(Q K̃ᵀ ⊙ Γ).
#ifdef CHANNEL
  coopStoreT(qk, &square[product_at], PITCH);
#for n FOUR
  let near_at$n = (corner + down) * PITCH + corner / 4u + $nu;
  if (4u * $nu + across <= down) {
    square[near_at$n][across] = qk_near$n;
  }
#endfor
#else
#for j TWO
  coopStoreT(qk$j, &square[product_at$j], PITCH);
#endfor
#endif
  workgroupBarrier();
#for m FOUR
  let column$m = 4u * lane + 16u * $mu;
  let columns$m = vec4<u32>(column$m, column$m + 1u, column$m + 2u, column$m + 3u);
  var fade$m = vec4<f32>(1.0);
#ifdef HEAD
  fade$m = exp(min(vec4<f32>(sum) - facts[SUMS + lane + 4u * $mu], vec4<f32>(0.0)));
#endif
  let score$m = half4(select(vec4<f32>(0.0), fade$m * square[square_at$m], columns$m <= vec4<u32>(row)));
#endfor

#ifdef DELTA
  // L and T.
  workgroupBarrier();
#ifdef CHANNEL
  coopStoreT(kk, &square[product_at], PITCH);
#for n FOUR
  if (4u * $nu + across <= down) {
    square[near_at$n][across] = kk_near$n;
  }
#endfor
#else
#for j TWO
  coopStoreT(kk$j, &square[product_at$j], PITCH);
#endfor
#endif
#for m FOUR
  pool[X_FROM + half_at$m] = score$m;
#endfor
  workgroupBarrier();
#for m FOUR
  square[square_at$m] =
    select(vec4<f32>(0.0), strength * fade$m * square[square_at$m], columns$m < vec4<u32>(row));
#endfor
  workgroupBarrier();
  invert_blocks(lid);
#for m FOUR
  pool[half_at$m] = half4(select(-1.0, 1.0, row / 16u == $mu) * square[square_at$m]);
#endfor
  workgroupBarrier();
  invert_pairs(lid);
#for m FOUR
  let t$m = facts[BETAS + lane + 4u * $mu] * square[square_at$m];
  pool[half_at$m] = half4(select(vec4<f32>(0.0), t$m, row / 16u >= $mu));
#endfor
  workgroupBarrier();
  // P T, then (e^{G_C − G} K̃)ᵀ T by sixty-four channels.
#for j TWO
  let to$j = r * 16u * PITCH + (h * 2u + $ju) * 4u;
  let t_at$j = (h * 2u + $ju) * 4u;
  var scores$j = coop_mat16x16<f32, C>();
#endfor
  // T stays in registers for all of these products.
#for i FOUR
  let p_at$i = X_FROM + r * 16u * HALF_PITCH + $iu * 4u;
  let p$i = coopLoadT<coop_mat16x16<f16, A>>(&pool[p_at$i], HALF_PITCH);
#for j TWO
  let inverse$i_$j = coopLoadT<coop_mat16x16<f16, B>>(&pool[t_at$j + $iu * 16u * HALF_PITCH], HALF_PITCH);
  scores$j = coopMultiplyAdd(p$i, inverse$i_$j, scores$j);
#endfor
#endfor
#for j TWO
  coopStoreT(scores$j, &square[to$j], PITCH);
#endfor
#ifndef CHANNEL
  // (To where nobody looks, lest they be left out.)
  square[row * PITCH + PITCH - 1u][lane] = then_query + then_key;
#endif
  workgroupBarrier();
#for m FOUR
  operands[in_token_tiles + SCORE_AT + $mu * TILE] = half4(square[square_at$m]);
#endfor
#for s SLICES
#for m FOUR
  pool[X_FROM + half_at$m] = key$s$m;
#endfor
  workgroupBarrier();
#for j TWO
  var keys$s$j = coop_mat16x16<f32, C>();
#endfor
#for i FOUR
  let x_at$s$i = X_FROM + $iu * 16u * HALF_PITCH + r * 4u;
  let x$s$i = coopLoad<coop_mat16x16<f16, A>>(&pool[x_at$s$i], HALF_PITCH);
#for j TWO
  keys$s$j = coopMultiplyAdd(x$s$i, inverse$i_$j, keys$s$j);
#endfor
#endfor
#for j TWO
  coopStoreT(keys$s$j, &square[to$j], PITCH);
#endfor
  workgroupBarrier();
  // Here a row is a channel.
  if (16u * $su + row / 4u < 4u * KT) {
#for m FOUR
    operands[in_token_tiles + KEY_AT + (16u * $su + $mu) * TILE] = half4(square[square_at$m]);
#endfor
  }
#endfor
#else
  // Without L, T is diag(β).
#for m FOUR
  operands[in_token_tiles + SCORE_AT + $mu * TILE] =
    half4(facts[BETAS + lane + 4u * $mu] * vec4<f32>(score$m));
#endfor
#for s SLICES
  workgroupBarrier();
#for m FOUR
  square[square_at$m] = strength * vec4<f32>(key$s$m);
#endfor
  workgroupBarrier();
  if (16u * $su + row / 4u < 4u * KT) {
#for m FOUR
    let tokens$s$m = (4u * lane + 16u * $mu) * PITCH + row / 4u;
    operands[in_token_tiles + KEY_AT + (16u * $su + $mu) * TILE] = half4(vec4<f32>(
      square[tokens$s$m][row % 4u],
      square[tokens$s$m + PITCH][row % 4u],
      square[tokens$s$m + 2u * PITCH][row % 4u],
      square[tokens$s$m + 3u * PITCH][row % 4u]));
#endfor
  }
#endfor
#endif
}
