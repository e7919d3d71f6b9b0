// T = (I + L)⁻¹ diag(β) of every chunk (MATH.md §6), and what it is multiplied with: the scan wants E = T X with
// X = V − e^G K S only to multiply it with P and with (e^{G_C − G} K̃)ᵀ, so these two take T in here, once a head.
//
// The inverse is by substitution down the rows of each column, which is as accurate as any for nearly collinear keys at
// β = 2. A workgroup is one chunk of one value head, 64 threads: a thread is a column of the inverse, which stays in
// registers or, without IN_REGISTERS, in workgroup memory (much less code, for adapters that would take long to compile
// it); then it has tiles of 8×8 of the products. Groups: (HV, chunks).
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
#ifdef IN_REGISTERS
#for m SIXTEEN
  square[lid + $mu * C] = pairs[pair + LOWER / 4u + lid + $mu * C];
#endfor
  workgroupBarrier();
  // Rows 0 to 31 of this thread's column, in fours, and rows 32 to 63. The first are zero in the second half of columns.
#for r EIGHT
  let own$r = vec4<u32>(4u * $ru, 4u * $ru + 1u, 4u * $ru + 2u, 4u * $ru + 3u);
  var top$r = select(vec4<f32>(0.0), vec4<f32>(1.0), own$r == vec4<u32>(lid));
  var low$r = select(vec4<f32>(0.0), vec4<f32>(1.0), own$r + vec4<u32>(32u) == vec4<u32>(lid));
#endfor
  if (lid < 32u) {
#for r EIGHT
#for m EIGHT
    if ($mu < $ru) {
      top$r.x -= dot(square[4u * $ru * ROWS + $mu], top$m);
      top$r.y -= dot(square[(4u * $ru + 1u) * ROWS + $mu], top$m);
      top$r.z -= dot(square[(4u * $ru + 2u) * ROWS + $mu], top$m);
      top$r.w -= dot(square[(4u * $ru + 3u) * ROWS + $mu], top$m);
    }
#endfor
    top$r.y -= square[(4u * $ru + 1u) * ROWS + $ru].x * top$r.x;
    top$r.z -= dot(square[(4u * $ru + 2u) * ROWS + $ru].xy, top$r.xy);
    top$r.w -= dot(square[(4u * $ru + 3u) * ROWS + $ru].xyz, top$r.xyz);
#endfor
#for r EIGHT
#for m EIGHT
    low$r.x -= dot(square[(4u * $ru + 32u) * ROWS + $mu], top$m);
    low$r.y -= dot(square[(4u * $ru + 33u) * ROWS + $mu], top$m);
    low$r.z -= dot(square[(4u * $ru + 34u) * ROWS + $mu], top$m);
    low$r.w -= dot(square[(4u * $ru + 35u) * ROWS + $mu], top$m);
#endfor
#endfor
  }
#for r EIGHT
#for m EIGHT
  if ($mu < $ru) {
    low$r.x -= dot(square[(4u * $ru + 32u) * ROWS + 8u + $mu], low$m);
    low$r.y -= dot(square[(4u * $ru + 33u) * ROWS + 8u + $mu], low$m);
    low$r.z -= dot(square[(4u * $ru + 34u) * ROWS + 8u + $mu], low$m);
    low$r.w -= dot(square[(4u * $ru + 35u) * ROWS + 8u + $mu], low$m);
  }
#endfor
  low$r.y -= square[(4u * $ru + 33u) * ROWS + 8u + $ru].x * low$r.x;
  low$r.z -= dot(square[(4u * $ru + 34u) * ROWS + 8u + $ru].xy, low$r.xy);
  low$r.w -= dot(square[(4u * $ru + 35u) * ROWS + 8u + $ru].xyz, low$r.xyz);
#endfor
  workgroupBarrier();
#for r EIGHT
#for m FOUR
  square[(4u * $ru + $mu) * ROWS + lid / 4u][lid % 4u] = strength * top$r[$m];
  square[(4u * $ru + $mu + 32u) * ROWS + lid / 4u][lid % 4u] = strength * low$r[$m];
#endfor
#endfor
  workgroupBarrier();
#else
  // All threads want the same of L at a time.
  for (var r = 0u; r < ROWS; r++) {
    let own = vec4<u32>(4u * r) + vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(lid);
    var x = select(vec4<f32>(0.0), vec4<f32>(1.0), own);
    let at = pair + LOWER / 4u + 4u * r * ROWS;
    for (var m = 0u; m < r; m++) {
      let y = vec4<f32>(t_of(4u * m, lid), t_of(4u * m + 1u, lid), t_of(4u * m + 2u, lid), t_of(4u * m + 3u, lid));
      x -= vec4<f32>(
        dot(pairs[at + m], y),
        dot(pairs[at + ROWS + m], y),
        dot(pairs[at + 2u * ROWS + m], y),
        dot(pairs[at + 3u * ROWS + m], y));
    }
    x.y -= pairs[at + ROWS + r].x * x.x;
    x.z -= dot(pairs[at + 2u * ROWS + r].xy, x.xy);
    x.w -= dot(pairs[at + 3u * ROWS + r].xyz, x.xyz);
    for (var i = 0u; i < 4u; i++) {
      square[(4u * r + i) * ROWS + lid / 4u][lid % 4u] = x[i];
    }
  }
  for (var i = 0u; i < C; i++) {
    square[i * ROWS + lid / 4u][lid % 4u] *= strength;
  }
  workgroupBarrier();
#endif
#endif

  // Tiles: a subgroup of 32 has eight tiles of rows and half of the columns, which it trades from round to round, since
  // the first half is twice the work. First the rows of keys, then those of P.
  let r = lid / 4u % 8u;
  for (var round = 0u; round <= KEY_ROUNDS; round++) {
    let half = (lid / 32u + round) % 2u;
    let column = half * 4u + lid % 4u; // eights of columns
    let is_key = round < KEY_ROUNDS;
    let tile = select(r, round * 8u + r, is_key);
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
    for (var m = half * 32u; m < length; m += TOKENS) {
#else
    for (var m = column * 8u; m < min(length, column * 8u + 8u); m += TOKENS) {
#endif
#for i TOKENS
#ifdef DELTA
      let t_left$i = square[(m + $iu) * ROWS + 2u * column];
      let t_right$i = square[(m + $iu) * ROWS + 2u * column + 1u];
#else
      let t$i = vec4<f32>(pairs[pair + BETA / 4u + (m + $iu) / 4u][$iu % 4u]);
      let own$i = vec4<u32>(column * 8u) + vec4<u32>(0u, 1u, 2u, 3u);
      let t_left$i = select(vec4<f32>(0.0), t$i, own$i == vec4<u32>(m + $iu));
      let t_right$i = select(vec4<f32>(0.0), t$i, own$i + vec4<u32>(4u) == vec4<u32>(m + $iu));
#endif
      var first$i: vec4<f32>;
      var second$i: vec4<f32>;
#endfor
      if (is_key) {
#for i TOKENS
#ifdef CHANNEL
        let at$i = ((block * 3u + 2u) * C + m + $iu) * FOURS;
        first$i = keys[at$i + first_four];
        second$i = keys[at$i + second_four];
#else
        let row$i = min(m + $iu, length - 1u);
        let at$i = ((chunk.x + row$i) * p.k_stride + p.k_at + head / p.group * p.k_head + p.kt_at) / 4u;
        let fade$i = select(0.0, pairs[pair + WRITE / 4u + (m + $iu) / 4u][$iu % 4u], m + $iu < length);
        first$i = fade$i * k[at$i + first_four];
        second$i = fade$i * k[at$i + second_four];
#endif
#endfor
      } else {
#for i TOKENS
        let score_at$i = pair + SCORES / 4u + (m + $iu) * ROWS + 2u * r;
        first$i = pairs[score_at$i];
        second$i = pairs[score_at$i + 1u];
#endfor
      }
#for i TOKENS
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
