//! What is done to rows on their way into a product: norms, output gates, SwiGLU. One row a call.

use super::math::{self, Sigmoid, Silu};
use super::simd::{self, Kernel, Lanes};
use crate::ops::Activation;

/// `out = x / sqrt(mean x² + eps) ⊙ w`; x, w, out `[n]`.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    out.copy_from_slice(x);
    simd::run(RmsNorm { x: out, weight: Some(weight), eps });
}

/// In place; without a weight nothing is done.
struct RmsNorm<'a> {
    x: &'a mut [f32],
    weight: Option<&'a [f32]>,
    eps: f32,
}

impl Kernel for RmsNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        if let Some(weight) = self.weight {
            let mean = math::dot::<L>(self.x, self.x) / self.x.len() as f32;
            let r = L::splat((mean + self.eps).sqrt().recip());
            math::zip::<L>(self.x, weight, |x, w| x.mul(r).mul(w));
        }
    }
}

/// Per head of `head_dim`: RMSNorm with `weight` `[head_dim]` (if any), then times the activated gate (if any).
/// x, gate, out `[heads · head_dim]`.
pub(crate) fn head_norm(
    x: &[f32],
    head_dim: usize,
    weight: Option<&[f32]>,
    eps: f32,
    gate: Option<(&[f32], Activation)>,
    out: &mut [f32],
) {
    out.copy_from_slice(x);
    simd::run(HeadNorm { x: out, head_dim, weight, eps, gate });
}

struct HeadNorm<'a> {
    x: &'a mut [f32],
    head_dim: usize,
    weight: Option<&'a [f32]>,
    eps: f32,
    gate: Option<(&'a [f32], Activation)>,
}

impl Kernel for HeadNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { x, head_dim, weight, eps, gate } = self;
        for x in x.chunks_mut(head_dim) {
            RmsNorm { x, weight, eps }.run::<L>();
        }
        match gate {
            None => {}
            Some((gate, Activation::Silu)) => multiply::<L, Silu>(x, gate),
            Some((gate, Activation::Sigmoid)) => multiply::<L, Sigmoid>(x, gate),
        }
    }
}

/// `x ← x ⊙ f(gate)`.
#[inline(always)]
fn multiply<L: Lanes, F: math::Function>(x: &mut [f32], gate: &[f32]) {
    for (x, gate) in x.chunks_mut(64).zip(gate.chunks(64)) {
        let mut g = [0.0; 64];
        let g = &mut g[..gate.len()];
        g.copy_from_slice(gate);
        math::apply::<L, F>(g);
        math::zip::<L>(x, g, |x, g| x.mul(g));
    }
}

/// `out = silu(gate) ⊙ up`, `[n]` each.
pub(crate) fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
    simd::run(SwiGlu { gate, up, out });
}

struct SwiGlu<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for SwiGlu<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        self.out.copy_from_slice(self.up);
        multiply::<L, Silu>(self.out, self.gate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 37 % 23) as f32 - 11.0) * 0.3).collect()
    }
    fn silu(x: f32) -> f32 {
        x / (1.0 + (-x).exp())
    }

    #[test]
    fn norms_and_gates() {
        for n in [1, 5, 64, 130] {
            let x = row(n);
            let w: Vec<f32> = x.iter().map(|x| 1.0 + 0.1 * x).collect();
            let r = (x.iter().map(|x| x * x).sum::<f32>() / n as f32 + 1e-3).sqrt().recip();
            let mut out = vec![0.0; n];
            rms_norm(&x, &w, 1e-3, &mut out);
            assert!((0..n).all(|i| (out[i] - x[i] * r * w[i]).abs() < 1e-5));

            let two = [x.clone(), x.iter().map(|x| x * 2.0).collect()].concat();
            let gate = row(2 * n);
            let mut gated = vec![0.0; 2 * n];
            head_norm(&two, n, Some(&w), 0.0, Some((&gate, Activation::Silu)), &mut gated);
            let r = (x.iter().map(|x| x * x).sum::<f32>() / n as f32).sqrt().recip();
            assert!((0..2 * n).all(|i| (gated[i] - x[i % n] * r * w[i % n] * silu(gate[i])).abs() < 1e-4));
            head_norm(&two, n, None, 0.0, Some((&gate, Activation::Sigmoid)), &mut gated);
            assert!((0..2 * n).all(|i| (gated[i] - two[i] / (1.0 + (-gate[i]).exp())).abs() < 1e-5));
            head_norm(&two, n, None, 0.0, None, &mut gated);
            assert_eq!(gated, two);

            swiglu(&x, &w, &mut out);
            assert!((0..n).all(|i| (out[i] - silu(x[i]) * w[i]).abs() < 1e-5));
        }
    }
}
