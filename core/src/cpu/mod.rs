//! The CPU engine: the readable reference, multi-threaded, and what runs where there is no GPU.
//!
//! Kernels are plain functions over slices. Their inner loops are written once over eight lanes and compiled for AVX2
//! and for the target's baseline; which one runs is decided by the processor, at run time.

pub mod attention;
mod cache;
mod conv;
pub mod delta;
mod execute;
mod gates;
mod linear;
mod math;
mod mixer;
mod norm;
mod panel;
pub(crate) mod parallel;
mod runner;
mod simd;
mod slot;
#[cfg_attr(target_family = "wasm", path = "team_of_one.rs")]
mod team;
pub mod theory;
mod weights;

pub use runner::{CpuOptions, Runner};
