//! Chunkwise (MATH.md §3, §7): the tokens of a chunk act on its first state through small matrix products.
//!
//! With `X_K = e^G ⊙ K`, `X_Q = σ e^G ⊙ Q` and `K̂ = e^{G_C − G} ⊙ K̃` for a chunk that starts at state S:
//!
//! ```text
//! E  = (I + L)⁻¹ diag(β) (V − X_K S)      forward substitution, in blocks of four rows
//! O  = X_Q S + P E
//! S' = diag(e^{G_C}) S + K̂ᵀ E
//! ```
//!
//! so nothing but `L` and `P` depends on pairs of tokens, and all of it is done panel by panel of 16 columns of S.
//! Every decay between two tokens is a product of the single decays between them: no exponent above 0, no difference
//! of long sums, and a decay of 0 simply stays 0.

use super::call::{Call, Task};
use crate::cpu::math;
use crate::cpu::panel::{AddLower, PANEL, Product, Row, SolveUnitLower, Start, Strided};
use crate::cpu::simd::{Kernel, LANES, Lanes};
use crate::rule::Decay;

/// Decays below this count as 0, before they become denormal numbers, which are slow.
const TINY: f32 = 1e-37;
/// Rows whose operands are fetched ahead of use.
const AHEAD: usize = 4;

/// A task done chunk by chunk.
pub(crate) struct Chunked<'a> {
    pub call: &'a Call<'a>,
    pub task: &'a Task<'a>,
    /// Rows of a chunk.
    pub len: usize,
}

/// Buffers of a task. C is the chunk length, n the rows of the current chunk.
struct Scratch {
    /// `X_K` `[n, K]`, then `X_Q` `[n, K]`.
    x: Vec<f32>,
    /// Write keys `[C, K]`, in the end decayed to the chunk's end.
    w: Vec<f32>,
    /// Write keys transposed, a panel for each 16 rows: `[C/16][K][16]`.
    wt: Vec<Row>,
    /// `−L` `[C, C]`, strictly lower.
    a: Vec<f32>,
    /// `P` `[C, C]`, lower.
    p: Vec<f32>,
    /// Products with a panel: `X_K·` `[n]`, then `X_Q·` `[n]`.
    y: Vec<Row>,
    /// Values, then `E`, then outputs, panel by panel: `[panels][C][16]`.
    e: Vec<Row>,
    /// α `[C, K]`; one a row for a decay per head.
    alpha: Vec<f32>,
    /// Running decay since the chunk's start, `[K]`.
    cum: Vec<f32>,
    /// β `[C]`.
    beta: Vec<f32>,
    /// Preconditioner's sums `[K]`.
    sums: Vec<f32>,
    /// The state's columns: `[panels][K][16]`.
    s: Vec<Row>,
}

impl Kernel for Chunked<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { call, task, len } = self;
        let kd = call.key_dim;
        let panels = task.cols.1.div_ceil(PANEL);
        let mut scratch = Scratch {
            x: vec![0.0; 2 * len * kd],
            w: vec![0.0; len * kd],
            wt: vec![[0.0; PANEL]; len.div_ceil(PANEL) * kd],
            a: vec![0.0; len * len],
            p: vec![0.0; len * len],
            y: vec![[0.0; PANEL]; 2 * len],
            e: vec![[0.0; PANEL]; panels * len],
            alpha: vec![1.0; len * kd],
            cum: vec![1.0; kd],
            beta: vec![1.0; len],
            sums: task.sums.to_vec(),
            s: vec![[0.0; PANEL]; panels * kd],
        };
        load_state(call, task, &mut scratch.s);
        let mut done = 0;
        while done < task.rows.1 {
            let n = len.min(task.rows.1 - done);
            if let Some((states, at, stride)) = task.chunk_states {
                store_state(call, task, &scratch.s, (states, at + done / len * stride));
            }
            scratch.operands::<L>(call, task, task.rows.0 + done, n, len);
            scratch.pairs::<L>(call, n, len);
            scratch.columns::<L>(call, task, task.rows.0 + done, n, len);
            done += n;
        }
        store_state(call, task, &scratch.s, task.state);
        if let Some((out, at)) = task.sums_out {
            // SAFETY: one task of those that share a key head has the place.
            unsafe { out.get(at, kd) }.copy_from_slice(&scratch.sums);
        }
    }
}

impl Scratch {
    /// Values, and keys, queries, write keys, β and decays of a chunk's rows, not yet decayed.
    #[inline(always)]
    fn operands<L: Lanes>(&mut self, call: &Call<'_>, task: &Task<'_>, row: usize, n: usize, len: usize) {
        let kd = call.key_dim;
        let end = task.rows.0 + task.rows.1;
        let (keys, queries) = self.x.split_at_mut(n * kd);
        for i in 0..n {
            // Rows lie far apart, where the processor does not look ahead by itself.
            if row + i + AHEAD < end {
                call.prefetch::<L>(row + i + AHEAD, task);
            }
            // A row's values are read once, as they lie.
            for (p, v) in call.values(row + i, task).chunks(PANEL).enumerate() {
                copy_row(&mut self.e[p * len + i], v);
            }
            let at = i * kd..(i + 1) * kd;
            let (q, k, w) = (&mut queries[at.clone()], &mut keys[at.clone()], &mut self.w[at.clone()]);
            self.beta[i] = call.prepare::<L>(row + i, task.head, q, k, w, &mut self.sums).beta;
            match call.rule.decay {
                Decay::None => {}
                Decay::PerHead => {
                    call.decays::<L>(row + i, task.head, &mut self.alpha[i..i + 1]);
                }
                Decay::PerChannel => {
                    call.decays::<L>(row + i, task.head, &mut self.alpha[at]);
                }
            }
        }
    }

    /// `−L` and `P`; then decays keys and queries from the chunk's start, and write keys to its end.
    #[inline(always)]
    fn pairs<L: Lanes>(&mut self, call: &Call<'_>, n: usize, len: usize) {
        let kd = call.key_dim;
        if call.rule.decay == Decay::PerChannel {
            return self.channel_pairs::<L>(call, n, len);
        }
        transpose(&self.w[..n * kd], kd, &mut self.wt);
        for j0 in (0..n).step_by(PANEL) {
            let panel = &self.wt[j0 / PANEL * kd..][..kd];
            let cols = PANEL.min(n - j0);
            let y = &mut self.y[..n - j0];
            if call.rule.delta {
                let a = Strided::rows(&self.x[j0 * kd..n * kd], kd);
                L::call(Product { a, m: n - j0, b: panel, c: y, start: Start::Zero });
                for i in j0..n {
                    let cols = cols.min(i - j0);
                    let minus = -self.beta[i];
                    for (a, y) in self.a[i * len + j0..][..cols].iter_mut().zip(&y[i - j0]) {
                        *a = minus * y;
                    }
                }
            }
            let a = Strided::rows(&self.x[(n + j0) * kd..2 * n * kd], kd);
            L::call(Product { a, m: n - j0, b: panel, c: y, start: Start::Zero });
            for i in j0..n {
                let cols = cols.min(i - j0 + 1);
                self.p[i * len + j0..][..cols].copy_from_slice(&y[i - j0][..cols]);
                self.p[i * len + j0 + cols..(i * len + j0 + PANEL).min((i + 1) * len)].fill(0.0);
            }
        }
        self.cum.fill(1.0);
        if call.rule.decay == Decay::None {
            return;
        }
        // Γ, row by row: the decays from every earlier token to this one.
        let mut gamma = [0.0f32; 64];
        let mut cum = 1.0f32;
        for i in 0..n {
            let alpha = self.alpha[i];
            for g in &mut gamma[..i] {
                let next = *g * alpha;
                *g = if next < TINY { 0.0 } else { next };
            }
            gamma[i] = 1.0;
            for (x, g) in self.a[i * len..][..i].iter_mut().zip(&gamma) {
                *x *= g;
            }
            for (x, g) in self.p[i * len..][..i].iter_mut().zip(&gamma) {
                *x *= g;
            }
            cum *= alpha;
            cum = if cum < TINY { 0.0 } else { cum };
            let c = L::splat(cum);
            math::map::<L>(&mut self.x[i * kd..][..kd], |x| x.mul(c));
            math::map::<L>(&mut self.x[(n + i) * kd..][..kd], |x| x.mul(c));
        }
        for i in 0..n {
            let g = L::splat(gamma[i]);
            math::map::<L>(&mut self.w[i * kd..][..kd], |x| x.mul(g));
        }
        self.cum.fill(cum);
    }

    /// The same for decays per channel: the write keys decay in place from row to row.
    #[inline(always)]
    fn channel_pairs<L: Lanes>(&mut self, call: &Call<'_>, n: usize, len: usize) {
        let kd = call.key_dim;
        self.cum.fill(1.0);
        let (keys, queries) = self.x.split_at_mut(n * kd);
        let (tiny, zero) = (L::splat(TINY), L::splat(0.0));
        for i in 0..n {
            let alpha = &self.alpha[i * kd..][..kd];
            let (k, q) = (&mut keys[i * kd..][..kd], &mut queries[i * kd..][..kd]);
            for j in 0..=i {
                let w = &mut self.w[j * kd..][..kd];
                let (on_key, on_query) =
                    if j < i { decay_and_dot::<L>(w, alpha, k, q) } else { (0.0, math::dot::<L>(w, q)) };
                if j < i {
                    self.a[i * len + j] = -self.beta[i] * on_key;
                }
                self.p[i * len + j] = on_query;
            }
            self.p[i * len + i + 1..(i + 1) * len].fill(0.0);
            math::zip::<L>(&mut self.cum, alpha, |c, a| {
                let next = c.mul(a);
                next.select_lt(tiny, zero, next)
            });
            math::zip::<L>(k, &self.cum, |x, c| x.mul(c));
            math::zip::<L>(q, &self.cum, |x, c| x.mul(c));
        }
    }

    /// Errors, outputs and the next state, panel by panel.
    #[inline(always)]
    fn columns<L: Lanes>(&mut self, call: &Call<'_>, task: &Task<'_>, row: usize, n: usize, len: usize) {
        let kd = call.key_dim;
        let x = &self.x[..2 * n * kd];
        for (s, e) in self.s.chunks_mut(kd).zip(self.e.chunks_mut(len)) {
            let e = &mut e[..n];
            // Keys and queries in one product; queries alone where nothing is read back.
            let (x, y) =
                if call.rule.delta { (x, &mut self.y[..2 * n]) } else { (&x[n * kd..], &mut self.y[n..2 * n]) };
            L::call(Product { a: Strided::rows(x, kd), m: y.len(), b: s, c: y, start: Start::Zero });
            let (y_keys, y_queries) = self.y[..2 * n].split_at_mut(n);
            for i in 0..n {
                let beta = L::splat(self.beta[i]);
                if call.rule.delta {
                    math::zip::<L>(&mut e[i], &y_keys[i], |v, y| v.sub(y).mul(beta));
                } else {
                    math::map::<L>(&mut e[i], |v| v.mul(beta));
                }
            }
            if call.rule.delta {
                L::call(SolveUnitLower { a: Strided::rows(&self.a, len), x: e });
            }
            L::call(AddLower { a: Strided::rows(&self.p, len), b: e, c: y_queries });
            let a = Strided::columns(&self.w[..n * kd], kd);
            L::call(Product { a, m: kd, b: e, c: s, start: Start::Scaled(&self.cum) });
            e.copy_from_slice(y_queries);
        }
        for i in 0..n {
            // SAFETY: tasks differ in sequence, head or columns.
            let out = unsafe { task.out_row(call, row + i) };
            for (p, out) in out.chunks_mut(PANEL).enumerate() {
                let o = &self.e[p * len + i];
                match <&mut Row>::try_from(&mut *out) {
                    Ok(out) => *out = *o,
                    Err(_) => out.copy_from_slice(&o[..out.len()]),
                }
            }
        }
    }
}

/// A row of up to 16 elements, the rest zeros.
#[inline(always)]
fn copy_row(to: &mut Row, from: &[f32]) {
    match <&Row>::try_from(from) {
        Ok(from) => *to = *from,
        Err(_) => {
            to[..from.len()].copy_from_slice(from);
            to[from.len()..].fill(0.0);
        }
    }
}

/// `w ← α ⊙ w`, and the dot products of the result with k and with q.
#[inline(always)]
fn decay_and_dot<L: Lanes>(w: &mut [f32], alpha: &[f32], k: &[f32], q: &[f32]) -> (f32, f32) {
    let mut sums = [L::splat(0.0); 2];
    let (wb, wt) = w.as_chunks_mut::<LANES>();
    let ((ab, at), (kb, kt), (qb, qt)) = (alpha.as_chunks::<LANES>(), k.as_chunks::<LANES>(), q.as_chunks::<LANES>());
    for (((w, a), k), q) in wb.iter_mut().zip(ab).zip(kb).zip(qb) {
        decay_lanes(w, a, k, q, &mut sums);
    }
    if !wt.is_empty() {
        let mut w = math::pad(wt);
        decay_lanes(&mut w, &math::pad(at), &math::pad(kt), &math::pad(qt), &mut sums);
        wt.copy_from_slice(&w[..wt.len()]);
    }
    (sums[0].sum(), sums[1].sum())
}

#[inline(always)]
fn decay_lanes<L: Lanes>(
    w: &mut [f32; LANES],
    alpha: &[f32; LANES],
    k: &[f32; LANES],
    q: &[f32; LANES],
    sums: &mut [L; 2],
) {
    let next = L::load(w).mul(L::load(alpha));
    let next = next.abs().select_lt(L::splat(TINY), L::splat(0.0), next);
    next.store(w);
    *sums = [next.fma(L::load(k), sums[0]), next.fma(L::load(q), sums[1])];
}

/// Rows `[n, k]` to panels `[n/16][k][16]`; columns past n are 0.
#[inline(always)]
fn transpose(rows: &[f32], k: usize, panels: &mut [Row]) {
    for (rows, panel) in rows.chunks(PANEL * k).zip(panels.chunks_mut(k)) {
        let n = rows.len() / k;
        for (c, out) in panel.iter_mut().enumerate() {
            for (r, o) in out.iter_mut().enumerate() {
                *o = if r < n { rows[r * k + c] } else { 0.0 };
            }
        }
    }
}

/// A task's columns of the state into panels; columns past the last are 0.
#[inline(always)]
fn load_state(call: &Call<'_>, task: &Task<'_>, panels: &mut [Row]) {
    for (p, panel) in panels.chunks_mut(call.key_dim).enumerate() {
        let cols = PANEL.min(task.cols.1 - p * PANEL);
        for (k, row) in panel.iter_mut().enumerate() {
            let at = task.state.1 + k * call.value_dim + task.cols.0 + p * PANEL;
            // SAFETY: tasks differ in sequence, head or columns.
            row[..cols].copy_from_slice(unsafe { task.state.0.get(at, cols) });
            row[cols..].fill(0.0);
        }
    }
}

/// The way back.
#[inline(always)]
fn store_state(
    call: &Call<'_>,
    task: &Task<'_>,
    panels: &[Row],
    (to, place): (&crate::cpu::parallel::Shared<'_, f32>, usize),
) {
    for (p, panel) in panels.chunks(call.key_dim).enumerate() {
        let cols = PANEL.min(task.cols.1 - p * PANEL);
        for (k, row) in panel.iter().enumerate() {
            let at = place + k * call.value_dim + task.cols.0 + p * PANEL;
            // SAFETY: tasks differ in sequence, head or columns.
            unsafe { to.get(at, cols) }.copy_from_slice(&row[..cols]);
        }
    }
}
