// Part of delta/coop/chunk, where a channel has a decay of its own: K K̃ᵀ and Q K̃ᵀ with their decays, and with them what the
// scan gets of keys and queries.
  // The two products, a slice of channels at a time. In its block of sixteen on the diagonal a thread has row `i` and
  // every fourth column from `across` on; which rows a subgroup has evens out the work.
  let g_from = ((chunk.x + row) * p.g_stride + p.g_at) / 4u + head * (K / 4u);
  let across = lane;
  let down = (team + team / 4u) % 2u * 8u + lid % 8u;
  let corner = team / 2u * 16u;
#for n FOUR
#ifdef DELTA
  var kk_near$n = 0.0;
#endif
  var qk_near$n = 0.0;
#endfor
  // Below the diagonal a subgroup has one block, 10, 21, 32, 20, 31, 30; two have none and do the first.
  let later = 0x11332321u >> (4u * team) & 15u;
  let earlier = 0x00010210u >> (4u * team) & 15u;
  let keys_at = (later - 1u) * 16u * HALF_PITCH;
  let queries_at = QUERIES * HALF_PITCH + keys_at;
  var writes_from = NEXT;
  if (later - earlier == 2u) {
    writes_from = AFTER_NEXT;
  }
  if (later - earlier == 3u) {
    writes_from = LAST;
  }
  let writes_at = (writes_from + earlier * 16u) * HALF_PITCH;
#ifdef DELTA
  var kk = coop_mat16x16<f32, C>();
#endif
  var qk = coop_mat16x16<f32, C>();
#ifdef NORMALISE
  // Everybody has read the squares that `square` had.
  workgroupBarrier();
#endif
#for s SLICES
#for m FOUR
  var log$s$m = vec4<f32>(0.0);
  if (inside && c$s$m < K / 4u) {
    log$s$m = max(g[g_from + c$s$m], vec4<f32>(LEAST_LOG_DECAY));
  }
  square[square_at$m] = log$s$m;
  pool[half_at$m] = read$s$m;
  pool[X_FROM + half_at$m] = query$s$m;
#ifdef WRITE_KEY
  pool[WRITE_FROM + half_at$m] = write$s$m;
#endif
#endfor
  workgroupBarrier();
  // Sums of log decays from each block's first row on.
  var sum$s = 0.0;
  for (var i = 0u; i < 16u; i++) {
    let at = (lid / 64u * 16u + i) * PITCH + lid % 64u / 4u;
    sum$s += square[at][lid % 4u];
    square[at][lid % 4u] = sum$s;
  }
  workgroupBarrier();
#for n FOUR
  if (4u * $nu + across <= down) {
    let i = corner + down;
    let j = corner + 4u * $nu + across;
#ifdef DELTA
    var kk_sum = vec4<f32>(0.0);
#endif
    var qk_sum = vec4<f32>(0.0);
    for (var c = 0u; c < 16u; c++) {
      let decay = exp(square[i * PITCH + c] - square[j * PITCH + c]);
      let write = decay * vec4<f32>(pool[WRITE_FROM + j * HALF_PITCH + c]);
#ifdef DELTA
      kk_sum += vec4<f32>(pool[i * HALF_PITCH + c]) * write;
#endif
      qk_sum += vec4<f32>(pool[X_FROM + i * HALF_PITCH + c]) * write;
    }
#ifdef DELTA
    kk_near$n += dot(kk_sum, vec4<f32>(1.0));
#endif
    qk_near$n += dot(qk_sum, vec4<f32>(1.0));
  }
#endfor
  workgroupBarrier();
#for m FOUR
  let local$s$m = square[square_at$m];
  let end$s$m = lane + 4u * $mu + 15u * PITCH;
  let first$s$m = square[end$s$m];
  let second$s$m = square[end$s$m + 16u * PITCH];
  let third$s$m = square[end$s$m + 32u * PITCH];
  let fourth$s$m = square[end$s$m + 48u * PITCH];
  var before$s$m = vec4<f32>(0.0); // over the blocks before this row's
  var rest$s$m = fourth$s$m - local$s$m; // to the end of its own
  var after$s$m = vec4<f32>(0.0); // over the blocks after it
  if (row < 16u) {
    rest$s$m = first$s$m - local$s$m;
    after$s$m = second$s$m + third$s$m + fourth$s$m;
  } else if (row < 32u) {
    before$s$m = first$s$m;
    rest$s$m = second$s$m - local$s$m;
    after$s$m = third$s$m + fourth$s$m;
  } else if (row < 48u) {
    before$s$m = first$s$m + second$s$m;
    rest$s$m = third$s$m - local$s$m;
    after$s$m = fourth$s$m;
  } else {
    before$s$m = first$s$m + second$s$m + third$s$m;
  }
  if (row == 0u && c$s$m < K / 4u) {
    keeps[block * (K / 4u) + c$s$m] = exp(rest$s$m + local$s$m + after$s$m);
  }
  let from$s$m = exp(before$s$m + local$s$m);
  if (c$s$m < 4u * KT) {
    operands[in_key_tiles + QUERY_AT + (4u * $su + $mu) * TILE] = vec4<f16>(from$s$m * vec4<f32>(query$s$m));
#ifdef DELTA
    operands[in_key_tiles + READ_AT + (4u * $su + $mu) * TILE] = vec4<f16>(from$s$m * vec4<f32>(read$s$m));
#endif
  }
  let written$s$m = vec4<f32>(write$s$m);
  key$s$m = vec4<f16>(exp(rest$s$m + after$s$m) * written$s$m);
  // The pool's rows for this one, in fours from row to row like those of slices.
  if (row >= 16u) {
    let within = exp(local$s$m);
    let to = half_at$m - 16u * HALF_PITCH;
#ifdef DELTA
    pool[to] = vec4<f16>(within * vec4<f32>(read$s$m));
#endif
    pool[QUERIES * HALF_PITCH + to] = vec4<f16>(within * vec4<f32>(query$s$m));
  }
  if (row < 48u) {
    pool[NEXT * HALF_PITCH + half_at$m] = vec4<f16>(exp(rest$s$m) * written$s$m);
  }
  if (row < 32u) {
    let over = select(third$s$m, second$s$m, row < 16u);
    pool[AFTER_NEXT * HALF_PITCH + half_at$m] = vec4<f16>(exp(rest$s$m + over) * written$s$m);
  }
  if (row < 16u) {
    let over = second$s$m + third$s$m;
    pool[LAST * HALF_PITCH + half_at$m] = vec4<f16>(exp(rest$s$m + over) * written$s$m);
  }
#endfor
  workgroupBarrier();
  for (var m = 0u; m < 4u; m++) {
    let writes = coopLoad<coop_mat16x16<f16, B>>(&pool[writes_at + m * 4u], HALF_PITCH);
#ifdef DELTA
    let ks = coopLoadT<coop_mat16x16<f16, A>>(&pool[keys_at + m * 4u], HALF_PITCH);
    kk = coopMultiplyAdd(ks, writes, kk);
#endif
    let qs = coopLoadT<coop_mat16x16<f16, A>>(&pool[queries_at + m * 4u], HALF_PITCH);
    qk = coopMultiplyAdd(qs, writes, qk);
  }
  workgroupBarrier();
#endfor
  // In `square`, where the blocks go: those that are none above the diagonal.
  let product_at = select(later * 16u * PITCH + earlier * 4u, (team - 5u) * 4u, team >= 6u);
