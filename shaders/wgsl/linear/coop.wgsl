// out (+)= x · Wᵀ for many rows with cooperative matrices: operands in f16, sums in f32. Without SPLIT x is rounded to
// f16; with it, x is the sum of two f16, 22 bits of it, and the hardware, which cuts off the last bits of long sums,
// gets short ones: f32's accuracy for somewhat more than twice the multiplications. Workgroup tiles of BM rows by BN
// outputs, BK of in_dim at a time; each subgroup of 32 holds SM × SN sums. The next step's operands are on their way to
// registers while this one's are multiplied. Grid: x covers out_dim in BN, y covers the rows in BM.
//
// in_dim is a multiple of 8, and everything is aligned to 4 elements. Values beyond f16's range become its largest, and
// those below its normal range, 6e-5, keep fewer bits.
//
// What stays in registers has a name of its own: drivers keep arrays of cooperative matrices in memory.
//
// Consts: BM, BN, BK (multiples of 16); SM, SN (multiples of 16) and the same in sixteens, ROWS16, OUTS16; FOURS, EIGHTS
// (what a thread brings in a step); ROWS (of the plan). Flags: W_F16, W_BF16, XVEC; ADD, BIAS; SPLIT; DIRECT: whole
// tiles go straight to `out` (no bias).

#import linear/product
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;            // [rows, x_stride]
#import linear/ends

const TEAMS_N: u32 = BN / SN;
const TEAMS: u32 = (BM / SM) * TEAMS_N;
const WG: u32 = TEAMS * 32u;
// vec4s from row to row of an operand: eight elements of padding keep rows off each other's banks.
const LD: u32 = (BK + 8u) / 4u;
// In a step each thread brings so many fours of x and eights of W.
const_assert BM * BK == 4u * FOURS * WG && BN * BK == 8u * EIGHTS * WG;

var<workgroup> xs: array<vec4<f16>, BM * LD>;       // [BM, BK + 8]
#ifdef SPLIT
var<workgroup> xl: array<vec4<f16>, BM * LD>;       // what rounding left of it
#endif
var<workgroup> ws: array<vec4<f16>, BN * LD>;       // [BN, BK + 8]
var<workgroup> edge: array<f32, TEAMS * 256u>;      // a tile of sums a subgroup

fn half4(v: vec4<f32>) -> vec4<f16> {
    return vec4<f16>(clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
}

// Four elements of x from column 8g on: the e-th of a step's tile. Zeros beyond the rows and in_dim.
fn fetch_x(m0: u32, g: u32, e: u32) -> vec4<f32> {
    let m = m0 + e / (BK / 4u);
    let k = 8u * g + 4u * (e % (BK / 4u));
    if m < ROWS && k < 8u * params.input.groups {
        return input4(m, k);
    }
    return vec4<f32>(0.0);
}

// Eight elements of W as they are stored, likewise.
fn fetch_w(n0: u32, g0: u32, e: u32) -> vec4<u32> {
    let n = n0 + e / (BK / 8u);
    let g = g0 + e % (BK / 8u);
    if n < params.output.out_dim && g < params.input.groups {
        return words4(n, params.input.groups, g);
    }
    return vec4<u32>(0u);
}

fn put_x(e: u32, v: vec4<f32>) {
    let at = (e / (BK / 4u)) * LD + e % (BK / 4u);
#ifdef SPLIT
    // The upper bits, which f16 has room for, and the rest. (Some compilers take f32(f16(v)) for v.)
    let most = clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0));
    let upper = bitcast<vec4<f32>>(bitcast<vec4<u32>>(most) & vec4<u32>(0xffffe000u));
    xs[at] = vec4<f16>(upper);
    xl[at] = vec4<f16>(most - upper);
#else
    xs[at] = half4(v);
#endif
}

fn put_w(e: u32, v: vec4<u32>) {
    let at = (e / (BK / 8u)) * LD + 2u * (e % (BK / 8u));
    let w = eight(v);
    ws[at] = half4(w.lo);
    ws[at + 1u] = half4(w.hi);
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

#for i FOURS
    var x$i = fetch_x(m0, 0u, lid + $iu * WG);
#endfor
#for i EIGHTS
    var w$i = fetch_w(n0, 0u, lid + $iu * WG);
#endfor
#ifdef SPLIT
    let zero = coop_mat16x16<f32, C>();
#endif
    for (var k0 = 0u; k0 < groups; k0 += BK / 8u) {
#for i FOURS
        put_x(lid + $iu * WG, x$i);
#endfor
#for i EIGHTS
        put_w(lid + $iu * WG, w$i);
#endfor
        workgroupBarrier();
#for i FOURS
        x$i = fetch_x(m0, k0 + BK / 8u, lid + $iu * WG);
#endfor
#for i EIGHTS
        w$i = fetch_w(n0, k0 + BK / 8u, lid + $iu * WG);
#endfor
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
#endfor
#for i ROWS16
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
