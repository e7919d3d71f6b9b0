//! The CPU engine: the readable reference, multi-threaded, and what runs where there is no GPU.
//!
//! Kernels are plain functions over slices. Their inner loops are written once over eight lanes and compiled for AVX2
//! and for the target's baseline; which one runs is decided by the processor, at run time.

pub mod delta;
mod math;
mod panel;
mod parallel;
mod simd;
