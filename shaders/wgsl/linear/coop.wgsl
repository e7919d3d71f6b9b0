// out (+)= x · Wᵀ for many rows with cooperative matrices: operands in f16, sums in f32. Without SPLIT x is rounded to
// f16; with it, x is the sum of two f16, 22 bits of it, and the hardware, which cuts off the last bits of long sums, gets
// short ones: f32's accuracy for somewhat more than twice the multiplications. Workgroup tiles of BM
// rows by BN outputs, BK of in_dim at a time; each subgroup of 32 holds SM × SN sums. The next step's operands are on
// their way to registers while this one's are multiplied. Grid: x covers out_dim in BN, y covers the rows in BM.
//
// in_dim is a multiple of 8, and everything is aligned to 4 elements. Values beyond f16's range become its
// largest.
//
// What stays in registers has names of its own, sums s(row)(column): drivers keep arrays of cooperative matrices in
// memory.
//
// Consts: BM, BN, BK (multiples of 16), SM (32; 64 with LARGE), SN (32), ROWS (of the plan). Flags: W_F16, W_BF16; see
// linear/output; DIRECT: whole tiles go straight to `out` (no bias, convolution or heads).

#import common/rows
#import linear/output

struct InputParams {
    in_dim: u32,
    groups: u32,
    x_stride: u32,
    x_at: u32,
    gate_stride: u32,
    gate_at: u32,
    head_dim: u32,
    eps: f32,
}

struct Params {
    input: InputParams,
    output: OutputParams,
    conv: ConvOutParams,
    first_row: u32,
}

@group(0) @binding(auto) var<uniform> params: Params;
#import common/weights
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;            // [rows, x_stride]
#ifdef BIAS
@group(0) @binding(auto) var<storage, read> bias: array<f32>;               // [out_dim of all parts]
#endif
#ifdef CONV_OUT
@group(0) @binding(auto) var<storage, read> pack: array<f32>;               // convolution weights [channels, TAPS] first
@group(0) @binding(auto) var<storage, read_write> state: array<f32>;        // [slots, state_words]
#endif
#ifdef TABLE
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;        // [rows] the row table
#endif
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;          // [rows, out_stride]

const TEAMS_N: u32 = BN / SN;
const TEAMS: u32 = (BM / SM) * TEAMS_N;
const WG: u32 = TEAMS * 32u;
// vec4s from row to row of an operand: eight elements of padding keep rows off each other's banks.
const LD: u32 = (BK + 8u) / 4u;
// In a step each thread brings four fours of x and two eights of W, which is what all tiles come to.
const_assert BM * BK == 16u * WG && BN * BK == 16u * WG;

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
        return x[(m * params.input.x_stride + params.input.x_at + k) >> 2u];
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

    var s00: coop_mat16x16<f32, C>;
    var s01: coop_mat16x16<f32, C>;
    var s10: coop_mat16x16<f32, C>;
    var s11: coop_mat16x16<f32, C>;
#ifdef LARGE
    var s20: coop_mat16x16<f32, C>;
    var s21: coop_mat16x16<f32, C>;
    var s30: coop_mat16x16<f32, C>;
    var s31: coop_mat16x16<f32, C>;
#endif
#ifdef DIRECT
#ifdef ADD
    if whole {
        let c00 = corner + 0u * stride + 0u;
        s00 = coopLoadT<coop_mat16x16<f32, C>>(&out[c00], stride);
        let c01 = corner + 0u * stride + 16u;
        s01 = coopLoadT<coop_mat16x16<f32, C>>(&out[c01], stride);
        let c10 = corner + 16u * stride + 0u;
        s10 = coopLoadT<coop_mat16x16<f32, C>>(&out[c10], stride);
        let c11 = corner + 16u * stride + 16u;
        s11 = coopLoadT<coop_mat16x16<f32, C>>(&out[c11], stride);
#ifdef LARGE
        let c20 = corner + 32u * stride + 0u;
        s20 = coopLoadT<coop_mat16x16<f32, C>>(&out[c20], stride);
        let c21 = corner + 32u * stride + 16u;
        s21 = coopLoadT<coop_mat16x16<f32, C>>(&out[c21], stride);
        let c30 = corner + 48u * stride + 0u;
        s30 = coopLoadT<coop_mat16x16<f32, C>>(&out[c30], stride);
        let c31 = corner + 48u * stride + 16u;
        s31 = coopLoadT<coop_mat16x16<f32, C>>(&out[c31], stride);
#endif
    }
#endif
#endif

    var x0 = fetch_x(m0, 0u, lid + 0u * WG);
    var x1 = fetch_x(m0, 0u, lid + 1u * WG);
    var x2 = fetch_x(m0, 0u, lid + 2u * WG);
    var x3 = fetch_x(m0, 0u, lid + 3u * WG);
    var w0 = fetch_w(n0, 0u, lid + 0u * WG);
    var w1 = fetch_w(n0, 0u, lid + 1u * WG);
#ifdef SPLIT
    let zero = coop_mat16x16<f32, C>();
#endif
    for (var k0 = 0u; k0 < groups; k0 += BK / 8u) {
        put_x(lid + 0u * WG, x0);
        put_x(lid + 1u * WG, x1);
        put_x(lid + 2u * WG, x2);
        put_x(lid + 3u * WG, x3);
        put_w(lid + 0u * WG, w0);
        put_w(lid + 1u * WG, w1);
        workgroupBarrier();
        x0 = fetch_x(m0, k0 + BK / 8u, lid + 0u * WG);
        x1 = fetch_x(m0, k0 + BK / 8u, lid + 1u * WG);
        x2 = fetch_x(m0, k0 + BK / 8u, lid + 2u * WG);
        x3 = fetch_x(m0, k0 + BK / 8u, lid + 3u * WG);
        w0 = fetch_w(n0, k0 + BK / 8u, lid + 0u * WG);
        w1 = fetch_w(n0, k0 + BK / 8u, lid + 1u * WG);
        for (var k = 0u; k < BK / 16u; k++) {
            let bi0 = (tn + 0u) * LD + k * 4u;
            let b0 = coopLoad<coop_mat16x16<f16, B>>(&ws[bi0], LD);
            let ai0 = (tm + 0u) * LD + k * 4u;
            let a0 = coopLoadT<coop_mat16x16<f16, A>>(&xs[ai0], LD);
#ifdef SPLIT
            let l0 = coopLoadT<coop_mat16x16<f16, A>>(&xl[ai0], LD);
#endif
            let bi1 = (tn + 16u) * LD + k * 4u;
            let b1 = coopLoad<coop_mat16x16<f16, B>>(&ws[bi1], LD);
            let ai1 = (tm + 16u) * LD + k * 4u;
            let a1 = coopLoadT<coop_mat16x16<f16, A>>(&xs[ai1], LD);
#ifdef SPLIT
            let l1 = coopLoadT<coop_mat16x16<f16, A>>(&xl[ai1], LD);
#endif
#ifdef LARGE
            let ai2 = (tm + 32u) * LD + k * 4u;
            let a2 = coopLoadT<coop_mat16x16<f16, A>>(&xs[ai2], LD);
#ifdef SPLIT
            let l2 = coopLoadT<coop_mat16x16<f16, A>>(&xl[ai2], LD);
#endif
            let ai3 = (tm + 48u) * LD + k * 4u;
            let a3 = coopLoadT<coop_mat16x16<f16, A>>(&xs[ai3], LD);
#ifdef SPLIT
            let l3 = coopLoadT<coop_mat16x16<f16, A>>(&xl[ai3], LD);
#endif
#endif
#ifdef SPLIT
            // Sums of sixteen products are rounded as they should be, longer ones are not.
            s00 = s00 + coopMultiplyAdd(a0, b0, coopMultiplyAdd(l0, b0, zero));
            s01 = s01 + coopMultiplyAdd(a0, b1, coopMultiplyAdd(l0, b1, zero));
            s10 = s10 + coopMultiplyAdd(a1, b0, coopMultiplyAdd(l1, b0, zero));
            s11 = s11 + coopMultiplyAdd(a1, b1, coopMultiplyAdd(l1, b1, zero));
#ifdef LARGE
            s20 = s20 + coopMultiplyAdd(a2, b0, coopMultiplyAdd(l2, b0, zero));
            s21 = s21 + coopMultiplyAdd(a2, b1, coopMultiplyAdd(l2, b1, zero));
            s30 = s30 + coopMultiplyAdd(a3, b0, coopMultiplyAdd(l3, b0, zero));
            s31 = s31 + coopMultiplyAdd(a3, b1, coopMultiplyAdd(l3, b1, zero));
#endif
#else
            s00 = coopMultiplyAdd(a0, b0, s00);
            s01 = coopMultiplyAdd(a0, b1, s01);
            s10 = coopMultiplyAdd(a1, b0, s10);
            s11 = coopMultiplyAdd(a1, b1, s11);
#ifdef LARGE
            s20 = coopMultiplyAdd(a2, b0, s20);
            s21 = coopMultiplyAdd(a2, b1, s21);
            s30 = coopMultiplyAdd(a3, b0, s30);
            s31 = coopMultiplyAdd(a3, b1, s31);
#endif
#endif
        }
        workgroupBarrier();
    }

#ifdef DIRECT
    if whole {
        let d00 = corner + 0u * stride + 0u;
        coopStoreT(s00, &out[d00], stride);
        let d01 = corner + 0u * stride + 16u;
        coopStoreT(s01, &out[d01], stride);
        let d10 = corner + 16u * stride + 0u;
        coopStoreT(s10, &out[d10], stride);
        let d11 = corner + 16u * stride + 16u;
        coopStoreT(s11, &out[d11], stride);
#ifdef LARGE
        let d20 = corner + 32u * stride + 0u;
        coopStoreT(s20, &out[d20], stride);
        let d21 = corner + 32u * stride + 16u;
        coopStoreT(s21, &out[d21], stride);
        let d30 = corner + 48u * stride + 0u;
        coopStoreT(s30, &out[d30], stride);
        let d31 = corner + 48u * stride + 16u;
        coopStoreT(s31, &out[d31], stride);
#endif
    }
    let through_edge = !whole;
#else
    let through_edge = true;
#endif
    if through_edge {
        let at = team * 256u;
        coopStoreT(s00, &edge[at], 16u);
        store_tile(m0 + tm + 0u, n0 + tn + 0u, lid);
        coopStoreT(s01, &edge[at], 16u);
        store_tile(m0 + tm + 0u, n0 + tn + 16u, lid);
        coopStoreT(s10, &edge[at], 16u);
        store_tile(m0 + tm + 16u, n0 + tn + 0u, lid);
        coopStoreT(s11, &edge[at], 16u);
        store_tile(m0 + tm + 16u, n0 + tn + 16u, lid);
#ifdef LARGE
        coopStoreT(s20, &edge[at], 16u);
        store_tile(m0 + tm + 32u, n0 + tn + 0u, lid);
        coopStoreT(s21, &edge[at], 16u);
        store_tile(m0 + tm + 32u, n0 + tn + 16u, lid);
        coopStoreT(s30, &edge[at], 16u);
        store_tile(m0 + tm + 48u, n0 + tn + 0u, lid);
        coopStoreT(s31, &edge[at], 16u);
        store_tile(m0 + tm + 48u, n0 + tn + 16u, lid);
#endif
    }
}
