//! Variants of the sampling kernel.

use crate::kernels::Kernel;
use crate::variant::Variant;

/// `sample/draw`: controls, heads, emits. Groups (rows). `group`: invocations a workgroup, a power of two.
pub fn draw(group: u32) -> Variant {
    Variant::new(Kernel::Draw).with("GROUP", group)
}
