// out[r] (+)= W · input(r) for a few rows r: one pass over the weights serves R rows.
//
// A team of TEAM lanes computes N outputs of R rows: lane l takes the eights l, l + TEAM, … of the weight rows; the
// lanes' sums are then added in the order of the lanes. So the order of additions over in_dim depends on TEAM alone,
// and a row's result is the same bits for every R and every company it has.
// Grid: x covers out_dim in steps of WG / TEAM · N, y covers the rows in steps of R.
//
// Consts: WG, TEAM (a power of two), N, R, BLOCK (rows reduced at a time, dividing R); HEADS with HEAD_NORM. Flags: see linear/input and linear/output; NORMED:
// the input has a norm; LAST: the one row is the last of the piece.

#import common/weights
#import common/rows
#import linear/input
#import linear/output

struct Params {
    input: InputParams,
    output: OutputParams,
    conv: ConvOutParams,
    first_row: u32, // of the output; `x` begins at this row
}

@group(0) @binding(auto) var<uniform> params: Params;
#ifdef XVEC
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;           // [rows, x_stride]
#ifdef NORMED
@group(0) @binding(auto) var<storage, read> norm: array<vec4<f32>>;        // [in_dim] or [head_dim]
#endif
#ifdef GATED
@group(0) @binding(auto) var<storage, read> gate: array<vec4<f32>>;        // [rows, gate_stride]
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
#ifdef BIAS
@group(0) @binding(auto) var<storage, read> bias: array<f32>;              // [out_dim of all parts]
#endif
#ifdef CONV_OUT
@group(0) @binding(auto) var<storage, read> pack: array<f32>;              // convolution weights [channels, TAPS] first
@group(0) @binding(auto) var<storage, read_write> state: array<f32>;       // [slots, state_words]
#endif
#ifdef TABLE
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;       // [rows] the row table
#endif
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;         // [rows, out_stride], or heads

const TEAMS: u32 = WG / TEAM;
// Sums a lane brings to the reduction: N a row, and the sum of squares.
#ifdef IN_RMS
const SUMS: u32 = N + 1u;
#else
const SUMS: u32 = N;
#endif

var<workgroup> partial: array<f32, BLOCK * SUMS * WG>;

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

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let lane = lid.x % TEAM;
    let team = lid.x / TEAM;
    let first = (wid.x * TEAMS + team) * N;
    var row0 = wid.y * R;
#ifdef LAST
    row0 = table[0].z - 1u;
#endif
#ifdef IN_HEAD
#ifdef HEAD_NORM
    make_scales(row0, lid.x);
#endif
#endif

    var sums: array<f32, R * N>;
#ifdef IN_RMS
    var squares: array<f32, R>;
#endif
    let groups = params.input.groups;
    let last = params.output.out_dim - 1u;
    for (var g = lane; g < groups; g += TEAM) {
        var w: array<Eight, N>;
        for (var n = 0u; n < N; n++) {
            w[n] = weight8(min(first + n, last), groups, g);
        }
        for (var r = 0u; r < R; r++) {
#ifdef IN_RMS
            // The norm's weights are not part of the mean square.
            let raw = raw8(row0 + r, g * 8u);
            squares[r] = dot8(raw, raw, squares[r]);
            let v = Eight(raw.lo * norm4(g * 8u), raw.hi * norm4(g * 8u + 4u));
#else
            let v = Eight(input4(row0 + r, g * 8u), input4(row0 + r, g * 8u + 4u));
#endif
            for (var n = 0u; n < N; n++) {
                sums[r * N + n] = dot8(w[n], v, sums[r * N + n]);
            }
        }
    }

    for (var block = 0u; block < R; block += BLOCK) {
        for (var b = 0u; b < BLOCK; b++) {
            for (var n = 0u; n < N; n++) {
                partial[(b * SUMS + n) * WG + lid.x] = sums[(block + b) * N + n];
            }
#ifdef IN_RMS
            partial[(b * SUMS + N) * WG + lid.x] = squares[block + b];
#endif
        }
        workgroupBarrier();
        for (var i = lid.x; i < BLOCK * N * TEAMS; i += WG) {
            let t = i % TEAMS;
            let n = (i / TEAMS) % N;
            let b = i / (TEAMS * N);
            let o = (wid.x * TEAMS + t) * N + n;
            if o <= last {
                var sum = 0.0;
                let start = (b * SUMS + n) * WG + t * TEAM;
                for (var l = 0u; l < TEAM; l++) {
                    sum += partial[start + l];
                }
#ifdef IN_RMS
                var square = 0.0;
                let squares_start = (b * SUMS + N) * WG + t * TEAM;
                for (var l = 0u; l < TEAM; l++) {
                    square += partial[squares_start + l];
                }
                sum *= inverseSqrt(square / f32(params.input.in_dim) + params.input.eps);
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
}
