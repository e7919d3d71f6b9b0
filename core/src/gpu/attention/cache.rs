//! Keys and values of attention without a window: pages of [`PAGE`] tokens, shared by all slots of a pool.
//!
//! Every such layer has one buffer `[pages, PAGE, entry]` f32; a page has the same number in all of them. A slot's
//! pages are listed in the page table, `[slots, stride]` u32. Buffers and table grow by doubling, into new buffers.
//!
//! Entries past a slot's position mean nothing. So a snapshot needs no pages of its own: it shares those of the slot it
//! was taken of, which only appends, or goes back to a snapshot and appends again.

mod export;

use std::collections::HashMap;

use bytemuck::bytes_of;
use deltanet_shaders::attention::PAGE;
use deltanet_shaders::linear::{COPY_WORKGROUP, copy_slots};
use deltanet_shaders::params::CopyParams;

use crate::error::{Error, Result};
use crate::gpu::buffer::{Binding, GpuBuffer};
use crate::gpu::device::Gpu;
use crate::gpu::program::{Dispatch, Program};
use crate::model::LayerState;

/// Pages that a pool begins with.
const FIRST_PAGES: u32 = 4;
/// Elements that 32-bit indices reach.
const MAX_ELEMENTS: u64 = 1 << 32;

/// One attention layer's share.
#[derive(Debug)]
struct Layer {
    /// Number of the layer in its model.
    layer: usize,
    /// f32 elements a token.
    entry: usize,
    /// Index into the buffer table: `[pages, PAGE, entry]`.
    buffer: usize,
}

/// Pages of one text, in order, and how many slots hold it.
#[derive(Debug, Default)]
struct Cache {
    pages: Vec<u32>,
    users: usize,
}

/// What a slot holds.
#[derive(Clone, Debug, Default)]
struct Slot {
    cache: Option<u64>,
    /// At least as many tokens as have been fed.
    fed: u64,
    /// The cache whose pages the page table lists, and how many of them.
    written: Option<(u64, usize)>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(in crate::gpu) struct PagePool {
    layers: Vec<Layer>,
    /// Index into the buffer table: the page table.
    table: usize,
    /// Entries a slot of the page table.
    stride: u32,
    /// Pages of the buffers.
    pages: u32,
    free: Vec<u32>,
    caches: HashMap<u64, Cache>,
    /// Number of the next cache: none comes twice.
    next: u64,
    slots: Vec<Slot>,
}

fn pages_of(tokens: u64) -> u64 {
    tokens.div_ceil(u64::from(PAGE))
}

impl PagePool {
    /// A pool for the layers of a model that have a cache; with none of them it costs nothing.
    pub(in crate::gpu) fn new(
        gpu: &Gpu,
        layers: &[LayerState],
        slots: usize,
        buffers: &mut Vec<Binding>,
    ) -> Result<Self> {
        let mut pool = Self {
            layers: Vec::new(),
            table: 0,
            stride: FIRST_PAGES,
            pages: FIRST_PAGES,
            free: (0..FIRST_PAGES).rev().collect(),
            caches: HashMap::new(),
            next: 0,
            slots: vec![Slot::default(); slots],
        };
        let cached = layers.iter().enumerate().filter(|(_, l)| l.cache_per_token > 0);
        pool.layers = cached.map(|(layer, l)| Layer { layer, entry: l.cache_per_token, buffer: 0 }).collect();
        if pool.layers.is_empty() {
            return Ok(pool);
        }
        let (made, table) = pool.make(gpu, FIRST_PAGES, FIRST_PAGES)?;
        for (layer, buffer) in pool.layers.iter_mut().zip(made) {
            layer.buffer = buffers.len();
            buffers.push(buffer.into());
        }
        pool.table = buffers.len();
        buffers.push(table.into());
        Ok(pool)
    }

    /// A layer's pages, and the page table: indices into the buffer table; and the table's entries a slot.
    pub(in crate::gpu) fn place(&self, layer: usize) -> Result<(usize, usize, u32)> {
        let found = self.layers.iter().find(|l| l.layer == layer);
        let found = found.ok_or_else(|| Error::Gpu(format!("layer {layer} has no cache")))?;
        Ok((found.buffer, self.table, self.stride))
    }

    /// Upper bound of the tokens that a slot has been fed.
    pub(in crate::gpu) fn fed(&self, slot: usize) -> u64 {
        self.slots.get(slot).map_or(0, |s| s.fed)
    }

    /// Counts tokens as fed.
    pub(in crate::gpu) fn advance(&mut self, slot: usize, tokens: u64) {
        if let Some(s) = self.slots.get_mut(slot) {
            s.fed += tokens;
        }
    }

    /// States how many tokens a slot has been fed, where a run may have ended early. Pages beyond them are given back.
    pub(in crate::gpu) fn settle(&mut self, slot: usize, tokens: u64) {
        let Some(s) = self.slots.get_mut(slot) else { return };
        s.fed = tokens;
        let Some(cache) = s.cache.and_then(|id| self.caches.get_mut(&id)) else { return };
        let keep = pages_of(tokens) as usize;
        if cache.users == 1 && cache.pages.len() > keep {
            self.free.extend(cache.pages.drain(keep..).rev());
            s.written = s.written.map(|(id, n)| (id, n.min(keep)));
        }
    }

    /// Empties a slot.
    pub(in crate::gpu) fn clear(&mut self, slot: usize) {
        let Some(s) = self.slots.get_mut(slot) else { return };
        s.fed = 0;
        let Some(id) = s.cache.take() else { return };
        if let Some(cache) = self.caches.get_mut(&id) {
            cache.users -= 1;
            if cache.users == 0 {
                let pages = self.caches.remove(&id).unwrap_or_default().pages;
                self.free.extend(pages.into_iter().rev());
            }
        }
    }

    /// Makes `to` a snapshot of `slot`: it shares its pages.
    pub(in crate::gpu) fn share(&mut self, slot: usize, to: usize) {
        let (cache, fed) = match self.slots.get(slot) {
            Some(s) => (s.cache, s.fed),
            None => return,
        };
        if self.slots.get(to).is_some_and(|t| t.cache != cache) {
            self.clear(to);
            if let Some(c) = cache.and_then(|id| self.caches.get_mut(&id)) {
                c.users += 1;
            }
        }
        if let Some(t) = self.slots.get_mut(to) {
            (t.cache, t.fed) = (cache, fed);
        }
    }

    /// Makes room for tokens to be fed, so many a slot, and lists the slots' pages on the device. True when buffers
    /// were replaced: whatever binds them must be made anew.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when the device has no room; nothing has changed then.
    pub(in crate::gpu) fn reserve(
        &mut self,
        gpu: &Gpu,
        buffers: &mut [Binding],
        wants: &[(usize, u64)],
    ) -> Result<bool> {
        if self.layers.is_empty() {
            return Ok(false);
        }
        let (mut new, mut longest) = (0, 0);
        for &(slot, tokens) in wants {
            let need = pages_of(self.fed(slot) + tokens);
            new += need.saturating_sub(self.held(slot).len() as u64);
            longest = longest.max(need);
        }
        let grown = self.grow(gpu, buffers, new, longest)?;
        for &(slot, tokens) in wants {
            let need = pages_of(self.fed(slot) + tokens) as usize;
            self.fill(slot, need);
            self.write_row(gpu, buffers, slot)?;
        }
        Ok(grown)
    }

    /// Copies a slot's pages to another, unless they share them already. Returns what [`PagePool::copy`] has to copy,
    /// and whether buffers were replaced.
    ///
    /// # Errors
    /// As [`PagePool::reserve`].
    pub(in crate::gpu) fn fork(
        &mut self,
        gpu: &Gpu,
        buffers: &mut [Binding],
        from: usize,
        to: usize,
    ) -> Result<(Vec<[u32; 2]>, bool)> {
        let cache_of = |slot: usize| self.slots.get(slot).and_then(|s| s.cache);
        if self.layers.is_empty() || cache_of(from) == cache_of(to) {
            let fed = self.fed(from);
            if let Some(t) = self.slots.get_mut(to) {
                t.fed = fed;
            }
            return Ok((Vec::new(), false));
        }
        let count = self.held(from).len();
        let grown = self.grow(gpu, buffers, count as u64, count as u64)?;
        self.clear(to);
        self.fill(to, count);
        let fed = self.fed(from);
        self.advance(to, fed);
        let pairs = self.held(from).iter().zip(self.held(to)).map(|(f, t)| [*f, *t]).collect();
        Ok((pairs, grown))
    }

    /// Encodes copies of pages, `{ from, to }`. What it returns must live until they are submitted.
    pub(in crate::gpu) fn copy(
        &self,
        gpu: &Gpu,
        buffers: &[Binding],
        encoder: &mut wgpu::CommandEncoder,
        pairs: &[[u32; 2]],
    ) -> Result<Vec<Program>> {
        let most = gpu.caps().max_groups as usize;
        let mut programs = Vec::new();
        for pairs in pairs.chunks(most.max(1)) {
            let mut all = vec![gpu.upload("pages to copy", pairs)?];
            let mut dispatches = Vec::with_capacity(self.layers.len());
            for layer in &self.layers {
                all.push(get(buffers, layer.buffer)?.clone());
                let words = PAGE * layer.entry as u32;
                dispatches.push(Dispatch {
                    variant: copy_slots(),
                    params: bytes_of(&CopyParams { words }).to_vec(),
                    buffers: vec![0, all.len() - 1],
                    groups: [words.div_ceil(4 * COPY_WORKGROUP).clamp(1, 4096), pairs.len() as u32, 1],
                });
            }
            let program = Program::compile(gpu, &dispatches, &all)?;
            program.encode(encoder);
            programs.push(program);
        }
        Ok(programs)
    }

    fn held(&self, slot: usize) -> &[u32] {
        let id = self.slots.get(slot).and_then(|s| s.cache);
        id.and_then(|id| self.caches.get(&id)).map_or(&[], |c| &c.pages)
    }

    /// Gives a slot's cache pages up to `count`, from those that are free.
    fn fill(&mut self, slot: usize, count: usize) {
        let Some(s) = self.slots.get_mut(slot) else { return };
        let id = *s.cache.get_or_insert_with(|| {
            self.next += 1;
            self.caches.insert(self.next, Cache { pages: Vec::new(), users: 1 });
            self.next
        });
        let Some(cache) = self.caches.get_mut(&id) else { return };
        while cache.pages.len() < count {
            let Some(page) = self.free.pop() else { return };
            cache.pages.push(page);
        }
    }

    /// Lists the pages of a slot on the device, those that are not listed yet.
    fn write_row(&mut self, gpu: &Gpu, buffers: &[Binding], slot: usize) -> Result<()> {
        let Some(s) = self.slots.get(slot) else { return Ok(()) };
        let Some(id) = s.cache else { return Ok(()) };
        let listed = s.written.filter(|w| w.0 == id).map_or(0, |w| w.1);
        let pages = self.held(slot);
        if let Some(new) = pages.get(listed..).filter(|n| !n.is_empty()) {
            let at = slot as u64 * u64::from(self.stride) + listed as u64;
            gpu.write(get(buffers, self.table)?, 4 * at, new);
        }
        let written = Some((id, pages.len()));
        if let Some(s) = self.slots.get_mut(slot) {
            s.written = written;
        }
        Ok(())
    }

    /// Makes sure that `new` pages are free and that a slot may have `longest`. True when buffers were replaced.
    fn grow(&mut self, gpu: &Gpu, buffers: &mut [Binding], new: u64, longest: u64) -> Result<bool> {
        if new <= self.free.len() as u64 && longest <= u64::from(self.stride) {
            return Ok(false);
        }
        let used = u64::from(self.pages) - self.free.len() as u64;
        let need = (used + new).max(u64::from(self.pages));
        let most = self.most_pages(gpu);
        if need > most || longest > most {
            let tokens = most.saturating_mul(u64::from(PAGE));
            let message = format!(
                "attention caches: this device holds at most {tokens} tokens of all sessions together, {} are asked for",
                need.saturating_mul(u64::from(PAGE))
            );
            return Err(Error::OutOfMemory(message));
        }
        let double = |now: u32, need: u64| {
            if need > u64::from(now) { (2 * u64::from(now)).clamp(need, most.max(need)) as u32 } else { now }
        };
        let (pages, stride) = (double(self.pages, need), double(self.stride, longest));
        // Twice as much saves copies later; what is needed will do.
        let made = self.make(gpu, pages, stride).or_else(|_| self.make(gpu, need as u32, stride));
        let (made, table) = made.map_err(|e| match e {
            Error::DeviceLost(m) => Error::DeviceLost(m),
            e => Error::OutOfMemory(format!("attention caches of {} tokens: {e}", need * u64::from(PAGE))),
        })?;
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut bytes = u64::MAX;
        for (layer, buffer) in self.layers.iter().zip(&made) {
            let old = get(buffers, layer.buffer)?;
            encoder.copy_buffer_to_buffer(old.raw(), 0, buffer.raw(), 0, old.size());
            bytes = bytes.min(buffer.size() / (4 * u64::from(PAGE) * layer.entry as u64));
        }
        gpu.queue().submit([encoder.finish()]);
        gpu.check()?;
        for (layer, buffer) in self.layers.iter().zip(made) {
            if let Some(place) = buffers.get_mut(layer.buffer) {
                *place = buffer.into();
            }
        }
        if let Some(place) = buffers.get_mut(self.table) {
            *place = table.into();
        }
        // As many as the smallest of the buffers holds: all hold the same.
        let pages = bytes.min(u64::from(u32::MAX)) as u32;
        self.free.splice(0..0, (self.pages..pages).rev());
        (self.pages, self.stride) = (pages, stride);
        for s in &mut self.slots {
            s.written = None;
        }
        Ok(true)
    }

    /// Most pages that a buffer may have.
    fn most_pages(&self, gpu: &Gpu) -> u64 {
        let bytes = gpu.caps().max_binding.min(gpu.caps().max_buffer).min(4 * MAX_ELEMENTS);
        let page = |l: &Layer| 4 * u64::from(PAGE) * l.entry as u64;
        let of_layers = self.layers.iter().map(|l| bytes / page(l).max(1)).min().unwrap_or(0);
        of_layers.min(bytes / (4 * self.slots.len().max(1) as u64))
    }

    /// Buffers of the layers, and a page table.
    fn make(&self, gpu: &Gpu, pages: u32, stride: u32) -> Result<(Vec<GpuBuffer>, GpuBuffer)> {
        let mut made = Vec::with_capacity(self.layers.len());
        for layer in &self.layers {
            let bytes = 4 * u64::from(pages) * u64::from(PAGE) * layer.entry as u64;
            made.push(gpu.buffer(&format!("keys and values of layer {}", layer.layer), bytes)?);
        }
        let table = gpu.buffer("page table", 4 * self.slots.len() as u64 * u64::from(stride))?;
        Ok((made, table))
    }
}

fn get(buffers: &[Binding], index: usize) -> Result<&GpuBuffer> {
    buffers.get(index).and_then(Binding::buffer).ok_or_else(|| Error::Gpu(format!("no buffer {index}")))
}
