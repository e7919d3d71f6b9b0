//! The wgpu engine: devices, buffers, kernels, and plans lowered to dispatches. Only this module names wgpu.

mod adapter;
pub mod attention;
mod buffer;
mod caps;
mod clock;
pub mod delta;
mod device;
mod lower;
mod lower_input;
mod lower_linear;
mod lower_mixer;
mod lower_step;
pub(crate) mod picture;
#[cfg(not(target_family = "wasm"))]
mod pipeline_cache;
mod pool;
mod program;
mod readback;
mod runner;
mod sample;
mod scratch;
mod stage;
mod tiles;
mod trace;
mod transfer;
mod upload;

pub use adapter::{AdapterSummary, adapters};
pub use buffer::{Binding, GpuBuffer, GpuTexture};
pub use caps::Caps;
pub use device::{DeviceChoice, Gpu, LimitsChoice, OpenOptions, UNNAMED};
#[cfg(target_family = "wasm")]
pub use picture::Canvas;
pub use program::{Dispatch, Program, Timing};
pub use readback::Ticket;
pub use runner::{GpuOptions, MAX_DECODE_ROWS, MAX_STEPS, Runner};
pub use stage::Stage;
pub use trace::Trace;

/// wgpu itself, for applications that hand over a device they already have.
pub use wgpu;
