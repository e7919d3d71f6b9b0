//! Matrix products with weights that stay in the checkpoint's own type and memory.
//!
//! - A few rows ([`few`]): each weight is read once, unpacked in registers and used for all rows.
//! - Many rows (`many`, native): a panel of weights at a time is unpacked into a thread's scratch and multiplied by the
//!   `gemm` crate.
//!
//! A decode always takes the first way, whose sums run in the same order for any number of rows: a session's numbers
//! do not depend on how many others decode with it.

mod few;
#[cfg(not(target_family = "wasm"))]
mod many;

use std::marker::PhantomData;

use super::parallel::{self, Shared};
use super::simd::{LANES, Lanes};
use crate::model::{DType, Matrix};

/// Rows from which `many` is faster.
#[cfg_attr(target_family = "wasm", allow(dead_code))]
const MANY: usize = 256;
/// Bytes of weights worth a task of their own.
const GRAIN: usize = 1 << 16;

/// Rows of f32: `[n, width]`, row r at `data[at + r·row ..]`.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub data: &'a [f32],
    pub at: usize,
    pub row: usize,
    pub n: usize,
}

impl<'a> Rows<'a> {
    /// Row r's first `width` elements.
    #[inline(always)]
    pub(crate) fn get(&self, r: usize, width: usize) -> &'a [f32] {
        &self.data[self.at + r * self.row..][..width]
    }
}

/// One product: `out[r] (+)= W · x[r] (+ bias)`.
pub(crate) struct Product<'a> {
    /// `[out_dim, in_dim]`.
    pub weight: &'a Matrix,
    /// `[n, in_dim]`.
    pub x: Rows<'a>,
    /// `[out_dim]`.
    pub bias: Option<&'a [f32]>,
    /// Adds to what is in `out`.
    pub add: bool,
    /// Sums in the same order for any n.
    #[cfg_attr(target_family = "wasm", allow(dead_code))]
    pub any_n_alike: bool,
}

impl Product<'_> {
    /// Computes it into `out` `[n, out_dim]`.
    pub(crate) fn run(&self, out: &mut [f32]) {
        let Matrix { rows, cols, dtype, .. } = *self.weight;
        let out = Shared::new(out);
        #[cfg(not(target_family = "wasm"))]
        if !self.any_n_alike && self.x.n >= MANY {
            return many::run(self, &out);
        }
        let grain = (GRAIN / (cols * dtype.bytes()).max(1)).next_multiple_of(4);
        // At most eight tasks a thread: enough to even out, few enough to be cheap.
        let grain = grain.max(rows.div_ceil(8 * parallel::threads()).next_multiple_of(4));
        parallel::for_ranges(rows, grain, |range| {
            pieces(self.weight, range.start, range.len(), |first, bytes| match dtype {
                DType::F32 => few::run::<F32>(self, bytes, first, rows, &out),
                DType::F16 => few::run::<F16>(self, bytes, first, rows, &out),
                DType::Bf16 => few::run::<Bf16>(self, bytes, first, rows, &out),
            });
        });
    }
}

/// Calls `f(first row, bytes)` for the parts of rows `first .. first + n`.
pub(crate) fn pieces(matrix: &Matrix, first: usize, n: usize, mut f: impl FnMut(usize, &[u8])) {
    let row = matrix.cols * matrix.dtype.bytes();
    let mut start = 0;
    for part in &matrix.parts {
        let data = part.data();
        let end = start + data.len().checked_div(row).unwrap_or(0);
        let (from, to) = (first.max(start), (first + n).min(end));
        if from < to {
            f(from, &data[(from - start) * row..(to - start) * row]);
        }
        start = end;
    }
}

/// One row of a matrix as f32: an embedding.
pub(crate) fn unpack_row(matrix: &Matrix, row: usize, out: &mut [f32]) {
    pieces(matrix, row, 1, |_, bytes| unpack(matrix.dtype, bytes, out));
}

/// Little-endian elements as f32, for as many as both slices hold.
pub(crate) fn unpack(dtype: DType, bytes: &[u8], out: &mut [f32]) {
    match dtype {
        DType::F32 => super::simd::run(few::Unpack { bytes, out, element: PhantomData::<F32> }),
        DType::F16 => super::simd::run(few::Unpack { bytes, out, element: PhantomData::<F16> }),
        DType::Bf16 => super::simd::run(few::Unpack { bytes, out, element: PhantomData::<Bf16> }),
    }
}

/// A stored element type.
pub(crate) trait Element: Copy + Sync {
    const BYTES: usize;
    /// Eight elements.
    ///
    /// # Safety
    /// `8·BYTES` bytes must be readable there, at any alignment.
    unsafe fn load<L: Lanes>(at: *const u8) -> L;
}

#[derive(Clone, Copy)]
pub(crate) struct F32;
#[derive(Clone, Copy)]
pub(crate) struct F16;
#[derive(Clone, Copy)]
pub(crate) struct Bf16;

impl Element for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<L: Lanes>(at: *const u8) -> L {
        // SAFETY: the caller's promise; arrays of bytes have no alignment.
        L::load_f32_bytes(unsafe { &*at.cast::<[u8; 4 * LANES]>() })
    }
}
impl Element for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<L: Lanes>(at: *const u8) -> L {
        // SAFETY: as above.
        L::load_f16_bytes(unsafe { &*at.cast::<[u8; 2 * LANES]>() })
    }
}
impl Element for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<L: Lanes>(at: *const u8) -> L {
        // SAFETY: as above.
        L::load_bf16_bytes(unsafe { &*at.cast::<[u8; 2 * LANES]>() })
    }
}

#[cfg(test)]
mod tests;
