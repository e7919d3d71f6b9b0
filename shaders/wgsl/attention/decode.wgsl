// Attention of one row a session. The tokens that it sees are split among SPLITS workgroups, each with GB query heads
// of one key head; attention/combine puts their shares together.
//
// 64 keys at a time: a thread has one key for half of the heads, then one column (or several, WG apart) of a part of
// the keys for all of them. Grid: (SPLITS, KVH · ⌈GROUP / GB⌉, rows).
//
// Consts: HEADS, KVH, D, PAGE, GB, SPLITS; see attention/source for flags. Flag: WHOLE, SPLITS is 1 and the output
// is written instead of shares.

#import attention/source

const WG: u32 = 128u;
const B: u32 = 64u;      // keys of a tile
const SLICE: u32 = 32u;  // channels at a time
const PITCH: u32 = SLICE + 1u;
const SLICES: u32 = (D + SLICE - 1u) / SLICE;
const HALF: u32 = (GB + 1u) / 2u;
// Threads that cover the columns once, and columns of each.
const WIDE: u32 = min(WG, (D + 31u) / 32u * 32u);
const PARTS: u32 = WG / WIDE;
const COLUMNS: u32 = (D + WIDE - 1u) / WIDE;
const BLOCKS: u32 = (GROUP + GB - 1u) / GB;

var<workgroup> qs: array<f32, GB * D>;
var<workgroup> ks: array<f32, B * PITCH>;  // a slice of the keys; at the end, shares of the output
var<workgroup> ps: array<f32, GB * B>;     // scores, then weights
var<workgroup> highs: array<f32, WG>;      // [GB, 8] maxima; at the end, sums
var<workgroup> tops: array<vec2<f32>, GB>; // maximum so far, and what to keep of the sums before

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = wid.z;
    let entry = table[row];
    if entry.x == NO_SLOT {
        return;
    }
    find_source(row, entry);
    let kv_head = wid.y / BLOCKS;
    let first_head = wid.y % BLOCKS * GB;
    // Heads of this workgroup that exist.
    let heads = min(GB, GROUP - first_head);
    let head = kv_head * GROUP + first_head;
    let key_at = kv_head * D;
    let low = oldest(entry.w);
    // Tokens of each split, whole tiles.
    let share = ((entry.w + 1u - low + SPLITS - 1u) / SPLITS + B - 1u) / B * B;
    let begin = low + wid.x * share;
    let end = min(begin + share, entry.w + 1u);

    for (var i = lane; i < GB * D; i += WG) {
        qs[i] = 0.0;
        if i / D < heads {
            qs[i] = q[row * params.q_stride + head * D + i];
        }
    }
    if lane < GB {
        tops[lane] = vec2<f32>(LOWEST, 1.0);
    }
    let key = lane % B;
    let odd = lane / B;
    let column = lane % WIDE;
    let part = lane / WIDE;
    var o: array<f32, GB * COLUMNS>;
    var total: array<f32, GB>;
    for (var tile = begin; tile < end; tile += B) {
        var s: array<f32, HALF>;
        for (var slice = 0u; slice < SLICES; slice++) {
            workgroupBarrier();
            for (var i = lane; i < B * SLICE; i += WG) {
                let p = tile + i / SLICE;
                let c = slice * SLICE + i % SLICE;
                var k = 0.0;
                if p < end && c < D {
                    k = element(p, place(p), key_at + c);
                }
                ks[i / SLICE * PITCH + i % SLICE] = k;
            }
            workgroupBarrier();
            for (var c = 0u; c < min(SLICE, D - slice * SLICE); c++) {
                let k = ks[key * PITCH + c];
                for (var h = 0u; h < HALF; h++) {
                    // Beyond the last head: the last one again.
                    let g = min(2u * h + odd, GB - 1u);
                    s[h] = fma(qs[g * D + slice * SLICE + c], k, s[h]);
                }
            }
        }
        for (var h = 0u; h < HALF; h++) {
            let g = 2u * h + odd;
            if g < GB {
                ps[g * B + key] = select(LOWEST, s[h], tile + key < end);
            }
        }
        workgroupBarrier();
        // Eight threads a head look for its maximum.
        if lane < GB * 8u {
            var high = LOWEST;
            for (var i = 0u; i < B / 8u; i++) {
                high = max(high, ps[lane / 8u * B + i * 8u + lane % 8u]);
            }
            highs[lane] = high;
        }
        workgroupBarrier();
        if lane < GB {
            var high = tops[lane].x;
            for (var i = 0u; i < 8u; i++) {
                high = max(high, highs[lane * 8u + i]);
            }
            tops[lane] = vec2<f32>(high, exp(tops[lane].x - high));
        }
        workgroupBarrier();
        for (var i = lane; i < GB * B; i += WG) {
            ps[i] = select(0.0, exp(ps[i] - tops[i / B].x), tile + i % B < end);
        }
        workgroupBarrier();
        for (var g = 0u; g < GB; g++) {
            let keep = tops[g].y;
            total[g] *= keep;
            for (var i = 0u; i < COLUMNS; i++) {
                o[g * COLUMNS + i] *= keep;
            }
        }
        if part < PARTS {
            for (var j = part; j < min(B, end - tile); j += PARTS) {
                let at = place(tile + j);
                for (var i = 0u; i < COLUMNS; i++) {
                    let c = column + i * WIDE;
                    var v = 0.0;
                    if c < D {
                        v = element(tile + j, at, KVH * D + key_at + c);
                    }
                    for (var g = 0u; g < GB; g++) {
                        o[g * COLUMNS + i] = fma(ps[g * B + j], v, o[g * COLUMNS + i]);
                    }
                }
                for (var g = 0u; g < GB; g++) {
                    total[g] += ps[g * B + j];
                }
            }
        }
    }
    // The parts of the keys together, a head at a time.
    for (var g = 0u; g < GB; g++) {
        workgroupBarrier();
        if part < PARTS {
            for (var i = 0u; i < COLUMNS; i++) {
                ks[part * WIDE * COLUMNS + column + i * WIDE] = o[g * COLUMNS + i];
            }
            if column == 0u {
                highs[part] = total[g];
            }
        }
        workgroupBarrier();
        if g >= heads {
            continue;
        }
        var sum = 0.0;
        for (var i = 0u; i < PARTS; i++) {
            sum += highs[i];
        }
        for (var c = lane; c < D; c += WG) {
            var value = 0.0;
            for (var i = 0u; i < PARTS; i++) {
                value += ks[i * WIDE * COLUMNS + c];
            }
#ifdef WHOLE
            out[row * params.out_stride + (head + g) * D + c] = value / sum;
#else
            out[((row * HEADS + head + g) * SPLITS + wid.x) * (D + 2u) + c] = value;
#endif
        }
#ifndef WHOLE
        if lane == 0u {
            let at = ((row * HEADS + head + g) * SPLITS + wid.x) * (D + 2u) + D;
            out[at] = tops[g].x;
            out[at + 1u] = sum;
        }
#endif
    }
}
