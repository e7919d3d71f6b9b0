//! Where a model runs.

use crate::error::Result;
use crate::gpu::{DeviceChoice, Gpu, OpenOptions};

/// Which device to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceRequest {
    /// A real GPU if there is one, else the CPU engine. [`Device::note`] says which and why.
    #[default]
    Auto,
    /// The CPU engine.
    Cpu,
    /// The best adapter, a software one too.
    Gpu,
    /// The adapter at this place of [`crate::gpu::adapters`].
    Adapter(usize),
}

/// An opened device.
#[derive(Clone, Debug)]
pub enum Device {
    /// The CPU engine, with a number of threads (`None`: one a core).
    Cpu {
        /// Threads.
        threads: Option<usize>,
        /// Why not a GPU, when one was asked for.
        note: Option<String>,
    },
    /// The wgpu engine.
    Gpu(Gpu),
}

impl Device {
    /// The CPU engine.
    pub const CPU: Self = Self::Cpu { threads: None, note: None };

    /// Opens what `request` asks for.
    ///
    /// # Errors
    /// [`crate::Error::NoAdapter`] for [`DeviceRequest::Gpu`] and [`DeviceRequest::Adapter`] without one; never for
    /// [`DeviceRequest::Auto`].
    pub async fn request(request: &DeviceRequest) -> Result<Self> {
        Self::request_with(request, &OpenOptions::default()).await
    }

    /// [`Device::request`] with options for a GPU, such as a folder for compiled pipelines.
    ///
    /// # Errors
    /// As [`Device::request`].
    pub async fn request_with(request: &DeviceRequest, options: &OpenOptions) -> Result<Self> {
        let choice = match request {
            DeviceRequest::Cpu => return Ok(Self::CPU),
            DeviceRequest::Gpu => DeviceChoice::Any,
            DeviceRequest::Adapter(i) => DeviceChoice::Index(*i),
            DeviceRequest::Auto => DeviceChoice::Hardware,
        };
        match Gpu::request_with(&choice, options).await {
            Ok(gpu) => Ok(Self::Gpu(gpu)),
            Err(e) if *request == DeviceRequest::Auto => Ok(Self::Cpu { threads: None, note: Some(e.to_string()) }),
            Err(e) => Err(e),
        }
    }

    /// [`Device::request`], waited for. Native only.
    #[cfg(not(target_family = "wasm"))]
    pub fn open(request: &DeviceRequest) -> Result<Self> {
        pollster::block_on(Self::request(request))
    }

    /// [`Device::request_with`], waited for. Native only.
    #[cfg(not(target_family = "wasm"))]
    pub fn open_with(request: &DeviceRequest, options: &OpenOptions) -> Result<Self> {
        pollster::block_on(Self::request_with(request, options))
    }

    /// Engine and device in words: `wgpu (Vulkan) on NVIDIA H200`, `cpu, 2 threads`.
    pub fn describe(&self) -> String {
        match self {
            Self::Gpu(gpu) => format!("wgpu ({:?}) on {}", gpu.info().backend, gpu.info().name),
            Self::Cpu { threads, .. } => {
                let n = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
                format!("cpu, {n} thread{}", if n == 1 { "" } else { "s" })
            }
        }
    }

    /// Why this is not the GPU that [`DeviceRequest::Auto`] looked for.
    pub fn note(&self) -> Option<&str> {
        match self {
            Self::Cpu { note, .. } => note.as_deref(),
            Self::Gpu(_) => None,
        }
    }
}
