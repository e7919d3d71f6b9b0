//! Softmax attention on the CPU: the operator ([`attend`]), and the kernel that models use, one row over keys and
//! values that lie in pieces: a cache or a ring, and the rows at hand.
//!
//! A token's entry is `k|v`, `[2, kv_heads, head_dim]`, k after norm and rotary embedding.

use std::sync::Arc;

use super::math::{self, Exp};
use super::norm;
use super::parallel::{self, Shared};
use super::simd::{self, Kernel, LANES, Lanes};
use crate::attention::{Inputs, Options, Shape};
use crate::error::{Error, Result};

/// Causal softmax attention; returns `[B, T, H, D]`. See [`crate::attention`] for what is computed, with an example.
///
/// `2·D` multiplications for every query head and pair of tokens that see each other, on all threads of rayon's
/// current pool; besides the result, memory for the prepared queries, keys and values.
///
/// # Errors
/// What [`Shape::check`] finds; [`Error::OutOfMemory`].
pub fn attend(shape: &Shape, inputs: &Inputs<'_>, options: &Options) -> Result<Vec<f32>> {
    shape.check(inputs, options)?;
    let Shape { batch, tokens, heads, kv_heads, head_dim } = *shape;
    let rows = batch * tokens;
    let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
    let entry = 2 * kv_width;
    let buffer = |name: &str, n: usize| -> Result<Vec<f32>> {
        let mut x = Vec::new();
        x.try_reserve_exact(n).map_err(|_| Error::OutOfMemory(format!("attention's {name}: {n} f32")))?;
        x.resize(n, 0.0);
        Ok(x)
    };
    let mut queries = buffer("queries", rows * q_width)?;
    let mut entries = buffer("keys and values", rows * entry)?;
    let mut out = buffer("output", rows * q_width)?;
    // A row's first one that it may see, and its own place in its sequence.
    let mut place = vec![(0, 0); rows];
    for (first, length) in shape.spans(inputs) {
        place.iter_mut().skip(first).take(length).enumerate().for_each(|(i, p)| *p = (first, i));
    }
    let norm = |k: bool| inputs.qk_norm.map(|n| (if k { n.k } else { n.q }, n.eps));
    {
        let (queries, entries) = (Shared::new(&mut queries), Shared::new(&mut entries));
        parallel::for_ranges(rows, 16, |range| {
            let mut table = vec![0.0; head_dim];
            for r in range {
                // SAFETY: every row belongs to one range.
                let (q, e) = unsafe { (queries.get(r * q_width, q_width), entries.get(r * entry, entry)) };
                let (k, v) = e.split_at_mut(kv_width);
                q.copy_from_slice(&inputs.q[r * q_width..][..q_width]);
                k.copy_from_slice(&inputs.k[r * kv_width..][..kv_width]);
                v.copy_from_slice(&inputs.v[r * kv_width..][..kv_width]);
                let table = options.rope_theta.map(|theta| {
                    rotary_table(place[r].1 as u64, head_dim, theta, &mut table);
                    &table[..]
                });
                norm_and_rotate(q, head_dim, norm(false), table);
                norm_and_rotate(k, head_dim, norm(true), table);
            }
        });
    }
    let scale = shape.scale(options);
    let group = heads / kv_heads * head_dim;
    let shared = Shared::new(&mut out);
    parallel::for_each(rows * kv_heads, |i| {
        let (r, kv_head) = (i / kv_heads, i % kv_heads);
        let (first, index) = place[r];
        let first = first + (index + 1).saturating_sub(options.window.unwrap_or(usize::MAX));
        let q = &queries[r * q_width + kv_head * group..][..group];
        let pieces = [&[][..], &[], &entries[first * entry..(r + 1) * entry]];
        // SAFETY: every task has a row and heads of its own.
        let out = unsafe { shared.get(r * q_width + kv_head * group, group) };
        attend_row(Attend { q, scale, pages: &[], pieces, entry, kv_head, head_dim, out });
    });
    Ok(out)
}

/// Rotary embedding of one position, half-split form: `[head_dim / 2]` cosines, then as many sines.
///
/// Angles are products of f32 numbers, as in the reference implementations; only their cosines are exact.
pub(crate) fn rotary_table(position: u64, head_dim: usize, theta: f32, table: &mut [f32]) {
    let half = head_dim / 2;
    let (cos, sin) = table.split_at_mut(half);
    for i in 0..half {
        let inverse = f64::from(theta).powf(-2.0 * i as f64 / head_dim as f64) as f32;
        let angle = f64::from(position as f32 * inverse);
        cos[i] = angle.cos() as f32;
        sin[i] = angle.sin() as f32;
    }
}

/// RMSNorm (if there is a weight) and rotary embedding (if there is a table) of each head, in place.
pub(crate) fn norm_and_rotate(x: &mut [f32], head_dim: usize, weight: Option<(&[f32], f32)>, table: Option<&[f32]>) {
    for head in x.chunks_mut(head_dim) {
        if let Some((weight, eps)) = weight {
            let before = head.to_vec();
            norm::rms_norm(&before, weight, eps, head);
        }
        if let Some(table) = table {
            let half = head_dim / 2;
            let (a, b) = head.split_at_mut(half);
            for i in 0..half {
                let (x, y, c, s) = (a[i], b[i], table[i], table[half + i]);
                a[i] = x * c - y * s;
                b[i] = y * c + x * s;
            }
        }
    }
}

/// One query row's attention for the heads of one group.
pub(crate) struct Attend<'a> {
    /// Queries of the group, `[heads of the group, head_dim]`.
    pub q: &'a [f32],
    /// Of the scores.
    pub scale: f32,
    /// Entries seen, oldest first, in pieces of whole tokens: pages of a cache, then up to three more.
    pub pages: &'a [Arc<Vec<f32>>],
    pub pieces: [&'a [f32]; 3],
    /// Elements a token's entry: `2 · kv_heads · head_dim`.
    pub entry: usize,
    /// Which of the k and v heads.
    pub kv_head: usize,
    pub head_dim: usize,
    /// `[heads of the group, head_dim]`.
    pub out: &'a mut [f32],
}

/// `out = softmax(scale · q kᵀ) v`.
pub(crate) fn attend_row(job: Attend<'_>) {
    simd::run(job);
}

impl Kernel for Attend<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { q, scale, pages, pieces, entry, kv_head, head_dim, out } = self;
        let all = || pages.iter().map(|p| p.as_slice()).chain(pieces);
        let n: usize = all().map(|p| p.len() / entry).sum();
        let mut scores = vec![0.0f32; n];
        let at = kv_head * head_dim;
        for (q, out) in q.chunks(head_dim).zip(out.chunks_mut(head_dim)) {
            let mut top = f32::NEG_INFINITY;
            let mut first = 0;
            for piece in all() {
                for (s, e) in scores[first..].iter_mut().zip(piece.chunks_exact(entry)) {
                    *s = math::dot::<L>(q, &e[at..at + head_dim]) * scale;
                    top = top.max(*s);
                }
                first += piece.len() / entry;
            }
            let largest = L::splat(top);
            math::map::<L>(&mut scores, |s| s.sub(largest));
            math::apply::<L, Exp>(&mut scores);
            let total: f32 = sum::<L>(&scores);
            out.fill(0.0);
            let mut first = 0;
            for piece in all() {
                for (p, e) in scores[first..].iter().zip(piece.chunks_exact(entry)) {
                    let p = L::splat(p / total);
                    math::zip::<L>(out, &e[entry / 2 + at..][..head_dim], |o, v| p.fma(v, o));
                }
                first += piece.len() / entry;
            }
        }
    }
}

#[inline(always)]
fn sum<L: Lanes>(x: &[f32]) -> f32 {
    let mut sum = L::splat(0.0);
    for c in x.chunks(LANES) {
        sum = sum.add(L::load(&math::pad(c)));
    }
    sum.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_is_its_formula() {
        let (head_dim, kv_heads, group, tokens) = (10, 2, 3, 17);
        let entry = 2 * kv_heads * head_dim;
        let number = |i: usize| ((i * 7919 % 101) as f32 - 50.0) * 0.03;
        let cache: Vec<f32> = (0..tokens * entry).map(number).collect();
        let q: Vec<f32> = (0..group * head_dim).map(|i| number(i + 5)).collect();
        for (a, b) in [(0, 0), (3, 9), (16, 17)] {
            let pieces = [&cache[..a * entry], &cache[a * entry..b * entry], &cache[b * entry..]];
            for kv_head in 0..kv_heads {
                let mut out = vec![0.0; group * head_dim];
                let scale = (head_dim as f32).sqrt().recip();
                // The first piece as a cache would have it.
                let pages: Vec<_> = pieces[0].chunks(4 * entry).map(|p| Arc::new(p.to_vec())).collect();
                let pieces = [&[][..], pieces[1], pieces[2]];
                attend_row(Attend { q: &q, scale, pages: &pages, pieces, entry, kv_head, head_dim, out: &mut out });
                for h in 0..group {
                    let score = |t: usize| -> f64 {
                        let k = &cache[t * entry + kv_head * head_dim..][..head_dim];
                        let dot: f64 = (0..head_dim).map(|i| f64::from(k[i]) * f64::from(q[h * head_dim + i])).sum();
                        (dot / (head_dim as f64).sqrt()).exp()
                    };
                    let total: f64 = (0..tokens).map(score).sum();
                    for i in 0..head_dim {
                        let v = |t: usize| f64::from(cache[t * entry + entry / 2 + kv_head * head_dim + i]);
                        let want: f64 = (0..tokens).map(|t| score(t) * v(t)).sum::<f64>() / total;
                        assert!((f64::from(out[h * head_dim + i]) - want).abs() < 1e-6);
                    }
                }
            }
        }
    }

    #[test]
    fn rotation_turns_pairs_by_position() {
        let mut table = [0.0; 8];
        rotary_table(3, 8, 10_000.0, &mut table);
        let mut x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        norm_and_rotate(&mut x, 8, None, Some(&table));
        for i in 0..4 {
            let angle = 3.0 * 10_000f64.powf(-(i as f64) / 4.0);
            let (a, b) = ((i + 1) as f64, (i + 5) as f64);
            assert!((f64::from(x[i]) - (a * angle.cos() - b * angle.sin())).abs() < 1e-5);
            assert!((f64::from(x[i + 4]) - (b * angle.cos() + a * angle.sin())).abs() < 1e-5);
        }
    }
}
