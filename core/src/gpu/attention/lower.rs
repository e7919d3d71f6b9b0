//! Attention as dispatches.

use bytemuck::bytes_of;
use deltanet_shaders::attention::{
    Heads, MAX_HEAD_DIM, PREFILL_ROWS, Prep, Source, combine, decode, prefill, prep, solo, store,
};
use deltanet_shaders::linear::SOLO_WORKGROUP;
use deltanet_shaders::params::{AttentionCombineParams, AttentionParams, AttentionPrepParams, AttentionStoreParams};

use crate::error::{Error, Result};
use crate::gpu::lower::Lower;
use crate::gpu::upload::GpuWeight;
use crate::ops::{Attention, WeightId};
use crate::plan::PlanKind;

/// Workgroups that keep a GPU busy: what decides into how many a decode's keys are split.
const BUSY: u32 = 512;
/// Most splits.
const MAX_SPLITS: u32 = 32;
/// Fewest keys of a split worth having.
const MIN_SHARE: u32 = 64;

/// What small weights of attention depend on: norms of q and k, bits of the rotary base, channels a head.
pub(in crate::gpu) type PackKey = (Option<(WeightId, WeightId)>, Option<u32>, usize);

/// Inverse frequencies of the rotary embedding, `[head_dim / 2]`: `theta^(−2i / head_dim)`.
pub(super) fn frequencies(theta: f32, head_dim: usize) -> Vec<f32> {
    let power = |i: usize| f64::from(theta).powf(-2.0 * i as f64 / head_dim as f64) as f32;
    (0..head_dim / 2).map(power).collect()
}

/// Refuses heads that the kernels do not take.
pub(super) fn check_head_dim(device: &str, head_dim: usize) -> Result<()> {
    if head_dim <= MAX_HEAD_DIM as usize {
        return Ok(());
    }
    Err(Error::Limit {
        device: device.to_owned(),
        what: "attention".into(),
        need: format!("heads of {head_dim} channels"),
        have: format!("kernels for at most {MAX_HEAD_DIM}"),
    })
}

impl Lower<'_> {
    pub(in crate::gpu) fn attention(&mut self, op: &Attention) -> Result<()> {
        check_head_dim(&self.gpu.info().name, op.head_dim)?;
        let heads = Heads { heads: op.heads as u32, kv_heads: op.kv_heads as u32, head_dim: op.head_dim as u32 };
        let rows = self.rows();
        // One row a session: its entry may replace the ring's oldest before anything is read.
        let single = self.plan.kind == PlanKind::Decode || rows == 1;
        let source = match op.window {
            None => Source::Paged,
            Some(_) if single => Source::Ring,
            Some(_) => Source::RingAndFresh,
        };
        let (cache, pages, slot_words) = if source == Source::Paged {
            let (cache, pages, stride) = self.pages.place(op.layer)?;
            (cache, Some(pages), stride)
        } else {
            let (ring, words) = self.layer_state(op.layer)?;
            (ring, None, words)
        };
        let (x, x_at) = self.cols(&op.qkv)?;
        let out = self.place(op.out)?;
        let q = self.pass("queries", heads.heads * heads.head_dim)?;
        let fresh = if source.fresh() { Some(self.pass("entries", heads.entry())?) } else { None };
        let window = op.window.unwrap_or(0) as u32;
        let table = self.fixed.table;

        let alone = self.caps.software;
        let (norm, rotary) = (op.qk_norm.is_some(), op.rope_theta.is_some());
        let params = AttentionPrepParams {
            x_stride: x.stride,
            x_at,
            q_stride: q.stride,
            slot_words,
            window,
            entry_stride: fresh.map_or(0, |f| f.stride),
            first_row: 0,
            scale: (op.head_dim as f32).sqrt().recip(),
            eps: op.qk_norm.map_or(0.0, |n| n.2),
        };
        let mut buffers = vec![x.buffer];
        if norm || rotary {
            buffers.push(self.attention_pack(op)?);
        }
        buffers.push(table);
        buffers.extend(pages);
        buffers.push(q.buffer);
        buffers.push(fresh.map_or(cache, |f| f.buffer));
        let parts = heads.heads + 2 * heads.kv_heads;
        let across = if alone { parts.div_ceil(SOLO_WORKGROUP) } else { parts };
        let form = Prep { to: source, norm, rotary, apart: false, alone };
        self.push(prep(&heads, form), bytes_of(&params), buffers, [across, rows, 1]);

        let params = AttentionParams {
            q_stride: q.stride,
            out_stride: out.stride,
            slot_words,
            window,
            fresh_stride: fresh.map_or(0, |f| f.stride),
            first_row: 0,
            rows,
        };
        let bytes = bytes_of(&params);
        let mut buffers = vec![q.buffer];
        buffers.extend(fresh.map(|f| f.buffer));
        buffers.push(cache);
        buffers.extend(pages);
        buffers.push(table);
        if alone {
            buffers.push(out.buffer);
            let groups = [(rows * heads.heads).div_ceil(SOLO_WORKGROUP), 1, 1];
            self.push(solo(&heads, source), bytes, buffers, groups);
        } else if single {
            let splits = splits(heads.blocks(), window);
            let shares =
                if splits == 1 { out } else { self.pass("shares", heads.heads * splits * (heads.head_dim + 2))? };
            buffers.push(shares.buffer);
            self.push(decode(&heads, source, splits), bytes, buffers, [splits, heads.blocks(), rows]);
            if splits > 1 {
                let params = AttentionCombineParams { out_stride: out.stride };
                let buffers = vec![shares.buffer, table, out.buffer];
                self.push(combine(&heads, splits), bytes_of(&params), buffers, [heads.heads, rows, 1]);
            }
        } else {
            buffers.push(out.buffer);
            let groups = [rows.div_ceil(PREFILL_ROWS), heads.heads, 1];
            self.push(prefill(&heads, source), bytes, buffers, groups);
        }
        if let Some(fresh) = fresh {
            let params = AttentionStoreParams { slot_words, window, fresh_stride: fresh.stride };
            let groups = [heads.entry().div_ceil(64), rows, 1];
            self.push(store(&heads), bytes_of(&params), vec![fresh.buffer, table, cache], groups);
        }
        Ok(())
    }

    /// Norms of q and k and inverse frequencies in one buffer; made when first asked for.
    fn attention_pack(&mut self, op: &Attention) -> Result<usize> {
        let norms = op.qk_norm.map(|(q, k, _)| (q, k));
        let key = (norms, op.rope_theta.map(f32::to_bits), op.head_dim);
        if let Some(buffer) = self.weights.attention.get(&key) {
            return Ok(*buffer);
        }
        let mut all = Vec::new();
        for id in norms.into_iter().flat_map(|(q, k)| [q, k]) {
            match self.weights.weight(id) {
                Some(GpuWeight::Vector(_, v)) => all.extend_from_slice(v),
                _ => return Err(Error::Gpu(format!("weight {} is not a vector", id.0))),
            }
        }
        all.extend(op.rope_theta.map(|theta| frequencies(theta, op.head_dim)).unwrap_or_default());
        let buffer = self.gpu.upload("attention's small weights", &all)?;
        self.buffers.push(buffer.into());
        self.weights.attention.insert(key, self.buffers.len() - 1);
        Ok(self.buffers.len() - 1)
    }
}

/// Workgroups among which a row's keys are split. The model alone decides: a row's result must not depend on how many
/// rows there are.
fn splits(groups: u32, window: u32) -> u32 {
    let wanted = (BUSY / groups.max(1)).clamp(1, MAX_SPLITS);
    if window == 0 { wanted } else { wanted.min(window.div_ceil(MIN_SHARE)) }
}
