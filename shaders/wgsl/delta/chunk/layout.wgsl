// Scratch of the chunk stages. One `pair` block a chunk and value head, in f32 elements:
//   LOWER    [C, C]  L, strictly lower (MATH.md §3)
//   SCORES   [C, C]  P = σ tril(Q K̃ᵀ ⊙ Γ); with BY_COLUMNS by columns
//   INVERSE  [C, C]  T = (I + L)⁻¹ diag(β), by columns
//   READ     [C]     factor of row i of K on its way into W: e^{G_i}
//   QUERY    [C]     of row i of Q reading the state before the chunk: σ e^{G_i}
//   WRITE    [C]     of row i of K̃ on its way into the state after the chunk: e^{G_C − G_i}
//   BETA     [C]     β of row i
//   KEEP     [KEEPS] what the state keeps over the chunk, e^{G_C}: one number, or one a channel
// Rows beyond the chunk's length are zero (factors: one). With a decay a channel the three factors are in `keys`
// instead, [chunks, HV, 3, C, K]: e^G ⊙ K, σ e^G ⊙ Q, e^{G_C − G} ⊙ K̃, and READ, QUERY and WRITE are not there to read.
const LOWER: u32 = 0u;
const SCORES: u32 = C * C;
const INVERSE: u32 = 2u * C * C;
const READ: u32 = 3u * C * C;
const QUERY: u32 = READ + C;
const WRITE: u32 = QUERY + C;
const BETA: u32 = WRITE + C;
const KEEP: u32 = BETA + C;
#ifdef CHANNEL
const PAIR: u32 = KEEP + K;
#else
const PAIR: u32 = KEEP + 4u;
#endif
