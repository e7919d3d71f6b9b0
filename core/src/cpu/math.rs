//! Elementary functions on lanes, and loops over slices that use them.
//!
//! Polynomials after Cephes (single precision); errors against f64 are below 2 ulp on the ranges that occur, which the
//! tests check. Tails shorter than a vector are padded, so an element's value never depends on its place in a slice.

use super::simd::{LANES, Lanes};

/// `exp(x)`; 0 below −87.3, infinity above 88.4. NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<L: Lanes>(x: L) -> L {
    const LOWEST: f32 = -87.33;
    let clamped = x.at_least(L::splat(-88.0)).at_most(L::splat(88.8));
    let n = clamped.mul(L::splat(std::f32::consts::LOG2_E)).round().at_least(L::splat(-126.0));
    let r = n.fma(L::splat(-0.693_359_375), clamped);
    let r = n.fma(L::splat(2.121_944_4e-4), r);
    let mut p = L::splat(1.987_569_2e-4);
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p.fma(r, L::splat(c));
    }
    let p = p.fma(r.mul(r), r.add(L::splat(1.0)));
    x.select_lt(L::splat(LOWEST), L::splat(0.0), p.mul(n.exp2_int()))
}

/// `ln(x)` for positive normal x.
#[inline(always)]
pub(crate) fn ln<L: Lanes>(x: L) -> L {
    let (e, m) = x.split();
    let f = m.sub(L::splat(1.0));
    let mut p = L::splat(7.037_683_6e-2);
    for c in [
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ] {
        p = p.fma(f, L::splat(c));
    }
    let f2 = f.mul(f);
    let y = p.mul(f).mul(f2);
    let y = e.fma(L::splat(-2.121_944_4e-4), y);
    let y = f2.fma(L::splat(-0.5), y).add(f);
    e.fma(L::splat(0.693_359_375), y)
}

/// `1 / (1 + exp(−x))`.
#[inline(always)]
pub(crate) fn sigmoid<L: Lanes>(x: L) -> L {
    let one = L::splat(1.0);
    one.div(one.add(exp(L::splat(0.0).sub(x))))
}

/// `x · sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu<L: Lanes>(x: L) -> L {
    x.div(L::splat(1.0).add(exp(L::splat(0.0).sub(x))))
}

/// `ln(1 + exp(x))`, x itself above 20 (PyTorch's threshold).
#[inline(always)]
pub(crate) fn softplus<L: Lanes>(x: L) -> L {
    let y = exp(x.at_most(L::splat(21.0)));
    // ln(1 + y), with what 1 + y rounds away put back to first order.
    let u = y.add(L::splat(1.0));
    let lost = y.sub(u.sub(L::splat(1.0)));
    let soft = ln(u).add(lost.div(u));
    L::splat(20.0).select_lt(x, x, soft)
}

/// A function that [`apply`] can put into a loop. (Passed as a value it would be called through a shim, which is
/// compiled without the lanes' instructions.)
pub(crate) trait Function {
    /// Mark it `#[inline(always)]`.
    fn of<L: Lanes>(x: L) -> L;
}

macro_rules! function {
    ($name:ident, $f:ident) => {
        #[doc = concat!("[`", stringify!($f), "`] of each element.")]
        pub(crate) struct $name;
        impl Function for $name {
            #[inline(always)]
            fn of<L: Lanes>(x: L) -> L {
                $f(x)
            }
        }
    };
}
function!(Exp, exp);
function!(Ln, ln);
function!(Sigmoid, sigmoid);
function!(Silu, silu);
function!(Softplus, softplus);

/// Applies a function to each element of `x` in place.
#[inline(always)]
pub(crate) fn apply<L: Lanes, F: Function>(x: &mut [f32]) {
    let (body, tail) = x.as_chunks_mut::<LANES>();
    for c in body {
        F::of(L::load(c)).store(c);
    }
    if !tail.is_empty() {
        let mut t = pad(tail);
        F::of(L::load(&t)).store(&mut t);
        tail.copy_from_slice(&t[..tail.len()]);
    }
}

/// Applies a closure of a few operations to each element of `x` in place; larger ones belong into [`apply`].
#[inline(always)]
pub(crate) fn map<L: Lanes>(x: &mut [f32], f: impl Fn(L) -> L) {
    let (body, tail) = x.as_chunks_mut::<LANES>();
    for c in body {
        f(L::load(c)).store(c);
    }
    if !tail.is_empty() {
        let mut t = pad(tail);
        f(L::load(&t)).store(&mut t);
        tail.copy_from_slice(&t[..tail.len()]);
    }
}

/// `out[i] = f(out[i], x[i])`; lengths must be equal.
#[inline(always)]
pub(crate) fn zip<L: Lanes>(out: &mut [f32], x: &[f32], f: impl Fn(L, L) -> L) {
    debug_assert_eq!(out.len(), x.len());
    let (ob, ot) = out.as_chunks_mut::<LANES>();
    let (xb, xt) = x.as_chunks::<LANES>();
    for (o, x) in ob.iter_mut().zip(xb) {
        f(L::load(o), L::load(x)).store(o);
    }
    if !ot.is_empty() {
        let mut o = pad(ot);
        f(L::load(&o), L::load(&pad(xt))).store(&mut o);
        ot.copy_from_slice(&o[..ot.len()]);
    }
}

/// `Σ a[i] b[i]`: lane by lane over the slices, then across the lanes.
#[inline(always)]
pub(crate) fn dot<L: Lanes>(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    let (a2, a) = a.as_chunks::<{ 2 * LANES }>();
    let (b2, b) = b.as_chunks::<{ 2 * LANES }>();
    let (mut even, mut odd) = (L::splat(0.0), L::splat(0.0));
    for (a, b) in a2.iter().zip(b2) {
        let ((a, _), (b, _)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
        even = L::load(&a[0]).fma(L::load(&b[0]), even);
        odd = L::load(&a[1]).fma(L::load(&b[1]), odd);
    }
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        even = L::load(&pad(a)).fma(L::load(&pad(b)), even);
    }
    even.add(odd).sum()
}

/// The slice's elements, then zeros. At most eight are taken.
#[inline(always)]
pub(crate) fn pad(x: &[f32]) -> [f32; LANES] {
    let mut t = [0.0; LANES];
    for (t, x) in t.iter_mut().zip(x) {
        *t = *x;
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::{self, Kernel};

    struct Apply<'a>(&'a mut [f32], usize);
    impl Kernel for Apply<'_> {
        type Output = ();
        #[inline(always)]
        fn run<L: Lanes>(self) {
            match self.1 {
                0 => apply::<L, Exp>(self.0),
                1 => apply::<L, Ln>(self.0),
                2 => apply::<L, Sigmoid>(self.0),
                3 => apply::<L, Silu>(self.0),
                _ => apply::<L, Softplus>(self.0),
            }
        }
    }

    #[test]
    fn functions_match_f64() {
        let wide: Vec<f32> = (0..20_001).map(|i| (i as f32 - 10_000.0) * 0.0087).collect();
        let positive: Vec<f32> = (0..20_001).map(|i| 1e-7 * 1.0017f32.powi(i)).collect();
        type F = fn(f64) -> f64;
        let cases: [(usize, &[f32], F); 5] = [
            (0, &wide, f64::exp),
            (1, &positive, f64::ln),
            (2, &wide, |x| 1.0 / (1.0 + (-x).exp())),
            (3, &wide, |x| x / (1.0 + (-x).exp())),
            (4, &wide, |x| if x > 20.0 { x } else { x.exp().ln_1p() }),
        ];
        for (which, x, f) in cases {
            for plain in [false, true] {
                let mut y = x.to_vec();
                if plain {
                    simd::tests::run_plain(Apply(&mut y, which));
                } else {
                    simd::run(Apply(&mut y, which));
                }
                for (x, y) in x.iter().zip(&y) {
                    let want = f(f64::from(*x));
                    let err = (f64::from(*y) - want).abs();
                    let bound = if which == 1 { 2e-7 * want.abs().max(0.1) } else { 3e-7 * want.abs() + 2e-38 };
                    assert!(err <= bound, "function {which} (plain {plain}) at {x}: {y} instead of {want}");
                }
            }
        }
    }

    #[test]
    fn extremes() {
        let mut x = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -1e4, 1e4, -87.4, 88.0, 0.0, -0.0];
        simd::run(Apply(&mut x, 0));
        assert_eq!((x[0], x[1], x[3], x[4], x[5], x[7], x[8]), (0.0, f32::INFINITY, 0.0, f32::INFINITY, 0.0, 1.0, 1.0));
        assert!(x[2].is_nan() && x[6].is_finite());
        let mut x = [-200.0f32, 200.0, f32::NAN];
        simd::run(Apply(&mut x, 3));
        assert_eq!(x[1], 200.0);
        assert!(x[0].abs() < 1e-30 && x[2].is_nan());
    }
}
