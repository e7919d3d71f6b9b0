// Prepares attention: q and k through RMSNorm (QK_NORM) and rotary embedding (ROTARY), q times the scale, and k|v as
// the token's entry to where it is kept. Rows without a slot are skipped.
//
// Workgroup (part, row): parts 0 .. HEADS are the heads of q, the next KVH those of k, the last KVH those of v.
// With SOLO an invocation takes a whole part, and there is no barrier.
//
// Rotary embedding is the half-split form. Angles are products of two f32 numbers, position and inverse frequency.
// Consts: WG, HEADS, KVH, D, PAGE. Flags: APART, q, k and v in buffers of their own; PACK, there are small weights;
// RING, PAGED or neither (a row's entry to row `row`), see attention/source.

#import common/rows
#import common/sincos

struct Params {
    x_stride: u32,     // elements from row to row of `x`
    x_at: u32,         // q's first column in `x`; k and v follow
    q_stride: u32,     // elements from row to row of `q`
    slot_words: u32,   // RING: f32 words a slot; PAGED: entries a slot of the page table
    window: u32,       // RING: entries of the ring
    entry_stride: u32, // elements from row to row of `entries`, where rows are kept
    first_row: u32,    // row of the first workgroup
    scale: f32,        // of the scores
    eps: f32,          // QK_NORM: inside the root
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> x: array<f32>;              // [rows, x_stride] q|k|v; APART: q
#ifdef APART
@group(0) @binding(auto) var<storage, read> xk: array<f32>;             // [rows, KVH, D]
@group(0) @binding(auto) var<storage, read> xv: array<f32>;             // [rows, KVH, D]
#endif
#ifdef PACK
@group(0) @binding(auto) var<storage, read> pack: array<f32>;           // norms of q and k [2, D], inverse frequencies [D / 2]
#endif
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;    // [rows] the row table
#ifdef PAGED
@group(0) @binding(auto) var<storage, read> pages: array<u32>;          // [slots, slot_words]
#endif
@group(0) @binding(auto) var<storage, read_write> q: array<f32>;        // [rows, q_stride]
@group(0) @binding(auto) var<storage, read_write> entries: array<f32>;  // rows, rings or pages of entries

const ENTRY: u32 = 2u * KVH * D;
const HALF: u32 = D / 2u;
#ifdef QK_NORM
const FREQUENCIES: u32 = 2u * D;
#else
const FREQUENCIES: u32 = 0u;
#endif

fn input(row: u32, part: u32, i: u32) -> f32 {
#ifdef APART
    if part < HEADS {
        return x[row * params.x_stride + part * D + i];
    }
    if part < HEADS + KVH {
        return xk[(row * KVH + part - HEADS) * D + i];
    }
    return xv[(row * KVH + part - HEADS - KVH) * D + i];
#else
    return x[row * params.x_stride + params.x_at + part * D + i];
#endif
}

fn output(row: u32, entry: vec4<u32>, part: u32, i: u32, value: f32) {
    if part < HEADS {
        q[row * params.q_stride + part * D + i] = value * params.scale;
        return;
    }
#ifdef PAGED
    let page = pages[entry.x * params.slot_words + entry.w / PAGE];
    let at = (page * PAGE + entry.w % PAGE) * ENTRY;
#else
#ifdef RING
    let at = entry.x * params.slot_words + (entry.w % params.window) * ENTRY;
#else
    let at = row * params.entry_stride;
#endif
#endif
    entries[at + (part - HEADS) * D + i] = value;
}

// Channels i and i + D/2 of a head, by their angle.
fn turn(row: u32, entry: vec4<u32>, part: u32, i: u32, scale: f32) {
    // An odd head's last channel is alone.
    let alone = i >= HALF;
    let second = select(i + HALF, D - 1u, alone);
    var a = input(row, part, select(i, second, alone));
    var b = input(row, part, second);
#ifdef QK_NORM
    if part < HEADS + KVH {
        let norm = select(0u, D, part >= HEADS);
        a *= scale * pack[norm + select(i, second, alone)];
        b *= scale * pack[norm + second];
    }
#endif
#ifdef ROTARY
    if part < HEADS + KVH && !alone {
        let t = cos_sin(f32(entry.w) * pack[FREQUENCIES + i]);
        let turned = a * t.x - b * t.y;
        b = b * t.x + a * t.y;
        a = turned;
    }
#endif
    if !alone {
        output(row, entry, part, i, a);
    }
    output(row, entry, part, second, b);
}

const PARTS: u32 = HEADS + 2u * KVH;

#ifndef SOLO
#ifdef QK_NORM
var<workgroup> partial: array<f32, WG>;
#endif

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let part = wid.x;
    let row = params.first_row + wid.y;
    let entry = table[row];
    if entry.x == NO_SLOT {
        return;
    }
    var scale = 1.0;
#ifdef QK_NORM
    var square = 0.0;
    for (var i = lane; i < D; i += WG) {
        let v = input(row, part, i);
        square = fma(v, v, square);
    }
    partial[lane] = square;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lane < half {
            partial[lane] += partial[lane + half];
        }
    }
    workgroupBarrier();
    scale = inverseSqrt(partial[0] / f32(D) + params.eps);
#endif
    for (var i = lane; i < D - HALF; i += WG) {
        turn(row, entry, part, i, scale);
    }
}
#else
@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let part = id.x;
    let row = params.first_row + id.y;
    let entry = table[row];
    if entry.x == NO_SLOT || part >= PARTS {
        return;
    }
    var scale = 1.0;
#ifdef QK_NORM
    var square = 0.0;
    for (var i = 0u; i < D; i++) {
        let v = input(row, part, i);
        square = fma(v, v, square);
    }
    scale = inverseSqrt(square / f32(D) + params.eps);
#endif
    for (var i = 0u; i < D - HALF; i++) {
        turn(row, entry, part, i, scale);
    }
}
#endif
