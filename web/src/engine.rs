//! What a Worker owns: the device.

use std::cell::RefCell;
use std::rc::Rc;

use deltanet::{Device, DeviceRequest};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::error::Result;
use crate::loader::Loader;
use crate::options;

/// Devices of this Worker, opened when first asked for and then shared by all models, with their pipelines.
#[derive(Clone, Default)]
#[wasm_bindgen]
pub struct Engine {
    devices: Rc<RefCell<Devices>>,
}

#[derive(Default)]
struct Devices {
    /// Any adapter.
    gpu: Option<Device>,
    /// Whether that adapter is a real GPU: what `auto` takes.
    hardware: bool,
}

impl Devices {
    fn is_lost(&self) -> bool {
        matches!(&self.gpu, Some(Device::Gpu(gpu)) if gpu.is_lost())
    }
}

#[wasm_bindgen]
impl Engine {
    /// An engine without a device yet.
    #[wasm_bindgen(constructor)]
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts taking the files of a model.
    #[must_use]
    pub fn loader(&self) -> Loader {
        Loader::new(self.clone())
    }

    /// Opens the device (`auto`, `gpu`, `cpu`) that a later load will use; returns it in words.
    pub async fn open(&self, device: Option<String>) -> Result<String> {
        Ok(describe(&self.device(&options::device(device.as_deref())?).await?))
    }

    /// What was compiled for the GPU so far, as text for [`Engine::prepare`]; empty without one.
    #[must_use]
    pub fn kernels(&self) -> String {
        match &self.devices.borrow().gpu {
            Some(Device::Gpu(gpu)) => format!("{}\n{}", stamp(gpu), gpu.kernels()),
            _ => String::new(),
        }
    }

    /// Compiles what an earlier visit compiled, while the model is on its way. Text of another version or of another
    /// kind of device is left alone.
    ///
    /// # Errors
    /// The GPU refuses.
    pub fn prepare(&self, kernels: &str) -> Result<()> {
        if let Some(Device::Gpu(gpu)) = &self.devices.borrow().gpu
            && let Some((first, rest)) = kernels.split_once('\n')
            && first == stamp(gpu)
        {
            gpu.prepare(rest)?;
        }
        Ok(())
    }

    /// Bytes in GPU buffers that this engine made and that are alive.
    #[wasm_bindgen(js_name = liveBytes)]
    #[must_use]
    pub fn live_bytes(&self) -> f64 {
        match &self.devices.borrow().gpu {
            Some(Device::Gpu(gpu)) => gpu.live_bytes() as f64,
            _ => 0.0,
        }
    }

    /// Takes the GPU away, as a driver's restart would: for tests of what happens then.
    #[wasm_bindgen(js_name = loseDevice)]
    pub fn lose_device(&self) {
        if let Some(Device::Gpu(gpu)) = &self.devices.borrow().gpu {
            gpu.destroy();
        }
    }
}

impl Engine {
    /// The device for a request; the one that is open if it serves.
    pub(crate) async fn device(&self, request: &DeviceRequest) -> Result<Device> {
        let open = {
            let devices = self.devices.borrow();
            let serves = match request {
                DeviceRequest::Auto => devices.hardware,
                DeviceRequest::Gpu => true,
                _ => false,
            };
            devices.gpu.clone().filter(|_| serves && !devices.is_lost())
        };
        if let Some(device) = open {
            return Ok(device);
        }
        let device = Device::request(request).await?;
        if matches!(device, Device::Gpu(_)) {
            *self.devices.borrow_mut() =
                Devices { gpu: Some(device.clone()), hardware: *request == DeviceRequest::Auto };
        }
        Ok(device)
    }
}

/// What decides which kernels are chosen.
fn stamp(gpu: &deltanet::gpu::Gpu) -> String {
    format!("{} {:?}", env!("CARGO_PKG_VERSION"), gpu.caps())
}

/// Engine and device in words. Browsers often keep the adapter's name to themselves.
pub(crate) fn describe(device: &Device) -> String {
    match device {
        Device::Gpu(gpu) if gpu.info().name == deltanet::gpu::UNNAMED => "WebGPU".into(),
        Device::Gpu(gpu) => format!("WebGPU on {}", gpu.info().name),
        Device::Cpu { .. } => "the processor, in WebAssembly".into(),
    }
}
