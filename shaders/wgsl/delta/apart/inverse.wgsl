// The triangular inverse in workgroup memory (MATH.md §6), 128 threads. A kernel that imports it says how much of the memory
// it wants for itself before: ROOM, in fours.
#import delta/apart/layout
const THREADS: u32 = 128u;
// Fours of L or T: sixteen rows have the columns up to their last one's. How many workgroups share a multiprocessor is decided
// by the size of this memory.
const PACKED: u32 = C / 2u * (C / 16u) * (C / 16u + 1u);
var<workgroup> room: array<vec4<f32>, max(ROOM, PACKED)>; // L, then T
var<workgroup> strengths: array<f32, C>; // β

// Where row i of L or T begins, in fours.
fn packed(i: u32) -> u32 {
  let sixteen = i / 16u;
  return (8u * sixteen + i % 16u) * 4u * (sixteen + 1u);
}

fn t_of(row: u32, column: u32) -> f32 {
  return room[packed(row) + column / 4u][column % 4u];
}

// T = (I + L)⁻¹ diag(β) takes the place of L, of which only what is below the diagonal is read: two halves by substitution,
// and what is between them by products. Nearly collinear keys at β = 2 leave an error of 2e-5 (substitution alone 1.6e-5,
// blocks of 16 3e-5: MATH.md §6).
fn invert(lid: u32) {
  // First the halves of rows and columns on the diagonal, both at once, eight rows at a time in the place of L's, when all
  // threads have read those.
  let column = lid % C;
  let lower = column / 32u;
  let owns = lid < C;
  let strength = select(strengths[column], 1.0, lower == 1u);
  for (var b = 0u; b < 4u; b++) {
    let from_row = 32u * lower + 8u * b;
    let four_at = from_row / 4u;
#for i EIGHT
    var x$i = select(0.0, strength, column == from_row + $iu);
    let r$i = packed(from_row + $iu);
#endfor
    if (owns) {
      for (var m = column / 16u * 4u; m < four_at; m++) {
        let y = vec4<f32>(
          t_of(4u * m, column), t_of(4u * m + 1u, column), t_of(4u * m + 2u, column), t_of(4u * m + 3u, column),
        );
#for i EIGHT
        x$i -= dot(room[r$i + m], y);
#endfor
      }
      x1 -= room[r1 + four_at].x * x0;
      x2 -= dot(room[r2 + four_at].xy, vec2<f32>(x0, x1));
      x3 -= dot(room[r3 + four_at].xyz, vec3<f32>(x0, x1, x2));
      let top = vec4<f32>(x0, x1, x2, x3);
      x4 -= dot(room[r4 + four_at], top);
      x5 -= dot(room[r5 + four_at], top) + room[r5 + four_at + 1u].x * x4;
      x6 -= dot(room[r6 + four_at], top) + dot(room[r6 + four_at + 1u].xy, vec2<f32>(x4, x5));
      x7 -= dot(room[r7 + four_at], top) + dot(room[r7 + four_at + 1u].xyz, vec3<f32>(x4, x5, x6));
    }
    workgroupBarrier();
    if (owns && column / 16u <= from_row / 16u) {
#for i EIGHT
      room[r$i + column / 4u][column % 4u] = x$i;
#endfor
    }
  }
  workgroupBarrier();
  // Then the half below them, −A L T, of the inverse A on its right, L, and T above: two rows and a four of columns a
  // thread.
  let lower_four = lid % 8u;
  let lower_row = C / 2u + lid / 8u * 2u;
  let r_first = packed(lower_row);
  let r_second = packed(lower_row + 1u);
  var first_row = vec4<f32>(0.0);
  var second_row = vec4<f32>(0.0);
  for (var m = 0u; m < 8u; m++) {
    let l_first = room[r_first + m];
    let l_second = room[r_second + m];
    if (lower_four / 4u <= m / 4u) {
#for n FOUR
      let above$n = room[packed(4u * m + $nu) + lower_four];
      first_row += l_first[$n] * above$n;
      second_row += l_second[$n] * above$n;
#endfor
    }
  }
  workgroupBarrier();
  room[r_first + lower_four] = first_row;
  room[r_second + lower_four] = second_row;
  workgroupBarrier();
  first_row = vec4<f32>(0.0);
  second_row = vec4<f32>(0.0);
  for (var m = 0u; m < select(4u, 8u, lower_row >= 48u); m++) {
    let a_first = room[r_first + 8u + m];
    let a_second = room[r_second + 8u + m];
#for n FOUR
    let product$n = room[packed(C / 2u + 4u * m + $nu) + lower_four];
    first_row -= a_first[$n] * product$n;
    second_row -= a_second[$n] * product$n;
#endfor
  }
  workgroupBarrier();
  room[r_first + lower_four] = first_row;
  room[r_second + lower_four] = second_row;
  if (lower_row >= 48u || lower_four < 4u) {
    let right = C / 2u + 4u * lower_four;
    let scales = vec4<f32>(strengths[right], strengths[right + 1u], strengths[right + 2u], strengths[right + 3u]);
    room[r_first + 8u + lower_four] *= scales;
    room[r_second + 8u + lower_four] *= scales;
  }
  workgroupBarrier();
}
