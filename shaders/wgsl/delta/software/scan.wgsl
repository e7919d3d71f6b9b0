// Chunkwise on software adapters, last stage: the scan over a sequence's chunks and the outputs, see delta/chunk/scan.
// A thread has 16 columns of one value head in one sequence, eight rows of a chunk or eight channels of S at a time:
// a register tile of 8×16, to which each pass adds outer products of a column of eight and a row of 16.
// Groups: ⌈sequences·HV·⌈V/16⌉/8⌉ over x and y.
#import delta/software/layout
@group(0) @binding(auto) var<storage, read> keys: array<vec4<f32>>; // [chunks, HV, 2, C, K]
@group(0) @binding(auto) var<storage, read> tiles: array<vec4<f32>>; // [chunks, HV, K, 2, C]: −Wᵀ, (σ e^G ⊙ Q)ᵀ
@group(0) @binding(auto) var<storage, read> pairs: array<vec4<f32>>; // [chunks, HV, PAIR]
@group(0) @binding(auto) var<storage, read_write> u: array<vec4<f32>>; // [chunks, HV, C, V]: U, then E
@group(0) @binding(auto) var<storage, read_write> state: array<vec4<f32>>; // slots of [HV, key_dim, V]
@group(0) @binding(auto) var<storage, read_write> out: array<vec4<f32>>; // view [rows, HV, V]
#ifdef STATES
@group(0) @binding(auto) var<storage, read_write> states: array<vec4<f32>>; // [chunks, HV, key_dim, V]
#endif
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, first chunk

const QUADS: u32 = 4u; // columns a thread, in fours

@compute @workgroup_size(LANES)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let columns = p.value_dim / 4u;
  let tiles_each = (columns + QUADS - 1u) / QUADS;
  let id = thread(group, groups, lane);
  let at = id / (p.value_heads * tiles_each);
  if (at >= p.sequences) {
    return;
  }
  let sequence = sequences[at];
  let head = id / tiles_each % p.value_heads;
  let tile = id % tiles_each * QUADS;
  let s_first = (sequence.z * p.s_words + p.s_at + head * p.key_dim * p.value_dim) / 4u;
  // A tile that reaches beyond V works on the last four columns several times, and writes the same thing there.
  var quad: array<u32, QUADS>;
  for (var j = 0u; j < QUADS; j++) {
    quad[j] = min(tile + j, columns - 1u);
  }
  let key_quads = p.key_pad / 4u;
  let out_stride = p.o_stride / 4u;
  let out_first = (p.o_at + head * p.value_dim) / 4u;

  // Only some rows a dispatch: see the layout.
  for (var done = p.rows_from; done < min(sequence.y, p.rows_to); done += C) {
    let length = min(C, sequence.y - done);
    let block = (sequence.w + done / C) * p.value_heads + head;
    let pair = block * pair_size();
    let first = sequence.x + done;

#ifdef STATES
    for (var c = 0u; c < p.key_dim; c++) {
      for (var j = 0u; j < QUADS; j++) {
        states[(block * p.key_dim + c) * columns + quad[j]] = state[s_first + c * columns + quad[j]];
      }
    }
#endif

#ifdef DELTA
    // E = U − W S, in place of U.
    for (var half = 0u; half * 8u < length; half++) {
      var e: array<array<vec4<f32>, QUADS>, 8>;
      for (var i = 0u; i < 8u; i++) {
        for (var j = 0u; j < QUADS; j++) {
          e[i][j] = vec4<f32>(0.0);
        }
      }
      for (var c = 0u; c < p.key_dim; c++) {
        let at_tile = (block * p.key_pad + c) * (C / 2u) + half * 2u;
        var w: array<vec4<f32>, 2>;
        w[0] = tiles[at_tile];
        w[1] = tiles[at_tile + 1u];
        for (var j = 0u; j < QUADS; j++) {
          let s = state[s_first + c * columns + quad[j]];
          for (var i = 0u; i < 8u; i++) {
            e[i][j] += w[i / 4u][i % 4u] * s;
          }
        }
      }
      // U, a row at a time: its eight rows in a loop are far less code than each on its own.
      for (var m = 0u; m < 8u; m++) {
        for (var j = 0u; j < QUADS; j++) {
          let row = u[(block * C + half * 8u + m) * columns + quad[j]];
          for (var i = 0u; i < 8u; i++) {
            e[i][j] += select(0.0, 1.0, i == m) * row;
          }
        }
      }
      for (var i = 0u; i < 8u; i++) {
        for (var j = 0u; j < QUADS; j++) {
          u[(block * C + half * 8u + i) * columns + quad[j]] = e[i][j];
        }
      }
    }
#endif

    // O = σ e^G Q S + P E.
    for (var half = 0u; half * 8u < length; half++) {
      var o: array<array<vec4<f32>, QUADS>, 8>;
      for (var i = 0u; i < 8u; i++) {
        for (var j = 0u; j < QUADS; j++) {
          o[i][j] = vec4<f32>(0.0);
        }
      }
      for (var c = 0u; c < p.key_dim; c++) {
        let at_tile = (block * p.key_pad + c) * (C / 2u) + C / 4u + half * 2u;
        var y: array<vec4<f32>, 2>;
        y[0] = tiles[at_tile];
        y[1] = tiles[at_tile + 1u];
        for (var j = 0u; j < QUADS; j++) {
          let s = state[s_first + c * columns + quad[j]];
          for (var i = 0u; i < 8u; i++) {
            o[i][j] += y[i / 4u][i % 4u] * s;
          }
        }
      }
      for (var m = 0u; m < min(length, half * 8u + 8u); m++) {
        var score: array<vec4<f32>, 2>;
        score[0] = pairs[pair + SCORES + m * 4u + half * 2u];
        score[1] = pairs[pair + SCORES + m * 4u + half * 2u + 1u];
        for (var j = 0u; j < QUADS; j++) {
          let row = u[(block * C + m) * columns + quad[j]];
          for (var i = 0u; i < 8u; i++) {
            o[i][j] += score[i / 4u][i % 4u] * row;
          }
        }
      }
      // Rows beyond the chunk's length go to its last row, which is written after them.
      for (var n = 0u; n < 8u; n++) {
        let place = (first + min(half * 8u + 7u - n, length - 1u)) * out_stride + out_first;
        for (var j = 0u; j < QUADS; j++) {
          out[place + quad[j]] = o[7u - n][j];
        }
      }
    }

    // S ← keep · S + (e^{G_C − G} ⊙ K̃)ᵀ E, eight channels at a time; a tile that reaches beyond K as above.
    for (var c = 0u; c < p.key_dim; c += 8u) {
      var s: array<array<vec4<f32>, QUADS>, 8>;
      for (var m = 0u; m < 8u; m++) {
        for (var j = 0u; j < QUADS; j++) {
          s[m][j] = vec4<f32>(0.0);
        }
      }
      let k_quad = c / 4u;
      let k_next = min(k_quad + 1u, key_quads - 1u);
      for (var i = 0u; i < length; i++) {
        let at_row = ((block * 2u + 1u) * C + i) * key_quads;
        var x: array<vec4<f32>, 2>;
        x[0] = keys[at_row + k_quad];
        x[1] = keys[at_row + k_next];
        for (var j = 0u; j < QUADS; j++) {
          let row = u[(block * C + i) * columns + quad[j]];
          for (var m = 0u; m < 8u; m++) {
            s[m][j] += x[m / 4u][m % 4u] * row;
          }
        }
      }
      var keep: array<vec4<f32>, 2>;
      keep[0] = pairs[pair + KEEP + k_quad];
      keep[1] = pairs[pair + KEEP + k_next];
      for (var i = 0u; i < 8u; i++) {
        let factor = keep[i / 4u][i % 4u];
        for (var j = 0u; j < QUADS; j++) {
          let row = factor * state[s_first + min(c + i, p.key_dim - 1u) * columns + quad[j]];
          for (var m = 0u; m < 8u; m++) {
            s[m][j] += select(0.0, 1.0, i == m) * row;
          }
        }
      }
      for (var n = 0u; n < 8u; n++) {
        for (var j = 0u; j < QUADS; j++) {
          state[s_first + min(c + 7u - n, p.key_dim - 1u) * columns + quad[j]] = s[7u - n][j];
        }
      }
    }
  }
}
