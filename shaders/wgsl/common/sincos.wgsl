// Cosine and sine of large angles. WGSL leaves both to the device, with errors that grow with the angle; here an angle
// is reduced in integers, exactly, so that a million positions on the error is still below 2e-7.

// The 64 bits of a product, high word first.
fn multiply(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2<u32>((a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u), (other << 16u) | (low & 0xffffu));
}

// The fraction of a turn that an angle in [0.5, 2^40) radians is, in units of 2^-32: angle / 2π without its whole part.
fn turns(angle: f32) -> u32 {
    let bits = bitcast<u32>(angle);
    // angle = mantissa · 2^(exponent − 150)
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    let exponent = bits >> 23u;
    // mantissa / 2π in words: 1/2π is 0.28be60db 9391054a 7f09d5f4 in base 2^32.
    let a = multiply(mantissa, 0x28be60dbu);
    let b = multiply(mantissa, 0x9391054au);
    let c = multiply(mantissa, 0x7f09d5f4u);
    let second = b.y + c.x;
    let carry = select(0u, 1u, second < b.y);
    let first = a.y + b.x + carry;
    // Whether that sum passed 2^32; a.x is below 2^24, so that it has room.
    let whole = a.x + select(0u, 1u, first < a.y);
    if exponent < 150u {
        let down = 150u - exponent;
        return (whole << (32u - down)) | (first >> down);
    }
    let up = exponent - 150u;
    if up == 0u {
        return first;
    }
    return (first << up) | (second >> (32u - up));
}

// (cos, sin) of an angle ≥ 0.
fn cos_sin(angle: f32) -> vec2<f32> {
    var r = angle;
    var quarter = 0u;
    if angle >= 0.5 {
        let t = turns(angle);
        quarter = (t + 0x20000000u) >> 30u;
        r = f32(bitcast<i32>(t - (quarter << 30u))) * 1.4629180792671596e-9; // 2π / 2^32
    }
    // |r| ≤ π/4: polynomials with errors below 1e-8 (coefficients: Cephes).
    let z = r * r;
    let s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    let turned = select(vec2<f32>(c, s), vec2<f32>(-s, c), (quarter & 1u) == 1u);
    return select(turned, -turned, (quarter & 2u) == 2u);
}
