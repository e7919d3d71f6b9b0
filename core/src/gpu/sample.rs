//! Drawing tokens on the device.

use bytemuck::bytes_of;
use deltanet_shaders::params::DrawParams;
use deltanet_shaders::{Kernel, Variant};

use super::lower::Fixed;
use super::program::Dispatch;
use super::runner::MAX_STEPS;

/// Draws one token for each of `rows` rows.
pub(super) fn lower_draw(vocab: u32, fixed: &Fixed, emits: usize, rows: u32) -> Dispatch {
    let head = fixed.head;
    let params =
        DrawParams { vocab, stride: head.stride, seen: head.seen, logits: head.logits, max_steps: MAX_STEPS as u32 };
    Dispatch {
        variant: Variant::new(Kernel::Draw),
        params: bytes_of(&params).to_vec(),
        buffers: vec![fixed.controls, fixed.heads, emits],
        groups: [rows, 1, 1],
    }
}
