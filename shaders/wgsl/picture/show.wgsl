// Copies painted pixels to a canvas. Not a compute kernel: one triangle that covers everything.

override width: u32;

@group(0) @binding(0) var<storage, read> pixels: array<u32>; // [height, width] RGBA, red lowest

@vertex
fn corner(@builtin(vertex_index) i: u32) -> @builtin(position) vec4<f32> {
    return vec4<f32>(f32(i32(i & 1u) * 4 - 1), f32(i32(i >> 1u) * 4 - 1), 0.0, 1.0);
}

@fragment
fn pixel(@builtin(position) at: vec4<f32>) -> @location(0) vec4<f32> {
    return unpack4x8unorm(pixels[u32(at.y) * width + u32(at.x)]);
}
