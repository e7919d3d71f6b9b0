// Sizes and places of one delta-rule call: `DeltaParams` on the Rust side, where each field is explained.
struct Params {
  heads: u32,
  value_heads: u32,
  group: u32,
  key_dim: u32,
  value_dim: u32,
  value_pad: u32,
  rows: u32,
  scale: f32,
  q_stride: u32,
  q_at: u32,
  q_head: u32,
  k_stride: u32,
  k_at: u32,
  k_head: u32,
  kt_at: u32,
  v_stride: u32,
  v_at: u32,
  b_stride: u32,
  b_at: u32,
  g_stride: u32,
  g_at: u32,
  o_stride: u32,
  o_at: u32,
  s_words: u32,
  s_at: u32,
  a_words: u32,
  a_at: u32,
  pb_stride: u32,
  pb_at: u32,
  pg_stride: u32,
  pg_at: u32,
  mu_at: u32,
}
@group(0) @binding(auto) var<uniform> p: Params;

// Log decays are clamped here: exp of it is exactly 0, and sums of several stay finite (MATH.md §5).
const MIN_LOG_DECAY: f32 = -1e4;
