//! Products for a few rows: dot products of weight rows with inputs, four weight rows and up to three inputs at a time.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Element, F32, Product};
use crate::cpu::math;
use crate::cpu::parallel::Shared;
use crate::cpu::simd::{self, Kernel, LANES, Lanes};

/// Inputs of one pass; with four weight rows their sums fill twelve registers.
const INPUTS: usize = 3;
/// f32 elements of inputs that stay in the second-level cache while all weights of a task pass by.
const CACHED: usize = 1 << 15;

/// `out[r, first + i] (+)= ⟨w[i], x[r]⟩ (+ bias)` for the weight rows in `bytes`.
pub(super) fn run<E: Element>(p: &Product<'_>, bytes: &[u8], first: usize, width: usize, out: &Shared<'_, f32>) {
    simd::run(Few::<E> { p, bytes, first, width, out, element: PhantomData });
}

struct Few<'a, E> {
    p: &'a Product<'a>,
    /// `[rows, cols]`.
    bytes: &'a [u8],
    first: usize,
    /// Elements a row of `out`.
    width: usize,
    out: &'a Shared<'a, f32>,
    element: PhantomData<E>,
}

impl<E: Element> Kernel for Few<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let cols = self.p.weight.cols;
        let row = cols * E::BYTES;
        let n = self.p.x.n;
        // With more inputs than one pass takes, weights are unpacked once for all passes.
        let mut unpacked = if n > INPUTS { vec![0.0f32; 4 * cols] } else { Vec::new() };
        let block = (CACHED / cols / INPUTS * INPUTS).max(INPUTS);
        for first in (0..n).step_by(block) {
            let inputs = first..n.min(first + block);
            for (group, bytes) in self.bytes.chunks(4 * row).enumerate() {
                let rows = bytes.len() / row;
                let at = self.first + 4 * group;
                if n > INPUTS && E::BYTES != F32::BYTES {
                    let unpacked = &mut unpacked[..rows * cols];
                    L::call(Unpack { bytes, out: unpacked, element: self.element });
                    self.rows::<L, F32, false>(bytemuck::cast_slice(unpacked), rows, at, inputs.clone());
                } else {
                    self.rows::<L, E, true>(bytes, rows, at, inputs.clone());
                }
            }
        }
    }
}

impl<E: Element> Few<'_, E> {
    /// Up to four weight rows with some inputs.
    #[inline(always)]
    fn rows<L: Lanes, W: Element, const STREAMED: bool>(
        &self,
        bytes: &[u8],
        rows: usize,
        at: usize,
        inputs: Range<usize>,
    ) {
        let row = self.p.weight.cols * W::BYTES;
        if rows == 4 {
            self.inputs::<L, W, 4, STREAMED>(bytes, at, inputs);
        } else {
            for (i, bytes) in bytes.chunks(row).enumerate() {
                self.inputs::<L, W, 1, STREAMED>(bytes, at + i, inputs.clone());
            }
        }
    }

    #[inline(always)]
    fn inputs<L: Lanes, W: Element, const M: usize, const STREAMED: bool>(
        &self,
        bytes: &[u8],
        at: usize,
        inputs: Range<usize>,
    ) {
        for r in inputs.clone().step_by(INPUTS) {
            match inputs.end - r {
                1 => self.store(tile::<L, W, M, 1, STREAMED>(bytes, self.xs(r)), at, r),
                2 => self.store(tile::<L, W, M, 2, STREAMED>(bytes, self.xs(r)), at, r),
                _ => self.store(tile::<L, W, M, 3, STREAMED>(bytes, self.xs(r)), at, r),
            }
        }
    }

    #[inline(always)]
    fn xs<const N: usize>(&self, r: usize) -> [&[f32]; N] {
        std::array::from_fn(|i| self.p.x.get(r + i, self.p.weight.cols))
    }

    #[inline(always)]
    fn store<const M: usize, const N: usize>(&self, sums: [[f32; M]; N], at: usize, r: usize) {
        let bias: [f32; M] = match self.p.bias.and_then(|b| b.get(at..at + M)) {
            Some(b) => std::array::from_fn(|i| b[i]),
            None => [0.0; M],
        };
        for (j, sums) in sums.into_iter().enumerate() {
            // SAFETY: tasks have weight rows of their own, and so columns of the output.
            let out = unsafe { self.out.get((r + j) * self.width + at, M) };
            for i in 0..M {
                let sum = sums[i] + bias[i];
                out[i] = if self.p.add { out[i] + sum } else { sum };
            }
        }
    }
}

/// Dot products of M weight rows with N inputs. Each is one chain of eight-lane sums over the columns in order, the
/// last few columns padded with zeros, whatever M and N are.
#[inline(always)]
fn tile<L: Lanes, W: Element, const M: usize, const N: usize, const STREAMED: bool>(
    bytes: &[u8],
    xs: [&[f32]; N],
) -> [[f32; M]; N] {
    let cols = xs[0].len();
    let row = cols * W::BYTES;
    assert!(bytes.len() == M * row && xs.iter().all(|x| x.len() == cols));
    let mut sums = [[L::splat(0.0); N]; M];
    let full = cols / LANES;
    for c in 0..full {
        // The rows of this tile interleave, which defeats the processor's own prefetching; what follows them in memory
        // is fetched in order instead: M·8 elements an iteration, one tile ahead. (Unpacked weights are in the cache.)
        let lines = if STREAMED { (M * LANES * W::BYTES).div_ceil(64) } else { 0 };
        for line in 0..lines {
            L::prefetch(bytes.as_ptr().wrapping_add(M * row + c * M * LANES * W::BYTES + 64 * line));
        }
        let x: [L; N] = {
            let mut x = [L::splat(0.0); N];
            for j in 0..N {
                // SAFETY: c·8 + 8 ≤ cols, the length of every input.
                x[j] = L::load(unsafe { &*xs[j].as_ptr().add(c * LANES).cast::<[f32; LANES]>() });
            }
            x
        };
        for i in 0..M {
            // SAFETY: row i has `cols` elements, of which these are 8.
            let w: L = unsafe { W::load::<L>(bytes.as_ptr().add(i * row + c * LANES * W::BYTES)) };
            for j in 0..N {
                sums[i][j] = w.fma(x[j], sums[i][j]);
            }
        }
    }
    if cols > full * LANES {
        for i in 0..M {
            let mut last = [0u8; 4 * LANES];
            let rest = &bytes[i * row + full * LANES * W::BYTES..(i + 1) * row];
            last[..rest.len()].copy_from_slice(rest);
            // SAFETY: `last` has room for eight elements of any type.
            let w: L = unsafe { W::load::<L>(last.as_ptr()) };
            for j in 0..N {
                sums[i][j] = w.fma(L::load(&math::pad(&xs[j][full * LANES..])), sums[i][j]);
            }
        }
    }
    let mut out = [[0.0; M]; N];
    for j in 0..N {
        // Four sums together are cheaper.
        for i in 0..M / 4 {
            let at = 4 * i;
            let four = L::sum4([sums[at][j], sums[at + 1][j], sums[at + 2][j], sums[at + 3][j]]);
            out[j][at..at + 4].copy_from_slice(&four);
        }
        for i in M / 4 * 4..M {
            out[j][i] = sums[i][j].sum();
        }
    }
    out
}

/// Elements to f32.
pub(super) struct Unpack<'a, E> {
    pub bytes: &'a [u8],
    pub out: &'a mut [f32],
    pub element: PhantomData<E>,
}

impl<E: Element> Kernel for Unpack<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let n = self.out.len().min(self.bytes.len() / E::BYTES);
        let (full, tail) = self.out[..n].as_chunks_mut::<LANES>();
        for (i, out) in full.iter_mut().enumerate() {
            // What follows in memory is fetched while the caller works on this.
            if i % (64 / LANES / E::BYTES) == 0 {
                L::prefetch(self.bytes.as_ptr().wrapping_add(self.bytes.len() + i * LANES * E::BYTES));
            }
            // SAFETY: 8·(i + 1) ≤ n elements are there.
            unsafe { E::load::<L>(self.bytes.as_ptr().add(i * LANES * E::BYTES)) }.store(out);
        }
        if !tail.is_empty() {
            let mut last = [0u8; 4 * LANES];
            let rest = &self.bytes[(n - tail.len()) * E::BYTES..n * E::BYTES];
            last[..rest.len()].copy_from_slice(rest);
            let mut t = [0.0; LANES];
            // SAFETY: `last` has room for eight elements of any type.
            unsafe { E::load::<L>(last.as_ptr()) }.store(&mut t);
            tail.copy_from_slice(&t[..tail.len()]);
        }
    }
}
