// What delta/coop/chunk leaves for delta/coop/scan: operands in f16, in tiles of 16×16 that lie row after row, so that
// a load of one is 512 bytes in a piece. One block a chunk and value head, in fours of f16:
//   W_AT     [4, KT] tiles of W, MATH.md §3
//   QUERY_AT [4, KT] tiles of e^G Q (with CHANNEL σ is in it)
//   KEY_AT   [KT, 4] tiles of (e^{G_C − G} K̃)ᵀ
//   SCORE_AT [4, 4]  tiles of tril(Q K̃ᵀ ⊙ Γ) (likewise)
//   U_AT     [value_pad16, C] Uᵀ
// Rows beyond the chunk's length are zero, as are channels beyond K and columns beyond V.
const CHUNK: u32 = 64u;
const TILE: u32 = 64u;          // fours a tile
const W_AT: u32 = 0u;
const QUERY_AT: u32 = 4u * KT * TILE;
const KEY_AT: u32 = 8u * KT * TILE;
const SCORE_AT: u32 = 12u * KT * TILE;
const U_AT: u32 = SCORE_AT + 16u * TILE;

// Fours of a block.
fn block_size() -> u32 {
  return U_AT + (p.value_dim + 15u) / 16u * 16u * (CHUNK / 4u);
}

// Beyond f16's range is its largest.
fn half4(x: vec4<f32>) -> vec4<f16> {
  return vec4<f16>(clamp(x, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
}
