// What delta/coop/chunk leaves for delta/coop/scan: operands in f16, in tiles of 16×16 that lie row after row, so that
// a load of one is 512 bytes in a piece. One block a chunk and value head, in fours of f16:
//   READ_AT  [4, KT] tiles of e^G K
//   QUERY_AT [4, KT] tiles of e^G Q
//   KEY_AT   [KT, 4] tiles of (e^{G_C − G} K̃)ᵀ T
//   SCORE_AT [4, 4]  tiles of tril(Q K̃ᵀ ⊙ Γ) T
// T = (I + L)⁻¹ diag(β), or diag(β) where there is no L. Rows beyond the chunk's length are zero, as are channels beyond K.
const CHUNK: u32 = 64u;
const TILE: u32 = 64u;          // fours a tile
const READ_AT: u32 = 0u;
const QUERY_AT: u32 = 4u * KT * TILE;
const KEY_AT: u32 = 8u * KT * TILE;
const SCORE_AT: u32 = 12u * KT * TILE;
const BLOCK: u32 = SCORE_AT + 16u * TILE;

#import common/halves
