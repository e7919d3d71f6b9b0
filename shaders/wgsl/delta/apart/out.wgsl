// The outputs, all chunks at once: O = σ e^G Q S + P T X (MATH.md §3), one product over K channels and C tokens of what
// delta/apart/scan and delta/apart/solve left.
//
// A workgroup is COLUMNS columns of one chunk of one value head; a thread has eight rows, eight apart, and two times four
// columns. V, and all places and strides, are multiples of 4. Groups: (⌈V/COLUMNS⌉, HV, chunks).
#import delta/params
#import delta/apart/layout
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read> keys: array<vec4<f32>>; // [chunks, HV, 3, C, K]: σ e^G ⊙ Q second
#else
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]
#endif
@group(0) @binding(auto) var<storage, read> operands: array<vec4<f32>>; // [chunks, HV, BLOCK], see the layout
@group(0) @binding(auto) var<storage, read> left: array<vec4<f32>>; // [chunks, HV, LEFT, V]: columns of S, of X
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>; // view [rows, HV, V]
@group(0) @binding(auto) var<storage, read> chunks: array<vec4<u32>>; // first row, length, slot, index

const SLICE: u32 = 4u; // of the inner dimension, in fours
const SLICES: u32 = (LEFT + SLICE - 1u) / SLICE;
// Slices that all rows want; those behind are of tokens that the first half of rows does not see.
const WHOLE: u32 = (FOURS + ROWS / 2u + SLICE - 1u) / SLICE;
const PITCH: u32 = SLICE + 1u; // fours from row to row: odd, so that rows are on different banks
const BESIDE: u32 = COLUMNS / 2u; // from a thread's first four columns to its second

// σ e^G Q, then P T: row i in [i % 8][i / 8]. S, then X: column j in [j % 4][j / 4]. Consts in the middle or in front, and
// odd pitches behind them.
var<workgroup> rows: array<array<array<vec4<f32>, PITCH>, C / 8u + 1u>, 8>;
var<workgroup> columns: array<array<array<vec4<f32>, PITCH>, COLUMNS / 4u + 1u>, 4>;

@compute @workgroup_size(COLUMNS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let chunk = chunks[group.z];
  let length = chunk.y;
  if (length == 0u) {
    return;
  }
  let head = group.y;
  let block = group.z * p.value_heads + head;
  let first_column = group.x * COLUMNS;
  // What a thread brings: of every so manieth row one four of a slice, and of one column all of them.
  let four = lid % SLICE;
#for i ROW_ROUNDS
  let row$i = lid / SLICE + $iu * (COLUMNS / SLICE);
#ifdef CHANNEL
  let q_from$i = ((block * 3u + 1u) * C + row$i) * FOURS;
#else
  let q_from$i = ((chunk.x + min(row$i, length - 1u)) * p.q_stride + p.q_at + head / p.group * p.q_head) / 4u;
  let factor$i = pairs[block * (PAIR / 4u) + QUERY / 4u + row$i / 4u][row$i % 4u];
#endif
  let p_from$i = block * BLOCK + SCORE_AT + row$i * ROWS;
  var a$i: vec4<f32>;
#endfor
  let left_from = block * LEFT * p.value_dim + min(first_column + lid, p.value_dim - 1u);
#for i FOUR
  var b$i: vec4<f32>;
#endfor
  // Its rows r, r + 8, ... and columns from 4·c on, and from BESIDE + 4·c on.
  let r = lid % 8u;
  let c = lid / 8u;
#for i EIGHT
  var low$i = vec4<f32>(0.0);
  var high$i = vec4<f32>(0.0);
#endfor
#for h TWO
  for (var slice = select(0u, WHOLE, $hu == 1u); slice < select(WHOLE, SLICES, $hu == 1u); slice++) {
    let at = slice * SLICE + four;
#for i ROW_ROUNDS
    if (at < FOURS) {
#ifdef CHANNEL
      a$i = keys[q_from$i + at];
#else
      a$i = factor$i * q[q_from$i + at];
#endif
    } else {
      a$i = operands[p_from$i + min(at - FOURS, ROWS - 1u)];
    }
#endfor
#for i FOUR
    let at$i = slice * SLICE + $iu;
    b$i = select(vec4<f32>(0.0), left[left_from + min(at$i, LEFT - 1u) * p.value_dim], at$i < LEFT);
#endfor
    workgroupBarrier();
#for i ROW_ROUNDS
    rows[row$i % 8u][row$i / 8u][four] = a$i;
#endfor
#for i FOUR
    columns[lid % 4u][lid / 4u][$iu] = b$i;
#endfor
    workgroupBarrier();
    for (var m = 0u; m < SLICE; m++) {
#for j FOUR
      let x$j = columns[$ju][c][m];
      let y$j = columns[$ju][c + BESIDE / 4u][m];
#endfor
      let near = transpose(mat4x4<f32>(x0, x1, x2, x3));
      let far = transpose(mat4x4<f32>(y0, y1, y2, y3));
#for i EIGHT
      if ($iu >= 4u * $hu) {
        let z$i = rows[r][$iu][m];
#for j FOUR
        low$i += z$i[$j] * near[$j];
        high$i += z$i[$j] * far[$j];
#endfor
      }
#endfor
    }
  }
#endfor
  let out_from = (p.o_at + head * p.value_dim + first_column) / 4u + c;
#for i EIGHT
  if (r + 8u * $iu < length) {
    let to$i = (chunk.x + r + 8u * $iu) * p.o_stride / 4u + out_from;
    if (first_column + 4u * c < p.value_dim) {
      out[to$i] = low$i;
    }
    if (first_column + BESIDE + 4u * c < p.value_dim) {
      out[to$i + BESIDE / 4u] = high$i;
    }
  }
#endfor
}
