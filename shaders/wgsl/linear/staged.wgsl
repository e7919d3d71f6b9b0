// How an eight of W, as it is stored, comes into `ws`, f16 in workgroup memory. (What f16 stores is within its range.)

#import common/halves

fn put_w(at: u32, v: vec4<u32>) {
    let w = eight(v);
#ifdef W_F16
    ws[at] = vec4<f16>(w.lo);
    ws[at + 1u] = vec4<f16>(w.hi);
#else
    ws[at] = half4(w.lo);
    ws[at + 1u] = half4(w.hi);
#endif
}
