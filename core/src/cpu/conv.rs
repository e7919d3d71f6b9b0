//! Short causal convolution, a channel by itself, with SiLU (MATH.md §1).

use super::math;
use super::simd::{self, Kernel, LANES, Lanes};

/// `out[c] = silu(Σ_j weight[j, c] · inputs(j)[c])`: one row. `weight` is `[taps, channels]`, the last tap for the
/// newest input; `inputs(j)` is the input that tap j sees, `[channels]`. Without a weight only SiLU is done.
pub(crate) fn conv_silu<'a>(weight: Option<&[f32]>, inputs: impl Fn(usize) -> &'a [f32], taps: usize, out: &mut [f32]) {
    simd::run(Conv { weight, inputs, taps, out });
}

struct Conv<'a, F> {
    weight: Option<&'a [f32]>,
    inputs: F,
    taps: usize,
    out: &'a mut [f32],
}

impl<'a, F: Fn(usize) -> &'a [f32]> Kernel for Conv<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { weight, inputs, taps, out } = self;
        let n = out.len();
        match weight {
            None => out.copy_from_slice(inputs(0)),
            Some(weight) => {
                out.fill(0.0);
                for j in 0..taps {
                    let (w, x) = (&weight[j * n..][..n], inputs(j));
                    let (ob, ot) = out.as_chunks_mut::<LANES>();
                    let ((wb, wt), (xb, xt)) = (w.as_chunks::<LANES>(), x.as_chunks::<LANES>());
                    for ((o, w), x) in ob.iter_mut().zip(wb).zip(xb) {
                        L::load(w).fma(L::load(x), L::load(o)).store(o);
                    }
                    if !ot.is_empty() {
                        let mut o = math::pad(ot);
                        L::load(&math::pad(wt)).fma(L::load(&math::pad(xt)), L::load(&o)).store(&mut o);
                        ot.copy_from_slice(&o[..ot.len()]);
                    }
                }
            }
        }
        math::apply::<L, math::Silu>(out);
    }
}

/// The last `taps − 1` inputs after `n` more rows: `tail` `[taps − 1, channels]`, oldest first, in place;
/// `row(t)` is the input of row t.
pub(crate) fn advance_tail<'a>(tail: &mut [f32], channels: usize, n: usize, row: impl Fn(usize) -> &'a [f32]) {
    let kept = tail.len().checked_div(channels).unwrap_or(0);
    let old = kept.saturating_sub(n);
    tail.copy_within((kept - old) * channels.., 0);
    for (i, place) in tail[old * channels..].chunks_mut(channels.max(1)).enumerate() {
        place.copy_from_slice(row(n - (kept - old) + i));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole sequence at once, and any split of it with the tail carried over, are the definition.
    #[test]
    fn any_split_is_the_definition() {
        let (channels, rows) = (11, 9);
        for taps in [1usize, 2, 4, 6] {
            let x: Vec<f32> = (0..rows * channels).map(|i| ((i * 29 % 31) as f32 - 15.0) * 0.1).collect();
            let w: Vec<f32> = (0..taps * channels).map(|i| ((i * 17 % 13) as f32 - 6.0) * 0.1).collect();
            let want = |t: usize, c: usize| {
                let at = |j: usize| (t + j + 1).checked_sub(taps).map_or(0.0, |s| x[s * channels + c]);
                let u: f32 = (0..taps).map(|j| w[j * channels + c] * at(j)).sum();
                u / (1.0 + (-u).exp())
            };
            for split in 0..=rows {
                let mut tail = vec![0.0; (taps - 1) * channels];
                for (first, n) in [(0, split), (split, rows - split)] {
                    let row = |t: usize| &x[(first + t) * channels..][..channels];
                    for t in 0..n {
                        let mut out = vec![9.0; channels];
                        let input = |j: usize| match (t + j + 1).checked_sub(taps) {
                            Some(s) => row(s),
                            None => &tail[(t + j) * channels..][..channels],
                        };
                        conv_silu(Some(&w), input, taps, &mut out);
                        for c in 0..channels {
                            assert!((out[c] - want(first + t, c)).abs() < 1e-6, "taps {taps} row {} {c}", first + t);
                        }
                    }
                    advance_tail(&mut tail, channels, n, row);
                }
                let last: Vec<f32> = x[(rows + 1 - taps) * channels..].to_vec();
                assert_eq!(tail, last);
            }
        }
    }
}
