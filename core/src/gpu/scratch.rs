//! Scratch buffers, shared by everything that runs one after the other.

use super::buffer::Binding;
use super::device::Gpu;
use crate::error::Result;

/// Whole buffers, each used by one op (or plan buffer) at a time. Never ranges of one arena: WebGPU refuses one buffer
/// as read and as read-write in one dispatch, even where the ranges are disjoint. Plans share the pool, since the
/// queue runs them one after the other.
#[derive(Debug, Default)]
pub(super) struct ScratchPool {
    /// `(index in the buffer table, bytes, taken)`
    buffers: Vec<(usize, u64, bool)>,
}

impl ScratchPool {
    /// The smallest free buffer that holds `bytes`, or a new one at the end of `table`. Sizes are rounded up to
    /// classes, so that buffers of similar size are shared.
    pub(super) fn take(&mut self, gpu: &Gpu, table: &mut Vec<Binding>, name: &str, bytes: u64) -> Result<usize> {
        let free = self.buffers.iter_mut().filter(|b| !b.2 && b.1 >= bytes).min_by_key(|b| b.1);
        if let Some(b) = free {
            b.2 = true;
            return Ok(b.0);
        }
        let size = class(bytes).min(gpu.caps().max_binding.min(gpu.caps().max_buffer)).max(bytes);
        let buffer = gpu.buffer(name, size)?;
        let index = table.len();
        table.push(buffer.into());
        self.buffers.push((index, size, true));
        Ok(index)
    }

    pub(super) fn release(&mut self, index: usize) {
        for b in self.buffers.iter_mut().filter(|b| b.0 == index) {
            b.2 = false;
        }
    }

    pub(super) fn release_all(&mut self) {
        for b in &mut self.buffers {
            b.2 = false;
        }
    }

    /// Bytes of all buffers.
    pub(super) fn bytes(&self) -> u64 {
        self.buffers.iter().map(|b| b.1).sum()
    }

    /// Indices of all buffers in the table.
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        self.buffers.iter().map(|b| b.0)
    }
}

/// Rounds up to a quarter of a power of two: at most a fifth is wasted.
fn class(bytes: u64) -> u64 {
    let bytes = bytes.max(256);
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(256))
}

#[cfg(test)]
mod tests {
    use super::class;

    #[test]
    fn classes_hold_what_they_round() {
        for bytes in [1, 256, 257, 1000, 4096, 100_000, 786_432, 100_000_001] {
            let c = class(bytes);
            assert!(c >= bytes && c.is_multiple_of(256) && (bytes < 2048 || c <= bytes + bytes / 4), "{bytes}: {c}");
        }
    }
}
