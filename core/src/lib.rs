//! Delta-rule sequence models on any GPU, and on the CPU.

pub mod checkpoint;
pub mod config;
pub mod cpu;
pub mod delta;
mod device;
pub mod engine;
mod error;
pub mod gpu;
pub mod model;
pub mod ops;
pub mod plan;
pub mod rule;
pub mod sampler;
pub mod tokenizer;

pub use device::{Device, DeviceRequest};
pub use error::{Error, Result};
pub use rule::Rule;
