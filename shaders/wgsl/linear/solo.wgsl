// out[r] (+)= W · x(r), for adapters that are a CPU in disguise: each invocation computes R rows by N outputs in
// registers, with no barrier and no workgroup memory, which are the dearest there.
//
// XUNI binds a window of XLEN / stride rows of `x` as a uniform, which such adapters read without a check a lane.
// The additions over in_dim follow one order for every R, so a row's result is the same bits in any company.
// Grid: x covers out_dim in steps of WG · N, y covers the rows in steps of R.
//
// Consts: WG, N, R, XLEN. Flags: see linear/output; XUNI; XVEC, TAIL and LAST as in linear/gemv.

#import linear/product
#ifdef XUNI
@group(0) @binding(auto) var<uniform> x: array<vec4<f32>, XLEN>;           // [rows of the window, x_stride]
#else
#ifdef XVEC
@group(0) @binding(auto) var<storage, read> x: array<vec4<f32>>;            // [rows, x_stride]
#else
@group(0) @binding(auto) var<storage, read> x: array<f32>;                  // [rows, x_stride]
#endif
#endif
#import linear/ends

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let first = id.x * N;
    let groups = params.input.groups;
    let out_dim = params.output.out_dim;
    if first >= out_dim {
        return;
    }
    var row0 = id.y * R;
#ifdef LAST
    row0 = table[0].z - 1u;
#endif
    var sums: array<vec4<f32>, R * N>;
    for (var g = 0u; g < groups; g++) {
        var w: array<Eight, N>;
        for (var n = 0u; n < N; n++) {
            w[n] = weight8(min(first + n, out_dim - 1u), groups, g);
        }
        for (var r = 0u; r < R; r++) {
            let lo = input4(row0 + r, g * 8u);
            let hi = input4(row0 + r, g * 8u + 4u);
            for (var n = 0u; n < N; n++) {
                sums[r * N + n] = fma(w[n].hi, hi, fma(w[n].lo, lo, sums[r * N + n]));
            }
        }
    }
    for (var n = 0u; n < N; n++) {
        if first + n < out_dim {
            for (var r = 0u; r < R; r++) {
                let s = sums[r * N + n];
#ifdef LAST
                store(r, first + n, (s.x + s.y) + (s.z + s.w));
#else
                store(params.first_row + row0 + r, first + n, (s.x + s.y) + (s.z + s.w));
#endif
            }
        }
    }
}
