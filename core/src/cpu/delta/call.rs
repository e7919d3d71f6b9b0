//! One call's tensors as the kernels see them: strided views, so that operators on whole tensors and layers inside a
//! model's buffers share the same kernels.

use crate::cpu::math::{self, Exp, Ln};
use crate::cpu::parallel::Shared;
use crate::cpu::simd::Lanes;
use crate::delta::{L2NORM_EPS, MIN_LOG_DECAY, SQUASH_EPS, SQUASH_X};
use crate::rule::{Beta, Decay, Rule, WriteKey};

/// Largest K.
pub(crate) const MAX_KEY_DIM: usize = 256;

/// A tensor `[rows, heads, width]` inside a buffer: element (t, h, i) is `data[at + t·row + h·head + i]`.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub data: &'a [f32],
    pub at: usize,
    pub row: usize,
    pub head: usize,
}

impl<'a> View<'a> {
    /// A contiguous `[rows, heads, width]`.
    pub(crate) fn packed(data: &'a [f32], heads: usize, width: usize) -> Self {
        Self { data, at: 0, row: heads * width, head: width }
    }
    #[inline(always)]
    fn get(&self, t: usize, h: usize, n: usize) -> &'a [f32] {
        &self.data[self.at + t * self.row + h * self.head..][..n]
    }
}

/// The preconditioner's inputs: g and β `[rows, H]`, μ `[H]`.
#[derive(Clone, Copy)]
pub(crate) struct PrecondViews<'a> {
    pub g: View<'a>,
    pub beta: View<'a>,
    pub log_scale: &'a [f32],
}

/// Everything but the states.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub rule: Rule,
    pub heads: usize,
    pub value_heads: usize,
    pub key_dim: usize,
    pub value_dim: usize,
    pub scale: f32,
    pub l2norm: bool,
    /// `[rows, H, K]`.
    pub q: View<'a>,
    /// `[rows, H, K]`.
    pub k: View<'a>,
    /// `[rows, HV, V]`.
    pub v: View<'a>,
    /// `[rows, HV]`, unless β is 1.
    pub beta: Option<View<'a>>,
    /// `[rows, HV]` or `[rows, HV, K]`, with decay.
    pub g: Option<View<'a>>,
    pub precond: Option<PrecondViews<'a>>,
}

/// A piece of work: one sequence, one value head, some of its columns.
pub(crate) struct Task<'a> {
    /// First row and number of rows.
    pub rows: (usize, usize),
    /// Value head.
    pub head: usize,
    /// First column and number of columns of V.
    pub cols: (usize, usize),
    /// Where the head's S `[K, V]` begins in the states; it is updated in place.
    pub state: (&'a Shared<'a, f32>, usize),
    /// Sums before the first row, `[K]` of this key head; empty without a preconditioner.
    pub sums: &'a [f32],
    /// Where the sums after the last row go; one task of those that share a key head has it.
    pub sums_out: Option<(&'a Shared<'a, f32>, usize)>,
    /// Output `[rows, HV, V]`: buffer, place of row 0 and head 0, elements a row.
    pub out: (&'a Shared<'a, f32>, usize, usize),
    /// Where the state before each chunk goes: buffer, place of this head's first one, elements from one to the next.
    pub chunk_states: Option<(&'a Shared<'a, f32>, usize, usize)>,
}

impl Task<'_> {
    /// The output's columns of one row.
    ///
    /// # Safety
    /// Tasks at work at the same time must differ in sequence, head or columns.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub(crate) unsafe fn out_row(&self, call: &Call<'_>, row: usize) -> &mut [f32] {
        let (out, at, stride) = self.out;
        // SAFETY: by the caller's promise no other task has this row, head and these columns.
        unsafe { out.get(at + row * stride + self.head * call.value_dim + self.cols.0, self.cols.1) }
    }
}

/// One row made ready for the recurrence.
pub(crate) struct Prepared {
    /// β after the rule's form.
    pub beta: f32,
}

impl Call<'_> {
    /// Key head that a value head reads.
    #[inline(always)]
    pub(crate) fn key_head(&self, value_head: usize) -> usize {
        value_head / (self.value_heads / self.heads)
    }

    /// Values of a row: a task's columns.
    #[inline(always)]
    pub(crate) fn values(&self, row: usize, task: &Task<'_>) -> &[f32] {
        &self.v.get(row, task.head, self.value_dim)[task.cols.0..][..task.cols.1]
    }

    /// Asks for a row's query, key and values ahead of use.
    #[inline(always)]
    pub(crate) fn prefetch<L: Lanes>(&self, row: usize, task: &Task<'_>) {
        const LINE: usize = 16;
        let key_head = self.key_head(task.head);
        let (q, k) = (self.q.get(row, key_head, self.key_dim), self.k.get(row, key_head, self.key_dim));
        for x in [q, k, self.values(row, task)] {
            for at in (0..x.len()).step_by(LINE) {
                L::prefetch(x.as_ptr().wrapping_add(at).cast());
            }
        }
    }

    /// Fills q (scaled), the read key k and the write key w, `[K]` each, of a row, and advances the sums.
    #[inline(always)]
    pub(crate) fn prepare<L: Lanes>(
        &self,
        row: usize,
        head: usize,
        q: &mut [f32],
        k: &mut [f32],
        w: &mut [f32],
        sums: &mut [f32],
    ) -> Prepared {
        let key_head = self.key_head(head);
        q.copy_from_slice(self.q.get(row, key_head, self.key_dim));
        k.copy_from_slice(self.k.get(row, key_head, self.key_dim));
        let mut scale = self.scale;
        if self.l2norm {
            scale *= (math::dot::<L>(q, q) + L2NORM_EPS).sqrt().recip();
            let r = L::splat((math::dot::<L>(k, k) + L2NORM_EPS).sqrt().recip());
            math::map::<L>(k, |x| x.mul(r));
        }
        let scale = L::splat(scale);
        math::map::<L>(q, |x| x.mul(scale));
        w.copy_from_slice(k);
        if let (WriteKey::Preconditioned, Some(p)) = (self.rule.write_key, &self.precond) {
            let decay = L::splat(p.g.get(row, key_head, 1)[0].max(MIN_LOG_DECAY).exp());
            let beta = L::splat(p.beta.get(row, key_head, 1)[0]);
            math::zip::<L>(sums, k, |a, k| decay.mul(a).add(beta.mul(k).mul(k)));
            precondition::<L>(w, sums, p.log_scale.get(key_head).copied().unwrap_or_default());
        }
        let given = self.beta.map_or(1.0, |b| b.get(row, head, 1)[0]);
        let beta = match self.rule.beta {
            Beta::One => 1.0,
            Beta::Given => given,
            Beta::Longhorn => given / (1.0 + given * math::dot::<L>(k, k)),
        };
        Prepared { beta }
    }

    /// Fills α `[K]` of a row (one number or all alike for a decay per head), and returns the first.
    #[inline(always)]
    pub(crate) fn decays<L: Lanes>(&self, row: usize, head: usize, alpha: &mut [f32]) -> f32 {
        match (self.rule.decay, self.g) {
            (Decay::PerHead, Some(g)) => alpha.fill(g.get(row, head, 1)[0].max(MIN_LOG_DECAY).exp()),
            (Decay::PerChannel, Some(g)) => {
                alpha.copy_from_slice(g.get(row, head, self.key_dim));
                // exp is exactly 0 far above the clamp.
                math::apply::<L, Exp>(alpha);
            }
            _ => alpha.fill(1.0),
        }
        alpha.first().copied().unwrap_or(1.0)
    }
}

/// `w ← B ⊙ w` with `B = x^(−s)`, `s = r / (1 + |r|)`, `r = ln(A + ε) − μ` (MATH.md §8.3).
#[inline(always)]
fn precondition<L: Lanes>(w: &mut [f32], sums: &[f32], log_scale: f32) {
    let (one, eps, mu) = (L::splat(1.0), L::splat(SQUASH_EPS), L::splat(log_scale));
    let minus_ln_x = L::splat(-SQUASH_X.ln());
    let mut b = [0.0; MAX_KEY_DIM];
    let b = &mut b[..w.len()];
    b.copy_from_slice(sums);
    math::map::<L>(b, |a| a.add(eps));
    math::apply::<L, Ln>(b);
    math::map::<L>(b, |x| {
        let r = x.sub(mu);
        minus_ln_x.mul(r.div(one.add(r.abs())))
    });
    math::apply::<L, Exp>(b);
    math::zip::<L>(w, b, |w, b| w.mul(b));
}
