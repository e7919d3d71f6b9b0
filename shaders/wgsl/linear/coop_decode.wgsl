// out (+)= x · Wᵀ for the rows of a decode of many sessions with cooperative matrices: x in f16, W rounded to it, sums in
// f32. There are few rows and each weight is needed once, so a workgroup has all or half of the rows and a few outputs,
// and its TEAMS subgroups share in_dim: at a time, each has BK of ROUND · 8 columns. Their weights all threads bring
// together, whole lines of memory, to registers, DEPTH rounds ahead, and from there to workgroup memory; x each reads where
// it lies, in tiles of a matrix each. At the end the subgroups' sums are added in their order. A row's result does not
// depend on the other rows, nor on its place among them.
// PAIRED: weight row o + pairs belongs to o, and the output is silu(row o) · (row o + pairs): SwiGLU.
// Grid: x covers the outputs in steps of 16 · OUTS16, y covers the rows in steps of 16 · ROWS16.
//
// in_dim is a multiple of 16, and x begins with its first column. Weights beyond f16's range become its largest, and
// those below its normal range, 6e-5, keep fewer bits.
//
// Consts: TEAMS (subgroups of 32, at least 8), ROWS16, OUTS16, BK (a multiple of 16), K16 (sixteens of it), DEPTH;
// EIGHTS of W that a thread brings in a round; ROWS (of the plan). Flags: W_F16, W_BF16; XHALF, XVEC always; PAIRED;
// ONCE: all sums meet at the same time; see linear/output.

#import linear/product
@group(0) @binding(auto) var<storage, read> x: array<vec4<f16>>;            // [rows, x_stride] in tiles
#import linear/ends
#import linear/staged

const WG: u32 = TEAMS * 32u;
const BM: u32 = 16u * ROWS16;
const OUTS: u32 = 16u * OUTS16;
#ifdef PAIRED
const PAIR: u32 = 2u;
#else
const PAIR: u32 = 1u;
#endif
const BN: u32 = PAIR * OUTS;
// Eights of in_dim that a subgroup has at a time, and all of them.
const STEP: u32 = BK / 8u;
const ROUND: u32 = TEAMS * STEP;
// vec4s from row to row of an operand, and from subgroup to subgroup: padding keeps both off each other's banks.
const LD: u32 = (BK + 8u) / 4u;
const WS: u32 = BN * LD + 8u;
// Tiles of sums that meet at a time.
#ifdef ONCE
const TILES: u32 = ROWS16 * OUTS16 * PAIR;
#else
const TILES: u32 = OUTS16 * PAIR;
#endif
const_assert BN * ROUND == EIGHTS * WG && WG >= 256u;

var<workgroup> ws: array<vec4<f16>, TEAMS * WS>;  // [TEAMS, BN, BK + 8] and padding
var<workgroup> shares: array<f32, TEAMS * TILES * 256u>; // [TEAMS, TILES, 16, 16] sums

// The g-th eight of a row of W as it is stored; zeros beyond in_dim.
fn fetch_w(row: u32, g: u32) -> vec4<u32> {
    if g >= params.input.groups {
        return vec4<u32>();
    }
    return words4(row, params.input.groups, g);
}

// The sum of what the subgroups brought of a tile, of the thread's place in it.
fn whole(tile: u32, lid: u32) -> f32 {
    var sum = 0.0;
    for (var t = 0u; t < TEAMS; t++) {
        sum += shares[(t * TILES + tile) * 256u + lid % 256u];
    }
    return sum;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let m0 = wid.y * BM;
    let n0 = wid.x * OUTS;
    let team = lid / 32u;
    let outs = params.output.out_dim / PAIR;

    // Where the tiles of x lie, by fours. Rows beyond the last tile are its once more: their sums go nowhere.
    let across = params.input.x_stride / 16u;
    let deep = params.input.in_dim / 16u;
#for i ROWS16
    let x_from$i = min(m0 / 16u + $iu, (ROWS - 1u) / 16u) * across;
#endfor
    // Where a thread's eights of W come from and go to.
    let column = lid % ROUND;
    let to = column % STEP * 2u;
#for i EIGHTS
    let w_row$i = (lid + WG * $iu) / ROUND;
    let w_from$i = min(n0 + w_row$i % OUTS, outs - 1u) + w_row$i / OUTS * outs;
    let w_to$i = column / STEP * WS + w_row$i * LD + to;
#endfor
#for d DEPTH
#for i EIGHTS
    var w$d_$i = fetch_w(w_from$i, $du * ROUND + column);
#endfor
#for k K16
    // (Beyond in_dim W has zeros, and any numbers will do here.)
    let tile$d_$k = ($du * ROUND + team * STEP) / 2u + $ku;
    let first$d_$k = select(0u, tile$d_$k, tile$d_$k < deep);
#for i ROWS16
    let from$d_$i_$k = (x_from$i + first$d_$k) * 64u;
    var x$d_$i_$k = coopLoadT<coop_mat16x16<f16, A>>(&x[from$d_$i_$k], 4u);
#endfor
#endfor
#endfor
    // A thread has one output of each tile. What these need besides their sums is asked for all at once.
#for i ROWS16
    let row$i = m0 + 16u * $iu + lid % 256u / 16u;
    let near$i = min(row$i, ROWS - 1u);
#endfor
#for j OUTS16
    let o$j = n0 + 16u * $ju + lid % 16u;
    let close$j = min(o$j, outs - 1u);
#endfor
#for i ROWS16
#for j OUTS16
    ask(near$i, close$j);
#ifdef BIAS
    let bias$i_$j = bias_of;
#endif
#ifdef ADD
    let before$i_$j = before;
#endif
#ifdef TABLE
    let slot$i_$j = slot_of;
#endif
#endfor
#endfor
#ifdef CONV_OUT
#for i ROWS16
#for j OUTS16
    slot_of = slot$i_$j;
    ask_state(close$j);
#for p PAST
    let tap$i_$j_$p = tap$p;
    let tail$i_$j_$p = tail$p;
#endfor
#endfor
#endfor
#endif
#for i ROWS16
#for j OUTS16
    var s$i_$j: coop_mat16x16<f32, C>;
#ifdef PAIRED
    var t$i_$j: coop_mat16x16<f32, C>;
#endif
#endfor
#endfor

    for (var k0 = 0u; k0 < params.input.groups; k0 += DEPTH * ROUND) {
#for d DEPTH
        {
#for i EIGHTS
            put_w(w_to$i, w$d_$i);
#endfor
            workgroupBarrier();
            let next = k0 + (DEPTH + $du) * ROUND + column;
#for i EIGHTS
            w$d_$i = fetch_w(w_from$i, next);
#endfor
#for k K16
            {
#for j OUTS16
                let from_w$j = team * WS + 16u * $ju * LD + 4u * $ku;
                let b$j = coopLoad<coop_mat16x16<f16, B>>(&ws[from_w$j], LD);
#ifdef PAIRED
                let from_v$j = team * WS + (OUTS + 16u * $ju) * LD + 4u * $ku;
                let c$j = coopLoad<coop_mat16x16<f16, B>>(&ws[from_v$j], LD);
#endif
#endfor
#for i ROWS16
#for j OUTS16
                s$i_$j = coopMultiplyAdd(x$d_$i_$k, b$j, s$i_$j);
#ifdef PAIRED
                t$i_$j = coopMultiplyAdd(x$d_$i_$k, c$j, t$i_$j);
#endif
#endfor
#endfor
                let tile = (k0 + (DEPTH + $du) * ROUND + team * STEP) / 2u + $ku;
                let there = select(0u, tile, tile < deep);
#for i ROWS16
                let from_x$i = (x_from$i + there) * 64u;
                x$d_$i_$k = coopLoadT<coop_mat16x16<f16, A>>(&x[from_x$i], 4u);
#endfor
            }
#endfor
            workgroupBarrier();
        }
#endfor
    }

#ifdef ONCE
#for i ROWS16
#for j OUTS16
    coopStoreT(s$i_$j, &shares[(team * TILES + $iu * OUTS16 * PAIR + $ju) * 256u], 16u);
#ifdef PAIRED
    coopStoreT(t$i_$j, &shares[(team * TILES + $iu * OUTS16 * PAIR + OUTS16 + $ju) * 256u], 16u);
#endif
#endfor
#endfor
    workgroupBarrier();
#endif
#for i ROWS16
#ifdef ONCE
    let tile$i = $iu * OUTS16 * PAIR;
#else
    let tile$i = 0u;
#for j OUTS16
    coopStoreT(s$i_$j, &shares[(team * TILES + $ju) * 256u], 16u);
#ifdef PAIRED
    coopStoreT(t$i_$j, &shares[(team * TILES + OUTS16 + $ju) * 256u], 16u);
#endif
#endfor
    workgroupBarrier();
#endif
#for j OUTS16
    {
        var sum = whole(tile$i + $ju, lid);
#ifdef PAIRED
        sum = silu(sum) * whole(tile$i + OUTS16 + $ju, lid);
#endif
        if lid < 256u && row$i < ROWS && o$j < outs {
#ifdef BIAS
            bias_of = bias$i_$j;
#endif
#ifdef ADD
            before = before$i_$j;
#endif
#ifdef TABLE
            slot_of = slot$i_$j;
#endif
#ifdef CONV_OUT
#for p PAST
            tap$p = tap$i_$j_$p;
            tail$p = tail$i_$j_$p;
#endfor
#endif
            finish(row$i, o$j, sum);
        }
    }
#endfor
#ifndef ONCE
    workgroupBarrier();
#endif
#endfor
}
