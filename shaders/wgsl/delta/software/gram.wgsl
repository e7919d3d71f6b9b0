// Chunkwise on software adapters, second stage: L and P, see delta/chunk/gram. A thread is a 4×4 tile on or below the
// diagonal of one chunk of one value head; with a decay a channel, tiles below the diagonal factor it around their own
// first row. Groups: ⌈chunks·HV·16/8⌉ over x and y; tiles above the diagonal
// are zero in P and not looked at in L.
#import delta/software/layout
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K], write keys kt_at further on
#import delta/software/log_decay
@group(0) @binding(auto) var<storage, read_write> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let id = thread(group, groups, lane);
  let block = id / 16u;
  let tile_i = id / 4u % 4u;
  let tile_j = id % 4u;
  let head = block % p.value_heads;
  if (block / p.value_heads >= p.chunks) {
    return;
  }
  let chunk = chunks[block / p.value_heads];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let pair = block * pair_size();
  let i0 = tile_i * 4u;
  let j0 = tile_j * 4u;
  if (tile_i < tile_j) {
    for (var m = 0u; m < 4u; m++) {
      pairs[pair + SCORES + (j0 + m) * 4u + tile_i] = vec4<f32>(0.0);
    }
    return;
  }
  let last = length - 1u;
  let q_first = (p.q_at + head / p.group * p.q_head) / 4u;
  let k_first = (p.k_at + head / p.group * p.k_head) / 4u;

  var low: array<vec4<f32>, 4>; // row i: columns of L
  var score: array<vec4<f32>, 4>; // row i: columns of P
  for (var i = 0u; i < 4u; i++) {
    low[i] = vec4<f32>(0.0);
    score[i] = vec4<f32>(0.0);
  }
  for (var c = 0u; c < p.key_pad / 4u; c++) {
    var x: array<vec4<f32>, 4>; // read keys of the tile's rows
    var y: array<vec4<f32>, 4>; // queries
    var z: array<vec4<f32>, 4>; // write keys of its columns
    for (var m = 0u; m < 4u; m++) {
      let row = chunk.x + min(i0 + m, last);
      x[m] = k[row * (p.k_stride / 4u) + k_first + c];
      y[m] = q[row * (p.q_stride / 4u) + q_first + c];
      z[m] = k[(chunk.x + min(j0 + m, last)) * (p.k_stride / 4u) + k_first + p.kt_at / 4u + c];
    }
#ifdef CHANNEL
    if (tile_i == tile_j) {
      // Pair by pair: row i of column j has decayed since row j.
      for (var j = 0u; j < 4u; j++) {
        var decayed = z[j];
        var sum = vec4<f32>(0.0);
        for (var i = 0u; i < 4u; i++) {
          if (i > j) {
            sum += log_decay(chunk.x + min(i0 + i, last), head, c);
            decayed = z[j] * exp(sum);
          }
          low[i][j] += dot(x[i], decayed);
          score[i][j] += dot(y[i], decayed);
        }
      }
      continue;
    }
    // Rows: from the tile's first row, exclusive. Columns: up to that row, inclusive.
    var sum = vec4<f32>(0.0);
    for (var m = 0u; m < 4u; m++) {
      if (m > 0u) {
        sum += log_decay(chunk.x + min(i0 + m, last), head, c);
      }
      let factor = exp(sum);
      x[m] *= factor;
      y[m] *= factor;
    }
    sum = vec4<f32>(0.0);
    for (var n = j0 + 4u; n <= i0; n++) {
      sum += log_decay(chunk.x + min(n, last), head, c);
    }
    for (var n = 0u; n < 4u; n++) {
      z[3u - n] *= exp(sum);
      sum += log_decay(chunk.x + min(j0 + 3u - n, last), head, c);
    }
#endif
    for (var i = 0u; i < 4u; i++) {
      for (var j = 0u; j < 4u; j++) {
        low[i][j] += dot(x[i], z[j]);
        score[i][j] += dot(y[i], z[j]);
      }
    }
  }

#ifdef HEAD
  // Σ g over the rows after column j up to row i, rows beyond the chunk left out.
  for (var j = 0u; j < 4u; j++) {
    var sum = 0.0;
    for (var n = j0 + j + 1u; n < i0 && n < length; n++) {
      sum += log_decay(chunk.x + n, head, 0u).x;
    }
    for (var i = 0u; i < 4u; i++) {
      if (i0 + i > j0 + j && i0 + i < length) {
        sum += log_decay(chunk.x + i0 + i, head, 0u).x;
      }
      low[i][j] *= exp(sum);
      score[i][j] *= exp(sum);
    }
  }
#endif
  let beta = pairs[pair + BETA + tile_i];
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      let live = i0 + i < length;
      low[i][j] = select(0.0, beta[i] * low[i][j], live && i0 + i > j0 + j);
      score[i][j] = select(0.0, p.scale * score[i][j], live && i0 + i >= j0 + j);
    }
  }
  for (var m = 0u; m < 4u; m++) {
#ifdef DELTA
    pairs[pair + LOWER + (i0 + m) * 4u + tile_j] = low[m];
#endif
    pairs[pair + SCORES + (j0 + m) * 4u + tile_i] = vec4<f32>(score[0][m], score[1][m], score[2][m], score[3][m]);
  }
}
