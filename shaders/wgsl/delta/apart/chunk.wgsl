// What a chunk makes of itself, for rules with a decay a head or none (MATH.md §3, §6): the products K K̃ᵀ and Q K̃ᵀ with
// their decays, T = (I + L)⁻¹ diag(β), and what it is multiplied with, P and (e^{G_C − G} K̃)ᵀ, since the scan wants E = T X
// only to multiply it with these two. L and T never leave workgroup memory; P waits where P T will be. With NORMALISE
// queries and keys come as they are: products and factors have what makes them unit, x / sqrt(Σx² + 1e-6), and so nobody
// else needs it. Decays are direct sums over a segment or products over one, never differences of longer sums.
//
// A workgroup is one chunk of one value head. In the products of a chunk with itself a thread has a tile of 8×8 for half of
// the channels: of L below the diagonal, of P where L has nothing. Those on the diagonal have some of both, so that 64 tiles
// are all there is. Then it has half of a tile. Places and strides are multiples of 4. Groups: (HV, chunks).
#import delta/params
#import delta/apart/products
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K], write keys kt_at further on
#ifdef BETA_GIVEN
@group(0) @binding(auto) var<storage, read> beta: array<f32>; // view [rows, HV]
#endif
#ifdef HEAD
@group(0) @binding(auto) var<storage, read> g: array<f32>; // view [rows, HV]
#endif
@group(0) @binding(auto) var<storage, read_write> pairs: array<vec4<f32>>; // [chunks, HV, PAIR], see the layout
@group(0) @binding(auto) var<storage, read_write> operands: array<vec4<f32>>; // [chunks, HV, BLOCK], see the layout
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const SLICE: u32 = 4u; // channels at a time, in fours
const SLICES: u32 = (FOURS + SLICE - 1u) / SLICE;
// From eight to eight of rows: odd, so that they are on different banks. From row to row: what is written together is, too.
const EIGHT_PITCH: u32 = SLICE + 1u;
#ifdef WRITE_KEY
const ROW_PITCH: u32 = 3u * C / 8u * EIGHT_PITCH + 4u;
#else
const ROW_PITCH: u32 = 2u * C / 8u * EIGHT_PITCH + 4u;
#endif
// Before L: a slice of K, of Q, and of K̃, by row i % 8 and then eights.
const ROOM: u32 = 8u * ROW_PITCH;
var<workgroup> writes: array<f32, C>; // factors of rows of K̃ on their way into the state
// Factors of rows of L, of columns of L and P, and of rows of P: first without decays, then with those that reach from a
// column's eight into a row's.
var<workgroup> key_rows: array<array<vec4<f32>, ROWS>, 2>;
var<workgroup> columns: array<array<vec4<f32>, ROWS>, 2>;
var<workgroup> query_rows: array<array<vec4<f32>, ROWS>, 2>;
#ifdef HEAD
var<workgroup> logs: array<f32, C>; // log decays
var<workgroup> keeps: array<vec4<f32>, ROWS>; // decays
var<workgroup> eights: array<f32, C / 8u>; // sums of log decays over eight rows
var<workgroup> spans: array<f32, C>; // decays over the eights between two, [later][earlier]

// Σ log decays over rows first..last.
fn segment(first: u32, last: u32) -> f32 {
  var sum = 0.0;
  for (var i = first; i < last; i++) {
    sum += logs[i];
  }
  return sum;
}
#endif

// Rows of an eight's first four that are below the diagonal in its columns 0, 1, 2 and 3; or of its second in 4 to 7.
const BELOW0 = vec4<bool>(false, true, true, true);
const BELOW1 = vec4<bool>(false, false, true, true);
const BELOW2 = vec4<bool>(false, false, false, true);
const BELOW3 = vec4<bool>(false, false, false, false);

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let chunk = chunks[group.y];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let head = group.x;
  let key_head = head / p.group;
  let block = group.y * p.value_heads + head;
  let pair = block * (PAIR / 4u);
  let to = block * BLOCK;

  // What a thread brings: of two rows each of K and Q (and K̃) one four of a slice.
  let four = lid % SLICE;
#for i TWO
  let row$i = lid / SLICE + $iu * (THREADS / SLICE);
  let inside$i = row$i < length;
  let at$i = chunk.x + min(row$i, length - 1u);
  let k_from$i = (at$i * p.k_stride + p.k_at + key_head * p.k_head) / 4u;
  let q_from$i = (at$i * p.q_stride + p.q_at + key_head * p.q_head) / 4u;
  let k_to$i = row$i % 8u * ROW_PITCH + row$i / 8u * EIGHT_PITCH + four;
  let q_to$i = k_to$i + C / 8u * EIGHT_PITCH;
  var k$i: vec4<f32>;
  var q$i: vec4<f32>;
  var k_squares$i = 0.0;
  var q_squares$i = 0.0;
#ifdef WRITE_KEY
  let w_to$i = q_to$i + C / 8u * EIGHT_PITCH;
  var w$i: vec4<f32>;
#endif
#endfor
  if (lid < C) {
    var strength = 1.0;
#ifdef BETA_GIVEN
    if (lid < length) {
      strength = beta[(chunk.x + lid) * p.b_stride + p.b_at + head];
    }
#endif
    strengths[lid] = strength;
#ifdef HEAD
    var log_decay = 0.0;
    if (lid < length) {
      log_decay = max(g[(chunk.x + lid) * p.g_stride + p.g_at + head], MIN_LOG_DECAY);
    }
    logs[lid] = log_decay;
    keeps[lid / 4u][lid % 4u] = exp(log_decay);
#endif
  }
#ifdef HEAD
  workgroupBarrier();
  if (lid < C / 8u) {
    eights[lid] = segment(8u * lid, 8u * lid + 8u);
  }
#endif

  // Rows and columns of its tile: eights r and c. Below the diagonal K_i · K̃_j, and Q_j · K̃_i elsewhere; every thread
  // loads both, though for all but those on the diagonal they are the same.
  let half = lid / C;
  let r = lid % C / 8u;
  let c = lid % 8u;
  let queries = C / 8u * EIGHT_PITCH;
#ifdef WRITE_KEY
  let write_keys = 2u * queries;
#else
  let write_keys = 0u;
#endif
  let x_below = r * EIGHT_PITCH + select(write_keys, 0u, r >= c);
  let x_above = r * EIGHT_PITCH + select(0u, write_keys, r <= c);
  let y_below = c * EIGHT_PITCH + select(queries, write_keys, r >= c);
  let y_above = c * EIGHT_PITCH + select(write_keys, queries, r <= c);
#for j FOUR
  var low$j = vec4<f32>(0.0); // rows 0 to 3 of column j
  var high$j = vec4<f32>(0.0); // 4 to 7
  var far_low$j = vec4<f32>(0.0); // and of column 4 + j
  var far_high$j = vec4<f32>(0.0);
#endfor
  for (var slice = 0u; slice < SLICES; slice++) {
    let from_channel = slice * SLICE + four;
    let channel_inside = from_channel < FOURS;
#for i TWO
    k$i = select(vec4<f32>(0.0), k[k_from$i + min(from_channel, FOURS - 1u)], inside$i && channel_inside);
    q$i = select(vec4<f32>(0.0), q[q_from$i + min(from_channel, FOURS - 1u)], inside$i && channel_inside);
#ifdef WRITE_KEY
    w$i = select(vec4<f32>(0.0), k[k_from$i + p.kt_at / 4u + min(from_channel, FOURS - 1u)], inside$i && channel_inside);
#endif
#endfor
    workgroupBarrier();
#for i TWO
    room[k_to$i] = k$i;
    room[q_to$i] = q$i;
#ifdef WRITE_KEY
    room[w_to$i] = w$i;
#endif
    k_squares$i += dot(k$i, k$i);
    q_squares$i += dot(q$i, q$i);
#endfor
    workgroupBarrier();
    for (var m = half * (SLICE / 2u); m < half * (SLICE / 2u) + SLICE / 2u; m++) {
#for i EIGHT
      let x$i = room[x_below + $iu * ROW_PITCH + m];
#endfor
      let low_below = transpose(mat4x4<f32>(x0, x1, x2, x3));
      let high_below = transpose(mat4x4<f32>(x4, x5, x6, x7));
#ifdef WRITE_KEY
#for i EIGHT
      let z$i = room[x_above + $iu * ROW_PITCH + m];
#endfor
      let low_above = transpose(mat4x4<f32>(z0, z1, z2, z3));
      let high_above = transpose(mat4x4<f32>(z4, z5, z6, z7));
#endif
#for j FOUR
      let near_below$j = room[y_below + $ju * ROW_PITCH + m];
      let near_above$j = room[y_above + $ju * ROW_PITCH + m];
      let far_below$j = room[y_below + ($ju + 4u) * ROW_PITCH + m];
      let far_above$j = room[y_above + ($ju + 4u) * ROW_PITCH + m];
#for n FOUR
      let near$j$n = select(vec4<f32>(near_above$j[$n]), vec4<f32>(near_below$j[$n]), BELOW$j);
      let far$j$n = select(vec4<f32>(far_above$j[$n]), vec4<f32>(far_below$j[$n]), BELOW$j);
      high$j += high_below[$n] * near_below$j[$n];
#ifdef WRITE_KEY
      low$j += select(low_above[$n], low_below[$n], BELOW$j) * near$j$n;
      far_low$j += low_above[$n] * far_above$j[$n];
      far_high$j += select(high_above[$n], high_below[$n], BELOW$j) * far$j$n;
#else
      low$j += low_below[$n] * near$j$n;
      far_low$j += low_below[$n] * far_above$j[$n];
      far_high$j += high_below[$n] * far$j$n;
#endif
#endfor
#endfor
    }
  }
  workgroupBarrier();

  // Threads with the same tile had a half of the channels each, and now take half of the rows: four, of eight columns.
  let is_first = half == 0u;
#for j FOUR
  room[$ju * THREADS + lid] = select(low$j, high$j, is_first);
#endfor
#ifdef NORMALISE
  // Σx² of every fourth four of a row of K, then of Q.
#for i TWO
  room[4u * THREADS + row$i][four] = k_squares$i;
  room[4u * THREADS + C + row$i][four] = q_squares$i;
#endfor
#endif
#ifdef HEAD
  if (lid < C) {
    var sum = 0.0;
    for (var e = lid % 8u + 1u; e < lid / 8u; e++) {
      sum += eights[e];
    }
    spans[lid] = exp(sum);
  }
#endif
  workgroupBarrier();
#for j FOUR
  var tile$j = select(high$j, low$j, is_first) + room[$ju * THREADS + (lid ^ C)];
#endfor
  // Factors: this thread's are those of a row of K, or of Q.
  let row = lid % C;
  var unit = 1.0;
#ifdef NORMALISE
  unit = 1.0 / sqrt(dot(room[4u * THREADS + lid], vec4<f32>(1.0)) + 1e-6);
#endif
  var within = 1.0; // from the first row of its eight
  var rest = 1.0; // to behind the last
  var from_start = 1.0;
  var after = 1.0;
  var whole = 1.0;
#ifdef HEAD
  let log_within = segment(row / 8u * 8u, row + 1u);
  let log_rest = segment(row + 1u, row / 8u * 8u + 8u);
  var log_before = 0.0;
  var log_behind = 0.0;
  var log_whole = 0.0;
  for (var e = 0u; e < C / 8u; e++) {
    log_before += select(0.0, eights[e], e < row / 8u);
    log_behind += select(0.0, eights[e], e > row / 8u);
    log_whole += eights[e];
  }
  within = exp(log_within);
  rest = exp(log_rest);
  from_start = exp(log_before + log_within);
  after = exp(log_rest + log_behind);
  whole = exp(log_whole);
#endif
  if (is_first) {
    pairs[pair + READ / 4u + row / 4u][row % 4u] = from_start * unit;
    if (row == 0u) {
      pairs[pair + KEEP / 4u] = vec4<f32>(whole);
    }
    writes[row] = select(0.0, after * unit, row < length);
#ifdef WRITE_KEY
    var column_unit = 1.0;
#else
    var column_unit = unit;
#endif
#ifndef DELTA
    column_unit *= strengths[row];
#endif
    key_rows[0][row / 4u][row % 4u] = strengths[row] * unit;
    key_rows[1][row / 4u][row % 4u] = strengths[row] * unit * within;
    columns[0][row / 4u][row % 4u] = column_unit;
    columns[1][row / 4u][row % 4u] = column_unit * rest;
  } else {
    pairs[pair + QUERY / 4u + row / 4u][row % 4u] = p.scale * from_start * unit;
    query_rows[0][row / 4u][row % 4u] = p.scale * unit;
    query_rows[1][row / 4u][row % 4u] = p.scale * unit * within;
  }
  workgroupBarrier();
#for j FOUR
  room[$ju * THREADS + lid] = select(far_low$j, far_high$j, is_first);
#endfor
  workgroupBarrier();
#for j FOUR
  var far_tile$j = select(far_high$j, far_low$j, is_first) + room[$ju * THREADS + (lid ^ C)];
#endfor

  let row_four = 2u * r + half;
  let rows_below = vec4<u32>(4u * row_four) + vec4<u32>(0u, 1u, 2u, 3u);
  if (r == c) {
    let key_row = key_rows[0][row_four];
    let key_column = columns[0][row_four];
    let near_column = columns[0][2u * c];
    let far_column = columns[0][2u * c + 1u];
    let near_query = query_rows[0][2u * c];
    let far_query = query_rows[0][2u * c + 1u];
#ifdef HEAD
    // Decays from row j to row i, for all pairs in the eight.
    let low_keeps = keeps[2u * r];
    let high_keeps = keeps[2u * r + 1u];
#for i FOUR
    let keep$i = low_keeps[$i];
    let late_keep$i = high_keeps[$i];
#endfor
#for i FOUR
#for j FOUR
    var g$i$j = 1.0; // of both in the first four
    var h$i$j = 1.0; // of both in the second
    var b$i$j = 1.0; // from j in the first to i in the second
#endfor
#endfor
#for j FOUR
    var near_fade$j = 1.0;
    var far_fade$j = 1.0;
#for i FOUR
    if ($iu > $ju) {
      near_fade$j *= keep$i;
      far_fade$j *= late_keep$i;
      g$i$j = near_fade$j;
      g$j$i = near_fade$j;
      h$i$j = far_fade$j;
      h$j$i = far_fade$j;
    }
#endfor
#for i FOUR
    near_fade$j *= late_keep$i;
    b$i$j = near_fade$j;
#endfor
#endfor
#endif
#for j FOUR
    let is_near_below$j = rows_below > vec4<u32>(8u * c + $ju);
    let is_far_below$j = rows_below > vec4<u32>(8u * c + 4u + $ju);
    tile$j *= select(key_column * near_query[$j], key_row * near_column[$j], is_near_below$j);
    far_tile$j *= select(key_column * far_query[$j], key_row * far_column[$j], is_far_below$j);
#ifdef HEAD
    tile$j *= select(vec4<f32>(b0$j, b1$j, b2$j, b3$j), vec4<f32>(g0$j, g1$j, g2$j, g3$j), is_first);
    far_tile$j *= select(vec4<f32>(h0$j, h1$j, h2$j, h3$j), vec4<f32>(b$j0, b$j1, b$j2, b$j3), is_first);
#endif
#endfor
  } else {
#ifdef HEAD
    let far_reach = 1u;
    let span = spans[select(8u * c + r, 8u * r + c, r > c)];
#else
    let far_reach = 0u;
    let span = 1.0;
#endif
    let row_factor = span * select(columns[far_reach][row_four], key_rows[far_reach][row_four], r > c);
    let near_factor = select(query_rows[far_reach][2u * c], columns[far_reach][2u * c], r > c);
    let far_factor = select(query_rows[far_reach][2u * c + 1u], columns[far_reach][2u * c + 1u], r > c);
#for j FOUR
    tile$j *= row_factor * near_factor[$j];
    far_tile$j *= row_factor * far_factor[$j];
#endfor
  }
#ifdef DELTA
  let near_rows = transpose(mat4x4<f32>(tile0, tile1, tile2, tile3));
  let far_rows = transpose(mat4x4<f32>(far_tile0, far_tile1, far_tile2, far_tile3));
  workgroupBarrier();
#for n FOUR
  if (r >= c) {
    // Nobody reads what is on the diagonal or above it.
    room[packed(4u * row_four + $nu) + 2u * c] = near_rows[$n];
    room[packed(4u * row_four + $nu) + 2u * c + 1u] = far_rows[$n];
  }
  if (r <= c) {
    // P by columns, until T has come.
    let near_queries$n = vec4<u32>(8u * c) + vec4<u32>(0u, 1u, 2u, 3u);
    let score_to$n = to + SCORE_AT + (4u * row_four + $nu) * ROWS + 2u * c;
    operands[score_to$n] = select(vec4<f32>(0.0), near_rows[$n], near_queries$n >= vec4<u32>(4u * row_four + $nu));
    operands[score_to$n + 1u] = select(
      vec4<f32>(0.0), far_rows[$n], near_queries$n + vec4<u32>(4u) >= vec4<u32>(4u * row_four + $nu),
    );
  }
#endfor
#else
#for j FOUR
  operands[to + SCORE_AT + (8u * c + $ju) * ROWS + row_four] =
    select(tile$j, vec4<f32>(0.0), rows_below > vec4<u32>(8u * c + $ju));
  operands[to + SCORE_AT + (8u * c + 4u + $ju) * ROWS + row_four] =
    select(far_tile$j, vec4<f32>(0.0), rows_below > vec4<u32>(8u * c + 4u + $ju));
#endfor
#endif
  workgroupBarrier();
#ifdef DELTA
  storageBarrier();
  invert(lid);
#endif
  let key_from = (chunk.x * p.k_stride + p.k_at + key_head * p.k_head + p.kt_at) / 4u;
  multiply(lid, group.y % 2u == 1u, length, to, key_from, p.k_stride / 4u, to + SCORE_AT);
}
