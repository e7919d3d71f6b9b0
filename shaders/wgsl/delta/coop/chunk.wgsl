// Everything about a chunk that the state has no part in, with cooperative matrices (MATH.md §3): decays, the products
// K K̃ᵀ and Q K̃ᵀ, T = (I + L)⁻¹ diag(β), U = T V and W = T diag(e^G) K, and keys and queries with their decays. Only
// what the scan multiplies leaves the workgroup, in f16. Operands of products are f16, sums, decays and the inverse f32.
//
// With CHANNEL the two products and the decays have been made in f32, by delta/chunk/gram. With NORMALISE queries and
// keys are made unit here.
//
// A workgroup is one chunk of one value head: eight subgroups of 32, each with sixteen rows and half of the columns of a
// product. SLICE channels of K, or columns of V, are in workgroup memory at a time; a thread brings 4×4 of them.
//
// V, and all places and strides, are multiples of 4. Consts: K; KT, sixteens of it, an even number; SLICE, 32 or 64;
// SLICES, of K; DEPTH, SLICE / 16; OUTS, SLICE / 32; PITCH, fours a row of `square`; POOL. Groups: (HV, chunks).
#import delta/params
#import delta/coop/layout
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read> keys: array<vec4<f32>>; // [chunks, HV, 3, C, K]
@group(0) @binding(auto) var<storage, read> pairs: array<vec4<f32>>; // [chunks, HV, PAIR_BLOCK], see delta/chunk/layout
#else
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K], write keys kt_at further on
#ifdef BETA_GIVEN
@group(0) @binding(auto) var<storage, read> beta: array<f32>; // view [rows, HV]
#endif
#ifdef HEAD
@group(0) @binding(auto) var<storage, read> g: array<f32>; // view [rows, HV]
@group(0) @binding(auto) var<storage, read_write> keeps: array<f32>; // [chunks, HV]: e^{G_C}
#endif
#endif
@group(0) @binding(auto) var<storage, read> v: array<vec4<f32>>; // view [rows, HV, V]
@group(0) @binding(auto) var<storage, read_write> operands: array<vec4<f16>>; // [chunks, HV, block_size], see the layout
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const THREADS: u32 = 256u;
const FOURS: u32 = SLICE / 4u;
const BLOCKS: u32 = 16u * FOURS; // of 4×4 in a slice
// Fours from row to row in workgroup memory: eight elements more keep rows on different banks.
const SLICE_PITCH: u32 = FOURS + 2u;
const T_PITCH: u32 = CHUNK / 4u + 2u;
// Places in the pool: slices of K, Q and K̃; then T, and slices of V and K.
const Q_FROM: u32 = CHUNK * SLICE_PITCH;
#ifdef WRITE_KEY
const WRITE_FROM: u32 = 2u * CHUNK * SLICE_PITCH;
#else
const WRITE_FROM: u32 = 0u;
#endif
const X_FROM: u32 = CHUNK * T_PITCH;
// exp of less is 0, and sums of 64 of it still tell the small ones apart.
const LEAST_LOG_DECAY: f32 = -120.0;

// What a row has: G, β, and what makes its query and key unit.
var<workgroup> rows: array<vec4<f32>, CHUNK>;
var<workgroup> pool: array<vec4<f16>, POOL>;
var<workgroup> square: array<vec4<f32>, CHUNK * PITCH>; // [C, C] or [C, SLICE]

// A thread's part of a slice: rows and columns from 4 · x and 4 · y on. Threads side by side make up rows of operands
// where they write, and longer pieces of rows where they read.
fn part(e: u32) -> vec2<u32> {
  return vec2<u32>(e / (4u * FOURS) * 4u + e % 4u, e / 4u % FOURS);
}

// Place in an operand's tiles, `wide` of them side by side, of four columns.
fn in_tiles(row: u32, column: u32, wide: u32) -> u32 {
  return (row / 16u * wide + column / 16u) * TILE + row % 16u * 4u + column / 4u % 4u;
}

// e^{G_i − G_j} for four columns from j on, where j ≤ i (`lower`: j < i), and 0 elsewhere.
fn decays(i: u32, j: u32, lower: bool) -> vec4<f32> {
  let columns = vec4<u32>(j, j + 1u, j + 2u, j + 3u);
  var decay = vec4<f32>(1.0);
#ifdef HEAD
  let after = vec4<f32>(rows[j].x, rows[j + 1u].x, rows[j + 2u].x, rows[j + 3u].x);
  decay = exp(min(vec4<f32>(rows[i].x) - after, vec4<f32>(0.0)));
#endif
  return select(vec4<f32>(0.0), decay, columns < vec4<u32>(select(i + 1u, i, lower)));
}

#ifdef DELTA
// Σ over `count` columns m from `first` on of square[row][m] · square[m][4 · quad ..].
fn times(row: u32, first: u32, count: u32, quad: u32) -> vec4<f32> {
  var sum = vec4<f32>(0.0);
  for (var m = first; m < first + count; m += 4u) {
    let x = square[row * PITCH + m / 4u];
    let y = m * PITCH + quad;
    sum += x.x * square[y] + x.y * square[y + PITCH] + x.z * square[y + 2u * PITCH] + x.w * square[y + 3u * PITCH];
  }
  return sum;
}

// `square`, unit lower triangular but for its diagonal of zeros, becomes its inverse (MATH.md §6): blocks of sixteen by
// substitution, then larger ones from two of half the size.
fn invert(lid: u32) {
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
  // [a, 0; L, b]⁻¹ = [a⁻¹, 0; −b⁻¹ L a⁻¹, b⁻¹].
  for (var half = 16u; half < CHUNK; half *= 2u) {
    let each = half * half / 4u; // threads a block
    let first = lid / each * 2u * half;
    let row = first + half + lid % each / (half / 4u);
    let quad = (first + lid % each % (half / 4u) * 4u) / 4u;
    let mine = lid < each * (CHUNK / (2u * half));
    var sum = vec4<f32>(0.0);
    if (mine) {
      sum = times(row, first, half, quad);
    }
    workgroupBarrier();
    if (mine) {
      square[row * PITCH + quad] = sum;
    }
    workgroupBarrier();
    if (mine) {
      sum = times(row, first + half, half, quad);
    }
    workgroupBarrier();
    if (mine) {
      square[row * PITCH + quad] = -sum;
    }
    workgroupBarrier();
  }
}

// T times the slice in the pool, to `square`.
fn product(r: u32, h: u32) {
#for j OUTS
  var sum$j = coop_mat16x16<f32, C>();
#endfor
  for (var m = 0u; m < CHUNK / 16u; m++) {
    let t_at = r * 16u * T_PITCH + m * 4u;
    let t = coopLoadT<coop_mat16x16<f16, A>>(&pool[t_at], T_PITCH);
#for j OUTS
    let x_at$j = X_FROM + m * 16u * SLICE_PITCH + (h * OUTS + $ju) * 4u;
    let x$j = coopLoadT<coop_mat16x16<f16, B>>(&pool[x_at$j], SLICE_PITCH);
    sum$j = coopMultiplyAdd(t, x$j, sum$j);
#endfor
  }
#for j OUTS
  let to$j = r * 16u * PITCH + (h * OUTS + $ju) * 4u;
  coopStoreT(sum$j, &square[to$j], PITCH);
#endfor
}
#endif

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let chunk = chunks[group.y];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let head = group.x;
  let block = group.y * p.value_heads + head;
  let base = block * block_size();
  let team = lid / 32u;
  let r = team / 2u; // rows of a product, in sixteens
  let h = team % 2u; // half of its columns
  // This thread's part of what is [C, C].
  let own = vec2<u32>(lid / 64u * 4u + lid % 4u, lid / 4u % 16u) * 4u;
#ifdef CHANNEL
  let from_keys = block * 3u * CHUNK * (K / 4u);
  let from_pairs = block * (PAIR_BLOCK / 4u);
  if (lid < CHUNK) {
    rows[lid] = vec4<f32>(0.0, pairs[from_pairs + (BETA_AT + lid) / 4u][lid % 4u], 1.0, 1.0);
  }
#else
  let key_head = head / p.group;
  let q_from = (chunk.x * p.q_stride + p.q_at + key_head * p.q_head) / 4u;
  let k_from = (chunk.x * p.k_stride + p.k_at + key_head * p.k_head) / 4u;

  // Log decays and lengths: four threads a row.
  let row = lid / 4u;
  let inside = row < length;
  var log_decay = 0.0;
  var strength = 1.0;
#ifdef HEAD
  if (inside) {
    log_decay = max(g[(chunk.x + row) * p.g_stride + p.g_at + head], LEAST_LOG_DECAY);
  }
#endif
#ifdef BETA_GIVEN
  if (inside) {
    strength = beta[(chunk.x + row) * p.b_stride + p.b_at + head];
  }
#endif
  var squares = vec2<f32>(0.0);
#ifdef NORMALISE
  if (inside) {
    for (var c = lid % 4u; c < K / 4u; c += 4u) {
      let x = q[q_from + row * p.q_stride / 4u + c];
      let y = k[k_from + row * p.k_stride / 4u + c];
      squares += vec2<f32>(dot(x, x), dot(y, y));
    }
  }
#endif
  square[lid] = vec4<f32>(log_decay, strength, squares);
  workgroupBarrier();
  if (lid < CHUNK) {
    let i = lid * 4u;
    var sum = 0.0;
#ifdef HEAD
    for (var m = 0u; m <= i; m += 4u) {
      sum += square[m].x;
    }
#endif
    var unit = vec2<f32>(1.0);
#ifdef NORMALISE
    unit = 1.0 / sqrt(square[i].zw + square[i + 1u].zw + square[i + 2u].zw + square[i + 3u].zw + 1e-6);
#endif
    rows[lid] = vec4<f32>(sum, square[i].y, unit);
  }
#endif
  workgroupBarrier();

  // Keys and queries, a slice at a time: for the scan, and for their products.
#ifndef CHANNEL
#ifdef HEAD
  let whole = rows[CHUNK - 1u].x;
  if (lid == 0u) {
    keeps[block] = exp(whole);
  }
#endif
#for j TWO
#ifdef DELTA
  var kk$j = coop_mat16x16<f32, C>();
#endif
  var qk$j = coop_mat16x16<f32, C>();
#endfor
#endif
  for (var slice = 0u; slice < SLICES * SLICE; slice += SLICE) {
    for (var e = lid; e < BLOCKS; e += THREADS) {
      let place = part(e);
      let c = slice / 4u + place.y;
      let to = place.x * 4u * SLICE_PITCH + place.y;
      var faded: mat4x4<f32>; // e^{G_C − G} K̃
      for (var n = 0u; n < 4u; n++) {
        let i = place.x * 4u + n;
        var query = vec4<f32>(0.0);
        var read = vec4<f32>(0.0);
        var write = vec4<f32>(0.0);
#ifdef CHANNEL
        if (c < K / 4u) {
          query = keys[from_keys + (CHUNK + i) * (K / 4u) + c];
          write = keys[from_keys + (2u * CHUNK + i) * (K / 4u) + c];
        }
#else
        let facts = rows[i];
        if (i < length && c < K / 4u) {
          query = facts.z * q[q_from + i * p.q_stride / 4u + c];
          let at = k_from + i * p.k_stride / 4u + c;
          read = facts.w * k[at];
#ifdef WRITE_KEY
          write = k[at + p.kt_at / 4u];
#else
          write = read;
#endif
        }
        pool[to + n * SLICE_PITCH] = half4(read);
        pool[Q_FROM + to + n * SLICE_PITCH] = half4(query);
#ifdef WRITE_KEY
        pool[WRITE_FROM + to + n * SLICE_PITCH] = half4(write);
#endif
#ifdef HEAD
        query *= exp(facts.x);
        write *= exp(whole - facts.x);
#endif
#endif
        faded[n] = write;
        if (c < KT * 4u) {
          operands[base + QUERY_AT + in_tiles(i, c * 4u, KT)] = half4(query);
        }
      }
      if (c < KT * 4u) {
        faded = transpose(faded);
        for (var n = 0u; n < 4u; n++) {
          operands[base + KEY_AT + in_tiles(c * 4u + n, place.x * 4u, 4u)] = half4(faded[n]);
        }
      }
    }
#ifndef CHANNEL
    workgroupBarrier();
    for (var m = 0u; m < DEPTH; m++) {
      let k_at = r * 16u * SLICE_PITCH + m * 4u;
      let q_at = Q_FROM + k_at;
#ifdef DELTA
      let ks = coopLoadT<coop_mat16x16<f16, A>>(&pool[k_at], SLICE_PITCH);
#endif
      let qs = coopLoadT<coop_mat16x16<f16, A>>(&pool[q_at], SLICE_PITCH);
#for j TWO
      let write_at$j = WRITE_FROM + (h * 2u + $ju) * 16u * SLICE_PITCH + m * 4u;
      let writes$j = coopLoad<coop_mat16x16<f16, B>>(&pool[write_at$j], SLICE_PITCH);
#ifdef DELTA
      kk$j = coopMultiplyAdd(ks, writes$j, kk$j);
#endif
      qk$j = coopMultiplyAdd(qs, writes$j, qk$j);
#endfor
    }
    workgroupBarrier();
#endif
  }

  // P, then L.
#ifndef CHANNEL
#for j TWO
  let square_at$j = r * 16u * PITCH + (h * 2u + $ju) * 4u;
  coopStoreT(qk$j, &square[square_at$j], PITCH);
#endfor
  workgroupBarrier();
#endif
  for (var n = 0u; n < 4u; n++) {
    let i = own.x + n;
#ifdef CHANNEL
    let score = pairs[from_pairs + (SCORES_AT + i * CHUNK + own.y) / 4u];
#else
    let score = decays(i, own.y, false) * square[i * PITCH + own.y / 4u];
#endif
    operands[base + SCORE_AT + in_tiles(i, own.y, 4u)] = half4(score);
  }
#ifdef DELTA
#ifndef CHANNEL
  workgroupBarrier();
#for j TWO
  coopStoreT(kk$j, &square[square_at$j], PITCH);
#endfor
  workgroupBarrier();
#endif
  for (var n = 0u; n < 4u; n++) {
    let i = own.x + n;
    let at = i * PITCH + own.y / 4u;
#ifdef CHANNEL
    square[at] = pairs[from_pairs + (i * CHUNK + own.y) / 4u];
#else
    square[at] = rows[i].y * decays(i, own.y, true) * square[at];
#endif
  }
  workgroupBarrier();
  invert(lid);
  for (var n = 0u; n < 4u; n++) {
    pool[(own.x + n) * T_PITCH + own.y / 4u] = half4(square[(own.x + n) * PITCH + own.y / 4u]);
  }
#endif

  // U.
  let v_from = (chunk.x * p.v_stride + p.v_at + head * p.value_dim) / 4u;
  let value_pad = (p.value_dim + 15u) / 16u * 16u;
  for (var slice = 0u; slice < value_pad; slice += SLICE) {
    for (var e = lid; e < BLOCKS; e += THREADS) {
      let place = part(e);
      let c = slice / 4u + place.y;
      var values: mat4x4<f32>;
      for (var n = 0u; n < 4u; n++) {
        let i = place.x * 4u + n;
        values[n] = vec4<f32>(0.0);
        if (i < length && c < p.value_dim / 4u) {
          values[n] = rows[i].y * v[v_from + i * p.v_stride / 4u + c];
        }
#ifdef DELTA
        pool[X_FROM + i * SLICE_PITCH + place.y] = half4(values[n]);
#endif
      }
#ifndef DELTA
      put_values(base, place, c, value_pad, values);
#endif
    }
#ifdef DELTA
    workgroupBarrier();
    product(r, h);
    workgroupBarrier();
    for (var e = lid; e < BLOCKS; e += THREADS) {
      let place = part(e);
      let at = place.x * 4u * PITCH + place.y;
      let values = mat4x4<f32>(square[at], square[at + PITCH], square[at + 2u * PITCH], square[at + 3u * PITCH]);
      put_values(base, place, slice / 4u + place.y, value_pad, values);
    }
#endif
  }

  // W.
#ifdef DELTA
  for (var slice = 0u; slice < SLICES * SLICE; slice += SLICE) {
    for (var e = lid; e < BLOCKS; e += THREADS) {
      let place = part(e);
      let c = slice / 4u + place.y;
      for (var n = 0u; n < 4u; n++) {
        let i = place.x * 4u + n;
        let facts = rows[i];
        var read = vec4<f32>(0.0);
        if (i < length && c < K / 4u) {
#ifdef CHANNEL
          read = facts.y * keys[from_keys + i * (K / 4u) + c];
#else
          read = facts.y * facts.w * exp(facts.x) * k[k_from + i * p.k_stride / 4u + c];
#endif
        }
        pool[X_FROM + i * SLICE_PITCH + place.y] = half4(read);
      }
    }
    workgroupBarrier();
    product(r, h);
    workgroupBarrier();
    for (var e = lid; e < BLOCKS; e += THREADS) {
      let place = part(e);
      let c = slice / 4u + place.y;
      if (c < KT * 4u) {
        for (var n = 0u; n < 4u; n++) {
          let i = place.x * 4u + n;
          operands[base + W_AT + in_tiles(i, c * 4u, KT)] = half4(square[i * PITCH + place.y]);
        }
      }
    }
  }
#endif
}

// Four rows of four columns of U.
fn put_values(base: u32, place: vec2<u32>, c: u32, value_pad: u32, values: mat4x4<f32>) {
  if (c * 4u < value_pad) {
    let columns = transpose(values);
#for n FOUR
    operands[base + U_AT + (c * 4u + $nu) * (CHUNK / 4u) + place.x] = half4(columns[$n]);
#endfor
  }
}
