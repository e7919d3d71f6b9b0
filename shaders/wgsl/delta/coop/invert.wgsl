// (I + L)⁻¹ for delta/coop/chunk, which declares `square`, [C, C] in f32, and `pool`, [C, C] in f16, and their pitches.

// The blocks of sixteen on the diagonal of `square`, unit lower triangular but for their diagonals of zeros, become their
// inverses, by substitution: a thread a column. Ends with a barrier.
fn invert_blocks(lid: u32) {
  let corner = lid / 16u * 16u;
  let column = lid % 16u;
#for r FOUR
  let at$r = (corner + 4u * $ru) * PITCH + corner / 4u;
  let own$r = vec4<u32>(4u * $ru, 4u * $ru + 1u, 4u * $ru + 2u, 4u * $ru + 3u) == vec4<u32>(column);
  var x$r = select(vec4<f32>(0.0), vec4<f32>(1.0), own$r);
#endfor
  if (lid < CHUNK) {
#for r FOUR
#for m FOUR
    if ($mu < $ru) {
      x$r -= vec4<f32>(
        dot(square[at$r + $mu], x$m),
        dot(square[at$r + PITCH + $mu], x$m),
        dot(square[at$r + 2u * PITCH + $mu], x$m),
        dot(square[at$r + 3u * PITCH + $mu], x$m));
    }
#endfor
    x$r.y -= square[at$r + PITCH + $ru].x * x$r.x;
    x$r.z -= dot(square[at$r + 2u * PITCH + $ru].xy, x$r.xy);
    x$r.w -= dot(square[at$r + 3u * PITCH + $ru].xyz, x$r.xyz);
#endfor
  }
  workgroupBarrier();
  if (lid < CHUNK) {
#for r FOUR
    let to$r = (corner + 4u * $ru) * PITCH + (corner + column) / 4u;
    square[to$r][column % 4u] = x$r.x;
    square[to$r + PITCH][column % 4u] = x$r.y;
    square[to$r + 2u * PITCH][column % 4u] = x$r.z;
    square[to$r + 3u * PITCH][column % 4u] = x$r.w;
#endfor
  }
  workgroupBarrier();
}

// Places in `square` and the pool of the block of sixteen in row b / 4, column b % 4.
fn in_square(b: u32) -> u32 {
  return b / 4u * 16u * PITCH + b % 4u * 4u;
}
fn in_pool(b: u32) -> u32 {
  return b / 4u * 16u * HALF_PITCH + b % 4u * 4u;
}
// A thread's four of a block, from `square` to the pool.
fn halve(b: u32, e: u32) {
  pool[in_pool(b) + e / 4u * HALF_PITCH + e % 4u] = half4(square[in_square(b) + e / 4u * PITCH + e % 4u]);
}

// The blocks below the diagonal, of 16 and then of 32: [a, 0; L, b]⁻¹ = [a⁻¹, 0; −b⁻¹ L a⁻¹, b⁻¹] (MATH.md §6). The pool
// has −L and the inverses on the diagonal. What a subgroup has nothing to do for goes above the diagonal of `square`.
fn invert_pairs(lid: u32) {
  let team = lid / 32u;
  // A subgroup's block: 10, 32, 01, 02, 03, 12, 13, 23.
  let near = 0xB76321E4u >> (4u * team) & 15u;
  let near_to = in_square(near);
  let near_l = in_pool(near);
  let near_a = in_pool(near % 4u * 5u);
  let near_b = in_pool(near / 4u * 5u);
  let l = coopLoadT<coop_mat16x16<f16, A>>(&pool[near_l], HALF_PITCH);
  let a = coopLoadT<coop_mat16x16<f16, B>>(&pool[near_a], HALF_PITCH);
  coopStoreT(coopMultiplyAdd(l, a, coop_mat16x16<f32, C>()), &square[near_to], PITCH);
  workgroupBarrier();
  let near_block = select(4u, 14u, lid >= 64u);
  if (lid < 128u) {
    halve(near_block, lid % 64u);
  }
  workgroupBarrier();
  let la = coopLoadT<coop_mat16x16<f16, B>>(&pool[near_l], HALF_PITCH);
  let b = coopLoadT<coop_mat16x16<f16, A>>(&pool[near_b], HALF_PITCH);
  coopStoreT(coopMultiplyAdd(b, la, coop_mat16x16<f32, C>()), &square[near_to], PITCH);
  workgroupBarrier();
  if (lid < 128u) {
    halve(near_block, lid % 64u);
  }
  workgroupBarrier();

  // Blocks 20, 21, 30, 31, and 01, 02, 03, 12.
  let far = 0x6321DC98u >> (4u * team) & 15u;
  let far_to = in_square(far);
  let far_block = 8u + lid / 128u * 4u + lid / 64u % 2u;
  var sum = coop_mat16x16<f32, C>();
#for m TWO
  let far_l$m = in_pool(far / 4u * 4u + $mu);
  let far_a$m = in_pool($mu * 4u + far % 4u);
  let l$m = coopLoadT<coop_mat16x16<f16, A>>(&pool[far_l$m], HALF_PITCH);
  let a$m = coopLoadT<coop_mat16x16<f16, B>>(&pool[far_a$m], HALF_PITCH);
  sum = coopMultiplyAdd(l$m, a$m, sum);
#endfor
  coopStoreT(sum, &square[far_to], PITCH);
  workgroupBarrier();
  halve(far_block, lid % 64u);
  workgroupBarrier();
  sum = coop_mat16x16<f32, C>();
#for m TWO
  let far_b$m = in_pool(far / 4u * 4u + 2u + $mu);
  let far_m$m = in_pool(8u + $mu * 4u + far % 4u);
  let b$m = coopLoadT<coop_mat16x16<f16, A>>(&pool[far_b$m], HALF_PITCH);
  let la$m = coopLoadT<coop_mat16x16<f16, B>>(&pool[far_m$m], HALF_PITCH);
  sum = coopMultiplyAdd(b$m, la$m, sum);
#endfor
  coopStoreT(sum, &square[far_to], PITCH);
  workgroupBarrier();
}
