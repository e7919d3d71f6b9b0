// T = (I + L)⁻¹ diag(β) of every chunk (MATH.md §6), and what it is multiplied with, where decays are a channel's (others:
// delta/apart/chunk). The scan wants E = T X with X = V − e^G K S only to multiply it with P and with (e^{G_C − G} K̃)ᵀ, so
// these two take T in here, once a head. A workgroup is one chunk of one value head. Groups: (HV, chunks).
#import delta/params
#import delta/apart/products
@group(0) @binding(auto) var<storage, read> keys: array<vec4<f32>>; // [chunks, HV, 3, C, K]: the last is e^{G_C − G} ⊙ K̃
@group(0) @binding(auto) var<storage, read> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]: SCORES by columns
@group(0) @binding(auto) var<storage, read_write> operands: array<vec4<f32>>; // [chunks, HV, BLOCK], see the layout
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const ROOM: u32 = 0u;

@compute @workgroup_size(THREADS)
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
  if (lid < C) {
    strengths[lid] = pairs[pair + BETA / 4u + lid / 4u][lid % 4u];
  }
#ifdef DELTA
#for i FOUR
  for (var e = lid; e < 64u * ($iu + 1u); e += THREADS) {
    let row$i = 16u * $iu + e / (4u * ($iu + 1u));
    room[packed(16u * $iu) + e] = pairs[pair + LOWER / 4u + row$i * ROWS + e % (4u * ($iu + 1u))];
  }
#endfor
  workgroupBarrier();
  invert(lid);
#else
  workgroupBarrier();
  // P diag(β): sixteen elements at a time, from columns to rows.
  for (var e = lid; e < ROWS * ROWS; e += THREADS) {
    let row_four = e % ROWS;
    let column_four = e / ROWS;
    let from_column = pair + SCORES / 4u + 4u * column_four * ROWS + row_four;
    let columns = transpose(mat4x4<f32>(
      strengths[4u * column_four] * pairs[from_column],
      strengths[4u * column_four + 1u] * pairs[from_column + ROWS],
      strengths[4u * column_four + 2u] * pairs[from_column + 2u * ROWS],
      strengths[4u * column_four + 3u] * pairs[from_column + 3u * ROWS],
    ));
#for n FOUR
    operands[to + SCORE_AT + (4u * row_four + $nu) * ROWS + column_four] = columns[$n];
#endfor
  }
#endif
  multiply(lid, group.y % 2u == 1u, length, to, (block * 3u + 2u) * C * FOURS, FOURS, pair + SCORES / 4u);
}
