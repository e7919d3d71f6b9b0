// Threefry-2x32 with 20 rounds (Salmon et al., 2011): a counter generator of adds, rotations and exclusive ors, exact
// on every device. core/src/sampler.rs has the same function.
fn rotate_left(x: u32, n: u32) -> u32 {
    return (x << n) | (x >> (32u - n));
}

fn threefry(key: vec2<u32>, counter: vec2<u32>) -> vec2<u32> {
    let ks = vec3<u32>(key.x, key.y, 0x1BD11BDAu ^ key.x ^ key.y);
    var x = counter + ks.xy;
    // Rotation counts of the even and the odd groups of four rounds.
    let even = vec4<u32>(13u, 15u, 26u, 6u);
    let odd = vec4<u32>(17u, 29u, 16u, 24u);
    for (var group = 0u; group < 5u; group++) {
        let r = select(odd, even, (group & 1u) == 0u);
        x.x += x.y; x.y = rotate_left(x.y, r.x) ^ x.x;
        x.x += x.y; x.y = rotate_left(x.y, r.y) ^ x.x;
        x.x += x.y; x.y = rotate_left(x.y, r.z) ^ x.x;
        x.x += x.y; x.y = rotate_left(x.y, r.w) ^ x.x;
        let next = group + 1u;
        x.x += ks[next % 3u];
        x.y += ks[(next + 1u) % 3u] + next;
    }
    return x;
}

// -ln of a uniform in (0, 1], exactly exponential down to 2^-33: small values, which win races, keep full precision.
fn exponential(bits: u32) -> f32 {
    let v = (f32(bits) + 0.5) * 2.3283064365386963e-10; // 2^-32
    if v < 0.0625 {
        // -ln(1 - v) by its series: 1 - v would round v away.
        return v * (1.0 + v * (0.5 + v * (0.33333334 + v * (0.25 + v * (0.2 + v * (0.16666667 + v * 0.14285715))))));
    }
    // f32(bits) may round up to 2^32.
    return -log(max(1.0 - v, 5.9604645e-8)); // 2^-24
}
