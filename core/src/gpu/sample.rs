//! Drawing tokens on the device.

use bytemuck::bytes_of;
use deltanet_shaders::params::DrawParams;
use deltanet_shaders::sample::draw;

use super::caps::Caps;
use super::lower::Fixed;
use super::program::Dispatch;
use super::runner::MAX_STEPS;

/// Draws one token for each of `rows` rows.
pub(super) fn lower_draw(vocab: u32, fixed: &Fixed, emits: usize, rows: u32, caps: &Caps) -> Dispatch {
    let head = fixed.head;
    let params =
        DrawParams { vocab, stride: head.stride, seen: head.seen, logits: head.logits, max_steps: MAX_STEPS as u32 };
    // One workgroup reads all logits, seven times: as wide as it may be where there are many. Barriers are dear on
    // software adapters.
    let group = match caps {
        // lavapipe ends a thread's loops after 65,535 rounds, of which a draw with filters does up to 13 over its part.
        Caps { software: true, .. } if vocab <= 156_000 => 32,
        Caps { max_invocations: 1024.., workgroup_bytes: 20_480.., .. } if vocab > 8192 => 1024,
        _ => 256,
    };
    Dispatch {
        variant: draw(group),
        params: bytes_of(&params).to_vec(),
        buffers: vec![fixed.controls, fixed.heads, emits],
        groups: [rows, 1, 1],
    }
}
