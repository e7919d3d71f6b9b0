// What the kernels that draw have in common: their params, a row's logits, and the filters. A kernel has `GROUP`
// invocations a workgroup, binds `controls`, and says what word `i` of `heads` is: `head_word(i)`.

#import common/head
#import common/threefry

struct Params {
    vocab: u32,     // V
    stride: u32,    // words a slot in `heads`
    seen: u32,      // start of the seen mask in a slot
    logits: u32,    // start of the logits in a slot
    max_steps: u32, // emits a row
}

const BINS: u32 = 256u;
const NEVER: f32 = -3.0e38; // below every finite logit that matters; NaN and -inf become this

var<workgroup> low: array<atomic<u32>, BINS>;  // per bin: counts, or the low 12 bits of weights
var<workgroup> high: array<atomic<u32>, BINS>; // per bin: the rest of the weights
var<workgroup> sums: array<vec2<u32>, 2u * BINS>; // what bins up to each hold: (high, low), twice
var<workgroup> chosen: u32;                    // the bin in which the goal is reached
var<workgroup> before: vec2<u32>;              // what lies in bins before it: (high, low)
var<workgroup> goal: vec2<u32>;                // what the kept tokens must reach

// The row's repetition penalty and its reciprocal.
var<private> penalty: f32;
var<private> inverse_penalty: f32;

fn raw(base: u32, i: u32) -> f32 {
    let l = bitcast<f32>(head_word(base + params.logits + i));
    // The comparison is false for NaN.
    return select(NEVER, l, l > NEVER);
}

fn penalised(base: u32, i: u32) -> f32 {
    let l = raw(base, i);
    if penalty == 1.0 {
        return l;
    }
    let seen = (head_word(base + params.seen + (i >> 5u)) >> (i & 31u)) & 1u;
    return select(l, l * select(penalty, inverse_penalty, l > 0.0), seen == 1u);
}

// Distance below the largest logit, in units of the temperature, as bits: ascending bits are descending likelihood.
fn key(base: u32, i: u32, top: f32, inverse: f32) -> u32 {
    return bitcast<u32>(abs((penalised(base, i) - top) * inverse));
}

// exp of minus that distance, in units of 2^-24.
fn weight(k: u32) -> u32 {
    return u32(exp(-bitcast<f32>(k)) * 16777216.0 + 0.5);
}

// (high, low) with low below 4096.
fn carry(v: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(v.x + (v.y >> 12u), v.y & 4095u);
}

// Adds up the bins: afterwards sums[at + b] is what bins up to b hold, with `at` as returned.
fn add_up(thread: u32) -> u32 {
    for (var b = thread; b < BINS; b += GROUP) {
        sums[b] = carry(vec2<u32>(atomicLoad(&high[b]), atomicLoad(&low[b])));
    }
    var at = 0u;
    for (var far = 1u; far < BINS; far *= 2u) {
        workgroupBarrier();
        for (var b = thread; b < BINS; b += GROUP) {
            var sum = sums[at + b];
            if b >= far {
                sum = carry(sum + sums[at + b - far]);
            }
            sums[BINS - at + b] = sum;
        }
        at = BINS - at;
    }
    workgroupBarrier();
    return at;
}

// The first round's bins: sixteen an octave from 2^-11 to 2^5, the first and the last one with all that lies beyond.
const FIRST: u32 = 0x3a000000u;
const FIRST_SHIFT: u32 = 19u;

// The smallest key t such that keys <= t reach the goal: k tokens, or (by_weight) top_p of the weight of the keys
// <= within. Each round finds the bin, of 256, in which the goal is reached; the next round divides it, until a bin is
// one key.
fn threshold(base: u32, row: u32, thread: u32, top: f32, inverse: f32, by_weight: bool, within: u32) -> u32 {
    // The keys that are not ruled out: origin .. origin + 256 · 2^shift.
    var origin = 0u;
    var shift = 32u; // the first round
    loop {
        for (var b = thread; b < BINS; b += GROUP) {
            atomicStore(&low[b], 0u);
            atomicStore(&high[b], 0u);
        }
        workgroupBarrier();
        for (var i = thread; i < params.vocab; i += GROUP) {
            let k = key(base, i, top, inverse);
            var bin = (k - origin) >> min(shift, 31u);
            if shift == 32u {
                bin = min((max(k, FIRST) - FIRST) >> FIRST_SHIFT, BINS - 1u);
            }
            if k <= within && k >= origin && bin < BINS {
                if by_weight {
                    let w = weight(k);
                    if w > 0u {
                        atomicAdd(&low[bin], w & 4095u);
                        atomicAdd(&high[bin], w >> 12u);
                    }
                } else {
                    atomicAdd(&low[bin], 1u);
                }
            }
        }
        workgroupBarrier();
        let at = add_up(thread);
        if thread == 0u {
            chosen = BINS - 1u;
            if shift == 32u {
                before = vec2<u32>(0u, 0u);
                goal = carry(vec2<u32>(0u, controls[row + CONTROL_TOP_K]));
                if by_weight {
                    let want = f32(sums[at + BINS - 1u].x) * bitcast<f32>(controls[row + CONTROL_TOP_P]);
                    goal = vec2<u32>(u32(want), u32(fract(want) * 4096.0));
                }
            }
        }
        let passed = workgroupUniformLoad(&before);
        let wanted = workgroupUniformLoad(&goal);
        for (var b = thread; b < BINS; b += GROUP) {
            var earlier = passed;
            if b > 0u {
                earlier = carry(passed + sums[at + b - 1u]);
            }
            // One bin alone: the first that reaches the goal, or the last.
            let here = b == BINS - 1u || reaches(carry(passed + sums[at + b]), wanted);
            if here && (b == 0u || !reaches(earlier, wanted)) {
                chosen = b;
                before = earlier;
            }
        }
        let bin = workgroupUniformLoad(&chosen);
        if shift == 32u {
            origin = FIRST + (bin << FIRST_SHIFT);
            shift = FIRST_SHIFT - 8u;
            if bin == 0u {
                origin = 0u;
                shift = 22u;
            } else if bin == BINS - 1u {
                shift = 22u;
            }
        } else {
            origin += bin << shift;
            if shift == 0u {
                break;
            }
            shift = max(shift, 8u) - 8u;
        }
    }
    return origin;
}

fn reaches(sum: vec2<u32>, wanted: vec2<u32>) -> bool {
    return sum.x > wanted.x || (sum.x == wanted.x && sum.y >= wanted.y);
}
