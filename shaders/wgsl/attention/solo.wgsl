// Attention of any rows, one invocation a row and head, without barriers: for software adapters.
// Neighbouring invocations have neighbouring rows of one head, which see nearly the same keys.
// Grid: (⌈rows · HEADS / 8⌉).
//
// Consts: HEADS, KVH, D, PAGE; see attention/source for flags.

#import attention/source

@compute @workgroup_size(8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let row = params.first_row + id.x % params.rows;
    let head = id.x / params.rows;
    if head >= HEADS {
        return;
    }
    let entry = table[row];
    if entry.x == NO_SLOT {
        return;
    }
    find_source(row, entry);
    let key_at = head / GROUP * D;
    var query: array<f32, D>;
    var o: array<f32, D>;
    for (var c = 0u; c < D; c++) {
        query[c] = q[row * params.q_stride + head * D + c];
        o[c] = 0.0;
    }
    var top = LOWEST;
    var total = 0.0;
    for (var p = oldest(entry.w); p <= entry.w; p++) {
        let at = place(p);
        var s = 0.0;
        for (var c = 0u; c < D; c++) {
            s = fma(query[c], element(p, at, key_at + c), s);
        }
        let high = max(top, s);
        let keep = exp(top - high);
        let weight = exp(s - high);
        top = high;
        total = fma(total, keep, weight);
        for (var c = 0u; c < D; c++) {
            o[c] = fma(o[c], keep, weight * element(p, at, KVH * D + key_at + c));
        }
    }
    for (var c = 0u; c < D; c++) {
        out[row * params.out_stride + head * D + c] = o[c] / total;
    }
}
