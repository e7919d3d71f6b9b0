//! The exact theory behind the preconditioned rules (MATH.md §8.1; arXiv 2604.21100, §3.1 and appendix B), in f64.
//!
//! With `Gram_t = λI + Σ kᵢᵀkᵢ`, `P_t = Gram_t⁻¹` and `C_t = Σ kᵢᵀvᵢ`, the state that fits all values seen so far best
//! is the ridge regression `S*_t = P_t C_t`. Two recurrences reach it at every token:
//!
//! - preconditioned linear attention keeps `C_t` and reads with `q̃_t = q_t P_t`;
//! - the preconditioned delta rule writes with `k̃_t = k_t P_{t−1} / (1 + k_t P_{t−1} k_tᵀ)` and reads with `q_t`.
//!
//! They are equal because of the Sherman–Morrison formula, and only for the exact P: the trained rules replace it by a
//! diagonal, which makes them different models ([`crate::Rule::PRECONDITIONED_DELTANET`] and its relatives).
//!
//! ```
//! use deltanet::cpu::theory::{preconditioned_delta_rule, preconditioned_linear_attention, ridge_regression};
//!
//! // Three tokens, K = V = 2, λ = 0.5.
//! let (q, k, v) = ([1.0, 0.0, 0.0, 1.0, 1.0, 1.0], [1.0, 2.0, -1.0, 0.5, 0.3, 0.3], [1.0, 0.0, 0.0, 1.0, 2.0, -1.0]);
//! let attention = preconditioned_linear_attention(&q, &k, &v, 2, 2, 0.5)?;
//! let (delta, state) = preconditioned_delta_rule(&q, &k, &v, 2, 2, 0.5)?;
//! let best = ridge_regression(&k, &v, 2, 2, 0.5)?;
//!
//! let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
//! assert!(close(&attention, &delta), "the two recurrences answer alike, token by token");
//! assert!(close(&state, &best), "and end at the least-squares solution");
//! # Ok::<(), deltanet::Error>(())
//! ```

use crate::error::{Error, Result};

/// Outputs `q_t P_t C_t`, `[T, V]`, of linear attention whose queries are preconditioned exactly.
///
/// q, k `[T, K]`, v `[T, V]`; λ > 0.
///
/// # Errors
/// [`Error::Argument`] when lengths do not fit together or λ is not a positive number.
pub fn preconditioned_linear_attention(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    key_dim: usize,
    value_dim: usize,
    lambda: f64,
) -> Result<Vec<f64>> {
    check(Some(q), k, v, key_dim, value_dim, lambda)?;
    let mut inverse = Inverse::new(key_dim, lambda);
    let mut c = vec![0.0; key_dim * value_dim];
    let mut o = Vec::with_capacity(v.len());
    for ((q, k), v) in q.chunks(key_dim).zip(k.chunks(key_dim)).zip(v.chunks(value_dim)) {
        inverse.absorb(k);
        write(&mut c, k, v);
        o.extend(read(&c, &inverse.times(q), value_dim));
    }
    Ok(o)
}

/// Outputs `q_t S_t`, `[T, V]`, and the last state `[K, V]`, of the delta rule whose write keys are preconditioned
/// exactly (β = 1, no decay). Arguments and errors as for [`preconditioned_linear_attention`].
pub fn preconditioned_delta_rule(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    key_dim: usize,
    value_dim: usize,
    lambda: f64,
) -> Result<(Vec<f64>, Vec<f64>)> {
    check(Some(q), k, v, key_dim, value_dim, lambda)?;
    let mut inverse = Inverse::new(key_dim, lambda);
    let mut s = vec![0.0; key_dim * value_dim];
    let mut o = Vec::with_capacity(v.len());
    for ((q, k), v) in q.chunks(key_dim).zip(k.chunks(key_dim)).zip(v.chunks(value_dim)) {
        // absorb gives k P_{t−1} / (1 + k P_{t−1} kᵀ), which is also k P_t.
        let write_key = inverse.absorb(k);
        let error: Vec<f64> = v.iter().zip(read(&s, k, value_dim)).map(|(v, known)| v - known).collect();
        write(&mut s, &write_key, &error);
        o.extend(read(&s, q, value_dim));
    }
    Ok((o, s))
}

/// `(λI + KᵀK)⁻¹ KᵀV`, `[K, V]`, by Cholesky's factorisation: neither recurrence has a part in it. Arguments and
/// errors as for [`preconditioned_linear_attention`].
pub fn ridge_regression(k: &[f64], v: &[f64], key_dim: usize, value_dim: usize, lambda: f64) -> Result<Vec<f64>> {
    check(None, k, v, key_dim, value_dim, lambda)?;
    let n = key_dim;
    let mut gram = vec![0.0; n * n];
    (0..n).for_each(|i| gram[i * n + i] = lambda);
    let mut x = vec![0.0; n * value_dim];
    for (k, v) in k.chunks(n).zip(v.chunks(value_dim)) {
        write(&mut gram, k, k);
        write(&mut x, k, v);
    }
    // gram = L Lᵀ, L in its lower half.
    for i in 0..n {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|m| gram[i * n + m] * gram[j * n + m]).sum();
            let rest = gram[i * n + j] - sum;
            gram[i * n + j] = if i == j { rest.sqrt() } else { rest / gram[j * n + j] };
        }
    }
    // L Y = KᵀV from the top, then Lᵀ X = Y from the bottom, in place.
    for c in 0..value_dim {
        for i in 0..n {
            let sum: f64 = (0..i).map(|m| gram[i * n + m] * x[m * value_dim + c]).sum();
            x[i * value_dim + c] = (x[i * value_dim + c] - sum) / gram[i * n + i];
        }
        for i in (0..n).rev() {
            let sum: f64 = (i + 1..n).map(|m| gram[m * n + i] * x[m * value_dim + c]).sum();
            x[i * value_dim + c] = (x[i * value_dim + c] - sum) / gram[i * n + i];
        }
    }
    Ok(x)
}

/// `P = (λI + Σ kᵀk)⁻¹`, symmetric `[K, K]`, kept up to date by the Sherman–Morrison formula.
struct Inverse {
    p: Vec<f64>,
    n: usize,
}

impl Inverse {
    fn new(n: usize, lambda: f64) -> Self {
        let mut p = vec![0.0; n * n];
        (0..n).for_each(|i| p[i * n + i] = lambda.recip());
        Self { p, n }
    }

    /// `x P`.
    fn times(&self, x: &[f64]) -> Vec<f64> {
        self.p.chunks(self.n).map(|row| dot(row, x)).collect()
    }

    /// Takes a key into the sum, and returns `k P / (1 + k P kᵀ)` with the P before: `k P` with the P after.
    fn absorb(&mut self, k: &[f64]) -> Vec<f64> {
        let kp = self.times(k);
        let scale = (1.0 + dot(&kp, k)).recip();
        let gain: Vec<f64> = kp.iter().map(|x| x * scale).collect();
        for (row, g) in self.p.chunks_mut(self.n).zip(&gain) {
            row.iter_mut().zip(&kp).for_each(|(p, x)| *p -= g * x);
        }
        gain
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `s += kᵀ v`.
fn write(s: &mut [f64], k: &[f64], v: &[f64]) {
    for (row, k) in s.chunks_mut(v.len()).zip(k) {
        row.iter_mut().zip(v).for_each(|(s, v)| *s += k * v);
    }
}

/// `x s`.
fn read(s: &[f64], x: &[f64], value_dim: usize) -> Vec<f64> {
    let mut o = vec![0.0; value_dim];
    for (row, x) in s.chunks(value_dim).zip(x) {
        o.iter_mut().zip(row).for_each(|(o, s)| *o += x * s);
    }
    o
}

fn check(q: Option<&[f64]>, k: &[f64], v: &[f64], key_dim: usize, value_dim: usize, lambda: f64) -> Result<()> {
    if key_dim == 0 || value_dim == 0 {
        return Err(Error::argument("key_dim and value_dim", "at least 1", format!("{key_dim} and {value_dim}")));
    }
    let tokens = k.len() / key_dim;
    let fits = |name: &str, len: usize, width: usize| {
        let error = || Error::argument(name, format!("[{tokens}, {width}]"), format!("{len} elements"));
        if tokens.checked_mul(width) == Some(len) { Ok(()) } else { Err(error()) }
    };
    fits("k", k.len(), key_dim)?;
    fits("v", v.len(), value_dim)?;
    fits("q", q.map_or(k.len(), <[f64]>::len), key_dim)?;
    if lambda > 0.0 && lambda.is_finite() {
        return Ok(());
    }
    Err(Error::argument("lambda", "a number above 0", lambda))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, seed: u64) -> Vec<f64> {
        let mut s = seed;
        (0..n)
            .map(|_| {
                s = s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (s >> 11) as f64 / (1u64 << 52) as f64 - 1.0
            })
            .collect()
    }

    #[test]
    fn attention_delta_rule_and_ridge_regression_are_one() {
        for (tokens, key_dim, value_dim, lambda) in
            [(1, 1, 1, 1.0), (7, 5, 3, 0.1), (40, 16, 8, 1e-3), (64, 12, 20, 2.0)]
        {
            let (q, k) = (numbers(tokens * key_dim, 1), numbers(tokens * key_dim, 2));
            let v = numbers(tokens * value_dim, 3);
            let attention = preconditioned_linear_attention(&q, &k, &v, key_dim, value_dim, lambda).unwrap();
            let (delta, state) = preconditioned_delta_rule(&q, &k, &v, key_dim, value_dim, lambda).unwrap();
            for t in 1..=tokens {
                // At every token, not only at the end.
                let (k, v) = (&k[..t * key_dim], &v[..t * value_dim]);
                let best = ridge_regression(k, v, key_dim, value_dim, lambda).unwrap();
                let want = read(&best, &q[(t - 1) * key_dim..t * key_dim], value_dim);
                for (c, want) in want.iter().enumerate() {
                    let at = (t - 1) * value_dim + c;
                    assert!((attention[at] - want).abs() < 1e-9, "attention {t} {c}: {} {want}", attention[at]);
                    assert!((delta[at] - want).abs() < 1e-9, "delta rule {t} {c}: {} {want}", delta[at]);
                }
                if t == tokens {
                    assert!(state.iter().zip(&best).all(|(a, b)| (a - b).abs() < 1e-9));
                }
            }
        }
    }

    #[test]
    fn a_diagonal_preconditioner_is_something_else() {
        // The same delta rule with P replaced by its diagonal misses the solution (appendix B's point).
        let (k, v) = ([1.0, 1.0, 1.0, -0.5], [1.0, 2.0]);
        let best = ridge_regression(&k, &v, 2, 1, 0.1).unwrap();
        let mut sums = [0.1; 2];
        let mut s = vec![0.0; 2];
        for (k, v) in k.chunks(2).zip(v.chunks(1)) {
            let pk: Vec<f64> = k.iter().zip(&sums).map(|(k, a)| k / a).collect();
            let scale = (1.0 + dot(&pk, k)).recip();
            let error = v[0] - read(&s, k, 1)[0];
            write(&mut s, &pk.iter().map(|x| x * scale).collect::<Vec<_>>(), &[error]);
            sums.iter_mut().zip(k).for_each(|(a, k)| *a += k * k);
        }
        assert!(s.iter().zip(&best).any(|(a, b)| (a - b).abs() > 0.1), "{s:?} {best:?}");
    }

    #[test]
    fn wrong_sizes_are_errors() {
        assert!(ridge_regression(&[1.0; 4], &[1.0; 3], 2, 1, 1.0).is_err());
        assert!(ridge_regression(&[1.0; 4], &[1.0; 2], 2, 1, 0.0).is_err());
        assert!(ridge_regression(&[1.0; 4], &[1.0; 2], 0, 1, 1.0).is_err());
        assert!(preconditioned_delta_rule(&[1.0; 2], &[1.0; 4], &[1.0; 2], 2, 1, 1.0).is_err());
    }
}
