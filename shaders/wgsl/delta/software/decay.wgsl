// Chunkwise on software adapters, first stage: keys and queries with their decays from and to the chunk's ends, what
// the state keeps, and β. Decays are running sums from either end: every exponent is at most 0.
//
// A thread is four channels of one chunk of one value head. Groups: ⌈chunks·HV·(K/4)/8⌉ over x and y.
#import delta/software/layout
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K], write keys kt_at further on
#ifdef BETA_GIVEN
@group(0) @binding(auto) var<storage, read> beta: array<f32>; // view [rows, HV]
#endif
#import delta/software/log_decay
@group(0) @binding(auto) var<storage, read_write> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]
@group(0) @binding(auto) var<storage, read_write> keys: array<vec4<f32>>; // [chunks, HV, 2, C, K]
@group(0) @binding(auto) var<storage, read_write> tiles: array<vec4<f32>>; // [chunks, HV, K, 2, C]
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let id = thread(group, groups, lane);
  let key_quads = p.key_pad / 4u;
  let c = id % key_quads;
  let block = id / key_quads;
  let head = block % p.value_heads;
  if (block / p.value_heads >= p.chunks) {
    return;
  }
  let chunk = chunks[block / p.value_heads];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let q_first = (p.q_at + head / p.group * p.q_head) / 4u + c;
  let k_first = (p.k_at + head / p.group * p.k_head) / 4u + c;
  let to = block * 2u * C * key_quads + c;

  // Forward, four rows at a time: a column of `tiles` wants four rows in one vec4.
  var sum = vec4<f32>(0.0);
  for (var r = 0u; r < C / 4u; r++) {
    var columns: mat4x4<f32>; // a row of q each
    for (var m = 0u; m < 4u; m++) {
      let i = r * 4u + m;
      var key = vec4<f32>(0.0);
      columns[m] = vec4<f32>(0.0);
      if (i < length) {
        let row = chunk.x + i;
        sum += log_decay(row, head, c);
        let decay = exp(sum);
        key = k[row * (p.k_stride / 4u) + k_first] * decay;
        columns[m] = q[row * (p.q_stride / 4u) + q_first] * (p.scale * decay);
      }
      keys[to + i * key_quads] = key;
    }
    let turned = transpose(columns);
    for (var m = 0u; m < 4u; m++) {
      tiles[((block * p.key_pad + c * 4u + m) * 2u + 1u) * (C / 4u) + r] = turned[m];
    }
  }
  pairs[block * pair_size() + KEEP + c] = exp(sum);

  // Backward.
  sum = vec4<f32>(0.0);
  for (var n = 0u; n < C; n++) {
    let i = C - 1u - n;
    var key = vec4<f32>(0.0);
    if (i < length) {
      let row = chunk.x + i;
      key = k[row * (p.k_stride / 4u) + k_first + p.kt_at / 4u] * exp(sum);
      sum += log_decay(row, head, c);
    }
    keys[to + (C + i) * key_quads] = key;
  }

  if (c == 0u) {
    for (var r = 0u; r < C / 4u; r++) {
      var b = vec4<f32>(1.0);
#ifdef BETA_GIVEN
      for (var m = 0u; m < 4u; m++) {
        let row = chunk.x + min(r * 4u + m, length - 1u);
        b[m] = beta[row * p.b_stride + p.b_at + head];
      }
#endif
      pairs[block * pair_size() + BETA + r] = b;
    }
  }
}
