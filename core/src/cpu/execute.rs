//! Runs a plan op by op.

use std::mem;
use std::sync::Arc;

use super::attention::{Attend, attend_row, norm_and_rotate, rotary_table};
use super::linear::{self, Product, Rows};
use super::mixer;
use super::norm;
use super::parallel::{self, Shared};
use super::slot::Slot;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::ops::{Attention, BufId, Cols, Embed, Input, Linear, Op};
use crate::plan::{Plan, PlanKind};

/// Elements of elementwise work worth a task of their own.
const GRAIN: usize = 1 << 14;

/// Buffers of a plan, by [`BufId`], and scratch of single ops. Contents mean nothing between runs.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) plan: Vec<Vec<f32>>,
    /// Inputs of a product after norm or gate, `[rows, in_dim]`.
    input: Vec<f32>,
    /// Attention: queries `[rows, heads, head_dim]`, entries `[rows, 2, kv_heads, head_dim]`.
    attention: [Vec<f32>; 2],
}

/// One run of a plan.
pub(super) struct Run<'a> {
    pub(super) weights: &'a Weights,
    pub(super) plan: &'a Plan,
    /// A token a row.
    pub(super) tokens: &'a [u32],
    /// A prefill's or score's one session, or a decode's sessions, row by row.
    pub(super) slots: &'a mut [Slot],
    pub(super) buffers: &'a mut Buffers,
}

impl Run<'_> {
    /// Executes all ops. Afterwards the state is that after the tokens, and the logits are in the plan's buffer. The
    /// slots' positions, seen tokens and logits are left to the caller.
    pub(super) fn execute(&mut self) -> Result<()> {
        self.execute_watched(&mut |_, _| ())
    }

    /// [`Run::execute`], showing each op and its output, `[rows, width]`, to `after`.
    pub(super) fn execute_watched(&mut self, after: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        let n = self.tokens.len();
        self.buffers.plan.resize_with(self.plan.buffers.len().max(self.buffers.plan.len()), Vec::new);
        for (buffer, spec) in self.buffers.plan.iter_mut().zip(&self.plan.buffers) {
            let len = spec.width * spec.rows.min(n);
            if buffer.len() < len {
                let more = len - buffer.len();
                let oom = |_| Error::OutOfMemory(format!("a buffer of {n} rows of {} f32 on the CPU", spec.width));
                buffer.try_reserve_exact(more).map_err(oom)?;
                buffer.resize(len, 0.0);
            }
        }
        for (i, op) in self.plan.ops.iter().enumerate() {
            match op {
                Op::Embed(e) => self.embed(e)?,
                Op::Linear(l) => self.linear(l)?,
                Op::Mixer(m) => {
                    let single = self.plan.kind != PlanKind::Decode;
                    mixer::run(m, self.weights, &mut self.buffers.plan, n, self.slots, single)?;
                }
                Op::Attention(a) => self.attention(a)?,
            }
            let out = op.out();
            let width = self.plan.buffers.get(out.0).map_or(0, |b| b.width * b.rows.min(n));
            after(i, buffer(&self.buffers.plan, out).get(..width).unwrap_or_default());
        }
        Ok(())
    }

    fn embed(&mut self, e: &Embed) -> Result<()> {
        let table = self.weights.matrix(e.table)?;
        let out = &mut self.buffers.plan[e.out.0];
        for (token, row) in self.tokens.iter().zip(out.chunks_mut(e.width)) {
            linear::unpack_row(table, *token as usize, row);
        }
        Ok(())
    }

    fn linear(&mut self, l: &Linear) -> Result<()> {
        let n = self.tokens.len();
        let weight = self.weights.matrix(l.weight)?;
        let bias = l.bias.map(|b| self.weights.vector(b)).transpose()?;
        // The logits of a prompt are wanted for its last row alone.
        let (first, rows) = if l.last_only && self.plan.kind != PlanKind::Decode { (n - 1, 1) } else { (0, n) };
        let mut out = mem::take(&mut self.buffers.plan[l.out.0]);
        let mut input = mem::take(&mut self.buffers.input);
        let product = |x: Rows<'_>, out: &mut [f32]| {
            let any_n_alike = self.plan.kind == PlanKind::Decode;
            Product { weight, x, bias, add: l.add, any_n_alike }.run(&mut out[..rows * l.out_dim]);
        };
        if let Input::Plain(cols) = &l.input {
            if cols.buf == l.out {
                // In place: the product must not overwrite what it reads.
                input.clear();
                input.extend_from_slice(&out[first * cols.width..(first + rows) * cols.width]);
                product(Rows { data: &input, at: cols.at, row: cols.width, n: rows }, &mut out);
            } else {
                product(self.rows(cols, first, rows), &mut out);
            }
        } else {
            if input.len() < rows * l.in_dim {
                input.resize(rows * l.in_dim, 0.0);
            }
            self.prepare(l, first, rows, &out, &mut input[..rows * l.in_dim])?;
            product(Rows { data: &input, at: 0, row: l.in_dim, n: rows }, &mut out);
        }
        self.buffers.input = input;
        self.buffers.plan[l.out.0] = out;
        Ok(())
    }

    fn rows(&self, cols: &Cols, first: usize, n: usize) -> Rows<'_> {
        Rows { data: &self.buffers.plan[cols.buf.0], at: cols.at + first * cols.width, row: cols.width, n }
    }

    /// Norm, gate or SwiGLU of each row into `input` `[rows, in_dim]`. `out` is the op's output buffer, which its
    /// input may be too.
    fn prepare(&self, l: &Linear, first: usize, rows: usize, out: &[f32], input: &mut [f32]) -> Result<()> {
        let at = |cols: &Cols, r: usize, n: usize| -> &[f32] {
            let data = if cols.buf == l.out { out } else { &self.buffers.plan[cols.buf.0] };
            &data[(first + r) * cols.width + cols.at..][..n]
        };
        let n = l.in_dim;
        let mut each = |f: &(dyn Fn(usize, &mut [f32]) + Sync)| {
            let shared = Shared::new(input);
            parallel::for_ranges(rows, (GRAIN / n.max(1)).max(1), |range| {
                for r in range {
                    // SAFETY: every row belongs to one range.
                    f(r, unsafe { shared.get(r * n, n) });
                }
            });
        };
        match &l.input {
            Input::Plain(_) => {}
            Input::RmsNorm { x, weight, eps } => {
                let weight = self.weights.vector(*weight)?;
                each(&|r, out| norm::rms_norm(at(x, r, n), weight, *eps, out));
            }
            Input::HeadNorm { x, head_dim, weight, eps, gate } => {
                let weight = weight.map(|w| self.weights.vector(w)).transpose()?;
                each(&|r, out| {
                    let gate = gate.as_ref().map(|(g, activation)| (at(g, r, n), *activation));
                    norm::head_norm(at(x, r, n), *head_dim, weight, *eps, gate, out);
                });
            }
            Input::SwiGlu(gate) => each(&|r, out| {
                let both = at(gate, r, 2 * n);
                norm::swiglu(&both[..n], &both[n..], out);
            }),
        }
        Ok(())
    }

    fn attention(&mut self, a: &Attention) -> Result<()> {
        let n = self.tokens.len();
        let single = self.plan.kind != PlanKind::Decode;
        let (q_width, kv_width) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
        let entry = 2 * kv_width;
        let norms = match a.qk_norm {
            Some((q, k, eps)) => Some((self.weights.vector(q)?, self.weights.vector(k)?, eps)),
            None => None,
        };
        let [mut queries, mut entries] = mem::take(&mut self.buffers.attention);
        queries.resize(n * q_width, 0.0);
        entries.resize(n * entry, 0.0);
        let qkv = self.rows(&a.qkv, 0, n);
        let slots = &self.slots;
        let (all_q, all_e) = (Shared::new(&mut queries), Shared::new(&mut entries));
        parallel::for_ranges(n, (GRAIN / (q_width + entry)).max(1), |range| {
            let mut table = vec![0.0; a.head_dim];
            for r in range {
                let row = qkv.get(r, q_width + entry);
                // SAFETY: every row belongs to one range.
                let (q, e) = unsafe { (all_q.get(r * q_width, q_width), all_e.get(r * entry, entry)) };
                q.copy_from_slice(&row[..q_width]);
                e.copy_from_slice(&row[q_width..]);
                let position = if single { slots[0].position + r as u64 } else { slots[r].position };
                let table = a.rope_theta.map(|theta| {
                    rotary_table(position, a.head_dim, theta, &mut table);
                    &table[..]
                });
                norm_and_rotate(q, a.head_dim, norms.map(|(w, _, eps)| (w, eps)), table);
                norm_and_rotate(&mut e[..kv_width], a.head_dim, norms.map(|(_, w, eps)| (w, eps)), table);
            }
        });
        let mut out = mem::take(&mut self.buffers.plan[a.out.0]);
        let shared = Shared::new(&mut out);
        let group = a.heads / a.kv_heads * a.head_dim;
        parallel::for_each(n * a.kv_heads, |i| {
            let (r, kv_head) = (i / a.kv_heads, i % a.kv_heads);
            let (slot, before, new) = if single {
                (&self.slots[0], r, &entries[..(r + 1) * entry])
            } else {
                (&self.slots[r], 0, &entries[r * entry..][..entry])
            };
            let (pages, pieces) = seen(a, slot, entry, before, new);
            let q = &queries[r * q_width + kv_head * group..][..group];
            // SAFETY: every task has a row and heads of its own.
            let out = unsafe { shared.get(r * q_width + kv_head * group, group) };
            attend_row(Attend {
                q,
                scale: (a.head_dim as f32).sqrt().recip(),
                pages,
                pieces,
                entry,
                kv_head,
                head_dim: a.head_dim,
                out,
            });
        });
        self.buffers.plan[a.out.0] = out;
        if a.window.is_none() {
            // Room first, so that a cache that cannot grow leaves the session as it was.
            let count = if single { n } else { 1 };
            for slot in self.slots.iter_mut() {
                let oom = |_| Error::OutOfMemory(format!("the attention cache of layer {}", a.layer));
                slot.caches[a.layer].reserve(count).map_err(oom)?;
            }
        }
        for (r, e) in entries[..n * entry].chunks(entry).enumerate() {
            let (slot, position) = if single {
                let slot = &mut self.slots[0];
                let position = slot.position + r as u64;
                (slot, position)
            } else {
                let position = self.slots[r].position;
                (&mut self.slots[r], position)
            };
            match a.window {
                Some(window) => {
                    let at = (position % window as u64) as usize * entry;
                    slot.layers[a.layer][at..at + entry].copy_from_slice(e);
                }
                None => slot.caches[a.layer].push(e),
            }
        }
        self.buffers.attention = [queries, entries];
        Ok(())
    }
}

/// Entries that a row sees, oldest first: what the slot holds, then those of the run's rows up to itself (`new`,
/// of which `before` come before it). Pages of a cache, then pieces.
fn seen<'a>(
    a: &Attention,
    slot: &'a Slot,
    entry: usize,
    before: usize,
    new: &'a [f32],
) -> (&'a [Arc<Vec<f32>>], [&'a [f32]; 3]) {
    let Some(window) = a.window else { return (slot.caches[a.layer].pages(), [&[], &[], new]) };
    let ring = &slot.layers[a.layer][..window * entry];
    // The row at position p sees p − window + 1 ..= p, of which the ring holds those before the run.
    let new = &new[(before + 1).saturating_sub(window) * entry..];
    let old = slot.position.min(window.saturating_sub(before + 1) as u64) as usize;
    let end = (slot.position % window as u64) as usize;
    if old <= end {
        (&[], [&ring[(end - old) * entry..end * entry], &[], new])
    } else {
        (&[], [&ring[(window - (old - end)) * entry..], &ring[..end * entry], new])
    }
}

/// A plan's buffer by id.
pub(super) fn buffer(buffers: &[Vec<f32>], id: BufId) -> &[f32] {
    buffers.get(id.0).map_or(&[], Vec::as_slice)
}
