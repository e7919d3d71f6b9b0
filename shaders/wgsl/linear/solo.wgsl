// out[r] (+)= W · x(r), for adapters that are a CPU in disguise: each invocation computes R rows by N outputs in
// registers, with no barrier and no workgroup memory, which are the dearest there.
//
// XUNI binds a window of XLEN / stride rows of `x` as a uniform, which such adapters read without a check a lane.
// The additions over in_dim follow one order for every R, so a row's result is the same bits in any company.
// The inner repetitions are in the text: browsers put a counter into every loop, which keeps drivers from unrolling it.
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
#for n N
    // Clamped rows are read and thrown away.
    let row_of_w$n = min(first + $nu, out_dim - 1u);
#for r R
    var sum$rx$n = vec4<f32>(0.0);
#endfor
#endfor
    for (var g = 0u; g < groups; g++) {
#for n N
        let w$n = weight8(row_of_w$n, groups, g);
#endfor
#for r R
        let lo$r = input4(row0 + $ru, g * 8u);
        let hi$r = input4(row0 + $ru, g * 8u + 4u);
#for n N
        sum$rx$n = fma(w$n.hi, hi$r, fma(w$n.lo, lo$r, sum$rx$n));
#endfor
#endfor
    }
#for n N
    if first + $nu < out_dim {
#for r R
#ifdef LAST
        store($ru, first + $nu, (sum$rx$n.x + sum$rx$n.y) + (sum$rx$n.z + sum$rx$n.w));
#else
        store(params.first_row + row0 + $ru, first + $nu, (sum$rx$n.x + sum$rx$n.y) + (sum$rx$n.z + sum$rx$n.w));
#endif
#endfor
    }
#endfor
}
