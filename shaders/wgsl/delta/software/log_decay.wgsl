// Log decays, where a rule has them.
#ifdef DECAY
@group(0) @binding(auto) var<storage, read> g: array<f32>; // view [rows, HV], with CHANNEL [rows, HV, key_dim]
#endif

// Of a row and value head, four channels from 4c on; a decay a head is that of all its channels.
fn log_decay(row: u32, head: u32, c: u32) -> vec4<f32> {
  var x = vec4<f32>(0.0);
#ifdef HEAD
  x = vec4<f32>(g[row * p.g_stride + p.g_at + head]);
#endif
#ifdef CHANNEL
  for (var m = 0u; m < 4u; m++) {
    if (c * 4u + m < p.key_dim) {
      x[m] = g[row * p.g_stride + p.g_at + head * p.key_dim + c * 4u + m];
    }
  }
#endif
  return max(x, vec4<f32>(MIN_LOG_DECAY));
}
