// The recurrent form for software adapters: see delta/step. A thread has 16 columns of one value head in one sequence.
// Writing one token and reading for the next share a pass over S, which stays in its slot. The decay of a token is
// taken on its key and query: k·(D S) = (k ⊙ D)·S.
// Groups: ⌈sequences·HV·⌈V/16⌉/8⌉ over x and y.
#import delta/software/layout
@group(0) @binding(auto) var<storage, read> q: array<vec4<f32>>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> k: array<vec4<f32>>; // view [rows, H, K], write keys kt_at further on
@group(0) @binding(auto) var<storage, read> v: array<vec4<f32>>; // view [rows, HV, V]
#ifdef BETA_GIVEN
@group(0) @binding(auto) var<storage, read> beta: array<f32>; // view [rows, HV]
#endif
#ifdef DECAY
@group(0) @binding(auto) var<storage, read> g: array<f32>; // view [rows, HV], with CHANNEL [rows, HV, key_dim]
#endif
@group(0) @binding(auto) var<storage, read_write> state: array<vec4<f32>>; // slots of [HV, key_dim, V]
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>; // view [rows, HV, V]
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, –

const QUADS: u32 = 4u;

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let tiles = (p.value_dim / 4u + QUADS - 1u) / QUADS;
  let id = thread(group, groups, lane);
  let at = id / (p.value_heads * tiles);
  if (at >= p.sequences) {
    return;
  }
  let sequence = sequences[at];
  // Only some rows a dispatch: see the layout.
  let end = min(sequence.y, p.rows_to);
  if (end <= p.rows_from) {
    return;
  }
  let head = id / tiles % p.value_heads;
  let tile = id % tiles * QUADS;
  let columns = p.value_dim / 4u;
  let s_first = (sequence.z * p.s_words + p.s_at + head * p.key_dim * p.value_dim) / 4u;
  let q_first = (p.q_at + head / p.group * p.q_head) / 4u;
  let k_first = (p.k_at + head / p.group * p.k_head) / 4u;
  var quad: array<u32, QUADS>;
  var read: array<vec4<f32>, QUADS>; // (k ⊙ D)·S
  var seen: array<vec4<f32>, QUADS>; // (q ⊙ D)·S
  var e: array<vec4<f32>, QUADS>;
  for (var j = 0u; j < QUADS; j++) {
    quad[j] = min(tile + j, columns - 1u);
    e[j] = vec4<f32>(0.0);
  }

  // Pass t writes token t − 1 and reads for token t.
  for (var t = p.rows_from; t <= end; t++) {
    let next = sequence.x + min(t, end - 1u);
    let past = sequence.x + max(t, 1u) - 1u;
    var match_now = 0.0; // q·k̃ of the next token
    for (var j = 0u; j < QUADS; j++) {
      read[j] = vec4<f32>(0.0);
      seen[j] = vec4<f32>(0.0);
    }
    var keep = vec4<f32>(1.0);
    var decay = vec4<f32>(1.0);
#ifdef HEAD
    keep = vec4<f32>(exp(max(g[past * p.g_stride + p.g_at + head], MIN_LOG_DECAY)));
    decay = vec4<f32>(exp(max(g[next * p.g_stride + p.g_at + head], MIN_LOG_DECAY)));
#endif
    for (var c = 0u; c < p.key_pad / 4u; c++) {
#ifdef CHANNEL
      keep = vec4<f32>(1.0);
      decay = vec4<f32>(1.0);
      for (var m = 0u; m < 4u; m++) {
        if (c * 4u + m < p.key_dim) {
          let from_head = p.g_at + head * p.key_dim + c * 4u + m;
          keep[m] = exp(max(g[past * p.g_stride + from_head], MIN_LOG_DECAY));
          decay[m] = exp(max(g[next * p.g_stride + from_head], MIN_LOG_DECAY));
        }
      }
#endif
      let key = k[next * (p.k_stride / 4u) + k_first + c];
      let query = q[next * (p.q_stride / 4u) + q_first + c];
      let written = k[past * (p.k_stride / 4u) + k_first + p.kt_at / 4u + c];
      match_now += dot(query, k[next * (p.k_stride / 4u) + k_first + p.kt_at / 4u + c]);
      let key_now = key * decay;
      let query_now = query * decay;
      for (var m = 0u; m < 4u; m++) {
        if (c * 4u + m < p.key_dim) {
          // Loads before stores: a tile beyond V has the same columns several times.
          let place = s_first + (c * 4u + m) * columns;
          var s: array<vec4<f32>, QUADS>;
          for (var j = 0u; j < QUADS; j++) {
            s[j] = state[place + quad[j]];
          }
          if (t > p.rows_from) {
            for (var j = 0u; j < QUADS; j++) {
              s[j] = s[j] * keep[m] + written[m] * e[j];
              state[place + quad[j]] = s[j];
            }
          }
          for (var j = 0u; j < QUADS; j++) {
            read[j] += key_now[m] * s[j];
            seen[j] += query_now[m] * s[j];
          }
        }
      }
    }
    if (t == end) {
      break;
    }
    for (var j = 0u; j < QUADS; j++) {
      e[j] = v[next * (p.v_stride / 4u) + (p.v_at + head * p.value_dim) / 4u + quad[j]];
#ifdef DELTA
      e[j] -= read[j];
#endif
#ifdef BETA_GIVEN
      e[j] *= beta[next * p.b_stride + p.b_at + head];
#endif
      let place = next * (p.o_stride / 4u) + (p.o_at + head * p.value_dim) / 4u + quad[j];
      out[place] = p.scale * (seen[j] + match_now * e[j]);
    }
  }
}
