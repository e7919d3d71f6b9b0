// T = (I + L)⁻¹ diag(β) of every chunk (MATH.md §6), by substitution down the rows of each column: as accurate as blocks
// with a refinement step, also for nearly collinear keys at β = 2, and without a barrier.
//
// A workgroup is one chunk of one value head, a thread one column of the inverse. All threads want the same rows of L at
// a time, so that these come straight from memory. Groups: (HV, chunks).
#import delta/params
#import delta/chunk/layout
@group(0) @binding(auto) var<storage, read_write> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const ROWS: u32 = C / 4u; // rows, in fours

var<workgroup> inv: array<f32, C * C>; // [row][column]: every thread's own column, too long for registers

@compute @workgroup_size(C)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) column: u32) {
  if (chunks[group.y].y == 0u) {
    return;
  }
  let pair = (group.y * p.value_heads + group.x) * (PAIR / 4u);
  let beta = pairs[pair + BETA / 4u + column / 4u][column % 4u];
  let to = pair + (INVERSE / 4u) + column * ROWS;

  // Rows above a column's own are zero: 32 neighbours leave out together what they can.
  let start = column / 32u * 8u;
  for (var r = 0u; r < start; r++) {
    pairs[to + r] = vec4<f32>(0.0);
  }
  for (var r = start; r < ROWS; r++) {
    let own = vec4<u32>(4u * r, 4u * r + 1u, 4u * r + 2u, 4u * r + 3u) == vec4<u32>(column);
    var x = select(vec4<f32>(0.0), vec4<f32>(1.0), own);
    let at = pair + LOWER / 4u + 4u * r * ROWS;
    // Rows of a four depend on one another.
    let second = pairs[at + ROWS + r];
    let third = pairs[at + 2u * ROWS + r];
    let fourth = pairs[at + 3u * ROWS + r];
    for (var n = start; n < r; n++) {
      let from_row = 4u * n * C + column;
      let y = vec4<f32>(inv[from_row], inv[from_row + C], inv[from_row + 2u * C], inv[from_row + 3u * C]);
      x.x -= dot(pairs[at + n], y);
      x.y -= dot(pairs[at + ROWS + n], y);
      x.z -= dot(pairs[at + 2u * ROWS + n], y);
      x.w -= dot(pairs[at + 3u * ROWS + n], y);
    }
    x.y -= second.x * x.x;
    x.z -= dot(third.xy, x.xy);
    x.w -= dot(fourth.xyz, x.xyz);
    let row = 4u * r * C + column;
    inv[row] = x.x;
    inv[row + C] = x.y;
    inv[row + 2u * C] = x.z;
    inv[row + 3u * C] = x.w;
    pairs[to + r] = x * beta;
  }
}
