// out[r] (+)= W · input(r) for a few rows r: one pass over the weights serves R rows.
//
// A team of TEAM lanes multiplies weight rows with R rows of the input: lane l takes the eights l, l + TEAM, … of the
// weight rows, U of them in flight; the lanes' sums are then added, by a butterfly of shuffles with SUBGROUPS (and over
// the team's subgroups in their order, where it has SPLIT of them), in the order of the lanes otherwise. So the order of
// additions over in_dim depends on TEAM alone, and a row's result is the same bits for every R and every company it has.
// PAIRED: weight row o + pairs belongs to o, and the output is silu(row o) · (row o + pairs): SwiGLU.
// Grid: x covers the outputs in steps of WG / TEAM · OUTS, y covers the rows in steps of R.
//
// Consts: WG, TEAM (a power of two), OUTS (outputs a team), R, U; BLOCK (rows reduced at a time, dividing R) or, with
// SUBGROUPS, SUBGROUP (a size that every subgroup has, a multiple of TEAM) and, where TEAM is WG and SPLIT times SUBGROUP,
// SPLIT; HEADS with HEAD_NORM; BLOCKS with SCALED. Flags: see linear/input and linear/output; AHEAD: a lane stores one
// output at most; NORMED: the input has a norm; LAST: the one row is the last of the piece; MASKED: the last step of
// U · TEAM eights is not full.

#import linear/product
#ifdef XVEC
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;           // [rows, x_stride]
#ifdef NORMED
@group(0) @binding(auto) var<storage, read> norm: array<vec4<f32>>;        // [in_dim] or [head_dim]
#endif
#ifdef GATED
@group(0) @binding(auto) var<storage, read> gate: array<vec4<f32>>;        // [rows, gate_stride]
#endif
#ifdef SCALED
@group(0) @binding(auto) var<storage, read> sums: array<f32>;              // [rows, heads, BLOCKS]
#endif
#else
@group(0) @binding(auto) var<storage, read> x: array<f32>;                 // [rows, x_stride]
#ifdef NORMED
@group(0) @binding(auto) var<storage, read> norm: array<f32>;              // [in_dim] or [head_dim]
#endif
#ifdef GATED
@group(0) @binding(auto) var<storage, read> gate: array<f32>;              // [rows, gate_stride]
#endif
#endif
#import linear/ends

const TEAMS: u32 = WG / TEAM;
// Sums a lane brings to the reduction: one or two an output, and the sum of squares.
#ifdef PAIRED
const PAIR: u32 = OUTS;
#else
const PAIR: u32 = 0u;
#endif
#ifdef IN_RMS
const SUMS: u32 = OUTS + PAIR + 1u;
#else
const SUMS: u32 = OUTS + PAIR;
#endif

#ifdef SUBGROUPS
// Of a subgroup, where the team has several.
fn team_sum(mine: f32) -> f32 {
    var sum = mine;
    for (var far = min(TEAM, SUBGROUP) / 2u; far > 0u; far /= 2u) {
        sum += subgroupShuffleXor(sum, far);
    }
    return sum;
}
#ifdef SPLIT
var<workgroup> shares: array<f32, R * SUMS * SPLIT>;

// The sum of what the subgroups brought.
fn whole(sum: u32) -> f32 {
    var total = 0.0;
    for (var i = 0u; i < SPLIT; i++) {
        total += shares[sum * SPLIT + i];
    }
    return total;
}
#endif
#else
var<workgroup> partial: array<f32, BLOCK * SUMS * WG>;

// The sum of what the lanes of team `t` brought: the `sum`-th of the block's row `b`.
fn team_sum(b: u32, sum: u32, t: u32) -> f32 {
    let start = (b * SUMS + sum) * WG + t * TEAM;
    var total = 0.0;
    for (var l = 0u; l < TEAM; l++) {
        total += partial[start + l];
    }
    return total;
}
#endif

#ifdef IN_HEAD
#ifdef HEAD_NORM
var<workgroup> scales: array<f32, R * HEADS>;
var<private> first_row: u32;

fn head_scale(row: u32, h: u32) -> f32 {
    return scales[(row - first_row) * HEADS + h];
}

// 1 / rms of every head of the R rows. The sums of squares are added in a fixed order.
fn make_scales(row0: u32, lane: u32) {
    first_row = row0;
    let p = params.input;
    for (var i = lane; i < R * HEADS; i += WG) {
        let base = (row0 + i / HEADS) * p.x_stride + p.x_at + (i % HEADS) * p.head_dim;
        var sum = vec4<f32>(0.0);
        for (var c = 0u; c + 4u <= p.head_dim; c += 4u) {
            let v = x4(base + c);
            sum = fma(v, v, sum);
        }
        var total = (sum.x + sum.y) + (sum.z + sum.w);
#ifndef XVEC
        for (var c = p.head_dim & 0xfffffffcu; c < p.head_dim; c++) {
            total = fma(x[base + c], x[base + c], total);
        }
#endif
        scales[i] = inverseSqrt(total / f32(p.head_dim) + p.eps);
    }
    workgroupBarrier();
}
#endif
#endif

fn dot8(a: Eight, b: Eight, sum: f32) -> f32 {
    var s = fma(a.lo.x, b.lo.x, sum);
    s = fma(a.lo.y, b.lo.y, s);
    s = fma(a.lo.z, b.lo.z, s);
    s = fma(a.lo.w, b.lo.w, s);
    s = fma(a.hi.x, b.hi.x, s);
    s = fma(a.hi.y, b.hi.y, s);
    s = fma(a.hi.z, b.hi.z, s);
    return fma(a.hi.w, b.hi.w, s);
}

#ifndef SUBGROUPS
// Reduces and stores BLOCK rows from `block` on.
fn reduce(block: u32, row0: u32, group: u32, local: u32, outs: u32) {
    workgroupBarrier();
    for (var i = local; i < BLOCK * OUTS * TEAMS; i += WG) {
        let t = i % TEAMS;
        let n = (i / TEAMS) % OUTS;
        let b = i / (TEAMS * OUTS);
        let o = (group * TEAMS + t) * OUTS + n;
        if o < outs {
            var scale = 1.0;
#ifdef IN_RMS
            scale = inverseSqrt(team_sum(b, SUMS - 1u, t) / f32(params.input.in_dim) + params.input.eps);
#endif
            var sum = team_sum(b, n, t) * scale;
#ifdef PAIRED
            sum = silu(sum) * (team_sum(b, PAIR + n, t) * scale);
#endif
#ifdef LAST
            store(0u, o, sum);
#else
            store(row0 + block + b, o, sum);
#endif
        }
    }
    workgroupBarrier();
}
#endif

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) wid: vec3<u32>,
#ifdef SUBGROUPS
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) sublane: u32,
#else
    @builtin(local_invocation_index) local: u32,
#endif
) {
#ifdef SUBGROUPS
    let local = subgroup * SUBGROUP + sublane;
#endif
    let lane = local % TEAM;
    let team = local / TEAM;
    let first = (wid.x * TEAMS + team) * OUTS;
    var row0 = wid.y * R;
#ifdef LAST
    row0 = table[0].z - 1u;
#endif
#ifdef IN_HEAD
#ifdef HEAD_NORM
    make_scales(row0, local);
#endif
#endif
    let groups = params.input.groups;
#ifdef PAIRED
    let outs = params.output.out_dim / 2u;
#else
    let outs = params.output.out_dim;
#endif

#for r R
#ifdef IN_RMS
    var square$r = 0.0;
#endif
#for n OUTS
    var sum$r_$n = 0.0;
#ifdef PAIRED
    var pair$r_$n = 0.0;
#endif
#endfor
#endfor
#ifdef AHEAD
    // The one output that this lane will store, and what it needs besides its sum. A convolution's inputs wait until
    // the sums are on their way: they lie behind the row table, and their loads would hold up the weights'.
    let my_row = row0 + lane / OUTS;
    let my_out = first + lane % OUTS;
    let mine_too = lane < R * OUTS && my_out < outs;
    if mine_too {
        ask(my_row, my_out);
    }
#endif
    for (var g0 = lane; g0 < groups; g0 += TEAM * U) {
#for u U
        let g$u = min(g0 + $uu * TEAM, groups - 1u);
#for n OUTS
        let w$u_$n = weight8(min(first + $nu, outs - 1u), groups, g$u);
#ifdef PAIRED
        let v$u_$n = weight8(min(first + $nu, outs - 1u) + outs, groups, g$u);
#endif
#endfor
#endfor
#for r R
#for u U
        {
#ifdef IN_RMS
            var raw = raw8(row0 + $ru, g$u * 8u);
#ifdef MASKED
            if g0 + $uu * TEAM >= groups {
                raw = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
            }
#endif
            // The norm's weights are not part of the mean square.
            square$r = dot8(raw, raw, square$r);
            let input = Eight(raw.lo * norm4(g$u * 8u), raw.hi * norm4(g$u * 8u + 4u));
#else
            var input = Eight(input4(row0 + $ru, g$u * 8u), input4(row0 + $ru, g$u * 8u + 4u));
#ifdef SCALED
            let scale = scaled(row0 + $ru, g$u);
            input = Eight(input.lo * scale, input.hi * scale);
#endif
#ifdef MASKED
            if g0 + $uu * TEAM >= groups {
                input = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
            }
#endif
#endif
#for n OUTS
            sum$r_$n = dot8(w$u_$n, input, sum$r_$n);
#ifdef PAIRED
            pair$r_$n = dot8(v$u_$n, input, pair$r_$n);
#endif
#endfor
        }
#endfor
#endfor
    }
#ifdef AHEAD
    if mine_too {
        ask_state(my_out);
    }
#endif

#ifdef SUBGROUPS
#ifdef SPLIT
#for r R
    {
#ifdef IN_RMS
        let square = team_sum(square$r);
        if sublane == 0u {
            shares[($ru * SUMS + SUMS - 1u) * SPLIT + subgroup] = square;
        }
#endif
#for n OUTS
        let sum$n = team_sum(sum$r_$n);
        if sublane == 0u {
            shares[($ru * SUMS + $nu) * SPLIT + subgroup] = sum$n;
        }
#ifdef PAIRED
        let pair$n = team_sum(pair$r_$n);
        if sublane == 0u {
            shares[($ru * SUMS + PAIR + $nu) * SPLIT + subgroup] = pair$n;
        }
#endif
#endfor
    }
#endfor
    workgroupBarrier();
    let r = lane / OUTS;
    let n = lane % OUTS;
    if r < R && first + n < outs {
        var scale = 1.0;
#ifdef IN_RMS
        scale = inverseSqrt(whole(r * SUMS + SUMS - 1u) / f32(params.input.in_dim) + params.input.eps);
#endif
        var sum = whole(r * SUMS + n) * scale;
#ifdef PAIRED
        sum = silu(sum) * (whole(r * SUMS + PAIR + n) * scale);
#endif
#ifdef AHEAD
        finish(row0 + r, first + n, sum);
#else
#ifdef LAST
        store(0u, first + n, sum);
#else
        store(row0 + r, first + n, sum);
#endif
#endif
    }
#else
    // Rows whose outputs the lanes of a team hold at a time, one each.
    const HELD: u32 = max(1u, min(R, TEAM / OUTS));
    var mine = 0.0;
#for r R
    {
        var scale = 1.0;
#ifdef IN_RMS
        scale = inverseSqrt(team_sum(square$r) / f32(params.input.in_dim) + params.input.eps);
#endif
#for n OUTS
        {
            var sum = team_sum(sum$r_$n) * scale;
#ifdef PAIRED
            sum = silu(sum) * (team_sum(pair$r_$n) * scale);
#endif
            if lane == ($ru % HELD) * OUTS + $nu {
                mine = sum;
            }
        }
#endfor
        if $ru % HELD == HELD - 1u || $ru == R - 1u {
            let r = $ru / HELD * HELD + lane / OUTS;
            let o = first + lane % OUTS;
            if r <= $ru && o < outs {
#ifdef AHEAD
                finish(row0 + r, o, mine);
#else
#ifdef LAST
                store(0u, o, mine);
#else
                store(row0 + r, o, mine);
#endif
#endif
            }
        }
    }
#endfor
#endif
#else
#for r R
#for n OUTS
    partial[($ru % BLOCK * SUMS + $nu) * WG + local] = sum$r_$n;
#ifdef PAIRED
    partial[($ru % BLOCK * SUMS + PAIR + $nu) * WG + local] = pair$r_$n;
#endif
#endfor
#ifdef IN_RMS
    partial[($ru % BLOCK * SUMS + SUMS - 1u) * WG + local] = square$r;
#endif
    if $ru % BLOCK == BLOCK - 1u {
        reduce($ru + 1u - BLOCK, row0, wid.x, local, outs);
    }
#endfor
#endif
}
