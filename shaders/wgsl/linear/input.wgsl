// The input of a Linear: `input8(row, g)` gives elements 8g .. 8g+7 of a row with the fused prologue applied, zeros
// beyond in_dim. The kernel's Params has the fields of InputParams, in an `input` member.
//
// Flags: IN_RMS (the kernel takes raw8 and norm4 and scales by 1/rms afterwards), IN_HEAD with HEAD_NORM, GATED,
// GATE_SILU (sigmoid without; the kernel provides `head_scale(row, head)`), IN_SWIGLU; XVEC when everything is aligned to 4
// elements; TAIL when in_dim is no multiple of 8; SCALED: `scaled(row, g)` is what the eight's head is to be multiplied
// with, 1/rms from the BLOCKS sums of squares that mixer/lanes left of each head (a multiple of 8 elements); XHALF: the kernel reads
// `x`, in f16, by itself.

#import common/activation

struct InputParams {
    in_dim: u32,      // elements a row
    groups: u32,      // eights a row, the last one padded
    x_stride: u32,    // elements from row to row of `x`
    x_at: u32,        // first column of `x`
    gate_stride: u32, // likewise for the gate, SCALED for the sums; SwiGLU: `gate_at` is where `up` begins in `x`
    gate_at: u32,
    head_dim: u32,    // HEAD: elements a head, a multiple of 4 with XVEC
    eps: f32,         // inside the root
}

#ifndef XHALF
#ifdef XVEC
fn x4(i: u32) -> vec4<f32> {
    return x[i >> 2u];
}
#else
fn x4(i: u32) -> vec4<f32> {
    return vec4<f32>(x[i], x[i + 1u], x[i + 2u], x[i + 3u]);
}
#endif
#endif

#ifdef TAIL
// Zeros beyond in_dim. A select, not a product: what lies beyond may be no number.
fn within4(v: vec4<f32>, k: u32) -> vec4<f32> {
    return select(vec4<f32>(0.0), v, vec4<u32>(k, k + 1u, k + 2u, k + 3u) < vec4<u32>(params.input.in_dim));
}
#endif

#ifdef IN_RMS
fn norm4(i: u32) -> vec4<f32> {
#ifdef XVEC
    return norm[i >> 2u];
#else
    return vec4<f32>(norm[i], norm[i + 1u], norm[i + 2u], norm[i + 3u]);
#endif
}
#endif

#ifdef IN_RMS
// Elements k .. k+7 without the norm's weights, which meet zeros beyond in_dim.
fn raw8(row: u32, k: u32) -> Eight {
    let p = params.input;
    var lo = x4(row * p.x_stride + p.x_at + k);
    var hi = x4(row * p.x_stride + p.x_at + k + 4u);
#ifdef TAIL
    lo = within4(lo, k);
    hi = within4(hi, k + 4u);
#endif
    return Eight(lo, hi);
}
#endif

#ifdef IN_HEAD
#ifdef GATED
fn gate4(i: u32) -> vec4<f32> {
#ifdef XVEC
    let z = gate[i >> 2u];
#else
    let z = vec4<f32>(gate[i], gate[i + 1u], gate[i + 2u], gate[i + 3u]);
#endif
#ifdef GATE_SILU
    return silu4(z);
#else
    return sigmoid4(z);
#endif
}
#endif
#endif

#ifdef SCALED
fn scaled(row: u32, g: u32) -> f32 {
    let p = params.input;
    let at = row * p.gate_stride + g * 8u / p.head_dim * BLOCKS;
    var total = 0.0;
#for i BLOCKS
    total += sums[at + $iu];
#endfor
    return inverseSqrt(total / f32(p.head_dim) + p.eps);
}
#endif

#ifndef XHALF
// Elements k .. k+3 of a row; k a multiple of 4.
fn input4(row: u32, k: u32) -> vec4<f32> {
    let p = params.input;
    var v = x4(row * p.x_stride + p.x_at + k);
#ifdef IN_SWIGLU
    v = silu4(v) * x4(row * p.x_stride + p.gate_at + k);
#endif
#ifdef IN_HEAD
#ifdef HEAD_NORM
#ifdef XVEC
    let within = k % p.head_dim;
    v = v * head_scale(row, k / p.head_dim) * norm[within >> 2u];
#else
    for (var i = 0u; i < 4u; i++) {
        v[i] = v[i] * head_scale(row, (k + i) / p.head_dim) * norm[(k + i) % p.head_dim];
    }
#endif
#endif
#ifdef GATED
    v = v * gate4(row * p.gate_stride + p.gate_at + k);
#endif
#endif
#ifdef TAIL
    v = within4(v, k);
#endif
    return v;
}
#endif
