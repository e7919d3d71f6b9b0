// From what each segment does to the state, S → A S + B, to the state that it starts from, which takes B's place, and the
// state after the last one, which goes to the sequence's slot. All in f32.
//
// A workgroup is 8 columns of one value head in one sequence, a thread a row of them. V, places and strides are multiples
// of 4. Consts: K; SEGMENTS. Groups: (⌈V/8⌉, HV, sequences).
#import delta/params
@group(0) @binding(auto) var<storage, read> kept: array<vec4<f32>>; // A: [sequences, SEGMENTS, HV, K, K]
@group(0) @binding(auto) var<storage, read_write> added: array<vec4<f32>>; // B: [sequences, SEGMENTS, HV, K, V]
@group(0) @binding(auto) var<storage, read_write> state: array<vec4<f32>>; // slots of [HV, K, V]
@group(0) @binding(auto) var<storage, read> sequences: array<vec4<u32>>; // first row, length, slot, first chunk

const FOURS: u32 = K / 4u;

var<workgroup> s: array<vec4<f32>, 2u * 8u * FOURS>; // [2, 8, K]: S by columns, before and after a segment

@compute @workgroup_size(K)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) row: u32) {
  let sequence = sequences[group.z];
  if (sequence.y == 0u) {
    return;
  }
  let head = group.y;
  let quads = p.value_dim / 4u;
  let quad = 2u * group.x;
  let second = quad + 1u < quads;
  let slot = (sequence.z * p.s_words + p.s_at) / 4u + (head * K + row) * quads + quad;
  var mine0 = state[slot];
  var mine1 = vec4<f32>(0.0);
  if (second) {
    mine1 = state[slot + 1u];
  }
  var now = 0u;
  for (var i = 0u; i < SEGMENTS; i++) {
    let block = (group.z * SEGMENTS + i) * p.value_heads + head;
    let at = (block * K + row) * quads + quad;
    let a_at = (block * K + row) * FOURS;
#for j FOUR
    s[now + $ju * FOURS + row / 4u][row % 4u] = mine0[$ju];
    s[now + (4u + $ju) * FOURS + row / 4u][row % 4u] = mine1[$ju];
#endfor
    var sum0 = added[at];
    added[at] = mine0;
    var sum1 = vec4<f32>(0.0);
    if (second) {
      sum1 = added[at + 1u];
      added[at + 1u] = mine1;
    }
    workgroupBarrier();
    // Four loads are under way at once.
    for (var c = 0u; c < FOURS; c += 4u) {
#for m FOUR
      let c$m = min(c + $mu, FOURS - 1u);
      let a$m = select(vec4<f32>(0.0), kept[a_at + c$m], c + $mu < FOURS);
#endfor
#for m FOUR
#for j FOUR
      sum0[$ju] += dot(a$m, s[now + $ju * FOURS + c$m]);
      sum1[$ju] += dot(a$m, s[now + (4u + $ju) * FOURS + c$m]);
#endfor
#endfor
    }
    mine0 = sum0;
    mine1 = sum1;
    now = 8u * FOURS - now;
  }
  state[slot] = mine0;
  if (second) {
    state[slot + 1u] = mine1;
  }
}
