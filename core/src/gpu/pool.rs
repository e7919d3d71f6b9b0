//! The state pool: what sessions own on the device, a slot each.

use std::collections::HashMap;

use bytemuck::bytes_of;
use deltanet_shaders::head::{HEAD_POSITION, HeadLayout};
use deltanet_shaders::linear::{COPY_WORKGROUP, copy_slots};
use deltanet_shaders::params::CopyParams;

use super::buffer::{Binding, GpuBuffer};
use super::device::Gpu;
use super::program::{Dispatch, Program};
use crate::engine::SlotState;
use crate::error::{Error, Result};
use crate::model::LayerState;

/// Marks the absence of a slot in tables and pairs: `NO_SLOT` of `common/rows`.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// Heads and layer states of all slots.
#[derive(Debug)]
pub(super) struct Pool {
    slots: usize,
    vocab: usize,
    pub(super) head: HeadLayout,
    /// `[slots, head.stride]` u32.
    heads: GpuBuffer,
    /// A layer each: words a slot, and `[slots, words]` f32 where there are any.
    layers: Vec<(usize, Option<GpuBuffer>)>,
    /// `[MAX_PAIRS]` { from, to }.
    pairs: GpuBuffer,
    /// Copy programs by number of pairs.
    copies: HashMap<usize, Program>,
}

/// Most copies in one go.
const MAX_PAIRS: usize = 64;

impl Pool {
    /// A pool of zeroed slots. Pushes its buffers on `table`; returns it with the heads' and the layers' indices.
    pub(super) fn new(
        gpu: &Gpu,
        vocab: usize,
        layers: &[LayerState],
        slots: usize,
        table: &mut Vec<Binding>,
    ) -> Result<(Self, usize, Vec<Option<usize>>)> {
        if slots == 0 {
            return Err(Error::argument("slots", "at least 1", 0));
        }
        let words = u32::try_from(vocab).map_err(|_| Error::argument("vocab", "below 2^32", vocab))?;
        let head = HeadLayout::new(words);
        let mut make = |name: &str, words: usize| -> Result<usize> {
            let bytes = (slots as u64).saturating_mul(4 * words as u64);
            table.push(gpu.buffer(name, bytes).map_err(|e| with_slots(e, slots))?.into());
            Ok(table.len() - 1)
        };
        let heads = make("heads of the session slots", head.stride as usize)?;
        let mut indices = Vec::with_capacity(layers.len());
        for (i, layer) in layers.iter().enumerate() {
            let name = format!("state of layer {i}");
            indices.push(if layer.words > 0 { Some(make(&name, layer.words)?) } else { None });
        }
        let get =
            |i: usize| table.get(i).and_then(Binding::buffer).cloned().ok_or_else(|| Error::Gpu("buffer table".into()));
        let mut states = Vec::with_capacity(indices.len());
        for (layer, index) in layers.iter().zip(&indices) {
            states.push((layer.words, index.map(get).transpose()?));
        }
        let heads_buffer = get(heads)?;
        let pairs = gpu.buffer("pairs", 8 * MAX_PAIRS as u64)?;
        let pool = Self { slots, vocab, head, heads: heads_buffer, layers: states, pairs, copies: HashMap::new() };
        Ok((pool, heads, indices))
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }
    pub(super) fn heads(&self) -> &GpuBuffer {
        &self.heads
    }

    /// # Errors
    /// [`Error::Argument`] for a slot that does not exist.
    pub(super) fn check(&self, slot: usize) -> Result<()> {
        if slot < self.slots { Ok(()) } else { Err(Error::argument("slot", format!("below {}", self.slots), slot)) }
    }

    /// Byte offset of a word of a slot's head.
    pub(super) fn head_at(&self, slot: usize, word: u32) -> u64 {
        4 * (slot as u64 * u64::from(self.head.stride) + u64::from(word))
    }

    /// Zeroes a slot.
    pub(super) fn clear(&self, encoder: &mut wgpu::CommandEncoder, slot: usize) {
        let head = 4 * u64::from(self.head.stride);
        encoder.clear_buffer(self.heads.raw(), slot as u64 * head, Some(head));
        for (words, buffer) in &self.layers {
            if let Some(buffer) = buffer {
                let bytes = 4 * *words as u64;
                encoder.clear_buffer(buffer.raw(), slot as u64 * bytes, Some(bytes));
            }
        }
    }

    /// Encodes copies `(from, to)` of whole slots, [`MAX_PAIRS`] at most. No slot may be written twice, or be written
    /// and read.
    pub(super) fn copy(
        &mut self,
        gpu: &Gpu,
        encoder: &mut wgpu::CommandEncoder,
        pairs: &[(usize, usize)],
    ) -> Result<()> {
        if pairs.is_empty() {
            return Ok(());
        }
        for (i, (from, to)) in pairs.iter().enumerate() {
            self.check(*from)?;
            self.check(*to)?;
            let clash = pairs.iter().enumerate().any(|(j, (f, t))| to == f || (i != j && to == t));
            if clash {
                return Err(Error::argument("slot to copy to", "one that no other copy touches", to));
            }
        }
        let count = pairs.len().next_power_of_two();
        if count > MAX_PAIRS {
            return Err(Error::argument("copies", format!("at most {MAX_PAIRS}"), pairs.len()));
        }
        let mut words: Vec<[u32; 2]> = pairs.iter().map(|(f, t)| [*f as u32, *t as u32]).collect();
        words.resize(count, [NO_SLOT; 2]);
        gpu.write(&self.pairs, 0, &words);
        if !self.copies.contains_key(&count) {
            let program = self.copy_program(gpu, count)?;
            self.copies.insert(count, program);
        }
        if let Some(program) = self.copies.get(&count) {
            program.encode(encoder);
        }
        Ok(())
    }

    fn copy_program(&self, gpu: &Gpu, count: usize) -> Result<Program> {
        let mut buffers = vec![self.pairs.clone()];
        let mut dispatches = Vec::new();
        let heads = (self.head.stride as usize, Some(self.heads.clone()));
        for (words, buffer) in std::iter::once(&heads).chain(&self.layers) {
            let Some(buffer) = buffer else { continue };
            buffers.push(buffer.clone());
            let params = CopyParams { words: *words as u32 };
            dispatches.push(Dispatch {
                variant: copy_slots(),
                params: bytes_of(&params).to_vec(),
                buffers: vec![0, buffers.len() - 1],
                groups: [params.words.div_ceil(4 * COPY_WORKGROUP).clamp(1, 4096), count as u32, 1],
            });
        }
        Program::compile(gpu, &dispatches, &buffers)
    }

    /// Ranges to read for [`Pool::state_from`].
    pub(super) fn ranges(&self, slot: usize) -> Vec<(&GpuBuffer, u64, u64)> {
        let head = 4 * u64::from(self.head.stride);
        let mut ranges = vec![(&self.heads, slot as u64 * head, head)];
        for (words, buffer) in &self.layers {
            if let Some(buffer) = buffer {
                let bytes = 4 * *words as u64;
                ranges.push((buffer, slot as u64 * bytes, bytes));
            }
        }
        ranges
    }

    /// What turns the bytes of [`Pool::ranges`] into a state.
    pub(super) fn shape(&self) -> SlotShape {
        SlotShape { vocab: self.vocab, head: self.head, stateful: self.layers.iter().map(|l| l.1.is_some()).collect() }
    }

    /// Whether a state has this pool's sizes.
    pub(super) fn check_state(&self, state: &SlotState) -> Result<u32> {
        let bad = |what: String| Err(Error::Session(what));
        let Ok(position) = u32::try_from(state.position) else {
            return bad(format!("position {} is beyond what a slot holds", state.position));
        };
        let logits = if position == 0 { 0 } else { self.vocab };
        if state.seen.len() != self.vocab.div_ceil(32) || state.logits.len() != logits {
            return bad(format!("expected logits of {logits} tokens, got {}", state.logits.len()));
        }
        if state.layers.len() != self.layers.len() {
            return bad(format!("expected {} layers, got {}", self.layers.len(), state.layers.len()));
        }
        for (i, (got, (want, _))) in state.layers.iter().zip(&self.layers).enumerate() {
            if got.len() != *want {
                return bad(format!("layer {i}: expected {want} elements, got {}", got.len()));
            }
        }
        Ok(position)
    }

    /// Writes a state into a slot, before the next submission.
    pub(super) fn write(&self, gpu: &Gpu, slot: usize, state: &SlotState) -> Result<()> {
        let position = self.check_state(state)?;
        let mut head = vec![0u32; self.head.stride as usize];
        let put = |head: &mut [u32], at: u32, words: &mut dyn Iterator<Item = u32>| {
            for (to, word) in head.iter_mut().skip(at as usize).zip(words) {
                *to = word;
            }
        };
        put(&mut head, HEAD_POSITION, &mut std::iter::once(position));
        put(&mut head, self.head.seen, &mut state.seen.iter().copied());
        put(&mut head, self.head.logits, &mut state.logits.iter().map(|l| l.to_bits()));
        gpu.write(&self.heads, self.head_at(slot, 0), &head);
        for (values, (words, buffer)) in state.layers.iter().zip(&self.layers) {
            if let Some(buffer) = buffer {
                gpu.write(buffer, 4 * (slot * words) as u64, values);
            }
        }
        Ok(())
    }
}

/// How the bytes of a slot are laid out when read.
#[derive(Clone, Debug)]
pub(super) struct SlotShape {
    vocab: usize,
    head: HeadLayout,
    /// Whether each layer has a state.
    stateful: Vec<bool>,
}

impl SlotShape {
    /// What was read by [`Pool::ranges`], as a state.
    pub(super) fn state_from(&self, read: Vec<Vec<u8>>) -> Result<SlotState> {
        let short = || Error::Gpu("short read of a slot".into());
        let mut parts = read.into_iter();
        let head: Vec<u32> = bytemuck::pod_collect_to_vec(&parts.next().ok_or_else(short)?);
        let position = *head.get(HEAD_POSITION as usize).ok_or_else(short)?;
        let (seen, logits) = (self.head.seen as usize, self.head.logits as usize);
        let seen = head.get(seen..seen + self.vocab.div_ceil(32)).ok_or_else(short)?.to_vec();
        let logits = head.get(logits..logits + self.vocab).ok_or_else(short)?;
        let logits = if position == 0 { Vec::new() } else { logits.iter().map(|l| f32::from_bits(*l)).collect() };
        let mut layers = Vec::with_capacity(self.stateful.len());
        for stateful in &self.stateful {
            let part = if *stateful { parts.next().ok_or_else(short)? } else { Vec::new() };
            layers.push(bytemuck::pod_collect_to_vec(&part));
        }
        let caches = vec![Vec::new(); self.stateful.len()];
        Ok(SlotState { position: u64::from(position), seen, logits, layers, caches })
    }
}

/// A limit error that says what would help.
fn with_slots(error: Error, slots: usize) -> Error {
    match error {
        Error::Limit { device, what, need, have } => {
            Error::Limit { device, what: format!("{what} for {slots} slots"), need, have }
        }
        other => other,
    }
}
