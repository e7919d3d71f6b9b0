// Where a Linear's result goes. Flags: BIAS; ADD adds to what is there (the residual stream); OUT_HEAD writes the
// logits in the heads of the rows' sessions, and nothing for rows without one; CONV_OUT, when every row is a session of
// its own: columns that are channels of a convolution go through it and SiLU, and its tail advances. One thread has all
// of a channel, so no other waits for it. OUT_HALF: `out` is f16, in the tiles of
// common/halves.

#import common/activation

struct OutputParams {
    out_dim: u32,    // rows of this part of the weight
    out_stride: u32, // elements from row to row of `out`; OUT_HEAD: words a slot
    out_at: u32,     // first column; OUT_HEAD: place of the logits, plus the part's first row
    bias_at: u32,    // the part's first row
}

struct ConvOutParams {
    at: u32,          // first column that is a channel, counted in rows of the whole weight
    channels: u32,
    state_words: u32, // f32 words a slot of the layer
    tail_at: u32,     // the tail's place in a slot: [TAPS − 1, channels], oldest first
}

// Of the output that is asked for.
#ifdef BIAS
var<private> bias_of: f32;
#endif
#ifdef ADD
var<private> before: f32;
#endif
#ifdef TABLE
var<private> slot_of: u32;
#endif
#ifdef CONV_OUT
#for j PAST
var<private> tap$j: f32;  // weights of the inputs before this one
var<private> tail$j: f32; // those inputs, oldest first
#endfor
#endif

// Loads what depends on nothing.
fn ask(row: u32, o: u32) {
    let p = params.output;
#ifdef TABLE
    slot_of = table[row].x;
#endif
#ifdef BIAS
    bias_of = bias[p.bias_at + o];
#endif
#ifdef ADD
    before = out[row * p.out_stride + p.out_at + o];
#endif
}

// Loads what depends on the row table, and what goes with it.
fn ask_state(o: u32) {
#ifdef CONV_OUT
    let p = params.conv;
    let c = params.output.bias_at + o - p.at; // wraps around before the first channel
    if c < p.channels && slot_of != NO_SLOT {
        let tail = slot_of * p.state_words + p.tail_at + c;
#for j PAST
        tap$j = pack[c * TAPS + $ju];
        tail$j = state[tail + $ju * p.channels];
#endfor
    }
#endif
}

#ifdef CONV_OUT
fn convolved(column: u32, now: f32) -> f32 {
    let p = params.conv;
    let c = column - p.at;
    if c >= p.channels {
        return now;
    }
    if slot_of == NO_SLOT {
        return 0.0;
    }
    let tail = slot_of * p.state_words + p.tail_at + c;
    var sum = 0.0;
#for j PAST
    sum = fma(tap$j, tail$j, sum);
    if $ju > 0u {
        state[tail + (max($ju, 1u) - 1u) * p.channels] = tail$j;
    }
#endfor
    state[tail + (TAPS - 2u) * p.channels] = now;
    return silu(fma(pack[c * TAPS + TAPS - 1u], now, sum));
}
#endif

fn finish(row: u32, o: u32, sum: f32) {
    let p = params.output;
    var value = sum;
#ifdef BIAS
    value += bias_of;
#endif
#ifdef CONV_OUT
    value = convolved(p.bias_at + o, value);
#endif
#ifdef OUT_HEAD
    if slot_of != NO_SLOT {
        out[slot_of * p.out_stride + p.out_at + o] = value;
    }
#else
    let i = row * p.out_stride + p.out_at + o;
#ifdef ADD
    out[i] = before + value;
#else
#ifdef OUT_HALF
    let tile = row / 16u * (p.out_stride / 16u) + o / 16u;
    out[tile * 256u + row % 16u * 16u + o % 16u] = f16(clamp(value, -65504.0, 65504.0));
#else
    out[i] = value;
#endif
#endif
#endif
}

fn store(row: u32, o: u32, sum: f32) {
    ask(row, o);
    ask_state(o);
    finish(row, o, sum);
}
