//! Finding and opening a device.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use deltanet_shaders::Variant;

use super::adapter::{enumerate, has_coop16, wanted};
use super::caps::Caps;
#[cfg(not(target_family = "wasm"))]
use super::pipeline_cache::PipelineCache;
use super::program::Pipeline;
use crate::error::{Error, Result};

/// What an adapter is called whose name a browser keeps to itself.
pub const UNNAMED: &str = "the GPU";

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
    /// Compiles kernels as browsers do: with a counter in every loop that ends it in any case, and with workgroup
    /// memory cleared first. That is slower; it lets tests see natively what a browser's users get. It changes
    /// nothing in a browser.
    pub as_browsers: bool,
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
    /// [`OpenOptions::as_browsers`].
    as_browsers: bool,
    /// First error that nobody has been told of yet.
    fault: Arc<Mutex<Option<Error>>>,
    live: Arc<AtomicU64>,
    pipelines: Mutex<HashMap<Variant, Arc<Pipeline>>>,
    #[cfg(not(target_family = "wasm"))]
    disk: Option<PipelineCache>,
    /// What [`Gpu::wait`]'s future waits for, when that is not everything submitted.
    awaited: Mutex<Option<wgpu::SubmissionIndex>>,
}

impl Inner {
    fn is_lost(&self) -> bool {
        matches!(*self.fault.lock().unwrap_or_else(PoisonError::into_inner), Some(Error::DeviceLost(_)))
    }

    #[cfg(not(target_family = "wasm"))]
    fn save_pipelines(&self) {
        if let Some(disk) = self.disk.as_ref().filter(|_| !self.is_lost()) {
            disk.save();
        }
    }
}

#[cfg(not(target_family = "wasm"))]
impl Drop for Inner {
    fn drop(&mut self) {
        self.save_pipelines();
    }
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
        let mut inner = Self::inner(device, queue, info, coop16);
        inner.as_browsers = options.as_browsers;
        #[cfg(not(target_family = "wasm"))]
        if let Some(folder) = &options.pipeline_cache {
            inner.disk = PipelineCache::open(&inner.device, &inner.info, folder);
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Uses a device that an application already has. Its limits and features decide what runs; its error handler
    /// and device-lost callback are replaced.
    pub fn from_wgpu(device: wgpu::Device, queue: wgpu::Queue) -> Self {
        let info = device.adapter_info();
        Self { inner: Arc::new(Self::inner(device, queue, info, false)) }
    }

    fn inner(device: wgpu::Device, queue: wgpu::Queue, mut info: wgpu::AdapterInfo, coop16: bool) -> Inner {
        if info.name.is_empty() {
            info.name = UNNAMED.into();
        }
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
        let caps = Caps::new(&info, device.features(), &device.limits(), coop16);
        Inner {
            device,
            queue,
            info,
            caps,
            as_browsers: false,
            fault,
            live: Arc::default(),
            pipelines: Mutex::default(),
            #[cfg(not(target_family = "wasm"))]
            disk: None,
            awaited: Mutex::default(),
        }
    }

    /// The adapter. It has a name: [`UNNAMED`] where a browser keeps it to itself.
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
    /// The count behind [`Gpu::live_bytes`].
    pub(super) fn live(&self) -> &Arc<AtomicU64> {
        &self.inner.live
    }
    pub(super) fn pipelines(&self) -> &Mutex<HashMap<Variant, Arc<Pipeline>>> {
        &self.inner.pipelines
    }

    /// Whether kernels are compiled as browsers compile them: [`OpenOptions::as_browsers`].
    pub(super) fn compiles_as_browsers(&self) -> bool {
        self.inner.as_browsers
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
        self.inner.save_pipelines();
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
        self.inner.is_lost()
    }

    /// Takes the device down at once, as the loss of a driver would. Everything on it is gone.
    pub fn destroy(&self) {
        self.device().destroy();
        // Browsers report it only later, and not all of them.
        let mut fault = self.inner.fault.lock().unwrap_or_else(PoisonError::into_inner);
        *fault = Some(Error::DeviceLost("it was destroyed".into()));
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
