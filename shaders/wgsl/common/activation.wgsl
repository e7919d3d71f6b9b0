// Activations. exp never overflows to a NaN here: 1 / (1 + inf) is 0, and silu multiplies x by that 0 only where x is
// finite.

fn sigmoid4(x: vec4<f32>) -> vec4<f32> {
    return 1.0 / (1.0 + exp(-x));
}

fn silu4(x: vec4<f32>) -> vec4<f32> {
    return x / (1.0 + exp(-x));
}

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-x));
}

fn silu(x: f32) -> f32 {
    return x / (1.0 + exp(-x));
}

// As PyTorch: linear above 20. log(1 + e^x) loses all digits of small e^x; the series keeps them.
fn softplus(x: f32) -> f32 {
    let e = exp(min(x, 20.0));
    let small = e * (1.0 - e * (0.5 - e * (0.33333334 - 0.25 * e)));
    return select(select(log(1.0 + e), small, e < 0.015625), x, x > 20.0);
}
