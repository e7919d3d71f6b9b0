//! Finding and opening a device.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use deltanet_shaders::Variant;

use super::buffer::{GpuBuffer, GpuTexture};
use super::caps::Caps;
#[cfg(not(target_family = "wasm"))]
use super::pipeline_cache::PipelineCache;
use super::program::Pipeline;
use crate::error::{Error, Result};

/// What to do about it is different for a browser's reader.
const NO_ADAPTER: &str = if cfg!(target_family = "wasm") {
    "the browser found no adapter"
} else {
    "no adapter was found (on Linux: install a Vulkan driver, or mesa-vulkan-drivers for a software one)"
};

/// Which adapter to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A real GPU: discrete before integrated. Software adapters are refused.
    #[default]
    Hardware,
    /// Any adapter, a software one too; real GPUs first.
    Any,
    /// The adapter at this place of [`adapters`].
    Index(usize),
}

/// Which limits and features to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitsChoice {
    /// All that the adapter offers and the kernels know how to use.
    #[default]
    Best,
    /// WebGPU's default limits and no optional feature: what every browser has.
    WebGpuDefault,
}

/// How a device is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Limits and features to ask for.
    pub limits: LimitsChoice,
    /// Folder for a file with compiled pipelines, made if it does not exist; `None`: nothing is read or written. It
    /// must be one that only this user can write, since the driver trusts the file. Where a driver offers no such
    /// cache (all but Vulkan's), where the folder cannot be written, and in a browser, nothing happens.
    pub pipeline_cache: Option<std::path::PathBuf>,
}

/// One adapter, as `deltanet info` lists it.
#[derive(Clone, Debug)]
pub struct AdapterSummary {
    /// Name, driver, back end and kind.
    pub info: wgpu::AdapterInfo,
    /// What a device opened with [`LimitsChoice::Best`] would have.
    pub limits: wgpu::Limits,
    /// Features that matter here and that it has.
    pub features: Vec<&'static str>,
}

/// An opened device. Clones share it.
#[derive(Clone, Debug)]
pub struct Gpu {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: wgpu::AdapterInfo,
    caps: Caps,
    /// First error that nobody has been told of yet.
    fault: Arc<Mutex<Option<Error>>>,
    live: Arc<AtomicU64>,
    pipelines: Mutex<HashMap<Variant, Arc<Pipeline>>>,
    #[cfg(not(target_family = "wasm"))]
    disk: Option<PipelineCache>,
    /// What [`Gpu::wait`]'s future waits for, when that is not everything submitted.
    awaited: Mutex<Option<wgpu::SubmissionIndex>>,
}

#[cfg(not(target_family = "wasm"))]
impl Drop for Inner {
    fn drop(&mut self) {
        let lost = matches!(*self.fault.lock().unwrap_or_else(PoisonError::into_inner), Some(Error::DeviceLost(_)));
        if let Some(disk) = self.disk.as_ref().filter(|_| !lost) {
            disk.save();
        }
    }
}

fn instance() -> wgpu::Instance {
    wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle())
}

fn wanted(adapter: &wgpu::Adapter) -> wgpu::Features {
    let all = wgpu::Features::SHADER_F16
        | wgpu::Features::SUBGROUP
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::PIPELINE_CACHE
        | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    adapter.features() & all
}

fn has_coop16(adapter: &wgpu::Adapter) -> bool {
    adapter.cooperative_matrix_properties().iter().any(|p| {
        p.m_size == 16
            && p.n_size == 16
            && p.k_size == 16
            && p.ab_type == wgpu::CooperativeScalarType::F16
            && p.cr_type == wgpu::CooperativeScalarType::F32
    })
}

fn rank(info: &wgpu::AdapterInfo) -> u32 {
    match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// Every adapter of this machine, best first. In a browser: the one that it offers, if any.
async fn enumerate() -> Vec<wgpu::Adapter> {
    let instance = instance();
    #[cfg(not(target_family = "wasm"))]
    let mut found: Vec<wgpu::Adapter> = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
    #[cfg(target_family = "wasm")]
    let mut found: Vec<wgpu::Adapter> =
        instance.request_adapter(&wgpu::RequestAdapterOptions::default()).await.into_iter().collect();
    found.sort_by_key(|a| rank(&a.get_info()));
    found
}

/// Lists this machine's adapters, best first.
pub async fn adapters() -> Vec<AdapterSummary> {
    let mut list = Vec::new();
    for adapter in enumerate().await {
        let f = adapter.features();
        let mut features = Vec::new();
        for (feature, name) in [
            (wgpu::Features::SHADER_F16, "f16"),
            (wgpu::Features::SUBGROUP, "subgroups"),
            (wgpu::Features::TIMESTAMP_QUERY, "timestamps"),
        ] {
            if f.contains(feature) {
                features.push(name);
            }
        }
        if has_coop16(&adapter) {
            features.push("cooperative matrices 16×16");
        }
        list.push(AdapterSummary { info: adapter.get_info(), limits: adapter.limits(), features });
    }
    list
}

impl Gpu {
    /// Opens a device.
    ///
    /// # Errors
    /// [`Error::NoAdapter`] when no adapter fits `choice`, with advice; [`Error::Gpu`] when the driver refuses.
    pub async fn request(choice: &DeviceChoice, limits: LimitsChoice) -> Result<Self> {
        Self::request_with(choice, &OpenOptions { limits, ..OpenOptions::default() }).await
    }

    /// Opens a device.
    ///
    /// # Errors
    /// As [`Gpu::request`].
    pub async fn request_with(choice: &DeviceChoice, options: &OpenOptions) -> Result<Self> {
        let mut found = enumerate().await;
        let adapter = match choice {
            DeviceChoice::Index(i) => {
                if *i >= found.len() {
                    let n = found.len();
                    return Err(Error::argument("device", format!("an index below {n} (see `deltanet info`)"), i));
                }
                found.swap_remove(*i)
            }
            DeviceChoice::Any | DeviceChoice::Hardware => {
                let any = *choice == DeviceChoice::Any;
                let ok = |a: &wgpu::Adapter| any || a.get_info().device_type != wgpu::DeviceType::Cpu;
                let software = found.iter().any(|a| !ok(a));
                found.into_iter().find(ok).ok_or_else(|| {
                    Error::NoAdapter(if software {
                        "only a software adapter was found".into()
                    } else {
                        NO_ADAPTER.into()
                    })
                })?
            }
        };
        let (features, limits) = match options.limits {
            LimitsChoice::Best => (wanted(&adapter), adapter.limits()),
            LimitsChoice::WebGpuDefault => (wgpu::Features::empty(), wgpu::Limits::default()),
        };
        let coop16 = has_coop16(&adapter);
        let experimental = if features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
            // SAFETY: the caveats of wgpu's cooperative matrices (memory model, subgroup size) are handled where the
            // kernels that use them are chosen.
            unsafe { wgpu::ExperimentalFeatures::enabled() }
        } else {
            wgpu::ExperimentalFeatures::disabled()
        };
        let (device, queue) = adapter
            .request_device(&wgpu::DeviceDescriptor {
                label: Some("deltanet"),
                required_features: features,
                required_limits: limits,
                experimental_features: experimental,
                memory_hints: wgpu::MemoryHints::Performance,
                trace: wgpu::Trace::Off,
            })
            .await
            .map_err(|e| Error::Gpu(format!("{}: {e}", adapter.get_info().name)))?;
        let info = adapter.get_info();
        #[cfg(not(target_family = "wasm"))]
        let disk = options.pipeline_cache.as_deref().and_then(|folder| PipelineCache::open(&device, &info, folder));
        let inner = Self::inner(device, queue, info, coop16);
        #[cfg(not(target_family = "wasm"))]
        let inner = {
            let mut inner = inner;
            inner.disk = disk;
            inner
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Uses a device that an application already has. Its limits and features decide what runs; its error handler
    /// and device-lost callback are replaced.
    pub fn from_wgpu(device: wgpu::Device, queue: wgpu::Queue) -> Self {
        let info = device.adapter_info();
        Self { inner: Arc::new(Self::inner(device, queue, info, false)) }
    }

    fn inner(device: wgpu::Device, queue: wgpu::Queue, info: wgpu::AdapterInfo, coop16: bool) -> Inner {
        let fault: Arc<Mutex<Option<Error>>> = Arc::default();
        let slot = fault.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let error = match error {
                wgpu::Error::OutOfMemory { .. } => Error::OutOfMemory("the GPU has no room for a buffer".into()),
                other => Error::Gpu(one_line(&other.to_string())),
            };
            slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }));
        let slot = fault.clone();
        device.set_device_lost_callback(move |reason, message| {
            let message = match reason {
                wgpu::DeviceLostReason::Destroyed => "it was destroyed".into(),
                wgpu::DeviceLostReason::Unknown => one_line(&message),
            };
            // Whatever came before, the loss is what matters.
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Error::DeviceLost(message));
        });
        let caps = Caps::read(&device, coop16);
        Inner {
            device,
            queue,
            info,
            caps,
            fault,
            live: Arc::default(),
            pipelines: Mutex::default(),
            #[cfg(not(target_family = "wasm"))]
            disk: None,
            awaited: Mutex::default(),
        }
    }

    /// The adapter.
    pub fn info(&self) -> &wgpu::AdapterInfo {
        &self.inner.info
    }
    /// What decides kernel variants.
    pub fn caps(&self) -> &Caps {
        &self.inner.caps
    }
    /// The wgpu device.
    pub fn device(&self) -> &wgpu::Device {
        &self.inner.device
    }
    /// The wgpu queue.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.inner.queue
    }
    /// Bytes in buffers that this crate made and that are still alive.
    pub fn live_bytes(&self) -> u64 {
        self.inner.live.load(Ordering::Relaxed)
    }
    pub(super) fn pipelines(&self) -> &Mutex<HashMap<Variant, Arc<Pipeline>>> {
        &self.inner.pipelines
    }

    /// What pipelines are made with, if they are kept in a file.
    pub(super) fn pipeline_cache(&self) -> Option<&wgpu::PipelineCache> {
        #[cfg(not(target_family = "wasm"))]
        return self.inner.disk.as_ref().map(PipelineCache::raw);
        #[cfg(target_family = "wasm")]
        None
    }

    /// Whether compiled pipelines were taken over from a file of [`OpenOptions::pipeline_cache`].
    pub fn has_cached_pipelines(&self) -> bool {
        #[cfg(not(target_family = "wasm"))]
        return self.inner.disk.as_ref().is_some_and(PipelineCache::loaded);
        #[cfg(target_family = "wasm")]
        false
    }

    /// Writes the file of [`OpenOptions::pipeline_cache`], if there is to be one and it would hold anything new. This
    /// happens by itself when the last clone of a device goes.
    pub fn save_pipelines(&self) {
        #[cfg(not(target_family = "wasm"))]
        if let Some(disk) = self.inner.disk.as_ref().filter(|_| !self.is_lost()) {
            disk.save();
        }
    }

    /// Reports the first error since the last call, if any: validation, memory, or a lost device.
    pub fn check(&self) -> Result<()> {
        let take = || self.inner.fault.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(not(target_family = "wasm"))]
        if take().is_some() {
            // An error may be the first sign of a lost device, which only polling reports.
            let _ = self.device().poll(wgpu::PollType::Poll);
        }
        let mut fault = take();
        match fault.take() {
            None => Ok(()),
            // A lost device stays lost.
            Some(Error::DeviceLost(m)) => {
                *fault = Some(Error::DeviceLost(m.clone()));
                Err(Error::DeviceLost(m))
            }
            Some(e) => Err(e),
        }
    }

    /// Whether the device has been lost. It stays so: open another.
    pub fn is_lost(&self) -> bool {
        let fault = self.inner.fault.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(&*fault, Some(Error::DeviceLost(_)))
    }

    /// Takes the device down at once, as the loss of a driver would. Everything on it is gone.
    pub fn destroy(&self) {
        self.device().destroy();
        // Browsers report it only later, and not all of them.
        let mut fault = self.inner.fault.lock().unwrap_or_else(PoisonError::into_inner);
        *fault = Some(Error::DeviceLost("it was destroyed".into()));
    }

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
        Ok(GpuTexture::new(raw, &self.inner.live))
    }

    /// Takes a buffer into the count of live bytes.
    pub(super) fn count(&self, raw: wgpu::Buffer) -> GpuBuffer {
        GpuBuffer::new(raw, &self.inner.live)
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

    /// Tells [`Gpu::wait`] that the future it polls needs no submission after this one: later ones go on meanwhile.
    pub(super) fn expect(&self, submission: wgpu::SubmissionIndex) {
        *self.inner.awaited.lock().unwrap_or_else(PoisonError::into_inner) = Some(submission);
    }

    /// Runs a future of this device to its end by polling the device. Native only: a browser's event loop does this.
    #[cfg(not(target_family = "wasm"))]
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        pollster::block_on(std::future::poll_fn(|context| {
            loop {
                if let std::task::Poll::Ready(out) = future.as_mut().poll(context) {
                    return std::task::Poll::Ready(out);
                }
                // Blocks until the submission that the future waits for (or else the newest) is done, which fires its
                // callbacks.
                let awaited = self.inner.awaited.lock().unwrap_or_else(PoisonError::into_inner).take();
                let until = wgpu::PollType::Wait { submission_index: awaited, timeout: None };
                if let Err(e) = self.device().poll(until) {
                    let mut fault = self.inner.fault.lock().unwrap_or_else(PoisonError::into_inner);
                    fault.get_or_insert(Error::Gpu(format!("waiting for the GPU: {e}")));
                    drop(fault);
                    context.waker().wake_by_ref();
                    return std::task::Poll::Pending;
                }
            }
        }))
    }
}

/// Errors are one line; drivers write several.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
