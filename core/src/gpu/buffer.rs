//! Buffers that are counted, so that a leak shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A storage buffer on a device. Clones share it; the last one frees it.
#[derive(Clone, Debug)]
pub struct GpuBuffer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    raw: wgpu::Buffer,
    live: Option<Arc<AtomicU64>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(live) = &self.live {
            live.fetch_sub(self.raw.size(), Ordering::Relaxed);
            // Freed now rather than when a garbage collector gets to it (browsers).
            self.raw.destroy();
        }
    }
}

impl GpuBuffer {
    pub(super) fn new(raw: wgpu::Buffer, live: &Arc<AtomicU64>) -> Self {
        live.fetch_add(raw.size(), Ordering::Relaxed);
        Self { inner: Arc::new(Inner { raw, live: Some(live.clone()) }) }
    }
    /// Wraps an application's own buffer: it is neither counted nor destroyed here.
    pub fn from_wgpu(raw: wgpu::Buffer) -> Self {
        Self { inner: Arc::new(Inner { raw, live: None }) }
    }
    /// The wgpu buffer.
    pub fn raw(&self) -> &wgpu::Buffer {
        &self.inner.raw
    }
    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.inner.raw.size()
    }
}
