// The two products of a chunk with itself, K K̃ᵀ and Q K̃ᵀ, with their decays (MATH.md §3 and §7), and the decays from
// and to the chunk's ends. All decays are direct sums over a segment, never differences of longer sums; every exponent
// is a sum of log decays and so at most 0, and pairs above the diagonal get none.
//
// With BY_COLUMNS, P is left by columns; with WIDE, also the queries with their decays transposed, as delta/chunk/wide wants
// them.
//
// A workgroup is one chunk of one value head; (C/4)² threads with a 4×4 tile of both products each. With a decay a
// channel, tiles below the diagonal factor it around their own first row: 3 + 4 exponentials for 16 pairs.
// Groups: (HV, chunks).
#import delta/params
#import delta/chunk/layout
@group(0) @binding(auto) var<storage, read> q: array<f32>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<f32>; // view [rows, H, K], write keys kt_at further on
#ifdef BETA_GIVEN
@group(0) @binding(auto) var<storage, read> beta: array<f32>; // view [rows, HV]
#endif
#ifdef DECAY
@group(0) @binding(auto) var<storage, read> g: array<f32>; // view [rows, HV], with CHANNEL [rows, HV, key_dim]
#endif
@group(0) @binding(auto) var<storage, read_write> pairs: array<f32>; // [chunks, HV, PAIR]
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read_write> keys: array<f32>; // [chunks, HV, 3, C, K]
#endif
#ifdef WIDE
@group(0) @binding(auto) var<storage, read_write> tiles: array<f32>; // [chunks, HV, 2, K, C]: Wᵀ, (σ e^G ⊙ Q)ᵀ
#endif
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const TILES: u32 = C / 4u; // 4×4 tiles a side
const THREADS: u32 = TILES * TILES;
const KB: u32 = 16u; // channels a slice
const PITCH: u32 = KB + 1u; // keeps rows in different banks

var<workgroup> qs: array<f32, C * PITCH>;
var<workgroup> ks: array<f32, C * PITCH>;
#ifdef WRITE_KEY
var<workgroup> kts: array<f32, C * PITCH>;
#endif
#ifdef CHANNEL
var<workgroup> gs: array<f32, C * PITCH>; // log decays of the slice
var<workgroup> tile_gs: array<f32, TILES * PITCH>; // their sums over each four rows
#endif
#ifdef HEAD
var<workgroup> gs: array<f32, C>;
var<workgroup> tile_gs: array<f32, TILES>; // sums over each four rows
var<workgroup> before: array<f32, C>; // e^{G_i}
#endif

fn write_key(i: u32, c: u32) -> f32 {
#ifdef WRITE_KEY
  return kts[i * PITCH + c];
#else
  return ks[i * PITCH + c];
#endif
}

#ifdef HEAD
// Σ g over rows first..=last.
fn segment(first: u32, last: u32) -> f32 {
  var sum = 0.0;
  for (var i = first; i <= last; i++) {
    sum += gs[i];
  }
  return sum;
}
#endif

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let chunk = chunks[group.y];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let head = group.x;
  let key_head = head / p.group;
  let block = group.y * p.value_heads + head;
  let pair = block * PAIR;
  let tile_i = lane / TILES;
  let tile_j = lane % TILES;
  let i0 = tile_i * 4u;
  let j0 = tile_j * 4u;

#ifdef HEAD
  for (var i = lane; i < C; i += THREADS) {
    var log_decay = 0.0;
    if (i < length) {
      log_decay = max(g[(chunk.x + i) * p.g_stride + p.g_at + head], MIN_LOG_DECAY);
    }
    gs[i] = log_decay;
  }
#endif

  var kk: array<array<f32, 4>, 4>;
  var qk: array<array<f32, 4>, 4>;
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      kk[i][j] = 0.0;
      qk[i][j] = 0.0;
    }
  }
  for (var slice = 0u; slice < K; slice += KB) {
    workgroupBarrier();
#ifdef HEAD
    if (slice == 0u) {
      for (var i = lane; i < C; i += THREADS) {
        before[i] = exp(segment(0u, i));
      }
      for (var t = lane; t < TILES; t += THREADS) {
        tile_gs[t] = segment(4u * t, 4u * t + 3u);
      }
    }
#endif
    for (var e = lane; e < C * KB; e += THREADS) {
      let i = e / KB;
      let c = slice + e % KB;
      let to = i * PITCH + e % KB;
      let inside = i < length && c < K;
      let row = chunk.x + select(0u, i, inside);
      let at = select(0u, c, inside);
      let k_at = row * p.k_stride + p.k_at + key_head * p.k_head + at;
      qs[to] = select(0.0, q[row * p.q_stride + p.q_at + key_head * p.q_head + at], inside);
      ks[to] = select(0.0, k[k_at], inside);
#ifdef WRITE_KEY
      kts[to] = select(0.0, k[k_at + p.kt_at], inside);
#endif
#ifdef CHANNEL
      let real = inside && c < p.key_dim;
      let log_decay = g[row * p.g_stride + p.g_at + head * p.key_dim + select(0u, at, real)];
      gs[to] = select(0.0, max(log_decay, MIN_LOG_DECAY), real);
#endif
    }
    workgroupBarrier();
#ifdef CHANNEL
    for (var e = lane; e < TILES * KB; e += THREADS) {
      let at = e / KB * 4u * PITCH + e % KB;
      tile_gs[e / KB * PITCH + e % KB] = gs[at] + gs[at + PITCH] + gs[at + 2u * PITCH] + gs[at + 3u * PITCH];
    }
    workgroupBarrier();
    decayed_keys(block, pair, slice, lane);
#else
#ifdef WIDE
    for (var e = lane; e < C * KB; e += THREADS) {
      let i = e % C;
      let c = e / C;
      if (slice + c < K) {
        var query = p.scale * qs[i * PITCH + c];
#ifdef HEAD
        query *= before[i];
#endif
        tiles[((block * 2u + 1u) * K + slice + c) * C + i] = query;
      }
    }
#endif
#endif
    if (tile_i >= tile_j) {
      for (var c = 0u; c < KB; c++) {
        var x: array<f32, 4>; // read keys of the tile's rows
        var y: array<f32, 4>; // queries
        var z: array<f32, 4>; // write keys of its columns
        for (var m = 0u; m < 4u; m++) {
          x[m] = ks[(i0 + m) * PITCH + c];
          y[m] = qs[(i0 + m) * PITCH + c];
          z[m] = write_key(j0 + m, c);
        }
#ifdef CHANNEL
        var d: array<f32, 4>;
        for (var m = 0u; m < 4u; m++) {
          d[m] = gs[(i0 + m) * PITCH + c];
        }
        if (tile_i == tile_j) {
          for (var j = 0u; j < 4u; j++) {
            var sum = 0.0;
            kk[j][j] += x[j] * z[j];
            qk[j][j] += y[j] * z[j];
            for (var i = j + 1u; i < 4u; i++) {
              sum += d[i];
              let decayed = z[j] * exp(sum);
              kk[i][j] += x[i] * decayed;
              qk[i][j] += y[i] * decayed;
            }
          }
          continue;
        }
        // Rows: from the tile's first row, exclusive. Columns: up to that row, inclusive.
        var sum = 0.0;
        for (var m = 1u; m < 4u; m++) {
          sum += d[m];
          let factor = exp(sum);
          x[m] *= factor;
          y[m] *= factor;
        }
        sum = d[0];
        for (var t = tile_j + 1u; t < tile_i; t++) {
          sum += tile_gs[t * PITCH + c];
        }
        for (var m = 0u; m < 4u; m++) {
          z[3u - m] *= exp(sum);
          sum += gs[(j0 + 3u - m) * PITCH + c];
        }
#endif
        for (var i = 0u; i < 4u; i++) {
          for (var j = 0u; j < 4u; j++) {
            kk[i][j] += x[i] * z[j];
            qk[i][j] += y[i] * z[j];
          }
        }
      }
    }
  }

#ifdef HEAD
  // Decays of the tile's pairs: from behind each column to the tile's first row, over whole tiles between, and on.
  var fade: array<array<f32, 4>, 4>;
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      fade[i][j] = 0.0;
    }
  }
  if (tile_i >= tile_j) {
    var between = 0.0;
    for (var t = tile_j + 1u; t < tile_i; t++) {
      between += tile_gs[t];
    }
    for (var n = 0u; n < 4u; n++) {
      let j = 3u - n;
      var sum = between;
      for (var i = 0u; i < 4u; i++) {
        if (i0 + i > j0 + j) {
          sum += gs[i0 + i];
        }
        fade[i][j] = exp(sum);
      }
      if (tile_i > tile_j) {
        between += gs[j0 + j];
      }
    }
  }
#endif
  for (var i = 0u; i < 4u; i++) {
    let row = i0 + i;
    var b = 1.0;
#ifdef BETA_GIVEN
    if (row < length) {
      b = beta[(chunk.x + row) * p.b_stride + p.b_at + head];
    }
#endif
    for (var j = 0u; j < 4u; j++) {
      let column = j0 + j;
      var lower = 0.0;
      var score = 0.0;
      if (row >= column) {
        var decay = 1.0;
#ifdef HEAD
        decay = fade[i][j];
#endif
        lower = select(0.0, b * kk[i][j] * decay, row > column);
        score = p.scale * qk[i][j] * decay;
      }
#ifdef DELTA
      pairs[pair + LOWER + row * C + column] = lower;
#endif
#ifdef BY_COLUMNS
      pairs[pair + SCORES + column * C + row] = score;
#else
      pairs[pair + SCORES + row * C + column] = score;
#endif
    }
    if (tile_j == 0u) {
      pairs[pair + BETA + row] = b;
    }
  }

#ifndef CHANNEL
  for (var i = lane; i < C; i += THREADS) {
    var from_start = 1.0;
    var after = 1.0;
    var whole = 1.0;
#ifdef HEAD
    from_start = before[i];
    after = exp(segment(i + 1u, C - 1u));
    whole = exp(segment(0u, C - 1u));
#endif
    pairs[pair + READ + i] = from_start;
    pairs[pair + QUERY + i] = p.scale * from_start;
    pairs[pair + WRITE + i] = after;
    if (i == 0u) {
      pairs[pair + KEEP] = whole;
    }
  }
#endif
}

#ifdef CHANNEL
// Read keys and queries decayed from the chunk's start, write keys to its end, for the slice of channels from `slice`
// on; and what the state keeps over the chunk.
fn decayed_keys(block: u32, pair: u32, slice: u32, lane: u32) {
  let base = block * 3u * C * K;
  for (var e = lane; e < 2u * KB; e += THREADS) {
    let c = e % KB;
    if (slice + c >= K) {
      continue;
    }
    let to = base + slice + c;
    var sum = 0.0;
    if (e < KB) {
      for (var i = 0u; i < C; i++) {
        sum += gs[i * PITCH + c];
        let decay = exp(sum);
        keys[to + i * K] = ks[i * PITCH + c] * decay;
#ifdef WIDE
        tiles[((block * 2u + 1u) * K + slice + c) * C + i] = p.scale * qs[i * PITCH + c] * decay;
#else
        keys[to + (C + i) * K] = p.scale * qs[i * PITCH + c] * decay;
#endif
      }
      pairs[pair + KEEP + slice + c] = exp(sum);
    } else {
      for (var n = 0u; n < C; n++) {
        let i = C - 1u - n;
        keys[to + (2u * C + i) * K] = write_key(i, c) * exp(sum);
        sum += gs[i * PITCH + c];
      }
    }
  }
}
#endif
