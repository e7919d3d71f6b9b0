//! Drawing tokens on the device.

use bytemuck::bytes_of;
use deltanet_shaders::params::DrawParams;
use deltanet_shaders::sample::{draw, draw_lanes};

use super::caps::Caps;
use super::lower::Fixed;
use super::program::Dispatch;
use super::runner::MAX_STEPS;

/// Draws one token for each of `rows` rows.
pub(super) fn lower_draw(vocab: u32, fixed: &Fixed, emits: usize, rows: u32, caps: &Caps) -> Dispatch {
    let head = fixed.head;
    let params =
        DrawParams { vocab, stride: head.stride, seen: head.seen, logits: head.logits, max_steps: MAX_STEPS as u32 };
    // One workgroup reads all logits several times: as wide as it may be where there are many. Barriers are dear on
    // software adapters.
    let most = if caps.max_invocations >= 1024 && caps.workgroup_bytes >= 20_480 { 1024 } else { 256 };
    let subgroups = (4..=128).contains(&caps.subgroup_size) && caps.subgroup_size.is_power_of_two();
    let variant = match caps {
        // lavapipe ends a thread's loops after 65,535 rounds, of which a draw with filters does up to 13 over its part.
        Caps { software: true, .. } if vocab <= 156_000 => draw(32),
        Caps { software: false, .. } if subgroups => {
            draw_lanes(vocab, (vocab / 8).next_power_of_two().clamp(256, most), caps.subgroup_size)
        }
        _ if vocab > 8192 => draw(most),
        _ => draw(256),
    };
    let (variant, params) =
        if caps.software { (variant, bytes_of(&params).to_vec()) } else { (variant.baked(&params), Vec::new()) };
    Dispatch { variant, params, buffers: vec![fixed.controls, fixed.heads, emits], groups: [rows, 1, 1] }
}
