// Draws one token a row from the logits in its slot's head, records it, and makes it the token to feed.
// One workgroup a row. core/src/sampler.rs states the rules and has the same steps. Const: GROUP, a power of two.

#import common/head
#import common/threefry

struct Params {
    vocab: u32,     // V
    stride: u32,    // words a slot in `heads`
    seen: u32,      // start of the seen mask in a slot
    logits: u32,    // start of the logits in a slot
    max_steps: u32, // emits a row
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> controls: array<u32>;          // [rows, CONTROL_WORDS]
@group(0) @binding(2) var<storage, read_write> heads: array<u32>;       // [slots, stride]
@group(0) @binding(3) var<storage, read_write> emits: array<vec4<u32>>; // [rows, max_steps]: token, logprob, EMIT_*, position

const BINS: u32 = 256u;
const NEVER: f32 = -3.0e38; // below every finite logit that matters; NaN and -inf become this

var<workgroup> skip: u32;
var<workgroup> best: array<f32, GROUP>;
var<workgroup> index: array<u32, GROUP>;
var<workgroup> total: array<f32, GROUP>;
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
    let l = bitcast<f32>(heads[base + params.logits + i]);
    // The comparison is false for NaN.
    return select(NEVER, l, l > NEVER);
}

fn penalised(base: u32, i: u32) -> f32 {
    let l = raw(base, i);
    if penalty == 1.0 {
        return l;
    }
    let seen = (heads[base + params.seen + (i >> 5u)] >> (i & 31u)) & 1u;
    return select(l, l * select(penalty, inverse_penalty, l > 0.0), seen == 1u);
}

// Leaves the larger of all threads' (value, index) in place 0, the lower index among equals.
fn reduce_best(thread: u32) {
    workgroupBarrier();
    for (var half = GROUP / 2u; half > 0u; half /= 2u) {
        if thread < half {
            let a = best[thread];
            let b = best[thread + half];
            if b > a || (b == a && index[thread + half] < index[thread]) {
                best[thread] = b;
                index[thread] = index[thread + half];
            }
        }
        workgroupBarrier();
    }
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

@compute @workgroup_size(GROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let thread = local.x;
    let row = group.x * CONTROL_WORDS;
    let slot = controls[row + CONTROL_SLOT];
    if slot == 0xffffffffu {
        return;
    }
    let base = slot * params.stride;
    if thread == 0u {
        let used_up = heads[base + HEAD_EMITTED] >= min(controls[row + CONTROL_LIMIT], params.max_steps);
        skip = select(0u, 1u, used_up || heads[base + HEAD_DONE] == 1u);
        if used_up {
            heads[base + HEAD_DONE] = 1u;
        }
    }
    if workgroupUniformLoad(&skip) == 1u {
        return;
    }

    penalty = bitcast<f32>(controls[row + CONTROL_PENALTY]);
    inverse_penalty = bitcast<f32>(controls[row + CONTROL_INV_PENALTY]);

    // Largest logit, with and without penalty.
    best[thread] = NEVER;
    index[thread] = params.vocab;
    var raw_best = NEVER;
    for (var i = thread; i < params.vocab; i += GROUP) {
        let l = penalised(base, i);
        if l > best[thread] || index[thread] == params.vocab {
            best[thread] = l;
            index[thread] = i;
        }
        raw_best = max(raw_best, raw(base, i));
    }
    total[thread] = raw_best;
    reduce_best(thread);
    for (var half = GROUP / 2u; half > 0u; half /= 2u) {
        if thread < half {
            total[thread] = max(total[thread], total[thread + half]);
        }
        workgroupBarrier();
    }
    let top = best[0];
    let winner = index[0];
    let raw_top = total[0];
    workgroupBarrier();
    var sum = 0.0;
    for (var i = thread; i < params.vocab; i += GROUP) {
        sum += exp(raw(base, i) - raw_top);
    }
    total[thread] = sum;
    workgroupBarrier();
    for (var half = GROUP / 2u; half > 0u; half /= 2u) {
        if thread < half {
            total[thread] += total[thread + half];
        }
        workgroupBarrier();
    }
    let log_sum = raw_top + log(total[0]);

    let inverse = bitcast<f32>(controls[row + CONTROL_INV_TEMPERATURE]);
    if inverse > 0.0 {
        var keep = controls[row + CONTROL_MIN_P];
        let top_k = controls[row + CONTROL_TOP_K];
        var within = 0x7f800000u;
        if top_k > 0u && top_k < params.vocab {
            within = threshold(base, row, thread, top, inverse, false, within);
            keep = min(keep, within);
        }
        if bitcast<f32>(controls[row + CONTROL_TOP_P]) < 1.0 {
            keep = min(keep, threshold(base, row, thread, top, inverse, true, within));
        }
        // The race: an exact draw from the softmax of what is kept.
        let seed = vec2<u32>(controls[row + CONTROL_SEED_LO], controls[row + CONTROL_SEED_HI]);
        let position = heads[base + HEAD_POSITION];
        workgroupBarrier();
        best[thread] = NEVER;
        index[thread] = winner;
        for (var i = thread; i < params.vocab; i += GROUP) {
            let k = key(base, i, top, inverse);
            if k <= keep {
                let score = -bitcast<f32>(k) - log(exponential(threefry(seed, vec2<u32>(i, position)).x));
                if score > best[thread] {
                    best[thread] = score;
                    index[thread] = i;
                }
            }
        }
        reduce_best(thread);
    }

    if thread == 0u {
        let token = min(index[0], params.vocab - 1u);
        let emitted = heads[base + HEAD_EMITTED];
        let position = heads[base + HEAD_POSITION];
        var flags = EMIT_FED;
        for (var e = 0u; e < min(controls[row + CONTROL_EOS_COUNT], MAX_EOS); e++) {
            if token == controls[row + CONTROL_EOS + e] {
                flags = EMIT_END;
            }
        }
        let logprob = raw(base, token) - log_sum;
        emits[group.x * params.max_steps + emitted] = vec4<u32>(token, bitcast<u32>(logprob), flags, position);
        heads[base + HEAD_EMITTED] = emitted + 1u;
        heads[base + HEAD_TOKEN] = token;
        if flags == EMIT_END {
            heads[base + HEAD_DONE] = 1u;
        } else {
            heads[base + HEAD_POSITION] = position + 1u;
            heads[base + params.seen + (token >> 5u)] |= 1u << (token & 31u);
        }
    }
}
