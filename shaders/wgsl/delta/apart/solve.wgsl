// T = (I + L)⁻¹ diag(β) of every chunk (MATH.md §6), and what it is multiplied with: the scan wants E = T X with
// X = V − e^G K S only to multiply it with P and with (e^{G_C − G} K̃)ᵀ, so these two take T in here, once a head.
//
// The inverse is by substitution down the rows of each column, which is as accurate as any for nearly collinear keys at
// β = 2. A workgroup is one chunk of one value head, 64 threads: a thread is a column of the inverse, eight rows of which are
// in registers at a time; then it has tiles of 8×8 of the products. Groups: (HV, chunks).
#import delta/params
#import delta/chunk/layout
#import delta/apart/layout
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read> keys: array<vec4<f32>>; // [chunks, HV, 3, C, K]: the last is e^{G_C − G} ⊙ K̃
#else
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K], write keys kt_at further on
#endif
@group(0) @binding(auto) var<storage, read> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]: SCORES by columns
@group(0) @binding(auto) var<storage, read_write> operands: array<vec4<f32>>; // [chunks, HV, BLOCK], see the layout
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const KEY_ROUNDS: u32 = (TILES + 7u) / 8u; // of eight tiles

#ifdef DELTA
var<workgroup> square: array<vec4<f32>, C * ROWS>; // L, then T, row after row

fn t_of(row: u32, column: u32) -> f32 {
  return square[row * ROWS + column / 4u][column % 4u];
}
#endif

@compute @workgroup_size(C)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let chunk = chunks[group.y];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let head = group.x;
  let block = group.y * p.value_heads + head;
  let pair = block * (PAIR / 4u);
  let to = block * BLOCK;

#ifdef DELTA
  let strength = pairs[pair + BETA / 4u + lid / 4u][lid % 4u];
#for m SIXTEEN
  square[lid + $mu * C] = pairs[pair + LOWER / 4u + lid + $mu * C];
#endfor
  workgroupBarrier();
  // Eight rows at a time take the place of L's, when all threads have read those. The first half of rows is zero in the second
  // half of columns.
  for (var b = 0u; b < C / 8u; b++) {
#for i EIGHT
    var x$i = select(0.0, strength, lid == 8u * b + $iu);
    let row$i = (8u * b + $iu) * ROWS;
#endfor
    for (var m = lid / 32u * 8u; m < 2u * b; m++) {
      let y = vec4<f32>(t_of(4u * m, lid), t_of(4u * m + 1u, lid), t_of(4u * m + 2u, lid), t_of(4u * m + 3u, lid));
#for i EIGHT
      x$i -= dot(square[row$i + m], y);
#endfor
    }
    x1 -= square[row1 + 2u * b].x * x0;
    x2 -= dot(square[row2 + 2u * b].xy, vec2<f32>(x0, x1));
    x3 -= dot(square[row3 + 2u * b].xyz, vec3<f32>(x0, x1, x2));
    let top = vec4<f32>(x0, x1, x2, x3);
    x4 -= dot(square[row4 + 2u * b], top);
    x5 -= dot(square[row5 + 2u * b], top) + square[row5 + 2u * b + 1u].x * x4;
    x6 -= dot(square[row6 + 2u * b], top) + dot(square[row6 + 2u * b + 1u].xy, vec2<f32>(x4, x5));
    x7 -= dot(square[row7 + 2u * b], top) + dot(square[row7 + 2u * b + 1u].xyz, vec3<f32>(x4, x5, x6));
    workgroupBarrier();
#for i EIGHT
    square[row$i + lid / 4u][lid % 4u] = x$i;
#endfor
  }
  workgroupBarrier();
#endif

  // Tiles: a subgroup of 32 has eight tiles of rows and half of the columns, which it trades from round to round, since
  // the first half is twice the work. First the rows of P, then those of keys.
  let r = lid / 4u % 8u;
  for (var round = 0u; round <= KEY_ROUNDS; round++) {
#ifdef DELTA
#ifndef CHANNEL
    // Keys want the factors of their rows: T takes them in.
    if (round == 1u) {
      workgroupBarrier();
#for i SIXTEEN
      let factored$i = lid / ROWS + $iu * (C / ROWS);
      square[lid + $iu * C] *= select(0.0, pairs[pair + WRITE / 4u + factored$i / 4u][factored$i % 4u], factored$i < length);
#endfor
      workgroupBarrier();
    }
#endif
#endif
    let half = (lid / 32u + round) % 2u;
    let column = half * 4u + lid % 4u; // eights of columns
    let is_key = round > 0u;
    let tile = select(r, (round - 1u) * 8u + r, is_key);
    let first_four = min(2u * tile, FOURS - 1u);
    let second_four = min(2u * tile + 1u, FOURS - 1u);
#for n FOUR
    var left$n = vec4<f32>(0.0);
    var right$n = vec4<f32>(0.0);
    var low$n = vec4<f32>(0.0); // rows 4 to 7
    var high$n = vec4<f32>(0.0);
#endfor
    // Several tokens at a time, so that their loads are under way together. T is lower triangular; without L it is diagonal.
#ifdef DELTA
    for (var m = half * 32u; m < length; m += 8u) {
#else
    for (var m = column * 8u; m < min(length, column * 8u + 8u); m += 8u) {
#endif
#for i EIGHT
#ifdef DELTA
      let t_left$i = square[(m + $iu) * ROWS + 2u * column];
      let t_right$i = square[(m + $iu) * ROWS + 2u * column + 1u];
#else
      var t$i = vec4<f32>(pairs[pair + BETA / 4u + (m + $iu) / 4u][$iu % 4u]);
#ifndef CHANNEL
      if (is_key) {
        t$i *= select(0.0, pairs[pair + WRITE / 4u + (m + $iu) / 4u][$iu % 4u], m + $iu < length);
      }
#endif
      let own$i = vec4<u32>(column * 8u) + vec4<u32>(0u, 1u, 2u, 3u);
      let t_left$i = select(vec4<f32>(0.0), t$i, own$i == vec4<u32>(m + $iu));
      let t_right$i = select(vec4<f32>(0.0), t$i, own$i + vec4<u32>(4u) == vec4<u32>(m + $iu));
#endif
      var first$i: vec4<f32>;
      var second$i: vec4<f32>;
#endfor
      if (is_key) {
#for i EIGHT
#ifdef CHANNEL
        let at$i = ((block * 3u + 2u) * C + m + $iu) * FOURS;
        first$i = keys[at$i + first_four];
        second$i = keys[at$i + second_four];
#else
        let row$i = min(m + $iu, length - 1u);
        let at$i = ((chunk.x + row$i) * p.k_stride + p.k_at + head / p.group * p.k_head + p.kt_at) / 4u;
        first$i = k[at$i + first_four];
        second$i = k[at$i + second_four];
#endif
#endfor
      } else {
#for i EIGHT
        let score_at$i = pair + SCORES / 4u + (m + $iu) * ROWS + 2u * r;
        first$i = pairs[score_at$i];
        second$i = pairs[score_at$i + 1u];
#endfor
      }
#for i EIGHT
#for n FOUR
      left$n += first$i[$n] * t_left$i;
      right$n += first$i[$n] * t_right$i;
      low$n += second$i[$n] * t_left$i;
      high$n += second$i[$n] * t_right$i;
#endfor
#endfor
    }
    if (is_key) {
      if (tile < TILES) {
#for n FOUR
        let key_to$n = to + KEY_AT + ((column / 2u * 8u + $nu) * TILES + tile) * 4u + column % 2u * 2u;
        operands[key_to$n] = left$n;
        operands[key_to$n + 1u] = right$n;
        // Channels beyond K, where K is no multiple of 8, are never read.
        operands[key_to$n + 16u * TILES] = low$n;
        operands[key_to$n + 16u * TILES + 1u] = high$n;
#endfor
      }
    } else {
#for n FOUR
      let score_to$n = to + SCORE_AT + (8u * r + $nu) * ROWS + 2u * column;
      operands[score_to$n] = left$n;
      operands[score_to$n + 1u] = right$n;
      operands[score_to$n + 4u * ROWS] = low$n;
      operands[score_to$n + 4u * ROWS + 1u] = high$n;
#endfor
    }
  }
}
