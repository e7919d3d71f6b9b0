// Part of delta/coop/chunk, where a head has one decay or none: K K̃ᵀ and Q K̃ᵀ, which get it afterwards.
  // The two products, a slice of channels at a time.
#for j TWO
#ifdef DELTA
  var kk$j = coop_mat16x16<f32, C>();
#endif
  var qk$j = coop_mat16x16<f32, C>();
#endfor
#for s SLICES
#for m FOUR
  pool[half_at$m] = read$s$m;
  pool[X_FROM + half_at$m] = query$s$m;
#ifdef WRITE_KEY
  pool[WRITE_FROM + half_at$m] = write$s$m;
#endif
#endfor
  workgroupBarrier();
  for (var m = 0u; m < 4u; m++) {
    let k_at = r * 16u * HALF_PITCH + m * 4u;
    let q_at = X_FROM + k_at;
#ifdef DELTA
    let ks = coopLoadT<coop_mat16x16<f16, A>>(&pool[k_at], HALF_PITCH);
#endif
    let qs = coopLoadT<coop_mat16x16<f16, A>>(&pool[q_at], HALF_PITCH);
#for j TWO
    let write_at$j = WRITE_FROM + (h * 2u + $ju) * 16u * HALF_PITCH + m * 4u;
    let writes$j = coopLoad<coop_mat16x16<f16, B>>(&pool[write_at$j], HALF_PITCH);
#ifdef DELTA
    kk$j = coopMultiplyAdd(ks, writes$j, kk$j);
#endif
    qk$j = coopMultiplyAdd(qs, writes$j, qk$j);
#endfor
  }
  workgroupBarrier();
#endfor
#for j TWO
  let product_at$j = r * 16u * PITCH + (h * 2u + $ju) * 4u;
#endfor
