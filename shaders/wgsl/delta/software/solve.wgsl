// Chunkwise on software adapters, fourth stage: U = T V and −Wᵀ = − (T (e^G ⊙ K))ᵀ; without the delta term U = diag(β) V
// and there is no W. A thread is 16 columns of V or K of one chunk of one value head, eight rows at a time.
// Groups: ⌈chunks·HV·(⌈V/16⌉ + ⌈K/16⌉)/8⌉ over x and y.
#import delta/software/layout
@group(0) @binding(auto) var<storage, read> v: array<vec4<f32>>; // view [rows, HV, V]
@group(0) @binding(auto) var<storage, read> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]
@group(0) @binding(auto) var<storage, read_write> u: array<vec4<f32>>; // [chunks, HV, C, V]
#ifdef DELTA
@group(0) @binding(auto) var<storage, read> keys: array<vec4<f32>>; // [chunks, HV, 2, C, K]
@group(0) @binding(auto) var<storage, read_write> tiles: array<vec4<f32>>; // [chunks, HV, K, 2, C]
#endif
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const QUADS: u32 = 4u;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let columns = p.value_dim / 4u;
  let value_tiles = (columns + QUADS - 1u) / QUADS;
  var tiles_each = value_tiles;
#ifdef DELTA
  let key_quads = p.key_pad / 4u;
  tiles_each += (key_quads + QUADS - 1u) / QUADS;
#endif
  let id = thread(group, groups, lane);
  let block = id / tiles_each;
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
  let is_value = id % tiles_each < value_tiles;
  let tile = select(id % tiles_each - value_tiles, id % tiles_each, is_value) * QUADS;
#ifdef DELTA
  let most = select(key_quads, columns, is_value);
#else
  let most = columns;
#endif
  // A tile that reaches beyond the last column works on the last four several times, and writes the same thing there.
  var quad: array<u32, QUADS>;
  for (var j = 0u; j < QUADS; j++) {
    quad[j] = min(tile + j, most - 1u);
  }
  let v_first = (p.v_at + head * p.value_dim) / 4u;

#ifdef DELTA
  for (var half = 0u; half < C / 8u; half++) {
    var acc: array<array<vec4<f32>, QUADS>, 8>;
    for (var i = 0u; i < 8u; i++) {
      for (var j = 0u; j < QUADS; j++) {
        acc[i][j] = vec4<f32>(0.0);
      }
    }
    for (var m = 0u; m < min(length, half * 8u + 8u); m++) {
      var t: array<vec4<f32>, 2>;
      t[0] = pairs[pair + INVERSE + m * 4u + half * 2u];
      t[1] = pairs[pair + INVERSE + m * 4u + half * 2u + 1u];
      for (var j = 0u; j < QUADS; j++) {
        var x: vec4<f32>;
        if (is_value) {
          x = v[(chunk.x + m) * (p.v_stride / 4u) + v_first + quad[j]];
        } else {
          x = keys[(block * 2u * C + m) * key_quads + quad[j]];
        }
        for (var i = 0u; i < 8u; i++) {
          acc[i][j] += t[i / 4u][i % 4u] * x;
        }
      }
    }
    if (is_value) {
      for (var i = 0u; i < 8u; i++) {
        for (var j = 0u; j < QUADS; j++) {
          u[(block * C + half * 8u + i) * columns + quad[j]] = acc[i][j];
        }
      }
    } else {
      for (var j = 0u; j < QUADS; j++) {
        if (tile + j < most) {
          for (var m = 0u; m < 4u; m++) {
            let to = ((block * p.key_pad + (tile + j) * 4u + m) * 2u) * (C / 4u) + half * 2u;
            tiles[to] = -vec4<f32>(acc[0][j][m], acc[1][j][m], acc[2][j][m], acc[3][j][m]);
            tiles[to + 1u] = -vec4<f32>(acc[4][j][m], acc[5][j][m], acc[6][j][m], acc[7][j][m]);
          }
        }
      }
    }
  }
#else
  for (var i = 0u; i < C; i++) {
    let beta = pairs[pair + BETA + i / 4u][i % 4u];
    for (var j = 0u; j < QUADS; j++) {
      var x = vec4<f32>(0.0);
      if (i < length) {
        x = beta * v[(chunk.x + i) * (p.v_stride / 4u) + v_first + quad[j]];
      }
      u[(block * C + i) * columns + quad[j]] = x;
    }
  }
#endif
}
