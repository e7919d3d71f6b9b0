// U = T V and W = T diag(e^G) K of every chunk (MATH.md §3); without the delta term U = diag(β) V and there is no W.
//
// With WIDE, W is left transposed, as delta/chunk/wide wants it.
//
// A workgroup is 64 columns of one chunk of one value head, first those of U, then those of W: 2·C threads with four
// rows and two times four columns each. Groups: (⌈V/64⌉ + ⌈K/64⌉, chunks, HV).
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
@group(0) @binding(auto) var<storage, read> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]
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

const QUADS: u32 = COLUMNS / 4u;

var<workgroup> ts: array<vec4<f32>, SLICE * (C / 4u)>; // T by columns, rows in fours
var<workgroup> xs: array<vec4<f32>, SLICE * QUADS>;

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let chunk = chunks[group.y];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let head = group.z;
  let block = group.y * p.value_heads + head;
  let pair = block * (PAIR / 4u);
  let value_groups = (p.value_dim + COLUMNS - 1u) / COLUMNS;
  let is_value = group.x < value_groups;
  let first_column = select(group.x - value_groups, group.x, is_value) * COLUMNS; // first column of V or K
  let i0 = lane / 8u * 4u;
  let j0 = lane % 8u;

  // Rows i0 to i0 + 3 of four columns from 4·j0 on, and of four from 4·(j0 + 8) on.
  var low: array<vec4<f32>, 4>;
  var high: array<vec4<f32>, 4>;
  for (var i = 0u; i < 4u; i++) {
    low[i] = vec4<f32>(0.0);
    high[i] = vec4<f32>(0.0);
  }
  for (var slice = 0u; slice < length; slice += SLICE) {
    workgroupBarrier();
    for (var e = lane; e < C / 4u * SLICE; e += THREADS) {
      let m = slice + e / (C / 4u);
#ifdef DELTA
      ts[e] = pairs[pair + INVERSE / 4u + m * (C / 4u) + e % (C / 4u)];
#else
      let i = vec4<u32>(e % (C / 4u) * 4u) + vec4<u32>(0u, 1u, 2u, 3u);
      ts[e] = select(vec4<f32>(0.0), vec4<f32>(pairs[pair + BETA / 4u + m / 4u][m % 4u]), i == vec4<u32>(m));
#endif
    }
    for (var e = lane; e < SLICE * QUADS; e += THREADS) {
      let m = slice + e / QUADS;
      let row = chunk.x + m;
      var x = vec4<f32>(0.0);
      for (var n = 0u; n < 4u; n++) {
        let column = first_column + e % QUADS * 4u + n;
        if (m < length) {
          if (is_value) {
            if (column < p.value_dim) {
              x[n] = v[row * p.v_stride + p.v_at + head * p.value_dim + column];
            }
          }
#ifdef DELTA
          else if (column < K) {
#ifdef CHANNEL
            x[n] = keys[(block * 3u * C + m) * K + column];
#else
            x[n] = pairs[pair + READ / 4u + m / 4u][m % 4u] * k[row * p.k_stride + p.k_at + head / p.group * p.k_head + column];
#endif
          }
#endif
        }
      }
      xs[e] = x;
    }
    workgroupBarrier();
    // T is lower triangular: rows above the slice, 16 at a time, have nothing of it.
    if (slice <= (i0 | 15u)) {
      for (var m = 0u; m < SLICE; m++) {
        let t = ts[m * (C / 4u) + i0 / 4u];
        let x = xs[m * QUADS + j0];
        let y = xs[m * QUADS + j0 + 8u];
        for (var i = 0u; i < 4u; i++) {
          low[i] += t[i] * x;
          high[i] += t[i] * y;
        }
      }
    }
  }
#ifdef WIDE
#ifdef DELTA
  if (!is_value) {
    // Turned: a vec4 is four rows.
    let from_left = transpose(mat4x4<f32>(low[0], low[1], low[2], low[3]));
    let from_right = transpose(mat4x4<f32>(high[0], high[1], high[2], high[3]));
    for (var n = 0u; n < 4u; n++) {
      let column = first_column + 4u * j0 + n;
      let to = (block * 2u * K + column) * (C / 4u) + i0 / 4u;
      if (column < K) {
        tiles[to] = from_left[n];
      }
      if (column + 32u < K) {
        tiles[to + 8u * C] = from_right[n];
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
    let to = (block * C + i0 + i) * width + at;
    for (var n = 0u; n < 4u; n++) {
      let column = first_column + 4u * j0 + n;
      if (column < most) {
        uw[to + column] = low[i][n];
      }
      if (column + 32u < most) {
        uw[to + column + 32u] = high[i][n];
      }
    }
  }
}
