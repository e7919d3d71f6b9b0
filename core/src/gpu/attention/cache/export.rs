//! What saved sessions have of attention: caches read out of a slot's pages, and put into them.

use deltanet_shaders::attention::PAGE;

use super::{PagePool, get, pages_of};
use crate::error::{Error, Result};
use crate::gpu::buffer::Binding;
use crate::gpu::device::Gpu;

impl PagePool {
    /// Where a slot's entries lie, layer after layer: index into the buffer table, byte offset, bytes.
    pub(in crate::gpu) fn ranges(&self, slot: usize) -> Vec<(usize, u64, u64)> {
        let tokens = self.fed(slot);
        let mut all = Vec::new();
        for layer in &self.layers {
            let token = 4 * layer.entry as u64;
            for (i, page) in self.held(slot).iter().enumerate() {
                let rest = tokens.saturating_sub(i as u64 * u64::from(PAGE));
                let bytes = rest.min(u64::from(PAGE)) * token;
                all.push((layer.buffer, u64::from(*page) * u64::from(PAGE) * token, bytes));
            }
        }
        all
    }

    /// What turns the bytes of [`PagePool::ranges`] into caches.
    pub(in crate::gpu) fn shape(&self, slot: usize) -> CacheShape {
        let layers = self.layers.iter().map(|l| (l.layer, l.entry)).collect();
        CacheShape { layers, ranges: self.held(slot).len() }
    }

    /// Fills a slot with caches from elsewhere, one a layer of the model. True when buffers were replaced.
    ///
    /// # Errors
    /// [`Error::Session`] for a cache of another size, otherwise as [`PagePool::reserve`]; the slot is then as it was.
    pub(in crate::gpu) fn import(
        &mut self,
        gpu: &Gpu,
        buffers: &mut [Binding],
        slot: usize,
        position: u64,
        caches: &[Vec<f32>],
    ) -> Result<bool> {
        for (i, cache) in caches.iter().enumerate() {
            let entry = self.layers.iter().find(|l| l.layer == i).map_or(0, |l| l.entry);
            let want = position.saturating_mul(entry as u64);
            if cache.len() as u64 != want {
                return Err(Error::Session(format!(
                    "cache of layer {i}: expected {want} elements, got {}",
                    cache.len()
                )));
            }
        }
        if let Some(l) = self.layers.iter().find(|l| l.layer >= caches.len()) {
            return Err(Error::Session(format!("cache of layer {}: expected one, got none", l.layer)));
        }
        if self.layers.is_empty() {
            self.clear(slot);
            self.advance(slot, position);
            return Ok(false);
        }
        let count = pages_of(position);
        let grown = self.grow(gpu, buffers, count, count)?;
        self.clear(slot);
        self.advance(slot, position);
        self.fill(slot, count as usize);
        for layer in &self.layers {
            let buffer = get(buffers, layer.buffer)?;
            let page = PAGE as usize * layer.entry;
            let values = caches.get(layer.layer).map(Vec::as_slice).unwrap_or_default();
            for (page_at, values) in self.held(slot).iter().zip(values.chunks(page.max(1))) {
                gpu.write(buffer, 4 * u64::from(*page_at) * page as u64, values);
            }
        }
        Ok(grown)
    }
}

/// How the bytes of a slot's pages are laid out when read.
#[derive(Clone, Debug, Default)]
pub(in crate::gpu) struct CacheShape {
    /// A layer each: its number, and elements a token.
    layers: Vec<(usize, usize)>,
    /// Ranges a layer.
    ranges: usize,
}

impl CacheShape {
    /// Ranges in all.
    pub(in crate::gpu) fn len(&self) -> usize {
        self.layers.len() * self.ranges
    }

    /// Sorts what was read into the caches of the model's layers, up to `position`.
    pub(in crate::gpu) fn fill(&self, read: Vec<Vec<u8>>, position: u64, caches: &mut [Vec<f32>]) {
        let mut read = read.into_iter();
        for (layer, entry) in &self.layers {
            let mut values: Vec<f32> = Vec::new();
            for part in read.by_ref().take(self.ranges) {
                values.extend(bytemuck::pod_collect_to_vec::<u8, f32>(&part));
            }
            values.truncate(usize::try_from(position).unwrap_or(usize::MAX).saturating_mul(*entry));
            if let Some(cache) = caches.get_mut(*layer) {
                *cache = values;
            }
        }
    }
}
