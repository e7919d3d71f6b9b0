//! Products for many rows, through the `gemm` crate, a panel of weights at a time.

use std::cell::RefCell;

use super::{Product, pieces, unpack};
use crate::cpu::parallel::{self, Shared};
use crate::model::DType;

/// f32 elements of a thread's scratch, if one row of weights does not need more.
const SCRATCH: usize = 1 << 18;

thread_local! {
    static PANEL: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Panels depend on the matrix alone, and so do the results: not on the number of threads.
pub(super) fn run(p: &Product<'_>, out: &Shared<'_, f32>) {
    let (rows, cols) = (p.weight.rows, p.weight.cols);
    let panel = (SCRATCH / cols.max(1) / 16 * 16).clamp(16, 512);
    parallel::for_ranges(rows, panel, |range| {
        pieces(p.weight, range.start, range.len(), |first, bytes| {
            if let (DType::F32, Ok(weights)) = (p.weight.dtype, bytemuck::try_cast_slice(bytes)) {
                return multiply(p, weights, first, out);
            }
            PANEL.with_borrow_mut(|scratch| {
                let n = bytes.len() / p.weight.dtype.bytes();
                if scratch.len() < n {
                    scratch.resize(n, 0.0);
                }
                unpack(p.weight.dtype, bytes, &mut scratch[..n]);
                multiply(p, &scratch[..n], first, out);
            });
        });
    });
}

/// `out[.., first ..] (+)= x · weightsᵀ (+ bias)`, weights `[rows, cols]`.
fn multiply(p: &Product<'_>, weights: &[f32], first: usize, out: &Shared<'_, f32>) {
    let (width, cols) = (p.weight.rows, p.weight.cols);
    let rows = weights.len() / cols;
    if p.x.n == 0 || rows == 0 {
        return;
    }
    let x = &p.x.data[p.x.at..][..(p.x.n - 1) * p.x.row + cols];
    // SAFETY: tasks have weight rows of their own, and so columns of the output. The slices hold what the strides
    // reach: x by the line above, weights by the definition of `rows`, out by the check of its last element.
    unsafe {
        let last = out.get((p.x.n - 1) * width + first, rows);
        let start = last.as_mut_ptr().sub((p.x.n - 1) * width);
        gemm::gemm(
            p.x.n,
            rows,
            cols,
            start,
            1,
            width as isize,
            p.add,
            x.as_ptr(),
            1,
            p.x.row as isize,
            weights.as_ptr(),
            cols as isize,
            1,
            1.0f32,
            1.0f32,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
        if let Some(bias) = p.bias {
            for r in 0..p.x.n {
                for (o, b) in out.get(r * width + first, rows).iter_mut().zip(&bias[first..]) {
                    *o += b;
                }
            }
        }
    }
}
