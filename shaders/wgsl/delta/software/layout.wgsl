// Kernels for software adapters (lavapipe, SwiftShader). There a barrier costs more than anything, a load some fifty
// times what arithmetic does whatever its width, and code size costs seconds of compilation. So a thread works alone,
// on a register tile of 8×16, with vec4 loads, and workgroups are just one SIMD vector wide. Loops over private arrays
// have exactly the array's length: compilers then unroll them and keep the arrays in registers.
//
// lavapipe ends a thread's loops, silently, after 65,535 rounds of all of them together. So a dispatch that goes over
// sequences is for the rows `p.rows_from` to `p.rows_to` of each, and there are as many dispatches as it takes.
//
// K is a number here and not a const: it decides no array, and every variant costs a compilation. Places, strides and
// head dims are multiples of 4 elements: `p` counts elements, bindings are vec4.
//
// Scratch of the chunk stages, C = 16. One `pair` block a chunk and value head, in vec4:
//   LOWER    [C, C]  L, strictly lower, by rows
//   SCORES   [C, C]  P = σ tril(Q K̃ᵀ ⊙ Γ), by columns
//   INVERSE  [C, C]  T = (I + L)⁻¹ diag(β), by columns
//   BETA     [C]     β
//   KEEP     [K]     what the state keeps over the chunk, e^{G_C}
// Beside it
//   keys  [chunks, HV, 2, C, K]  e^G ⊙ K and e^{G_C − G} ⊙ K̃
//   tiles [chunks, HV, K, 2, C]  −Wᵀ and (σ e^G ⊙ Q)ᵀ
//   u     [chunks, HV, C, V]     U; the scan leaves E there
// Rows beyond the chunk's length are zero.
#import delta/params

const C: u32 = 16u;
const LANES: u32 = 8u;
const LOWER: u32 = 0u;
const SCORES: u32 = 64u;
const INVERSE: u32 = 128u;
const BETA: u32 = 192u;
const KEEP: u32 = 196u;

fn pair_size() -> u32 {
  return KEEP + p.key_pad / 4u;
}

// A thread's number over the whole dispatch.
fn thread(group: vec3<u32>, groups: vec3<u32>, lane: u32) -> u32 {
  return (group.y * groups.x + group.x) * LANES + lane;
}
