// The causal convolution of one channel of one row, with SiLU. The kernel's Params has `conv: ConvParams`; its
// bindings `x`, `pack` (weights [channels, TAPS] first, newest input last) and `state` (the tail: [TAPS − 1, channels],
// oldest first). TAPS = 1: no convolution, and no weights.
// Flags: CONV; TAIL_ONLY for a kernel that convolves nothing.

#import common/activation

struct ConvParams {
    channels: u32,    // 2·H·K + HV·V
    x_stride: u32,    // elements from row to row of `x`
    x_at: u32,        // first channel's column
    state_words: u32, // f32 words a slot of the layer
    tail_at: u32,     // the tail's place in a slot
    out_stride: u32,  // elements from row to row of the output
    pad0: u32,
    pad1: u32,
}

#ifndef TAIL_ONLY
// `entry` is the row's entry in the row table.
fn convolve(entry: vec4<u32>, row: u32, c: u32) -> f32 {
    let p = params.conv;
    let now = x[row * p.x_stride + p.x_at + c];
#ifdef CONV
    var sum = 0.0;
    let tail = entry.x * p.state_words + p.tail_at + c;
    for (var j = 0u; j < TAPS - 1u; j++) {
        // How far back this tap looks.
        let back = TAPS - 1u - j;
        var v = 0.0;
        if entry.y >= back {
            v = x[(row - back) * p.x_stride + p.x_at + c];
        } else {
            v = state[tail + (entry.y + j) * p.channels];
        }
        sum = fma(pack[c * TAPS + j], v, sum);
    }
    return silu(fma(pack[c * TAPS + TAPS - 1u], now, sum));
#else
    return silu(now);
#endif
}
#endif

#ifdef CONV
// The tail after a piece of `length` tokens whose first row is `first`: its last TAPS − 1 inputs, older ones from the
// tail before. Reads each place before it writes an earlier one.
fn advance_tail(slot: u32, first: u32, length: u32, c: u32) {
    let p = params.conv;
    let tail = slot * p.state_words + p.tail_at + c;
    for (var j = 0u; j < TAPS - 1u; j++) {
        var v = 0.0;
        if length + j >= TAPS - 1u {
            v = x[(first + length + j + 1u - TAPS) * p.x_stride + p.x_at + c];
        } else {
            v = state[tail + (length + j) * p.channels];
        }
        state[tail + j * p.channels] = v;
    }
}
#endif
