//! WGSL compute shaders of the delta-rule family.
//!
//! Three things live here, and no GPU library: the shaders (`wgsl/`, one kernel a file), the uniform structs they
//! read ([`params`]), and the list of variants that ship ([`shipped`]). A [`Variant`] is a kernel with consts, flags
//! and features; [`Variant::source`] gives its complete WGSL.

pub mod attention;
mod bake;
pub mod delta;
mod emulate;
pub mod head;
mod kernels;
pub mod linear;
pub mod mixer;
pub mod params;
pub mod picture;
mod preprocess;
pub mod sample;
mod shipped;
mod variant;

pub use kernels::Kernel;
pub use preprocess::PreprocessError;
pub use shipped::{Needs, Shipped, shipped};
pub use variant::{Access, Features, Source, Variant};
