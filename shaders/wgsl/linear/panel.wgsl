// out[r] (+)= W · input(r) for the rows of a decode of many sessions, in f32. Every result is the same bits as
// linear/gemv's: a team of TEAM lanes has N weight rows, lane l adds up the eights l, l + TEAM, … of in_dim, and the
// lanes' sums meet in the butterfly that gemv adds them with. Here it gives each lane another sum: where it meets its
// partner, a lane hands over half of its sums and keeps the other half.
//
// Where gemv's team is SPLIT subgroups, TEAM here is one of them: it takes their shares of in_dim one after the other, and
// adds the shares' sums in that order.
//
// The input goes through workgroup memory, TEAM eights of ROWS = R · SETS rows at a time, with its norm applied once for
// all outputs of the workgroup. A team has R of the rows; SETS teams have the same weights.
// PAIRED: as in gemv; a team has N / 2 outputs, weight rows o and o + pairs of each. With AHEAD the next step's weights
// are on their way while this step's are multiplied; without, they are asked for before the step's barrier.
// Grid: x covers the outputs in steps of WG / TEAM / SETS · OUTS, y covers the rows in steps of R · SETS.
//
// Consts: WG, TEAM (a power of two, at least N), SPLIT, SUBGROUP (which every subgroup has, a multiple of TEAM), N (8, with the
// flag EIGHT; or 4), R (a multiple of TEAM / N), SETS, OUTS (N; PAIRED N / 2), PASSES (rows that a team brings in a step),
// SLABS (1 or 2: with two, one barrier a step); BLOCKS with SCALED. Flags: see linear/input and linear/output; IN_RMS with
// NORMED; XVEC always.

#import linear/product
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;           // [rows, x_stride]
#ifdef NORMED
@group(0) @binding(auto) var<storage, read> norm: array<vec4<f32>>;        // [in_dim]
#endif
#ifdef SCALED
@group(0) @binding(auto) var<storage, read> sums: array<f32>;              // [rows, heads, BLOCKS]
#endif
#import linear/ends

const TEAMS: u32 = WG / TEAM;
const ROWS: u32 = R * SETS;
const SLAB: u32 = ROWS * 2u * TEAM;
// Lanes that end up with the same sum, of different rows.
const SPARE: u32 = TEAM / N;

var<workgroup> slab: array<vec4<f32>, SLABS * SLAB>; // [SLABS, row, half of an eight, lane]
#ifdef IN_RMS
var<workgroup> scales: array<f32, ROWS>;             // 1 / rms of the rows
#endif

// A lane keeps one of two sums, adds its partner's, and gives the other away.
fn trade(low: f32, high: f32, lane: u32, far: u32) -> f32 {
    let upper = (lane & far) != 0u;
    return select(low, high, upper) + subgroupShuffleXor(select(high, low, upper), far);
}

// The sum of a share and those before it, in gemv's order.
fn joined(before: f32, share: f32) -> f32 {
    return select(share, before + share, SPLIT > 1u);
}

fn team_sum(mine: f32) -> f32 {
    var sum = mine;
    for (var far = TEAM / 2u; far > 0u; far /= 2u) {
        sum += subgroupShuffleXor(sum, far);
    }
    return sum;
}

fn dot4(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

// The g-th eight of a row, before its norm, zeros beyond the row.
fn bring(row: u32, g: u32) -> Eight {
    if g < params.input.groups {
        let at = row * params.input.x_stride + params.input.x_at + 8u * g;
#ifdef SCALED
        let scale = scaled(row, g);
        return Eight(x4(at) * scale, x4(at + 4u) * scale);
#else
        return Eight(x4(at), x4(at + 4u));
#endif
    }
    return Eight(vec4<f32>(0.0), vec4<f32>(0.0));
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) sublane: u32,
) {
    let local = subgroup * SUBGROUP + sublane;
    let lane = local % TEAM;
    let team = local / TEAM;
    let share = team % SETS;
    let first = (wid.x * (TEAMS / SETS) + team / SETS) * OUTS;
    let row0 = wid.y * ROWS;
    let groups = params.input.groups;
#ifdef PAIRED
    let outs = params.output.out_dim / 2u;
#else
    let outs = params.output.out_dim;
#endif

#for n N
#ifdef PAIRED
    let weight$n = min(first + $nu % OUTS, outs - 1u) + $nu / OUTS * outs;
#else
    let weight$n = min(first + $nu, outs - 1u);
#endif
#ifdef AHEAD
    var next$n = stored8(weight$n, groups, min(lane, groups - 1u));
#endif
#endfor
#for r R
    var mine$r = 0.0;
#endfor
#for p PASSES
    var come$p = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
    if $pu * TEAMS + team < ROWS {
        come$p = bring(row0 + $pu * TEAMS + team, lane);
    }
#ifdef IN_RMS
    var squares$p = 0.0;
#endif
#endfor
#ifdef IN_RMS
    var norm_lo = norm4(8u * min(lane, groups - 1u));
    var norm_hi = norm4(8u * min(lane, groups - 1u) + 4u);
#endif

    var at = 0u;
    for (var s = 0u; s < SPLIT; s++) {
#for n N
#for r R
        var sum$r_$n = 0.0;
#endfor
#endfor
#ifdef IN_RMS
#for p PASSES
        var square$p = 0.0;
#endfor
#endif
        for (var g0 = s * TEAM; g0 < groups; g0 += SPLIT * TEAM) {
#ifndef AHEAD
#for n N
            let now$n = stored8(weight$n, groups, min(g0 + lane, groups - 1u));
#endfor
#endif
#for p PASSES
            if $pu * TEAMS + team < ROWS {
                let to = at + ($pu * TEAMS + team) * 2u * TEAM + lane;
#ifdef IN_RMS
                // The norm's weights are not part of the mean square.
                square$p = dot4(come$p.hi, come$p.hi, dot4(come$p.lo, come$p.lo, square$p));
                slab[to] = come$p.lo * norm_lo;
                slab[to + TEAM] = come$p.hi * norm_hi;
#else
                slab[to] = come$p.lo;
                slab[to + TEAM] = come$p.hi;
#endif
            }
#endfor
            workgroupBarrier();
            // On their way while this step's are multiplied. (A lane beyond the last eight meets zeros.)
            let g1 = select((s + 1u) * TEAM, g0 + SPLIT * TEAM, g0 + SPLIT * TEAM < groups) + lane;
#ifdef AHEAD
#for n N
            let now$n = next$n;
            next$n = stored8(weight$n, groups, min(g1, groups - 1u));
#endfor
#endif
#ifdef IN_RMS
            norm_lo = norm4(8u * min(g1, groups - 1u));
            norm_hi = norm4(8u * min(g1, groups - 1u) + 4u);
#endif
#for p PASSES
            if $pu * TEAMS + team < ROWS {
                come$p = bring(row0 + $pu * TEAMS + team, g1);
            }
#endfor
            let start = at + share * R * 2u * TEAM + lane;
            {
#for n N
                let w$n = lower4(now$n);
#endfor
#for r R
                let v$r = slab[start + $ru * 2u * TEAM];
#for n N
                sum$r_$n = dot4(w$n, v$r, sum$r_$n);
#endfor
#endfor
            }
            {
#for n N
                let w$n = upper4(now$n);
#endfor
#for r R
                let v$r = slab[start + ($ru * 2u + 1u) * TEAM];
#for n N
                sum$r_$n = dot4(w$n, v$r, sum$r_$n);
#endfor
#endfor
            }
            if SLABS == 2u {
                at = SLAB - at;
            } else {
                workgroupBarrier();
            }
        }

#ifdef IN_RMS
#for p PASSES
        squares$p = joined(squares$p, team_sum(square$p));
#endfor
#endif
#for r R
        {
#ifdef EIGHT
            let a0 = trade(sum$r_0, sum$r_4, lane, TEAM / 2u);
            let a1 = trade(sum$r_1, sum$r_5, lane, TEAM / 2u);
            let a2 = trade(sum$r_2, sum$r_6, lane, TEAM / 2u);
            let a3 = trade(sum$r_3, sum$r_7, lane, TEAM / 2u);
#else
            let a0 = sum$r_0;
            let a1 = sum$r_1;
            let a2 = sum$r_2;
            let a3 = sum$r_3;
#endif
            let b0 = trade(a0, a2, lane, 2u * SPARE);
            let b1 = trade(a1, a3, lane, 2u * SPARE);
            var sum = trade(b0, b1, lane, SPARE);
            for (var far = SPARE / 2u; far > 0u; far /= 2u) {
                sum += subgroupShuffleXor(sum, far);
            }
            mine$r = joined(mine$r, sum);
        }
#endfor
    }

#ifdef IN_RMS
#for p PASSES
    if lane == 0u && $pu * TEAMS + team < ROWS {
        scales[$pu * TEAMS + team] = inverseSqrt(squares$p / f32(params.input.in_dim) + params.input.eps);
    }
#endfor
    workgroupBarrier();
#endif
    var mine = 0.0;
#for r R
    {
        var scale = 1.0;
#ifdef IN_RMS
        scale = scales[share * R + $ru];
#endif
        var sum = mine$r * scale;
#ifdef PAIRED
        let other = subgroupShuffleXor(sum, TEAM / 2u);
        sum = silu(sum) * other;
#endif
        if lane % SPARE == $ru % SPARE {
            mine = sum;
        }
        if $ru % SPARE == SPARE - 1u {
            let r = share * R + $ru / SPARE * SPARE + lane % SPARE;
            let o = first + lane / SPARE;
            if lane / SPARE < OUTS && o < outs {
                store(row0 + r, o, mine);
            }
        }
    }
#endfor
}
