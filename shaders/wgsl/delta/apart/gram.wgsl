// The two products of a chunk with itself, K K̃ᵀ and Q K̃ᵀ, with their decays (MATH.md §3), and the factors of its rows, for
// rules with a decay a head or none. With NORMALISE queries and keys come as they are: the products and the factors have
// what makes them unit, x / sqrt(Σx² + 1e-6), and so nobody else needs it. Decays are direct sums over a segment, never
// differences of longer sums.
//
// A workgroup is one chunk of one value head. A thread has two times eight rows of K or Q, as far from the first row as from
// the last, so that all threads have the same work below the diagonal: every sixteenth column of the later rows, and of the
// earlier ones the half that they have. L is left undefined in the quarter where it has nothing; P is zero there. Places and
// strides are multiples of 4. Groups: (HV, chunks).
#import delta/params
#import delta/chunk/layout
#import delta/apart/layout
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K], write keys kt_at further on
#ifdef BETA_GIVEN
@group(0) @binding(auto) var<storage, read> beta: array<f32>; // view [rows, HV]
#endif
#ifdef HEAD
@group(0) @binding(auto) var<storage, read> g: array<f32>; // view [rows, HV]
#endif
@group(0) @binding(auto) var<storage, read_write> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]: SCORES by columns
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const THREADS: u32 = 128u;
const SLICE: u32 = 4u; // channels at a time, in fours
const SLICES: u32 = (FOURS + SLICE - 1u) / SLICE;
const PITCH: u32 = SLICE + 1u; // odd, so that rows are on different banks
// A slice of K, then of Q, and of K̃: row i in [i / 8 % 2][i % 8][i / 16].
var<workgroup> rows: array<array<array<array<vec4<f32>, PITCH>, C / 8u + 1u>, 8>, 2>;
#ifdef WRITE_KEY
var<workgroup> writes: array<array<array<array<vec4<f32>, PITCH>, C / 16u + 1u>, 8>, 2>;
#endif
var<workgroup> squares: array<f32, 4u * THREADS>; // Σx² of every fourth four of a row of K or Q
#ifdef HEAD
var<workgroup> logs: array<f32, C>; // log decays
var<workgroup> eights: array<f32, C / 8u>; // their sums over eight rows
var<workgroup> rests: array<f32, C>; // over the rows behind one in its eight
var<workgroup> spans: array<f32, C>; // over the eights between two, [later][earlier]
#endif

#ifdef HEAD
// Σ log decays over rows first..last.
fn segment(first: u32, last: u32) -> f32 {
  var sum = 0.0;
  for (var i = first; i < last; i++) {
    sum += logs[i];
  }
  return sum;
}
#endif

// What makes row i of K, or i - C of Q, unit.
fn unit(i: u32) -> f32 {
#ifdef NORMALISE
  return 1.0 / sqrt(squares[4u * i] + squares[4u * i + 1u] + squares[4u * i + 2u] + squares[4u * i + 3u] + 1e-6);
#else
  return 1.0;
#endif
}

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let chunk = chunks[group.y];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let head = group.x;
  let key_head = head / p.group;
  let pair = (group.y * p.value_heads + head) * (PAIR / 4u);

  // What a thread brings: of two rows each of K and Q (and K̃) one four of a slice.
  let four = lid % SLICE;
#for i TWO
  let row$i = lid / SLICE + $iu * (THREADS / SLICE);
  let inside$i = row$i < length;
  let at$i = chunk.x + min(row$i, length - 1u);
  let k_from$i = (at$i * p.k_stride + p.k_at + key_head * p.k_head) / 4u;
  let q_from$i = (at$i * p.q_stride + p.q_at + key_head * p.q_head) / 4u;
  var k$i: vec4<f32>;
  var q$i: vec4<f32>;
  var k_squares$i = 0.0;
  var q_squares$i = 0.0;
#ifdef WRITE_KEY
  var w$i: vec4<f32>;
#endif
#endfor
#ifdef HEAD
  if (lid < C) {
    var log_decay = 0.0;
    if (lid < length) {
      log_decay = max(g[(chunk.x + lid) * p.g_stride + p.g_at + head], MIN_LOG_DECAY);
    }
    logs[lid] = log_decay;
  }
  workgroupBarrier();
  if (lid < C) {
    rests[lid] = segment(lid + 1u, lid / 8u * 8u + 8u);
  }
  if (lid < C / 8u) {
    eights[lid] = segment(8u * lid, 8u * lid + 8u);
  }
#endif

  // Rows 8·tile0 to 8·tile0 + 7 and likewise for tile1; columns across, across + 16, ...
  let across = lid % 16u;
  let is_query = lid >= C;
  let tile0 = lid / 16u % 4u;
  let tile1 = 7u - tile0;
  let beyond = select(0u, C / 16u, is_query); // keys
#for h TWO
#for j FOUR
  var low$h$j = vec4<f32>(0.0); // rows 0 to 3 of column j
  var high$h$j = vec4<f32>(0.0); // 4 to 7
#endfor
#endfor
  for (var slice = 0u; slice < SLICES; slice++) {
    let c = slice * SLICE + four;
    let c_inside = c < FOURS;
#for i TWO
    k$i = select(vec4<f32>(0.0), k[k_from$i + min(c, FOURS - 1u)], inside$i && c_inside);
    q$i = select(vec4<f32>(0.0), q[q_from$i + min(c, FOURS - 1u)], inside$i && c_inside);
#ifdef WRITE_KEY
    w$i = select(vec4<f32>(0.0), k[k_from$i + p.kt_at / 4u + min(c, FOURS - 1u)], inside$i && c_inside);
#endif
#endfor
    workgroupBarrier();
#for i TWO
    rows[row$i / 8u % 2u][row$i % 8u][row$i / 16u][four] = k$i;
    rows[row$i / 8u % 2u][row$i % 8u][(C + row$i) / 16u][four] = q$i;
#ifdef WRITE_KEY
    writes[row$i / 8u % 2u][row$i % 8u][row$i / 16u][four] = w$i;
#endif
    k_squares$i += dot(k$i, k$i);
    q_squares$i += dot(q$i, q$i);
#endfor
    workgroupBarrier();
    for (var m = 0u; m < SLICE; m++) {
#for j FOUR
#ifdef WRITE_KEY
      let y$j = writes[across / 8u][across % 8u][$ju][m];
#else
      let y$j = rows[across / 8u][across % 8u][$ju][m];
#endif
#endfor
#for h TWO
#for i EIGHT
      let x$h$i = rows[tile$h % 2u][$iu][beyond + tile$h / 2u][m];
#endfor
      let upper$h = transpose(mat4x4<f32>(x$h0, x$h1, x$h2, x$h3));
      let lower$h = transpose(mat4x4<f32>(x$h4, x$h5, x$h6, x$h7));
#for j FOUR
      if ($hu == 1u || $ju < 2u) {
#for n FOUR
        low$h$j += upper$h[$n] * y$j[$n];
        high$h$j += lower$h[$n] * y$j[$n];
#endfor
      }
#endfor
#endfor
    }
  }
#ifdef NORMALISE
#for i TWO
  squares[4u * row$i + four] = k_squares$i;
  squares[4u * (C + row$i) + four] = q_squares$i;
#endfor
#endif
#ifdef HEAD
  if (lid < C) {
    var sum = 0.0;
    for (var e = lid % 8u + 1u; e < lid / 8u; e++) {
      sum += eights[e];
    }
    spans[lid] = sum;
  }
#endif
  workgroupBarrier();

  // Factors of the rows, and of each column of the state.
  if (lid < C) {
    var from_start = 1.0;
    var after = 1.0;
#ifdef HEAD
    var before = segment(lid / 8u * 8u, lid + 1u);
    var behind = rests[lid];
    for (var e = 0u; e < C / 8u; e++) {
      before += select(0.0, eights[e], e < lid / 8u);
      behind += select(0.0, eights[e], e > lid / 8u);
    }
    from_start = exp(before);
    after = exp(behind);
#endif
    var strength = 1.0;
#ifdef BETA_GIVEN
    if (lid < length) {
      strength = beta[(chunk.x + lid) * p.b_stride + p.b_at + head];
    }
#endif
    let k_unit = unit(lid);
    pairs[pair + READ / 4u + lid / 4u][lid % 4u] = from_start * k_unit;
    pairs[pair + QUERY / 4u + lid / 4u][lid % 4u] = p.scale * from_start * unit(C + lid);
    pairs[pair + WRITE / 4u + lid / 4u][lid % 4u] = after * k_unit;
    pairs[pair + BETA / 4u + lid / 4u][lid % 4u] = strength;
  } else if (lid == C) {
    var whole = 1.0;
#ifdef HEAD
    whole = exp(segment(0u, C));
#endif
    pairs[pair + KEEP / 4u] = vec4<f32>(whole);
  }

#for h TWO
  let first$h = 8u * tile$h;
  // Factors of this thread's rows: of Q σ, of K β.
#for i EIGHT
  var factor$h$i = p.scale;
  if (!is_query) {
    factor$h$i = 1.0;
#ifdef BETA_GIVEN
    if (first$h + $iu < length) {
      factor$h$i = beta[(chunk.x + first$h + $iu) * p.b_stride + p.b_at + head];
    }
#endif
  }
  factor$h$i *= unit(select(0u, C, is_query) + first$h + $iu);
#endfor
#for j FOUR
  let column$h$j = across + 16u * $ju;
  let eight$h$j = column$h$j / 8u;
  if (($hu == 1u || $ju < 2u) && eight$h$j <= tile$h) {
    // What a pair fades by: from behind the column to its eight's end, over whole eights, and on from the first row.
    var log$h$j = 0.0;
#ifdef HEAD
    if (eight$h$j < tile$h) {
      log$h$j = rests[column$h$j] + spans[first$h + eight$h$j];
    }
#endif
#ifndef WRITE_KEY
    let column_unit$h$j = unit(column$h$j);
#else
    let column_unit$h$j = 1.0;
#endif
    var fade_low$h$j = vec4<f32>(column_unit$h$j) * vec4<f32>(factor$h0, factor$h1, factor$h2, factor$h3);
    var fade_high$h$j = vec4<f32>(column_unit$h$j) * vec4<f32>(factor$h4, factor$h5, factor$h6, factor$h7);
#ifdef HEAD
#for n FOUR
    log$h$j += select(0.0, logs[first$h + $nu], first$h + $nu > column$h$j);
    fade_low$h$j[$n] *= exp(log$h$j);
#endfor
#for n FOUR
    log$h$j += select(0.0, logs[first$h + 4u + $nu], first$h + 4u + $nu > column$h$j);
    fade_high$h$j[$n] *= exp(log$h$j);
#endfor
#endif
    low$h$j *= fade_low$h$j;
    high$h$j *= fade_high$h$j;
  }
  // On the diagonal of P, and nowhere on it or above of L.
  let least$h$j = select(column$h$j + 1u, column$h$j, is_query);
  low$h$j = select(vec4<f32>(0.0), low$h$j, vec4<u32>(first$h) + vec4<u32>(0u, 1u, 2u, 3u) >= vec4<u32>(least$h$j));
  high$h$j = select(vec4<f32>(0.0), high$h$j, vec4<u32>(first$h) + vec4<u32>(4u, 5u, 6u, 7u) >= vec4<u32>(least$h$j));
  if (is_query) {
    pairs[pair + (SCORES + column$h$j * C + first$h) / 4u] = low$h$j;
    pairs[pair + (SCORES + column$h$j * C + first$h) / 4u + 1u] = high$h$j;
  }
#ifdef DELTA
  else if ($hu == 1u || $ju < 2u) {
#for n FOUR
    pairs[pair + (LOWER + (first$h + $nu) * C + column$h$j) / 4u][across % 4u] = low$h$j[$n];
    pairs[pair + (LOWER + (first$h + 4u + $nu) * C + column$h$j) / 4u][across % 4u] = high$h$j[$n];
#endfor
  }
#endif
#endfor
#endfor
}
