// out (+)= x · Wᵀ for many rows with cooperative matrices: operands in f16, sums in f32. Without SPLIT x is rounded to
// f16, by whoever wrote it with XHALF and here without; with SPLIT, x is the sum of two f16, 22 bits of it, and the
// hardware, which cuts off the last bits of long sums, gets short ones: f32's accuracy for somewhat more than twice the
// multiplications. Workgroup tiles of BM rows by BN outputs, BK of in_dim at a time; each subgroup of 32 holds SM × SN
// sums. With AHEAD the next step's operands are on their way to registers while this one's are multiplied.
// Grid: x covers out_dim in BN, y covers the rows in BM.
//
// in_dim is a multiple of 8, and everything is aligned to 4 elements. Values beyond f16's range become its largest, and
// those below its normal range, 6e-5, keep fewer bits.
//
// What stays in registers has a name of its own: drivers keep arrays of cooperative matrices in memory.
//
// Consts: BM, BN, BK (multiples of 16); SM, SN (multiples of 16) and the same in sixteens, ROWS16, OUTS16; PIECES of x
// (fours, with XHALF eights) and EIGHTS of W that a thread brings in a step; ROWS (of the plan). Flags: W_F16, W_BF16;
// XVEC, XHALF; ADD, BIAS; SPLIT; AHEAD; RAGGED: in_dim is no multiple of BK; DIRECT: whole tiles go straight to
// `out` (no bias).

#import linear/product
#ifdef XHALF
@group(0) @binding(auto) var<storage, read> x: array<vec4<u32>>;            // [rows, x_stride] f16
#else
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;            // [rows, x_stride]
#endif
#import linear/ends
#import linear/staged

const TEAMS_N: u32 = BN / SN;
const TEAMS: u32 = (BM / SM) * TEAMS_N;
const WG: u32 = TEAMS * 32u;
// vec4s from row to row of an operand: eight elements of padding keep rows off each other's banks.
const LD: u32 = (BK + 8u) / 4u;
// Eights of in_dim a step, and pieces of x an eight.
const STEP: u32 = BK / 8u;
#ifdef XHALF
const AN_EIGHT: u32 = 1u;
alias Piece = vec4<u32>;
#else
const AN_EIGHT: u32 = 2u;
alias Piece = vec4<f32>;
#endif
// In a step each thread brings so many pieces of x and eights of W.
const_assert BM * STEP * AN_EIGHT == PIECES * WG && BN * STEP == EIGHTS * WG;

var<workgroup> xs: array<vec4<f16>, BM * LD>;       // [BM, BK + 8]
#ifdef SPLIT
var<workgroup> xl: array<vec4<f16>, BM * LD>;       // what rounding left of it
#endif
var<workgroup> ws: array<vec4<f16>, BN * LD>;       // [BN, BK + 8]
var<workgroup> edge: array<f32, TEAMS * 256u>;      // a tile of sums a subgroup

// The piece of x at `at`, its row's column-th; zeros beyond in_dim.
fn fetch_x(at: u32, column: u32) -> Piece {
#ifdef RAGGED
    if column >= AN_EIGHT * params.input.groups {
        return Piece();
    }
#endif
    return x[at + column];
}

// An eight of W as it is stored, likewise.
fn fetch_w(row: u32, column: u32) -> vec4<u32> {
#ifdef RAGGED
    if column >= params.input.groups {
        return vec4<u32>();
    }
#endif
    return words4(row, params.input.groups, column);
}

fn put_x(at: u32, v: Piece) {
#ifdef XHALF
    xs[at] = vec4<f16>(unpack_f16(v.x, v.y));
    xs[at + 1u] = vec4<f16>(unpack_f16(v.z, v.w));
#else
#ifdef SPLIT
    // The upper bits, which f16 has room for, and the rest. (Some compilers take f32(f16(v)) for v.)
    let most = clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0));
    let upper = bitcast<vec4<f32>>(bitcast<vec4<u32>>(most) & vec4<u32>(0xffffe000u));
    xs[at] = vec4<f16>(upper);
    xl[at] = vec4<f16>(most - upper);
#else
    xs[at] = half4(v);
#endif
#endif
}

// Stores the tile that the subgroup has put into `edge`, as far as there are rows and outputs.
fn store_tile(m0: u32, n0: u32, lid: u32) {
    workgroupBarrier();
    for (var e = lid % 32u; e < 256u; e += 32u) {
        let m = m0 + e / 16u;
        let n = n0 + e % 16u;
        if m < ROWS && n < params.output.out_dim {
            store(m, n, edge[lid / 32u * 256u + e]);
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let m0 = wid.y * BM;
    let n0 = wid.x * BN;
    let team = lid / 32u;
    let tm = (team / TEAMS_N) * SM;
    let tn = (team % TEAMS_N) * SN;
    let groups = params.input.groups;
    // Whole tiles go straight from the sums to memory. (With &&, naga would not see that all threads agree.)
    let whole = (m0 + BM <= ROWS) & (n0 + BN <= params.output.out_dim);
    let stride = params.output.out_stride;
    let corner = (m0 + tm) * stride + params.output.out_at + n0 + tn;

#for i ROWS16
#for j OUTS16
    var s$i$j: coop_mat16x16<f32, C>;
    let corner$i$j = corner + 16u * ($iu * stride + $ju);
#endfor
#endfor
#ifdef DIRECT
#ifdef ADD
    if whole {
#for i ROWS16
#for j OUTS16
        s$i$j = coopLoadT<coop_mat16x16<f32, C>>(&out[corner$i$j], stride);
#endfor
#endfor
    }
#endif
#endif

    // Where a thread's pieces come from and go to. Rows beyond the last are the last once more: their sums go nowhere.
#for i PIECES
    let x_row$i = (lid + $iu * WG) / (AN_EIGHT * STEP);
    let x_column$i = (lid + $iu * WG) % (AN_EIGHT * STEP);
    let x_from$i = (min(m0 + x_row$i, ROWS - 1u) * params.input.x_stride + params.input.x_at) / (8u / AN_EIGHT);
    let x_to$i = x_row$i * LD + 2u / AN_EIGHT * x_column$i;
#endfor
#for i EIGHTS
    let w_row$i = (lid + $iu * WG) / STEP;
    let w_column$i = (lid + $iu * WG) % STEP;
    let w_from$i = min(n0 + w_row$i, params.output.out_dim - 1u);
    let w_to$i = w_row$i * LD + 2u * w_column$i;
#endfor
#ifdef AHEAD
#for i PIECES
    var x$i = fetch_x(x_from$i, x_column$i);
#endfor
#for i EIGHTS
    var w$i = fetch_w(w_from$i, w_column$i);
#endfor
#endif
#ifdef SPLIT
    let zero = coop_mat16x16<f32, C>();
#endif
    for (var k0 = 0u; k0 < groups; k0 += STEP) {
#ifndef AHEAD
#for i PIECES
        let x$i = fetch_x(x_from$i, AN_EIGHT * k0 + x_column$i);
#endfor
#for i EIGHTS
        let w$i = fetch_w(w_from$i, k0 + w_column$i);
#endfor
#endif
#for i PIECES
        put_x(x_to$i, x$i);
#endfor
#for i EIGHTS
        put_w(w_to$i, w$i);
#endfor
        workgroupBarrier();
#ifdef AHEAD
#ifdef RAGGED
        let k1 = k0 + STEP;
#else
        let k1 = min(k0 + STEP, groups - STEP);
#endif
#for i PIECES
        x$i = fetch_x(x_from$i, AN_EIGHT * k1 + x_column$i);
#endfor
#for i EIGHTS
        w$i = fetch_w(w_from$i, k1 + w_column$i);
#endfor
#endif
        for (var k = 0u; k < BK / 16u; k++) {
#for j OUTS16
            let from_w$j = (tn + 16u * $ju) * LD + k * 4u;
            let b$j = coopLoad<coop_mat16x16<f16, B>>(&ws[from_w$j], LD);
#endfor
#for i ROWS16
            let from_x$i = (tm + 16u * $iu) * LD + k * 4u;
            let a$i = coopLoadT<coop_mat16x16<f16, A>>(&xs[from_x$i], LD);
#ifdef SPLIT
            let l$i = coopLoadT<coop_mat16x16<f16, A>>(&xl[from_x$i], LD);
#endif
#for j OUTS16
#ifdef SPLIT
            // Sums of sixteen products are rounded as they should be, longer ones are not.
            s$i$j = s$i$j + coopMultiplyAdd(a$i, b$j, coopMultiplyAdd(l$i, b$j, zero));
#else
            s$i$j = coopMultiplyAdd(a$i, b$j, s$i$j);
#endif
#endfor
#endfor
        }
        workgroupBarrier();
    }

#ifdef DIRECT
    if whole {
#for i ROWS16
#for j OUTS16
        coopStoreT(s$i$j, &out[corner$i$j], stride);
#endfor
#endfor
    }
    let through_edge = !whole;
#else
    let through_edge = true;
#endif
    if through_edge {
        let at = team * 256u;
#for i ROWS16
#for j OUTS16
        coopStoreT(s$i$j, &edge[at], 16u);
        store_tile(m0 + tm + 16u * $iu, n0 + tn + 16u * $ju, lid);
#endfor
#endfor
    }
}
