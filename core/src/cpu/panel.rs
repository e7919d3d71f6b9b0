//! Small matrix products over column panels.
//!
//! A *panel* is 16 columns of a matrix, stored row after row: `[rows][16]`. The chunkwise delta rule works on panels of
//! the state, which then lie in the first-level cache. The left operand is any strided matrix.

use super::simd::{Kernel, LANES, Lanes};

/// Columns of a panel.
pub(crate) const PANEL: usize = 2 * LANES;

/// One row of a panel.
pub(crate) type Row = [f32; PANEL];

/// A strided matrix: element (i, j) is `data[i·row + j·col]`.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a> {
    pub data: &'a [f32],
    pub row: usize,
    pub col: usize,
}

impl<'a> Strided<'a> {
    /// Row-major, `width` elements a row.
    pub(crate) fn rows(data: &'a [f32], width: usize) -> Self {
        Self { data, row: width, col: 1 }
    }
    /// The transpose of a row-major matrix of `width` elements a row.
    pub(crate) fn columns(data: &'a [f32], width: usize) -> Self {
        Self { data, row: 1, col: width }
    }
}

/// What a product's result starts from.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    /// Nothing: `C = A·B`.
    Zero,
    /// Itself: `C = C + A·B`.
    Keep,
    /// Itself, each row times its factor: `C = diag(d)·C + A·B`.
    Scaled(&'a [f32]),
}

/// `C = start + A·B`: A `[m, k]`, B `[k]` rows of a panel, C `[m]` rows of another one.
pub(crate) struct Product<'a> {
    pub a: Strided<'a>,
    pub m: usize,
    pub b: &'a [Row],
    pub c: &'a mut [Row],
    pub start: Start<'a>,
}

impl Kernel for Product<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { a, m, b, c, start } = self;
        let mut i = 0;
        while i < m {
            // Sixes have the best ratio of arithmetic to loads; fours fill up what is left without a thin last block.
            let rows = match m - i {
                n @ 1..=5 => n,
                8 => 4,
                _ => 6,
            };
            match rows {
                1 => tile::<L, 1>(a, i, b.len(), b, c, start),
                2 => tile::<L, 2>(a, i, b.len(), b, c, start),
                3 => tile::<L, 3>(a, i, b.len(), b, c, start),
                4 => tile::<L, 4>(a, i, b.len(), b, c, start),
                5 => tile::<L, 5>(a, i, b.len(), b, c, start),
                _ => tile::<L, 6>(a, i, b.len(), b, c, start),
            }
            i += rows;
        }
    }
}

/// `C = C + A·B` with A `[m, m]` lower triangular, its diagonal included: blocks above it are not multiplied, but the
/// three elements right of the diagonal must be 0.
pub(crate) struct AddLower<'a> {
    pub a: Strided<'a>,
    pub b: &'a [Row],
    pub c: &'a mut [Row],
}

impl Kernel for AddLower<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { a, b, c } = self;
        let mut i = 0;
        while i < b.len() {
            let rows = (b.len() - i).min(4);
            fours::<L>(a, i, rows, i + rows, b, c);
            i += rows;
        }
    }
}

/// Solves `(I − A) X = X₀` in place, A strictly lower triangular: forward substitution in blocks of four rows.
pub(crate) struct SolveUnitLower<'a> {
    pub a: Strided<'a>,
    pub x: &'a mut [Row],
}

impl Kernel for SolveUnitLower<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { a, x } = self;
        let mut i = 0;
        while i < x.len() {
            let (done, rest) = x.split_at_mut(i);
            let rows = rest.len().min(4);
            let below = Strided { data: a.data.get(i * a.row..).unwrap_or_default(), ..a };
            if i > 0 {
                fours::<L>(below, 0, rows, i, done, rest);
            }
            for r in 1..rows {
                let (above, here) = rest.split_at_mut(r);
                let (lo, hi) = halves(&here[0]);
                let (mut lo, mut hi) = (L::load(lo), L::load(hi));
                for (j, row) in above.iter().enumerate() {
                    let f = L::splat(a.data[(i + r) * a.row + (i + j) * a.col]);
                    let (l, h) = halves(row);
                    lo = f.fma(L::load(l), lo);
                    hi = f.fma(L::load(h), hi);
                }
                let (l, h) = halves_mut(&mut here[0]);
                lo.store(l);
                hi.store(h);
            }
            i += rows;
        }
    }
}

/// Up to four rows of `C = C + A·B`.
#[inline(always)]
fn fours<L: Lanes>(a: Strided<'_>, i: usize, rows: usize, k: usize, b: &[Row], c: &mut [Row]) {
    match rows {
        1 => tile::<L, 1>(a, i, k, b, c, Start::Keep),
        2 => tile::<L, 2>(a, i, k, b, c, Start::Keep),
        3 => tile::<L, 3>(a, i, k, b, c, Start::Keep),
        _ => tile::<L, 4>(a, i, k, b, c, Start::Keep),
    }
}

#[inline(always)]
fn halves(x: &Row) -> (&[f32; LANES], &[f32; LANES]) {
    let (x, _) = x.as_chunks::<LANES>();
    (&x[0], &x[1])
}

#[inline(always)]
fn halves_mut(x: &mut Row) -> (&mut [f32; LANES], &mut [f32; LANES]) {
    let (x, _) = x.as_chunks_mut::<LANES>();
    let (lo, hi) = x.split_at_mut(1);
    (&mut lo[0], &mut hi[0])
}

/// M rows of a product, all in registers. Each element sums over k in order, so results do not depend on the blocking.
#[inline(always)]
fn tile<L: Lanes, const M: usize>(a: Strided<'_>, i: usize, k: usize, b: &[Row], c: &mut [Row], start: Start<'_>) {
    let c = &mut c[i..i + M];
    let b = &b[..k];
    let mut sums = [[L::splat(0.0); 2]; M];
    if !matches!(start, Start::Zero) {
        for r in 0..M {
            let (lo, hi) = halves(&c[r]);
            let (lo, hi) = (L::load(lo), L::load(hi));
            sums[r] = match start {
                Start::Scaled(d) => [lo.mul(L::splat(d[i + r])), hi.mul(L::splat(d[i + r]))],
                _ => [lo, hi],
            };
        }
    }
    if k > 0 {
        assert!((i + M - 1) * a.row + (k - 1) * a.col < a.data.len(), "left operand too short");
        // SAFETY: the largest index read is the one just checked.
        let mut p = unsafe { a.data.as_ptr().add(i * a.row) };
        for row in b {
            let (lo, hi) = halves(row);
            let (lo, hi) = (L::load(lo), L::load(hi));
            for r in 0..M {
                // SAFETY: as above.
                let x = L::splat(unsafe { *p.add(r * a.row) });
                sums[r] = [x.fma(lo, sums[r][0]), x.fma(hi, sums[r][1])];
            }
            p = p.wrapping_add(a.col);
        }
    }
    for r in 0..M {
        let (lo, hi) = halves_mut(&mut c[r]);
        sums[r][0].store(lo);
        sums[r][1].store(hi);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd;

    struct Case {
        m: usize,
        k: usize,
        seed: u32,
    }

    fn numbers(n: usize, seed: u32) -> Vec<f32> {
        let mut s = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
        (0..n)
            .map(|_| {
                s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (s >> 8) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect()
    }

    fn panel(n: usize, seed: u32) -> Vec<Row> {
        numbers(n * PANEL, seed).as_chunks::<PANEL>().0.to_vec()
    }

    impl Kernel for Case {
        type Output = ();
        #[inline(always)]
        fn run<L: Lanes>(self) {
            let Self { m, k, seed } = self;
            let (a, b, d) = (numbers(m * k, seed), panel(k, seed + 1), numbers(m, seed + 2));
            let before = panel(m, seed + 3);
            for transposed in [false, true] {
                let at = |i: usize, j: usize| if transposed { a[j * m + i] } else { a[i * k + j] };
                let left = if transposed { Strided::columns(&a, m) } else { Strided::rows(&a, k) };
                for (s, start) in [Start::Zero, Start::Keep, Start::Scaled(&d)].into_iter().enumerate() {
                    let mut c = before.clone();
                    L::call(Product { a: left, m, b: &b, c: &mut c, start });
                    for i in 0..m {
                        for x in 0..PANEL {
                            let f = [0.0, 1.0, d[i]][s];
                            let want = f * before[i][x] + (0..k).map(|j| at(i, j) * b[j][x]).sum::<f32>();
                            assert!((c[i][x] - want).abs() < 1e-4, "{m}x{k} start {s} at {i},{x}");
                        }
                    }
                }
            }
            // Triangular: a strictly lower matrix, its product and the solution that undoes it.
            let l: Vec<f32> = numbers(m * m, seed)
                .iter()
                .enumerate()
                .map(|(n, x)| if n % m < n / m { x * 0.5 } else { 0.0 })
                .collect();
            let mut x = before.clone();
            L::call(SolveUnitLower { a: Strided::rows(&l, m), x: &mut x });
            for i in 0..m {
                for c in 0..PANEL {
                    let back = x[i][c] - (0..i).map(|j| l[i * m + j] * x[j][c]).sum::<f32>();
                    let size = x.iter().flatten().fold(1f32, |a, b| a.max(b.abs()));
                    assert!((back - before[i][c]).abs() < 1e-5 * size);
                }
            }
            let mut sum = before.clone();
            L::call(AddLower { a: Strided::rows(&l, m), b: &x, c: &mut sum });
            for i in 0..m {
                for c in 0..PANEL {
                    let want = before[i][c] + (0..=i).map(|j| l[i * m + j] * x[j][c]).sum::<f32>();
                    assert!((sum[i][c] - want).abs() < 1e-4 * want.abs().max(1.0));
                }
            }
        }
    }

    #[test]
    fn products_and_solutions() {
        for (n, (m, k)) in [(1, 1), (2, 3), (3, 9), (5, 4), (7, 16), (8, 8), (13, 5), (16, 40)].into_iter().enumerate()
        {
            simd::run(Case { m, k, seed: n as u32 });
            simd::tests::run_plain(Case { m, k, seed: n as u32 });
        }
    }
}
