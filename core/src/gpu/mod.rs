//! The wgpu engine: devices, buffers, kernels, and plans lowered to dispatches. Only this module names wgpu.

mod buffer;
mod caps;
pub mod delta;
mod device;
mod program;

pub use buffer::GpuBuffer;
pub use caps::Caps;
pub use device::{AdapterSummary, DeviceChoice, Gpu, LimitsChoice, adapters};
pub use program::{Dispatch, Program, Timing};

/// wgpu itself, for applications that hand over a device they already have.
pub use wgpu;
