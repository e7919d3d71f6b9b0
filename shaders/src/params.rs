//! Uniform structs, one for each kernel that has one. Field for field the WGSL `Params`; the tests compare offsets.
//! All fields are `u32` or `f32`, so that Rust's layout is WGSL's.

use bytemuck::{Pod, Zeroable};

/// `sample/draw`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct DrawParams {
    /// Vocabulary.
    pub vocab: u32,
    /// Words a slot in `heads`: [`crate::head::HeadLayout::stride`].
    pub stride: u32,
    /// Start of the seen mask in a slot.
    pub seen: u32,
    /// Start of the logits in a slot.
    pub logits: u32,
    /// Emits a row.
    pub max_steps: u32,
}
