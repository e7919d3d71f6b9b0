// out (+)= x · Wᵀ for many rows: workgroup tiles of BM rows by BN outputs, BK of in_dim at a time; each of the
// (BM / TM) · (BN / TN) threads holds TM × TN sums. Grid: x covers out_dim in BN, y covers the rows in BM.
//
// Consts: BM, BN, BK (multiples of 8), TM, TN (multiples of 4), ROWS (of the plan). Flags: see linear/output; XVEC,
// TAIL.

#import linear/product
#ifdef XVEC
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;            // [rows, x_stride]
#else
@group(0) @binding(auto) var<storage, read> x: array<f32>;                  // [rows, x_stride]
#endif
#import linear/ends

const THREADS_M: u32 = BM / TM;
const THREADS_N: u32 = BN / TN;
const WG: u32 = THREADS_M * THREADS_N;
// Eights that each thread brings in a step. A thread beyond the last one brings nothing.
const X_LOADS: u32 = (BM * BK / 8u + WG - 1u) / WG;
const W_LOADS: u32 = (BN * BK / 8u + WG - 1u) / WG;

// Column-major, so that a thread reads its rows (outputs) as vec4: element (k, m) at k · BM + m.
var<workgroup> xs: array<vec4<f32>, BK * BM / 4u>;
var<workgroup> ws: array<vec4<f32>, BK * BN / 4u>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let m0 = wid.y * BM;
    let n0 = wid.x * BN;
    let tm = (lid / THREADS_N) * TM;
    let tn = (lid % THREADS_N) * TN;
    let groups = params.input.groups;
    let last = params.output.out_dim - 1u;

    var sums: array<vec4<f32>, TM * TN / 4u>;
    for (var k0 = 0u; k0 < groups; k0 += BK / 8u) {
        for (var i = 0u; i < X_LOADS; i++) {
            let e = lid + i * WG;
            if e < BM * BK / 8u {
                let m = e % BM;
                let g = k0 + e / BM;
                var v = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
                if g < groups && m0 + m < ROWS {
                    v = Eight(input4(m0 + m, g * 8u), input4(m0 + m, g * 8u + 4u));
                }
                for (var j = 0u; j < 4u; j++) {
                    let k = (e / BM) * 8u + j;
                    xs[(k * BM + m) >> 2u][m & 3u] = v.lo[j];
                    xs[((k + 4u) * BM + m) >> 2u][m & 3u] = v.hi[j];
                }
            }
        }
        for (var i = 0u; i < W_LOADS; i++) {
            let e = lid + i * WG;
            if e < BN * BK / 8u {
                let n = e % BN;
                let g = k0 + e / BN;
                var v = Eight(vec4<f32>(0.0), vec4<f32>(0.0));
                if g < groups {
                    v = weight8(min(n0 + n, last), groups, g);
                }
                for (var j = 0u; j < 4u; j++) {
                    let k = (e / BN) * 8u + j;
                    ws[(k * BN + n) >> 2u][n & 3u] = v.lo[j];
                    ws[((k + 4u) * BN + n) >> 2u][n & 3u] = v.hi[j];
                }
            }
        }
        workgroupBarrier();
        for (var k = 0u; k < BK; k++) {
            var a: array<vec4<f32>, TM / 4u>;
            for (var i = 0u; i < TM / 4u; i++) {
                a[i] = xs[(k * BM + tm) / 4u + i];
            }
            for (var j = 0u; j < TN / 4u; j++) {
                let b = ws[(k * BN + tn) / 4u + j];
                for (var i = 0u; i < TM; i++) {
                    let at = i * (TN / 4u) + j;
                    sums[at] = fma(vec4<f32>(a[i / 4u][i & 3u]), b, sums[at]);
                }
            }
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < TM; i++) {
        let m = m0 + tm + i;
        if m < ROWS {
            for (var j = 0u; j < TN; j++) {
                let n = n0 + tn + j;
                if n <= last {
                    store(m, n, sums[i * (TN / 4u) + j / 4u][j & 3u]);
                }
            }
        }
    }
}
