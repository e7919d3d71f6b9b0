// What attention reads and writes: q, keys and values, the row table, the output. A token's entry is `k|v`,
// [2, KVH, D], k after norm and rotary embedding.
//
// Flags: RING, the slot's ring of `window` entries, that of position p at p mod window; PAGED, pages of PAGE entries,
// that of position p in the slot's page p / PAGE; FRESH, the rows of the run itself, from position `first` on, alone or
// beside a RING that holds what came before.

#import common/rows

struct Params {
    q_stride: u32,     // elements from row to row of `q`
    out_stride: u32,   // likewise of `out`
    slot_words: u32,   // RING: f32 words a slot; PAGED: entries a slot of the page table
    window: u32,       // tokens that a query sees, itself included; 0: all
    fresh_stride: u32, // FRESH: elements from row to row of `fresh`
    first_row: u32,    // row at which the run's rows begin
    rows: u32,         // rows of the run, padding included
}

@group(0) @binding(auto) var<uniform> params: Params;
@group(0) @binding(auto) var<storage, read> q: array<f32>;              // [rows, q_stride], scaled
#ifdef FRESH
@group(0) @binding(auto) var<storage, read> fresh: array<f32>;          // [rows, fresh_stride] entries of the run
#endif
#ifdef CACHE
@group(0) @binding(auto) var<storage, read> cache: array<f32>;          // rings or pages
#endif
#ifdef PAGED
@group(0) @binding(auto) var<storage, read> pages: array<u32>;          // [slots, slot_words]
#endif
@group(0) @binding(auto) var<storage, read> table: array<vec4<u32>>;    // [rows] the row table
// Decode's shares are [rows, HEADS, SPLITS, D + 2]: output, maximum, sum.
@group(0) @binding(auto) var<storage, read_write> out: array<f32>;      // [rows, out_stride]

const ENTRY: u32 = 2u * KVH * D;
const GROUP: u32 = HEADS / KVH;
// Below every score. Finite, so that differences of two are no NaN.
const LOWEST: f32 = -3e38;

// The row's slot; position of its piece's first token, and that token's row.
var<private> slot: u32;
var<private> first: u32;
var<private> row0: u32;

// `row` has the table's `entry`.
fn find_source(row: u32, entry: vec4<u32>) {
    slot = entry.x;
    first = entry.w - entry.y;
    row0 = row - entry.y;
}

// Position of the oldest token that the one at `position` sees.
fn oldest(position: u32) -> u32 {
    if params.window == 0u || position < params.window {
        return 0u;
    }
    return position + 1u - params.window;
}

// Element 0 of a position's entry in `cache`, or in `fresh` from position `first` on.
fn place(p: u32) -> u32 {
#ifdef FRESH
#ifdef RING
    if p < first {
        return slot * params.slot_words + (p % params.window) * ENTRY;
    }
#endif
    return (row0 + p - first) * params.fresh_stride;
#else
#ifdef PAGED
    return (pages[slot * params.slot_words + p / PAGE] * PAGE + p % PAGE) * ENTRY;
#else
    return slot * params.slot_words + (p % params.window) * ENTRY;
#endif
#endif
}

// An element of a position's entry, which begins at `at`.
fn element(p: u32, at: u32, i: u32) -> f32 {
#ifdef FRESH
#ifdef RING
    if p < first {
        return cache[at + i];
    }
#endif
    return fresh[at + i];
#else
    return cache[at + i];
#endif
}
