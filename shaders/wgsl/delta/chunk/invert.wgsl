// T = (I + L)⁻¹ diag(β) of every chunk, in place of L (MATH.md §6): the diagonal 16-blocks by substitution, then block
// diagonals outward, then one refinement A += A (I − (I + L) A), which is what keeps nearly collinear keys at β = 2
// accurate.
//
// A workgroup is one chunk of one value head, (C/4)² threads. Groups: (HV, chunks).
#import delta/params
#import delta/chunk/layout
@group(0) @binding(auto) var<storage, read_write> pairs: array<f32>; // [chunks, HV, PAIR]
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const TILES: u32 = C / 4u;
const THREADS: u32 = TILES * TILES;
const PITCH: u32 = C + 1u;
const SIDE: u32 = 16u; // of a block

var<workgroup> low: array<f32, C * PITCH>; // L; at the end the residual
var<workgroup> inv: array<f32, C * PITCH>; // A; above the diagonal blocks, partial products

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  if (chunks[group.y].y == 0u) {
    return;
  }
  let pair = (group.y * p.value_heads + group.x) * PAIR;
  for (var e = lane; e < C * C; e += THREADS) {
    low[e / C * PITCH + e % C] = pairs[pair + LOWER + e];
  }
  workgroupBarrier();

  // Column j of its diagonal block's inverse, one thread each.
  for (var j = lane; j < C; j += THREADS) {
    let base = j / SIDE * SIDE;
    let own = j % SIDE;
    var x: array<f32, SIDE>;
    for (var i = 0u; i < SIDE; i++) {
      var sum = select(0.0, 1.0, i == own);
      for (var m = 0u; m < i; m++) {
        sum -= low[(base + i) * PITCH + base + m] * x[m];
      }
      x[i] = sum;
      inv[(base + i) * PITCH + j] = sum;
    }
  }
  workgroupBarrier();

  // Block (i, j) with i = j + d: A_ij = −A_ii Σ_{j ≤ m < i} L_im A_mj. The sum goes to block (j, i), above the diagonal.
  for (var d = 1u; d < C / SIDE; d++) {
    let count = (C / SIDE - d) * SIDE * SIDE;
    for (var e = lane; e < count; e += THREADS) {
      let j = e / (SIDE * SIDE) * SIDE;
      let i = j + d * SIDE;
      let row = e / SIDE % SIDE;
      let column = e % SIDE;
      var sum = 0.0;
      for (var m = j; m < i; m++) {
        sum += low[(i + row) * PITCH + m] * inv[m * PITCH + j + column];
      }
      inv[(j + row) * PITCH + i + column] = sum;
    }
    workgroupBarrier();
    for (var e = lane; e < count; e += THREADS) {
      let j = e / (SIDE * SIDE) * SIDE;
      let i = j + d * SIDE;
      let row = e / SIDE % SIDE;
      let column = e % SIDE;
      var sum = 0.0;
      for (var m = 0u; m < SIDE; m++) {
        sum -= inv[(i + row) * PITCH + i + m] * inv[(j + m) * PITCH + i + column];
      }
      inv[(i + row) * PITCH + j + column] = sum;
    }
    workgroupBarrier();
  }

  // Residual I − (I + L) A, a 4×4 tile a thread, then in place of L.
  let i0 = lane / TILES * 4u;
  let j0 = lane % TILES * 4u;
  let below = i0 >= j0;
  var tile: array<array<f32, 4>, 4>;
  if (below) {
    for (var i = 0u; i < 4u; i++) {
      for (var j = 0u; j < 4u; j++) {
        tile[i][j] = 0.0;
        if (i0 + i > j0 + j) {
          tile[i][j] = -inv[(i0 + i) * PITCH + j0 + j];
        }
      }
    }
    for (var m = j0; m < i0 + 4u; m++) {
      for (var j = 0u; j < 4u; j++) {
        let a = select(0.0, inv[m * PITCH + j0 + j], m >= j0 + j);
        for (var i = 0u; i < 4u; i++) {
          tile[i][j] -= low[(i0 + i) * PITCH + m] * a;
        }
      }
    }
  }
  workgroupBarrier();
  if (below) {
    for (var i = 0u; i < 4u; i++) {
      for (var j = 0u; j < 4u; j++) {
        low[(i0 + i) * PITCH + j0 + j] = tile[i][j];
        tile[i][j] = select(0.0, inv[(i0 + i) * PITCH + j0 + j], i0 + i >= j0 + j);
      }
    }
  }
  workgroupBarrier();
  if (below) {
    for (var m = j0; m < i0 + 4u; m++) {
      for (var i = 0u; i < 4u; i++) {
        let a = select(0.0, inv[(i0 + i) * PITCH + m], i0 + i >= m);
        for (var j = 0u; j < 4u; j++) {
          tile[i][j] += a * low[m * PITCH + j0 + j];
        }
      }
    }
  }
  for (var i = 0u; i < 4u; i++) {
    for (var j = 0u; j < 4u; j++) {
      let b = pairs[pair + BETA + j0 + j];
      pairs[pair + LOWER + (i0 + i) * C + j0 + j] = select(0.0, tile[i][j] * b, below);
    }
  }
}
