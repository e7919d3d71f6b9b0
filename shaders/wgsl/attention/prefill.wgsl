// Attention of many rows of one session: out = softmax(q kᵀ) v, with the running maximum and sum of a row's scores
// (Milakov and Gimelshein 2018; tiled as in Dao et al. 2022), so that no row of scores is ever kept.
//
// A workgroup has 32 rows of one head, and takes 32 keys at a time: scores by slices of 32 channels, then the values by
// slices of 32 columns. A thread has 2 rows by 4 keys of the scores, and 2 rows by 4 columns of each slice of the
// output. Grid: (⌈rows / 32⌉, HEADS).
//
// Consts: HEADS, KVH, D, PAGE; see attention/source for flags.

#import attention/source

const B: u32 = 32u;                  // rows, keys, channels and columns of a tile
const PITCH: u32 = B + 1u;
const SLICES: u32 = (D + B - 1u) / B;
const THREADS: u32 = 128u;

var<workgroup> qs: array<f32, 1056>; // [B, PITCH] a slice of the queries
var<workgroup> ks: array<f32, 1056>; // [B, PITCH] a slice of the keys, or of the values
var<workgroup> ps: array<f32, 1056>; // [B, PITCH] weights of the keys
var<workgroup> shares: array<f32, 256>; // [B, 8] a number of each thread and row

@compute @workgroup_size(THREADS)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let begin = params.first_row + wid.x * B;
    let entry = table[begin];
    if entry.x == NO_SLOT {
        return;
    }
    find_source(begin, entry);
    let head = wid.y;
    let key_at = head / GROUP * D;
    let count = min(B, entry.z - entry.y);
    let newest = entry.w + count - 1u;
    // Rows ty and ty + 16; keys and columns tx, tx + 8, …
    let ty = lane / 8u;
    let tx = lane % 8u;
    let mine = vec2<u32>(ty, ty + 16u);

    var o: array<vec2<f32>, 4u * SLICES>;
    var top = vec2<f32>(LOWEST);
    var total = vec2<f32>(0.0);
    for (var tile = oldest(entry.w); tile <= newest; tile += B) {
        var s: array<vec2<f32>, 4>;
        for (var slice = 0u; slice < SLICES; slice++) {
            // The tile before is done with.
            workgroupBarrier();
            for (var i = lane; i < B * B; i += THREADS) {
                let r = i / B;
                let c = slice * B + i % B;
                var a = 0.0;
                var k = 0.0;
                if c < D {
                    if r < count {
                        a = q[(begin + r) * params.q_stride + head * D + c];
                    }
                    if tile + r <= newest {
                        k = element(tile + r, place(tile + r), key_at + c);
                    }
                }
                qs[r * PITCH + i % B] = a;
                ks[r * PITCH + i % B] = k;
            }
            workgroupBarrier();
            for (var c = 0u; c < B; c++) {
                let a = vec2<f32>(qs[mine.x * PITCH + c], qs[mine.y * PITCH + c]);
                for (var j = 0u; j < 4u; j++) {
                    s[j] = fma(a, vec2<f32>(ks[(tx + 8u * j) * PITCH + c]), s[j]);
                }
            }
        }
        // What each row sees of the tile.
        let p = entry.w + mine;
        let low = vec2<u32>(oldest(p.x), oldest(p.y));
        var high = vec2<f32>(LOWEST);
        for (var j = 0u; j < 4u; j++) {
            let key = vec2<u32>(tile + tx + 8u * j);
            s[j] = select(vec2<f32>(LOWEST), s[j], (key <= p) & (key >= low));
            high = max(high, s[j]);
        }
        shares[mine.x * 8u + tx] = high.x;
        shares[mine.y * 8u + tx] = high.y;
        workgroupBarrier();
        high = top;
        for (var j = 0u; j < 8u; j++) {
            high = max(high, vec2<f32>(shares[mine.x * 8u + j], shares[mine.y * 8u + j]));
        }
        let keep = exp(top - high);
        top = high;
        total *= keep;
        for (var j = 0u; j < 4u; j++) {
            let key = vec2<u32>(tile + tx + 8u * j);
            let weight = select(vec2<f32>(0.0), exp(s[j] - top), (key <= p) & (key >= low));
            total += weight;
            ps[mine.x * PITCH + tx + 8u * j] = weight.x;
            ps[mine.y * PITCH + tx + 8u * j] = weight.y;
        }
        for (var slice = 0u; slice < SLICES; slice++) {
            workgroupBarrier();
            for (var i = lane; i < B * B; i += THREADS) {
                let r = i / B;
                let c = slice * B + i % B;
                var v = 0.0;
                if c < D && tile + r <= newest {
                    v = element(tile + r, place(tile + r), KVH * D + key_at + c);
                }
                ks[r * PITCH + i % B] = v;
            }
            workgroupBarrier();
            for (var j = 0u; j < 4u; j++) {
                var sum = o[slice * 4u + j] * keep;
                for (var r = 0u; r < B; r++) {
                    let weight = vec2<f32>(ps[mine.x * PITCH + r], ps[mine.y * PITCH + r]);
                    sum = fma(weight, vec2<f32>(ks[r * PITCH + tx + 8u * j]), sum);
                }
                o[slice * 4u + j] = sum;
            }
        }
    }
    shares[mine.x * 8u + tx] = total.x;
    shares[mine.y * 8u + tx] = total.y;
    workgroupBarrier();
    total = vec2<f32>(0.0);
    for (var j = 0u; j < 8u; j++) {
        total += vec2<f32>(shares[mine.x * 8u + j], shares[mine.y * 8u + j]);
    }
    for (var i = 0u; i < 4u * SLICES; i++) {
        let c = i / 4u * B + tx + 8u * (i % 4u);
        let value = o[i] / total;
        let to = (begin + mine) * params.out_stride + head * D + c;
        if c < D && mine.x < count {
            out[to.x] = value.x;
        }
        if c < D && mine.y < count {
            out[to.y] = value.y;
        }
    }
}
