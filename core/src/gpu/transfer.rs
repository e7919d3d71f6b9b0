//! Memory of a device: making buffers and textures, writing to them and reading them back.

use super::buffer::{GpuBuffer, GpuTexture};
use super::device::Gpu;
use crate::error::{Error, Result};

impl Gpu {
    /// A zeroed storage buffer of `bytes` (rounded up to 4) that can be copied from and to.
    ///
    /// # Errors
    /// [`Error::Limit`] when it is larger than the device's buffers or storage bindings may be.
    pub fn buffer(&self, label: &str, bytes: u64) -> Result<GpuBuffer> {
        let most = self.caps().max_binding.min(self.caps().max_buffer);
        if bytes > most {
            return Err(Error::Limit {
                device: self.info().name.clone(),
                what: format!("buffer \"{label}\""),
                need: format!("{bytes} bytes"),
                have: format!("at most {most} bytes a binding"),
            });
        }
        let raw = self.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some(label),
            size: bytes.next_multiple_of(4).max(16),
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_DST
                | wgpu::BufferUsages::COPY_SRC
                // Kernels for software adapters bind windows of buffers as uniforms.
                | if self.caps().software { wgpu::BufferUsages::UNIFORM } else { wgpu::BufferUsages::empty() },
            mapped_at_creation: false,
        });
        self.check().map_err(|e| self.no_room(e, label, bytes))?;
        Ok(self.count(raw))
    }

    /// Says what the memory was for that could not be had.
    pub(super) fn no_room(&self, error: Error, label: &str, bytes: u64) -> Error {
        match error {
            Error::OutOfMemory(_) => {
                Error::OutOfMemory(format!("{} has no room for the {bytes} bytes of \"{label}\"", self.info().name))
            }
            other => other,
        }
    }

    /// A texture of `width` × `height` texels of four u32.
    pub(super) fn texture(&self, label: &str, width: u32, height: u32) -> Result<GpuTexture> {
        let raw = self.device().create_texture(&wgpu::TextureDescriptor {
            label: Some(label),
            size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::Rgba32Uint,
            usage: wgpu::TextureUsages::TEXTURE_BINDING | wgpu::TextureUsages::COPY_DST,
            view_formats: &[],
        });
        let bytes = 16 * u64::from(width) * u64::from(height);
        self.check().map_err(|e| self.no_room(e, label, bytes))?;
        Ok(GpuTexture::new(raw, self.live()))
    }

    /// Takes a buffer into the count of live bytes.
    pub(super) fn count(&self, raw: wgpu::Buffer) -> GpuBuffer {
        GpuBuffer::new(raw, self.live())
    }

    /// A storage buffer with contents.
    pub fn upload<T: bytemuck::NoUninit>(&self, label: &str, data: &[T]) -> Result<GpuBuffer> {
        let buffer = self.buffer(label, std::mem::size_of_val(data) as u64)?;
        self.write(&buffer, 0, data);
        Ok(buffer)
    }

    /// Writes `data` at byte `offset`, before the next submission.
    pub fn write<T: bytemuck::NoUninit>(&self, buffer: &GpuBuffer, offset: u64, data: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(data);
        if bytes.len().is_multiple_of(4) {
            self.queue().write_buffer(buffer.raw(), offset, bytes);
        } else {
            // wgpu copies whole words; buffers are rounded up to 4 for this.
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(4), 0);
            self.queue().write_buffer(buffer.raw(), offset, &padded);
        }
    }

    /// Reads byte ranges back, `(buffer, offset, size)` each, all multiples of 4. Submits the copies now; the future
    /// resolves when everything submitted before is done.
    pub fn read(&self, ranges: &[(&GpuBuffer, u64, u64)]) -> impl Future<Output = Result<Vec<Vec<u8>>>> + use<> {
        let total: u64 = ranges.iter().map(|r| r.2).sum::<u64>().max(4);
        let staging = self.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("read back"),
            size: total,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut at = 0;
        let mut sizes = Vec::with_capacity(ranges.len());
        for (buffer, offset, size) in ranges {
            if *size > 0 {
                encoder.copy_buffer_to_buffer(buffer.raw(), *offset, &staging, at, *size);
            }
            at += size;
            sizes.push(*size as usize);
        }
        self.queue().submit([encoder.finish()]);
        let mapped = self.map(staging, total);
        async move {
            let bytes = mapped.await?;
            let mut rest = bytes.as_slice();
            let mut out = Vec::with_capacity(sizes.len());
            for size in sizes {
                let (head, tail) = rest.split_at_checked(size).ok_or_else(|| Error::Gpu("short read".into()))?;
                out.push(head.to_vec());
                rest = tail;
            }
            Ok(out)
        }
    }

    /// Maps a staging buffer that earlier submissions fill, and reads its first `size` bytes.
    pub(crate) fn map(&self, staging: wgpu::Buffer, size: u64) -> impl Future<Output = Result<Vec<u8>>> + use<> {
        let (send, receive) = futures_channel::oneshot::channel();
        staging.slice(..size).map_async(wgpu::MapMode::Read, move |r| {
            let _ = send.send(r);
        });
        let gpu = self.clone();
        async move {
            let mapped = receive.await;
            gpu.check()?;
            match mapped {
                Ok(Ok(())) => {}
                Ok(Err(e)) => return Err(Error::Gpu(format!("reading back: {e}"))),
                Err(_) => return Err(Error::DeviceLost("it stopped answering".into())),
            }
            let view =
                staging.slice(..size).get_mapped_range().map_err(|e| Error::Gpu(format!("reading back: {e}")))?;
            let bytes = view.to_vec();
            drop(view);
            staging.unmap();
            staging.destroy();
            Ok(bytes)
        }
    }
}
