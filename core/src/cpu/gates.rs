//! Gates of the delta rule from their projections (MATH.md §1, §8.3). One row a call, all in f32.

use super::math::{self, Sigmoid, Softplus};
use super::simd::{self, Kernel, Lanes};
use crate::ops::GateForm;

/// `β = sigmoid(b) · scale`, in place.
pub(crate) fn beta(b: &mut [f32], scale: f32) {
    simd::run(BetaGate { b, scale });
}

struct BetaGate<'a> {
    b: &'a mut [f32],
    scale: f32,
}

impl Kernel for BetaGate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        math::apply::<L, Sigmoid>(self.b);
        if self.scale != 1.0 {
            let scale = L::splat(self.scale);
            math::map::<L>(self.b, |b| b.mul(scale));
        }
    }
}

/// The log decay g from its projection, in place: `a` and `dt_bias` `[heads · width]`, `rate` `[heads]`, which is
/// `exp(A_log)`.
///
/// - softplus form: `g = −rate · softplus(a + dt_bias)`
/// - bounded form: `g = lower · sigmoid(rate · (a + dt_bias))`
pub(crate) fn decay(a: &mut [f32], dt_bias: &[f32], rate: &[f32], form: GateForm) {
    simd::run(DecayGate { a, dt_bias, rate, form });
}

struct DecayGate<'a> {
    a: &'a mut [f32],
    dt_bias: &'a [f32],
    rate: &'a [f32],
    form: GateForm,
}

impl Kernel for DecayGate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { a, dt_bias, rate, form } = self;
        let width = a.len() / rate.len().max(1);
        math::zip::<L>(a, dt_bias, |a, b| a.add(b));
        match form {
            GateForm::Softplus => {
                math::apply::<L, Softplus>(a);
                times::<L>(a, rate, width, -1.0);
            }
            GateForm::Bounded(lower) => {
                times::<L>(a, rate, width, 1.0);
                math::apply::<L, Sigmoid>(a);
                let lower = L::splat(lower);
                math::map::<L>(a, |s| s.mul(lower));
            }
        }
    }
}

/// Multiplies each head's `width` elements by its factor.
#[inline(always)]
fn times<L: Lanes>(x: &mut [f32], rate: &[f32], width: usize, sign: f32) {
    if width == 1 {
        let sign = L::splat(sign);
        math::zip::<L>(x, rate, |x, r| x.mul(r).mul(sign));
    } else {
        for (x, r) in x.chunks_mut(width).zip(rate) {
            let r = L::splat(sign * r);
            math::map::<L>(x, |x| x.mul(r));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_their_formulas() {
        let a: Vec<f32> = (0..24).map(|i| (i as f32 - 12.0) * 2.5).collect();
        let bias: Vec<f32> = (0..24).map(|i| i as f32 * 0.1).collect();
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let softplus = |x: f64| if x > 20.0 { x } else { x.exp().ln_1p() };
        for heads in [24, 3] {
            let rate: Vec<f32> = (0..heads).map(|h| 0.1 + h as f32).collect();
            for form in [GateForm::Softplus, GateForm::Bounded(-5.0)] {
                let mut g = a.clone();
                decay(&mut g, &bias, &rate, form);
                for i in 0..24 {
                    let (x, r) = (f64::from(a[i] + bias[i]), f64::from(rate[i * heads / 24]));
                    let want = match form {
                        GateForm::Softplus => -r * softplus(x),
                        GateForm::Bounded(l) => f64::from(l) * sigmoid(r * x),
                    };
                    assert!((f64::from(g[i]) - want).abs() <= 2e-6 * want.abs().max(1e-3), "{form:?} {i}");
                }
            }
        }
        let mut b = a.clone();
        beta(&mut b, 2.0);
        assert!((0..24).all(|i| (f64::from(b[i]) - 2.0 * sigmoid(f64::from(a[i]))).abs() < 1e-6));
    }
}
