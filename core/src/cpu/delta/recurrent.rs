//! Token by token (MATH.md §2): the state is read once for `k·S` and once for the update and `q·S`.

use super::call::{Call, MAX_KEY_DIM, Task};
use crate::cpu::math;
use crate::cpu::parallel::Shared;
use crate::cpu::simd::{Kernel, LANES, Lanes};

/// A task done token by token.
pub(crate) struct Recurrent<'a> {
    pub call: &'a Call<'a>,
    pub task: &'a Task<'a>,
}

impl Kernel for Recurrent<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { call, task } = self;
        let kd = call.key_dim;
        let mut buffers = [[0.0f32; MAX_KEY_DIM]; 6];
        let [q, k, w, alpha, read, sums] = &mut buffers;
        let (q, k, w, alpha) = (&mut q[..kd], &mut k[..kd], &mut w[..kd], &mut alpha[..kd]);
        let (read, sums) = (&mut read[..kd], &mut sums[..task.sums.len()]);
        sums.copy_from_slice(task.sums);
        for t in 0..task.rows.1 {
            let row = task.rows.0 + t;
            if let Some((states, at, stride)) = task.chunk_states {
                copy_columns(call, task, states, at + t * stride);
            }
            let beta = call.prepare::<L>(row, task.head, q, k, w, sums).beta;
            call.decays::<L>(row, task.head, alpha);
            read.copy_from_slice(k);
            math::zip::<L>(read, alpha, |k, a| k.mul(a));
            let v = call.values(row, task);
            // SAFETY: tasks differ in sequence, head or columns.
            let out = unsafe { task.out_row(call, row) };
            let step = Step { q, read, write: w, alpha, beta, delta: call.rule.delta };
            let mut c = 0;
            while c < v.len() {
                let wide = v.len() - c >= 4 * LANES;
                let n = if wide { 4 * LANES } else { (v.len() - c).min(LANES) };
                let place = (task.state.1 + task.cols.0 + c, call.value_dim);
                if wide {
                    step.columns::<L, 4>(task.state.0, place, n, &v[c..c + n], &mut out[c..c + n]);
                } else {
                    step.columns::<L, 1>(task.state.0, place, n, &v[c..c + n], &mut out[c..c + n]);
                }
                c += n;
            }
        }
        if let Some((out, at)) = task.sums_out {
            // SAFETY: one task of those that share a key head has the place.
            unsafe { out.get(at, kd) }.copy_from_slice(sums);
        }
    }
}

/// Copies a task's columns of the state to `at` of another `[K, V]`.
#[inline(always)]
fn copy_columns(call: &Call<'_>, task: &Task<'_>, to: &Shared<'_, f32>, at: usize) {
    for k in 0..call.key_dim {
        let place = k * call.value_dim + task.cols.0;
        // SAFETY: tasks differ in sequence, head or columns; the two buffers are different ones.
        unsafe {
            to.get(at + place, task.cols.1).copy_from_slice(task.state.0.get(task.state.1 + place, task.cols.1));
        }
    }
}

/// One token of one head.
struct Step<'a> {
    /// `[K]`, scaled.
    q: &'a [f32],
    /// `α ⊙ k`, `[K]`.
    read: &'a [f32],
    /// `k̃`, `[K]`.
    write: &'a [f32],
    /// `[K]`.
    alpha: &'a [f32],
    beta: f32,
    delta: bool,
}

impl Step<'_> {
    /// Updates up to `8·W` columns of the state and writes their outputs. Sums over K run over the even and the odd
    /// channels separately, whatever W is.
    #[inline(always)]
    fn columns<L: Lanes, const W: usize>(
        &self,
        state: &Shared<'_, f32>,
        (at, stride): (usize, usize),
        n: usize,
        v: &[f32],
        out: &mut [f32],
    ) {
        let zero = [[L::splat(0.0); W]; 2];
        let mut e = load::<L, W>(v);
        if self.delta {
            let mut sums = zero;
            for (k, r) in self.read.iter().enumerate() {
                // SAFETY: these columns are this task's.
                let s = load::<L, W>(unsafe { state.get(at + k * stride, n) });
                let r = L::splat(*r);
                for i in 0..W {
                    sums[k % 2][i] = r.fma(s[i], sums[k % 2][i]);
                }
            }
            for i in 0..W {
                e[i] = e[i].sub(sums[0][i].add(sums[1][i]));
            }
        }
        for e in &mut e {
            *e = e.mul(L::splat(self.beta));
        }
        let mut sums = zero;
        for k in 0..self.q.len() {
            // SAFETY: as above.
            let place = unsafe { state.get(at + k * stride, n) };
            let mut s = load::<L, W>(place);
            let (q, w, a) = (L::splat(self.q[k]), L::splat(self.write[k]), L::splat(self.alpha[k]));
            for i in 0..W {
                s[i] = w.fma(e[i], a.mul(s[i]));
                sums[k % 2][i] = q.fma(s[i], sums[k % 2][i]);
            }
            store::<L, W>(s, place);
        }
        let [mut even, odd] = sums;
        for i in 0..W {
            even[i] = even[i].add(odd[i]);
        }
        store::<L, W>(even, out);
    }
}

#[inline(always)]
fn load<L: Lanes, const W: usize>(x: &[f32]) -> [L; W] {
    let (full, tail) = x.as_chunks::<LANES>();
    let mut v = [L::splat(0.0); W];
    for i in 0..W {
        v[i] = match full.get(i) {
            Some(x) => L::load(x),
            None => L::load(&math::pad(tail)),
        };
    }
    v
}

#[inline(always)]
fn store<L: Lanes, const W: usize>(v: [L; W], x: &mut [f32]) {
    let (full, tail) = x.as_chunks_mut::<LANES>();
    for (i, v) in v.into_iter().enumerate() {
        if let Some(x) = full.get_mut(i) {
            v.store(x);
        } else {
            let mut t = [0.0; LANES];
            v.store(&mut t);
            tail.copy_from_slice(&t[..tail.len()]);
        }
    }
}
