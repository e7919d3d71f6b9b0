// The preconditioner's inputs (MATH.md §8.3), shared by its stages: views [rows, H] of log decay and write strength.
#import delta/params
@group(0) @binding(auto) var<storage, read> k: array<f32>; // view [rows, H, K]
@group(0) @binding(auto) var<storage, read> gate_b: array<f32>; // view [rows, H]
@group(0) @binding(auto) var<storage, read> gate_g: array<f32>; // view [rows, H]

fn key(row: u32, head: u32, c: u32) -> f32 {
  return k[row * p.k_stride + p.k_at + head * p.k_head + c];
}
// What one token does to the sums: A ← keep · A + strength · k².
fn log_keep(row: u32, head: u32) -> f32 {
  return max(gate_g[row * p.pg_stride + p.pg_at + head], MIN_LOG_DECAY);
}
fn strength(row: u32, head: u32) -> f32 {
  return gate_b[row * p.pb_stride + p.pb_at + head];
}
