// U = T V and W = T diag(e^G) K of every chunk (MATH.md §3); without the delta term U = diag(β) V and there is no W.
//
// With WIDE, W is left transposed, as delta/chunk/wide wants it.
//
// A workgroup is 64 columns of one chunk of one value head, first those of U, then those of W: 2·C threads with four
// rows and eight columns each. Groups: (⌈V/64⌉ + ⌈K/64⌉, chunks, HV).
#import delta/params
#import delta/chunk/layout
@group(0) @binding(auto) var<storage, read> v: array<f32>; // view [rows, HV, V]
#ifdef DELTA
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read> keys: array<f32>; // [chunks, HV, 3, C, K]: e^G ⊙ K first
#else
@group(0) @binding(auto) var<storage, read> k: array<f32>; // view [rows, H, K]
#endif
#endif
@group(0) @binding(auto) var<storage, read> pairs: array<f32>; // [chunks, HV, PAIR]
@group(0) @binding(auto) var<storage, read_write> uw: array<f32>; // [chunks, HV, C, value_pad + K]: U, W; WIDE: U only
#ifdef WIDE
#ifdef DELTA
@group(0) @binding(auto) var<storage, read_write> tiles: array<vec4<f32>>; // [chunks, HV, 2, K, C]: Wᵀ first
#endif
#endif
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const COLUMNS: u32 = 64u;
const SLICE: u32 = 16u; // rows of V or K at a time
const THREADS: u32 = C / 4u * 8u;

var<workgroup> ts: array<f32, C * (SLICE + 1u)>;
var<workgroup> xs: array<f32, SLICE * COLUMNS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let chunk = chunks[group.y];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let head = group.z;
  let block = group.y * p.value_heads + head;
  let pair = block * PAIR;
  let value_groups = (p.value_dim + COLUMNS - 1u) / COLUMNS;
  let is_value = group.x < value_groups;
  let first_column = select(group.x - value_groups, group.x, is_value) * COLUMNS; // first column of V or K
  let i0 = lane / 8u * 4u;
  let j0 = lane % 8u;

  var acc: array<array<f32, 8>, 4>;
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 8u; j++) {
      acc[i][j] = 0.0;
    }
  }
  for (var slice = 0u; slice < length; slice += SLICE) {
    workgroupBarrier();
    for (var e = lane; e < C * SLICE; e += THREADS) {
      let i = e / SLICE;
      let m = slice + e % SLICE;
#ifdef DELTA
      ts[i * (SLICE + 1u) + e % SLICE] = pairs[pair + LOWER + i * C + m];
#else
      ts[i * (SLICE + 1u) + e % SLICE] = select(0.0, pairs[pair + BETA + i], i == m);
#endif
    }
    for (var e = lane; e < SLICE * COLUMNS; e += THREADS) {
      let m = slice + e / COLUMNS;
      let column = first_column + e % COLUMNS;
      let row = chunk.x + m;
      var x = 0.0;
      if (m < length) {
        if (is_value) {
          if (column < p.value_dim) {
            x = v[row * p.v_stride + p.v_at + head * p.value_dim + column];
          }
        }
#ifdef DELTA
        else if (column < K) {
#ifdef CHANNEL
          x = keys[(block * 3u * C + m) * K + column];
#else
          x = pairs[pair + READ + m] * k[row * p.k_stride + p.k_at + head / p.group * p.k_head + column];
#endif
        }
#endif
      }
      xs[e] = x;
    }
    workgroupBarrier();
    for (var m = 0u; m < SLICE; m++) {
      for (var j = 0u; j < 8u; j++) {
        let x = xs[m * COLUMNS + j0 + 8u * j];
        for (var i = 0u; i < 4u; i++) {
          acc[i][j] += ts[(i0 + i) * (SLICE + 1u) + m] * x;
        }
      }
    }
  }
#ifdef WIDE
#ifdef DELTA
  if (!is_value) {
    for (var j = 0u; j < 8u; j++) {
      let column = first_column + j0 + 8u * j;
      if (column < K) {
        tiles[(block * 2u * K + column) * (C / 4u) + i0 / 4u] = vec4<f32>(acc[0][j], acc[1][j], acc[2][j], acc[3][j]);
      }
    }
    return;
  }
#endif
  let width = p.value_pad;
#else
  let width = p.value_pad + K;
#endif
  let most = select(K, p.value_pad, is_value);
  let at = select(p.value_pad, 0u, is_value);
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 8u; j++) {
      let column = first_column + j0 + 8u * j;
      if (column < most) {
        uw[(block * C + i0 + i) * width + at + column] = acc[i][j];
      }
    }
  }
}
