// What T is multiplied with, 128 threads: keys on their way into the state, and P. (P is by columns, and where P T will be.
// With a decay a channel it is somewhere else.) A team of 32 has 16 tokens of all keys, then 16 rows of P, and leaves out what
// T has no numbers for: which is more of one and less of the other.
#import delta/apart/inverse

// `odd`: of every other workgroup. `to`: its block of `operands`; `key_from`, `key_step`: where keys begin, and how far from
// row to row; `score_from`: where P begins; all in fours. Without L, T is diag(β), and P has been multiplied with it.
fn multiply(lid: u32, odd: bool, length: u32, to: u32, key_from: u32, key_step: u32, score_from: u32) {
  // Every other workgroup begins with the other end, since teams with the same number meet on one unit.
  let team = select(lid / 32u, 3u - lid / 32u, odd);
  let mate = lid % 32u;
  // Keys by T: tokens 16·team to 16·team + 15, of which a thread has eight, and two fours of channels.
  let token_eight = 2u * team + mate % 2u;
  for (var first = 0u; first < TILES; first += 16u) {
    let near = first + mate / 2u;
    let far = near + TILES;
    let near_four = min(near, FOURS - 1u);
    let far_four = min(far, FOURS - 1u);
#for n FOUR
    var a$n = vec4<f32>(0.0); // the first four tokens of channel n of the first four
    var b$n = vec4<f32>(0.0); // the others
    var c$n = vec4<f32>(0.0); // of the second four
    var d$n = vec4<f32>(0.0);
#endfor
    // Several tokens at a time, so that their loads are under way together. Without L, T is diagonal.
#ifdef DELTA
    for (var m = 16u * team; m < length; m += 4u) {
#else
    for (var m = 8u * token_eight; m < min(length, 8u * token_eight + 8u); m += 4u) {
#endif
#for i FOUR
      let key_at$i = key_from + min(m + $iu, length - 1u) * key_step;
#ifdef CHANNEL
      let first$i = keys[key_at$i + near_four];
      let second$i = keys[key_at$i + far_four];
#else
      let factor$i = writes[m + $iu];
      let first$i = factor$i * k[key_at$i + near_four];
      let second$i = factor$i * k[key_at$i + far_four];
#endif
#endfor
#for i FOUR
#ifdef DELTA
      let t_at$i = packed(m + $iu) + 2u * token_eight;
      let t_left$i = room[t_at$i];
      let t_right$i = room[t_at$i + 1u];
#else
      let t$i = vec4<f32>(strengths[m + $iu]);
      let own$i = vec4<u32>(token_eight * 8u) + vec4<u32>(0u, 1u, 2u, 3u);
      let t_left$i = select(vec4<f32>(0.0), t$i, own$i == vec4<u32>(m + $iu));
      let t_right$i = select(vec4<f32>(0.0), t$i, own$i + vec4<u32>(4u) == vec4<u32>(m + $iu));
#endif
#for n FOUR
      a$n += first$i[$n] * t_left$i;
      b$n += first$i[$n] * t_right$i;
      c$n += second$i[$n] * t_left$i;
      d$n += second$i[$n] * t_right$i;
#endfor
#endfor
    }
    if (near < TILES) {
      // Channels beyond K, where K is no multiple of 8, are never read.
      let tokens_to = to + KEY_AT + token_eight / 2u * 8u * TILES * 4u + token_eight % 2u * 2u;
      let near_to = tokens_to + near % 2u * 4u * TILES * 4u + near / 2u * 4u;
      let far_to = tokens_to + far % 2u * 4u * TILES * 4u + far / 2u * 4u;
#for n FOUR
      operands[near_to + $nu * TILES * 4u] = a$n;
      operands[near_to + $nu * TILES * 4u + 1u] = b$n;
      operands[far_to + $nu * TILES * 4u] = c$n;
      operands[far_to + $nu * TILES * 4u + 1u] = d$n;
#endfor
    }
  }

#ifdef DELTA
  // P T: rows 16·team to 16·team + 15, which end at that column; a thread has eight rows and a four of columns.
  let score_eight = 2u * team + mate / 16u;
  let score_four = mate % 16u;
#for n EIGHT
  var score$n = vec4<f32>(0.0);
#endfor
  for (var m = 0u; m < 16u * team + 16u; m += 4u) {
    if (score_four / 4u <= m / 16u && m < 8u * score_eight + 8u) {
#for i FOUR
      let score_at$i = score_from + (m + $iu) * ROWS + 2u * score_eight;
#ifdef CHANNEL
      let upper$i = pairs[score_at$i];
      let lower$i = pairs[score_at$i + 1u];
#else
      let upper$i = operands[score_at$i];
      let lower$i = operands[score_at$i + 1u];
#endif
      let t$i = room[packed(m + $iu) + score_four];
#endfor
#for i FOUR
#for n FOUR
      score$n += upper$i[$n] * t$i;
#endfor
      score4 += lower$i.x * t$i;
      score5 += lower$i.y * t$i;
      score6 += lower$i.z * t$i;
      score7 += lower$i.w * t$i;
#endfor
    }
  }
#ifndef CHANNEL
  // P T takes the place of P.
  storageBarrier();
#endif
#for n EIGHT
  operands[to + SCORE_AT + (8u * score_eight + $nu) * ROWS + score_four] = score$n;
#endfor
#endif
}
