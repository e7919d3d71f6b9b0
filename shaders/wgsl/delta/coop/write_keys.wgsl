// Part of delta/coop/chunk: write keys k̃ = B ⊙ k (MATH.md §8.3) from the sums before the chunk. Sums go along sixteen
// rows, a thread a channel; then each row gets what came before its sixteen.
  let product = totals[totals_at + PRODUCTS_AT + row / 4u][row % 4u];
  let key_strength = totals[totals_at + STRENGTHS_AT + row / 4u][row % 4u];
  let mu = totals[totals_at + KEPT_AT].y;
#for n THREE
  let kept$n = totals[totals_at + PRODUCTS_AT + 4u * $nu + 3u].w;
#endfor
#for s SLICES
  workgroupBarrier();
#for m FOUR
  square[square_at$m] = key_strength * k$s$m * k$s$m;
#endfor
  workgroupBarrier();
  var running$s = 0.0;
  for (var i = 0u; i < 16u; i++) {
    let down = lid / 64u * 16u + i;
    let at = down * PITCH + lid % 64u / 4u;
    running$s = running$s * facts[KEEPS + down / 4u][down % 4u] + square[at][lid % 4u];
    square[at][lid % 4u] = running$s;
  }
  workgroupBarrier();
#for m FOUR
  var preceding$s$m = vec4<f32>(0.0);
  if (c$s$m < K / 4u) {
    preceding$s$m = totals[totals_at + c$s$m];
  }
#for n THREE
  if (row / 16u > $nu) {
    preceding$s$m = kept$n * preceding$s$m + square[(16u * $nu + 15u) * PITCH + lane + 4u * $mu];
  }
#endfor
  let r$s$m = log(product * preceding$s$m + square[square_at$m] + 1e-6) - mu;
  let w$s$m = exp(-LOG_X * r$s$m / (1.0 + abs(r$s$m))) * k$s$m;
#endfor
#endfor
  workgroupBarrier();
