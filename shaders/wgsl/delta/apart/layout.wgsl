// What the kernels of delta/apart leave for one another. One block of `operands` a chunk and value head, in fours of f32:
//   KEY_AT   [4, 8, TILES, 4] (e^{G_C − G} K̃)ᵀ T, its rows c by c % 8, then c / 8, sixteen tokens at a time
//   SCORE_AT [C, C / 4]       σ tril(Q K̃ᵀ ⊙ Γ) T
// T = (I + L)⁻¹ diag(β), or diag(β) where there is no L. Columns beyond the chunk's length meet zeros of X, and rows beyond K
// nothing: both are any numbers.
// `left` has, for each chunk and value head, four channels of every column of S before the chunk, then the next four, K/4
// rows of them; then the same of tokens of X = V − e^G K S, C/4 rows.
#ifdef CHANNEL
#import delta/chunk/layout
#else
// One block of `pairs` a chunk and value head, in f32 elements, of what delta/chunk/layout says (rows beyond the chunk's
// length: any factors):
//   READ  [C] e^{G_i}, and what makes row i of K unit
//   QUERY [C] σ e^{G_i}, and what makes row i of Q unit
//   KEEP  [4] e^{G_C}, four times
const READ: u32 = 0u;
const QUERY: u32 = READ + C;
const KEEP: u32 = QUERY + C;
const PAIR: u32 = KEEP + 4u;
#endif
const TILES: u32 = (K + 7u) / 8u; // eights of channels
const FOURS: u32 = K / 4u;
const ROWS: u32 = C / 4u; // rows of a chunk, in fours
const KEY_AT: u32 = 0u;
const SCORE_AT: u32 = 8u * TILES * ROWS;
const BLOCK: u32 = SCORE_AT + C * ROWS;
const LEFT: u32 = FOURS + ROWS; // rows of fours
