// Weight access, the one obvious place for packed types. A kernel binds its matrix as
// `weights: array<vec4<u32>>`, rows padded with zeros to a multiple of eight elements, and reads eight at a time.
// Flags: W_F32, W_F16, W_BF16.

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

// Elements 8i .. 8i+7 of the matrix, as f32.
fn weight8(i: u32) -> Eight {
#ifdef W_F32
    return Eight(bitcast<vec4<f32>>(weights[2u * i]), bitcast<vec4<f32>>(weights[2u * i + 1u]));
#endif
#ifdef W_F16
    let w = weights[i];
    return Eight(unpack_f16(w.x, w.y), unpack_f16(w.z, w.w));
#endif
#ifdef W_BF16
    let w = weights[i];
    return Eight(unpack_bf16(w.x, w.y), unpack_bf16(w.z, w.w));
#endif
}
