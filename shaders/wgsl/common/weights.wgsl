// Weight access, the one obvious place for packed types. The matrix is bound here: rows of `groups` eights, padded
// with zeros, four bytes of whatever type in each u32. Kernels read eight elements at a time.
//
// Flags: W_F32, W_F16, W_BF16; W_TEXTURE: the matrix is a texture, a row of texels for a row of elements. (Some
// software adapters read textures several times faster than buffers.)

#ifdef W_TEXTURE
@group(0) @binding(auto) var weights: texture_2d<u32>;                     // rows, groups · 1 or 2 texels
#else
@group(0) @binding(auto) var<storage, read> weights: array<vec4<u32>>;     // [rows, groups · 8 elements]
#endif

struct Eight {
    lo: vec4<f32>,
    hi: vec4<f32>,
}

fn unpack_bf16(a: u32, b: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(vec4<u32>(a << 16u, a & 0xffff0000u, b << 16u, b & 0xffff0000u));
}

fn unpack_f16(a: u32, b: u32) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(a), unpack2x16float(b));
}

// The i-th four words of a row, each row of `width` of them.
fn words4(row: u32, width: u32, i: u32) -> vec4<u32> {
#ifdef W_TEXTURE
    return textureLoad(weights, vec2<u32>(i, row), 0);
#else
    return weights[row * width + i];
#endif
}

#ifdef W_F16
// Eight stored elements as f32.
fn eight(w: vec4<u32>) -> Eight {
    return Eight(unpack_f16(w.x, w.y), unpack_f16(w.z, w.w));
}
#endif
#ifdef W_BF16
// Eight stored elements as f32.
fn eight(w: vec4<u32>) -> Eight {
    return Eight(unpack_bf16(w.x, w.y), unpack_bf16(w.z, w.w));
}
#endif

// Elements 8g .. 8g+7 of a row, each row of `groups` eights, as they are stored: for kernels that ask for them early.
// `lower4` and `upper4` are its halves as f32.
#ifdef W_F32
fn stored8(row: u32, groups: u32, g: u32) -> Eight {
    let a = words4(row, 2u * groups, 2u * g);
    let b = words4(row, 2u * groups, 2u * g + 1u);
    return Eight(bitcast<vec4<f32>>(a), bitcast<vec4<f32>>(b));
}

fn lower4(w: Eight) -> vec4<f32> {
    return w.lo;
}

fn upper4(w: Eight) -> vec4<f32> {
    return w.hi;
}
#else
fn stored8(row: u32, groups: u32, g: u32) -> vec4<u32> {
    return words4(row, groups, g);
}

fn lower4(w: vec4<u32>) -> vec4<f32> {
    return eight(w).lo;
}

fn upper4(w: vec4<u32>) -> vec4<f32> {
    return eight(w).hi;
}
#endif

// The same as f32.
fn weight8(row: u32, groups: u32, g: u32) -> Eight {
#ifdef W_F32
    return stored8(row, groups, g);
#else
    return eight(words4(row, groups, g));
#endif
}
