// The bindings that linear/output works with; flags as there.

#ifdef BIAS
@group(0) @binding(auto) var<storage, read> bias: array<f32>;               // [out_dim of all parts]
#endif
#ifdef CONV_OUT
@group(0) @binding(auto) var<storage, read> pack: array<f32>;               // convolution weights [channels, TAPS] first
@group(0) @binding(auto) var<storage, read_write> state: array<f32>;        // [slots, state_words]
#endif
#ifdef TABLE
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;        // [rows] the row table
#endif
#ifdef OUT_HALF
@group(0) @binding(auto) var<storage, read_write> out: array<f16>;          // [rows, out_stride] in tiles
#else
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;          // [rows, out_stride], or heads
#endif
