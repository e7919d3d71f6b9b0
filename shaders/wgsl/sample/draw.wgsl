// Draws one token a row from the logits in its slot's head, records it, and makes it the token to feed.
// One workgroup a row. core/src/sampler.rs states the rules and has the same steps. Const: GROUP, a power of two.

#import sample/filter

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> controls: array<u32>;          // [rows, CONTROL_WORDS]
@group(0) @binding(auto) var<storage, read_write> heads: array<u32>;       // [slots, stride]
@group(0) @binding(auto) var<storage, read_write> emits: array<vec4<u32>>; // [rows, max_steps]: token, logprob, EMIT_*, position

var<workgroup> skip: u32;
var<workgroup> best: array<f32, GROUP>;
var<workgroup> index: array<u32, GROUP>;
var<workgroup> total: array<f32, GROUP>;

fn head_word(i: u32) -> u32 {
    return heads[i];
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
