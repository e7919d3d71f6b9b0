//! Shaders of the picture of a session's state.

use crate::kernels::Kernel;
use crate::variant::Variant;

/// The variant of `picture/paint`: `stripe` rows of pixels a workgroup.
pub fn paint(stripe: u32) -> Variant {
    Variant::new(Kernel::Paint).with("WG", 256).with("STRIPE", stripe)
}

/// WGSL of a render pipeline that shows painted pixels: entry points `corner` and `pixel`, override `width`.
pub const SHOW: &str = include_str!("../wgsl/picture/show.wgsl");
