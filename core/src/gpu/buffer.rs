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

/// A read-only matrix as a texture of four u32 a texel. Clones share it; the last one frees it.
#[derive(Clone, Debug)]
pub struct GpuTexture {
    inner: Arc<TextureInner>,
}

#[derive(Debug)]
struct TextureInner {
    raw: wgpu::Texture,
    view: wgpu::TextureView,
    bytes: u64,
    live: Arc<AtomicU64>,
}

impl Drop for TextureInner {
    fn drop(&mut self) {
        self.live.fetch_sub(self.bytes, Ordering::Relaxed);
        self.raw.destroy();
    }
}

impl GpuTexture {
    pub(super) fn new(raw: wgpu::Texture, live: &Arc<AtomicU64>) -> Self {
        let bytes = 16 * u64::from(raw.width()) * u64::from(raw.height());
        live.fetch_add(bytes, Ordering::Relaxed);
        let view = raw.create_view(&wgpu::TextureViewDescriptor::default());
        Self { inner: Arc::new(TextureInner { raw, view, bytes, live: live.clone() }) }
    }
    /// The wgpu texture.
    pub fn raw(&self) -> &wgpu::Texture {
        &self.inner.raw
    }
}

/// An entry of a program's table: what a kernel's binding can be.
#[derive(Clone, Debug)]
pub enum Binding {
    /// A whole buffer.
    Buffer(GpuBuffer),
    /// Bytes `offset .. offset + size` of a buffer.
    Window(GpuBuffer, u64, u64),
    /// A texture.
    Texture(GpuTexture),
}

impl From<GpuBuffer> for Binding {
    fn from(buffer: GpuBuffer) -> Self {
        Self::Buffer(buffer)
    }
}

impl Binding {
    /// The buffer, if it is one.
    pub fn buffer(&self) -> Option<&GpuBuffer> {
        match self {
            Self::Buffer(buffer) | Self::Window(buffer, ..) => Some(buffer),
            Self::Texture(_) => None,
        }
    }
    pub(super) fn resource(&self) -> wgpu::BindingResource<'_> {
        match self {
            Self::Buffer(buffer) => buffer.raw().as_entire_binding(),
            Self::Window(buffer, offset, size) => wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: buffer.raw(),
                offset: *offset,
                size: std::num::NonZeroU64::new(*size),
            }),
            Self::Texture(texture) => wgpu::BindingResource::TextureView(&texture.inner.view),
        }
    }
}
