// Chunkwise on software adapters, third stage: T = (I + L)⁻¹ diag(β), by substitution over the whole chunk, which for
// 16 rows is as cheap as blocks and more accurate (MATH.md §6). A thread is one column of one chunk of one value head.
// Groups: ⌈chunks·HV·16/8⌉ over x and y.
#import delta/software/layout
@group(0) @binding(auto) var<storage, read_write> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let id = thread(group, groups, lane);
  let block = id / C;
  let column = id % C;
  if (block / p.value_heads >= p.chunks) {
    return;
  }
  if (chunks[block / p.value_heads].y == 0u) {
    return;
  }
  let pair = block * pair_size();
  var x: array<vec4<f32>, 4>; // the column: rows in fours
  for (var r = 0u; r < 4u; r++) {
    x[r] = vec4<f32>(0.0);
  }
  // Rows of a four depend on one another; fours before it do not. Above the diagonal L is not there to read.
  for (var r = 0u; r < 4u; r++) {
    var rows: array<vec4<f32>, 4>; // L's own tile, by rows
    var sum: vec4<f32>;
    for (var m = 0u; m < 4u; m++) {
      let row = pair + LOWER + (r * 4u + m) * 4u;
      rows[m] = pairs[row + r];
      sum[m] = select(0.0, 1.0, r * 4u + m == column);
      for (var n = 0u; n < 4u; n++) {
        if (n < r) {
          sum[m] -= dot(pairs[row + n], x[n]);
        }
      }
    }
    sum.y -= rows[1].x * sum.x;
    sum.z -= dot(rows[2].xy, sum.xy);
    sum.w -= dot(rows[3].xyz, sum.xyz);
    x[r] = sum;
  }
  let beta = pairs[pair + BETA + column / 4u][column % 4u];
  for (var r = 0u; r < 4u; r++) {
    pairs[pair + INVERSE + column * 4u + r] = x[r] * beta;
  }
}
