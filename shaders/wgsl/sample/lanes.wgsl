// Draws one token a row as sample/draw does, where subgroups have one size: threads take four logits at a time, WIDE
// times, all on their way at once, and meet by shuffles and one barrier instead of a tree of barriers. One workgroup a
// row. With HELD, the logits fit in the threads' registers and are read once.
//
// Consts: GROUP, a power of two; WIDE; SUBGROUP (a size that every subgroup has, a power of two).

#import sample/filter

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> controls: array<u32>;          // [rows, CONTROL_WORDS]
@group(0) @binding(auto) var<storage, read_write> heads: array<vec4<u32>>; // [slots, stride]
@group(0) @binding(auto) var<storage, read_write> emits: array<vec4<u32>>; // [rows, max_steps]: token, logprob, EMIT_*, position


const MEETING: u32 = GROUP / SUBGROUP; // who meets in workgroup memory

var<workgroup> skip: u32;
// For each time that threads meet, so that no one has to wait for the last time's readers.
var<workgroup> best: array<f32, 2u * MEETING>;
var<workgroup> index: array<u32, 2u * MEETING>;
var<workgroup> raws: array<f32, 2u * MEETING>;
var<workgroup> addends: array<f32, MEETING>;

fn head_word(i: u32) -> u32 {
    return heads[i >> 2u][i & 3u];
}

// A token and how it stands, with the largest logit before penalties beside it.
struct Best {
    value: f32,
    index: u32,
    raw: f32,
}

// The one with the larger value, with the lower index among equals.
fn better(a: Best, b: Best) -> Best {
    let other = b.value > a.value || (b.value == a.value && b.index < a.index);
    return Best(select(a.value, b.value, other), select(a.index, b.index, other), max(a.raw, b.raw));
}

fn best_of_subgroup(mine: Best) -> Best {
    var b = mine;
    for (var far = SUBGROUP / 2u; far > 0u; far /= 2u) {
        b = better(b, Best(subgroupShuffleXor(b.value, far), subgroupShuffleXor(b.index, far), subgroupShuffleXor(b.raw, far)));
    }
    return b;
}

// The best of all threads' own, the `meeting`-th time.
fn best_of(mine: Best, thread: u32, meeting: u32) -> Best {
    let at = meeting * MEETING;
    let ours = best_of_subgroup(mine);
    if thread % SUBGROUP == 0u {
        best[at + thread / SUBGROUP] = ours.value;
        index[at + thread / SUBGROUP] = ours.index;
        raws[at + thread / SUBGROUP] = ours.raw;
    }
    workgroupBarrier();
    var b = ours;
    for (var i = thread % SUBGROUP; i < MEETING; i += SUBGROUP) {
        b = better(b, Best(best[at + i], index[at + i], raws[at + i]));
    }
    return best_of_subgroup(b);
}

fn sum_of_subgroup(mine: f32) -> f32 {
    var sum = mine;
    for (var far = SUBGROUP / 2u; far > 0u; far /= 2u) {
        sum += subgroupShuffleXor(sum, far);
    }
    return sum;
}

fn sum_of(mine: f32, thread: u32) -> f32 {
    let ours = sum_of_subgroup(mine);
    if thread % SUBGROUP == 0u {
        addends[thread / SUBGROUP] = ours;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = thread % SUBGROUP; i < MEETING; i += SUBGROUP) {
        sum += addends[i];
    }
    return sum_of_subgroup(sum);
}

// Logits of tokens 4i .. 4i+3; beyond the vocabulary, what counts for nothing.
fn raw4(base: u32, i: u32) -> vec4<f32> {
    let l = bitcast<vec4<f32>>(heads[(base + params.logits) / 4u + min(i, (params.vocab - 1u) / 4u)]);
    let real = vec4<u32>(4u * i, 4u * i + 1u, 4u * i + 2u, 4u * i + 3u) < vec4<u32>(params.vocab);
    // The comparison is false for NaN.
    return select(vec4<f32>(NEVER), l, (l > vec4<f32>(NEVER)) & real);
}

fn penalise4(base: u32, i: u32, l: vec4<f32>) -> vec4<f32> {
    if penalty == 1.0 {
        return l;
    }
    let seen = head_word(base + params.seen + (i >> 3u)) >> ((4u * i) & 31u);
    let bits = (vec4<u32>(seen) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u);
    return select(l, l * select(vec4<f32>(penalty), vec4<f32>(inverse_penalty), l > vec4<f32>(0.0)), bits == vec4<u32>(1u));
}

fn take(mine: Best, value: f32, i: u32) -> Best {
    // The first token counts whatever its logit.
    let other = i < params.vocab && (value > mine.value || mine.index == params.vocab);
    return Best(select(mine.value, value, other), select(mine.index, i, other), mine.raw);
}

@compute @workgroup_size(GROUP)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) sublane: u32,
) {
    let thread = subgroup * SUBGROUP + sublane;
    let row = group.x * CONTROL_WORDS;
    let slot = controls[row + CONTROL_SLOT];
    if slot == 0xffffffffu {
        return;
    }
    let base = slot * params.stride;
    let fours = (params.vocab + 3u) / 4u;
    // HEAD_POSITION, HEAD_TOKEN, HEAD_DONE, HEAD_EMITTED
    let words = heads[base / 4u];
    let position = words[HEAD_POSITION];
    let emitted = words[HEAD_EMITTED];
    if thread == 0u {
        let used_up = emitted >= min(controls[row + CONTROL_LIMIT], params.max_steps);
        skip = select(0u, 1u, used_up || words[HEAD_DONE] == 1u);
    }
    penalty = bitcast<f32>(controls[row + CONTROL_PENALTY]);
    inverse_penalty = bitcast<f32>(controls[row + CONTROL_INV_PENALTY]);

    // Largest logit, with and without penalty.
    var mine = Best(NEVER, params.vocab, NEVER);
#ifdef HELD
#for e WIDE
    let l$e = raw4(base, thread + $eu * GROUP);
#endfor
#endif
    for (var i = thread; i < fours; i += GROUP * WIDE) {
#ifndef HELD
#for e WIDE
        let l$e = raw4(base, i + $eu * GROUP);
#endfor
#endif
#for e WIDE
        {
            let four = i + $eu * GROUP;
            let l = penalise4(base, min(four, fours - 1u), l$e);
            mine.raw = max(mine.raw, max(max(l$e.x, l$e.y), max(l$e.z, l$e.w)));
            mine = take(mine, l.x, 4u * four);
            mine = take(mine, l.y, 4u * four + 1u);
            mine = take(mine, l.z, 4u * four + 2u);
            mine = take(mine, l.w, 4u * four + 3u);
        }
#endfor
    }
    if workgroupUniformLoad(&skip) == 1u {
        if thread == 0u {
            heads[base / 4u][HEAD_DONE] = 1u;
        }
        return;
    }
    let first = best_of(mine, thread, 0u);
    let top = first.value;
    var sum = 0.0;
    for (var i = thread; i < fours; i += GROUP * WIDE) {
#ifndef HELD
#for e WIDE
        let l$e = raw4(base, i + $eu * GROUP);
#endfor
#endif
#for e WIDE
        if i + $eu * GROUP < fours {
            // Beyond the vocabulary this is 0, unless all logits are as low as can be.
            let real = min(4u, params.vocab - 4u * (i + $eu * GROUP));
            let powers = exp(l$e - first.raw);
            sum += dot(select(powers, vec4<f32>(0.0), vec4<u32>(0u, 1u, 2u, 3u) >= vec4<u32>(real)), vec4<f32>(1.0));
        }
#endfor
    }
    let log_sum = first.raw + log(sum_of(sum, thread));

    var winner = first.index;
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
        mine = Best(NEVER, first.index, NEVER);
        for (var i = thread; i < fours; i += GROUP * WIDE) {
#ifndef HELD
#for e WIDE
            let l$e = raw4(base, i + $eu * GROUP);
#endfor
#endif
            // Which of the 4 · WIDE tokens take part. There are few as a rule.
            var kept = 0u;
#for e WIDE
            {
                let four = i + $eu * GROUP;
                let k = bitcast<vec4<u32>>(abs((penalise4(base, min(four, fours - 1u), l$e) - top) * inverse));
                let tokens = vec4<u32>(4u * four, 4u * four + 1u, 4u * four + 2u, 4u * four + 3u);
                let takes = (k <= vec4<u32>(keep)) & (tokens < vec4<u32>(params.vocab));
                kept |= dot(select(vec4<u32>(0u), vec4<u32>(1u, 2u, 4u, 8u), takes), vec4<u32>(1u)) << (4u * $eu);
            }
#endfor
            while kept != 0u {
                let bit = firstTrailingBit(kept);
                kept &= kept - 1u;
                let token = 4u * (i + bit / 4u * GROUP) + bit % 4u;
                let k = key(base, token, top, inverse);
                let score = -bitcast<f32>(k) - log(exponential(threefry(seed, vec2<u32>(token, position)).x));
                if score > mine.value {
                    mine.value = score;
                    mine.index = token;
                }
            }
        }
        winner = best_of(mine, thread, 1u).index;
    }

    if thread == 0u {
        let token = min(winner, params.vocab - 1u);
        var flags = EMIT_FED;
        for (var e = 0u; e < min(controls[row + CONTROL_EOS_COUNT], MAX_EOS); e++) {
            if token == controls[row + CONTROL_EOS + e] {
                flags = EMIT_END;
            }
        }
        let logprob = raw(base, token) - log_sum;
        emits[group.x * params.max_steps + emitted] = vec4<u32>(token, bitcast<u32>(logprob), flags, position);
        let ended = flags == EMIT_END;
        heads[base / 4u] = vec4<u32>(select(position + 1u, position, ended), token, select(0u, 1u, ended), emitted + 1u);
        if !ended {
            let seen = base + params.seen + (token >> 5u);
            heads[seen >> 2u][seen & 3u] = head_word(seen) | (1u << (token & 31u));
        }
    }
}
