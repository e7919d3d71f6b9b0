// The recurrent form (MATH.md §2) as in delta/step, where subgroups have one size: each subgroup works alone, without a
// barrier, on COLUMNS fours of columns of one value head's S. The lanes of a four split the channels: 4 · FOURS each,
// in registers from the first token to the last. A row of S is read 16 · COLUMNS bytes at a time.
// With S̄ the decayed state, r = k·S̄ and q·S̄ come from one pass, and q·S = q·S̄ + (q·k̃) e.
// With NORMALISE, q and k come as they are: their lengths are found in the same pass, x / sqrt(Σx² + 1e-6).
// Places, strides and V are multiples of 4; K is 4 · FOURS · SUBGROUP / COLUMNS.
// Groups: (⌈V / 4 / COLUMNS / TEAMS⌉, HV, sequences), TEAMS subgroups each.
#import delta/params
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K], write keys kt_at further on
@group(0) @binding(auto) var<storage, read> v: array<vec4<f32>>; // view [rows, HV, V]
#ifdef BETA_GIVEN
@group(0) @binding(auto) var<storage, read> beta: array<f32>; // view [rows, HV]
#endif
#ifdef HEAD
@group(0) @binding(auto) var<storage, read> g: array<f32>; // view [rows, HV]
#endif
#ifdef CHANNEL
@group(0) @binding(auto) var<storage, read> g: array<vec4<f32>>; // view [rows, HV, K]
#endif
@group(0) @binding(auto) var<storage, read_write> state: array<vec4<f32>>; // slots of [HV, K, V]
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>; // view [rows, HV, V]
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, –

@compute @workgroup_size(TEAMS * SUBGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let sequence = sequences[group.z];
  let length = sequence.y;
  if (length == 0u) {
    return;
  }
  let head = group.y;
  let quads = p.value_dim / 4u;
  let quad = (group.x * TEAMS + subgroup) * COLUMNS + lane % COLUMNS;
  let inside = quad < quads;
  let column = min(quad, quads - 1u);
  let first = lane / COLUMNS * FOURS; // in fours of channels

  let s_from = (sequence.z * p.s_words + p.s_at) / 4u + (head * K + 4u * first) * quads + column;
#for j FOURS
  var s$jx = state[s_from + (4u * $ju) * quads];
  var s$jy = state[s_from + (4u * $ju + 1u) * quads];
  var s$jz = state[s_from + (4u * $ju + 2u) * quads];
  var s$jw = state[s_from + (4u * $ju + 3u) * quads];
#endfor

  for (var t = 0u; t < length; t++) {
    let row = sequence.x + t;
    let q_from = (row * p.q_stride + p.q_at + head / p.group * p.q_head) / 4u + first;
    let k_from = (row * p.k_stride + p.k_at + head / p.group * p.k_head) / 4u + first;
    // Everything is asked for before anything is waited for.
#for j FOURS
    let q$j = q[q_from + $ju];
    let k$j = k[k_from + $ju];
#ifdef WRITE_KEY
    let kt$j = k[k_from + p.kt_at / 4u + $ju];
#endif
#ifdef CHANNEL
    let g$j = g[(row * p.g_stride + p.g_at + head * K) / 4u + first + $ju];
#endif
#endfor
    var e = v[(row * p.v_stride + p.v_at) / 4u + head * quads + column];
#ifdef BETA_GIVEN
    let strength = beta[row * p.b_stride + p.b_at + head];
#endif
#ifdef HEAD
    let decay = exp(max(g[row * p.g_stride + p.g_at + head], MIN_LOG_DECAY));
#endif
    var read = vec4<f32>(0.0);   // k·S̄
    var asked = vec4<f32>(0.0);  // q·S̄
    var squares = vec3<f32>(0.0); // q·k̃, k·k, q·q
#for j FOURS
#ifdef HEAD
    s$jx *= decay;
    s$jy *= decay;
    s$jz *= decay;
    s$jw *= decay;
#endif
#ifdef CHANNEL
    let keep$j = exp(max(g$j, vec4<f32>(MIN_LOG_DECAY)));
    s$jx *= keep$j.x;
    s$jy *= keep$j.y;
    s$jz *= keep$j.z;
    s$jw *= keep$j.w;
#endif
    read += k$j.x * s$jx + k$j.y * s$jy + k$j.z * s$jz + k$j.w * s$jw;
    asked += q$j.x * s$jx + q$j.y * s$jy + q$j.z * s$jz + q$j.w * s$jw;
#ifdef WRITE_KEY
    squares += vec3<f32>(dot(q$j, kt$j), 0.0, 0.0);
#else
    squares += vec3<f32>(dot(q$j, k$j), 0.0, 0.0);
#endif
#ifdef NORMALISE
    squares += vec3<f32>(0.0, dot(k$j, k$j), dot(q$j, q$j));
#endif
#endfor
    for (var far = COLUMNS; far < SUBGROUP; far *= 2u) {
      read += subgroupShuffleXor(read, far);
      asked += subgroupShuffleXor(asked, far);
#ifdef NORMALISE
      squares += subgroupShuffleXor(squares, far);
#else
      squares.x += subgroupShuffleXor(squares.x, far);
#endif
    }
    var unit = vec2<f32>(1.0); // of k, of q
#ifdef NORMALISE
    unit = 1.0 / sqrt(squares.yz + 1e-6);
#endif
#ifdef DELTA
    e -= unit.x * read;
#endif
#ifdef BETA_GIVEN
    e *= strength;
#endif
    e *= unit.x;
#for j FOURS
#ifdef WRITE_KEY
    s$jx += kt$j.x * e;
    s$jy += kt$j.y * e;
    s$jz += kt$j.z * e;
    s$jw += kt$j.w * e;
#else
    s$jx += k$j.x * e;
    s$jy += k$j.y * e;
    s$jz += k$j.z * e;
    s$jw += k$j.w * e;
#endif
#endfor
    if (inside && first == 0u) {
      out[(row * p.o_stride + p.o_at) / 4u + head * quads + column] = p.scale * unit.y * (asked + squares.x * e);
    }
  }

  if (inside) {
#for j FOURS
    state[s_from + (4u * $ju) * quads] = s$jx;
    state[s_from + (4u * $ju + 1u) * quads] = s$jy;
    state[s_from + (4u * $ju + 2u) * quads] = s$jz;
    state[s_from + (4u * $ju + 3u) * quads] = s$jw;
#endfor
  }
}
