// Gates of a mixer from their projections: the write strength, the log decay, and the preconditioner's own (MATH.md
// §1, §7, §8.3), always in f32. The kernel's Params has `gates: GateParams`; its bindings `x` (the projections),
// `aux` (where the decay's projection lies if not in `x`) and `pack` (the layer's small weights).
//
// Flags: XUNI (`x` is a uniform window of vec4), XVEC (`x` is a storage buffer of vec4), BETA, DECAY with CHANNELS and BOUNDED, AUX (the decay's projection is in `aux`), PRECOND.
// A row of gates: β [HV] with BETA; g [HV or HV·K] with DECAY; the preconditioner's β [H], then its g [H] with PRECOND.

#import common/activation

struct GateParams {
    x_stride: u32,     // elements from row to row of `x`
    aux_stride: u32,   // likewise of what holds the decay's projection
    beta_at: u32,      // first column of β's projection
    decay_at: u32,     // of the decay's
    sums_beta_at: u32, // of the preconditioner's write strength
    sums_g_at: u32,    // of its decay
    a_log: u32,        // places in `pack`: [HV]
    dt_bias: u32,      // [HV or HV·K]
    sums_a_log: u32,   // [H]
    sums_dt_bias: u32, // [H]
    beta_scale: f32,   // 1, or 2 for negative eigenvalues
    lower: f32,        // BOUNDED: the lower bound of g
}

#ifdef XUNI
fn x_value(i: u32) -> f32 {
    return x[i >> 2u][i & 3u];
}
#else
fn x_value(i: u32) -> f32 {
#ifdef XVEC
    return x[i >> 2u][i & 3u];
#else
    return x[i];
#endif
}
#endif

#ifdef BETA
fn gate_beta(row: u32, h: u32) -> f32 {
    let p = params.gates;
    return sigmoid(x_value(row * p.x_stride + p.beta_at + h)) * p.beta_scale;
}
#endif

#ifdef DECAY
// Element i of g's row: head i, or head i / K and channel i % K.
fn gate_decay(row: u32, i: u32) -> f32 {
    let p = params.gates;
#ifdef AUX
    let a = aux[row * p.aux_stride + p.decay_at + i];
#else
    let a = x_value(row * p.x_stride + p.decay_at + i);
#endif
#ifdef CHANNELS
    let rate = exp(pack[p.a_log + i / K]);
#else
    let rate = exp(pack[p.a_log + i]);
#endif
    let s = a + pack[p.dt_bias + i];
#ifdef BOUNDED
    return p.lower * sigmoid(rate * s);
#else
    return -rate * softplus(s);
#endif
}
#endif

#ifdef PRECOND
fn gate_sums_beta(row: u32, h: u32) -> f32 {
    let p = params.gates;
    return sigmoid(x_value(row * p.x_stride + p.sums_beta_at + h));
}

fn gate_sums_decay(row: u32, h: u32) -> f32 {
    let p = params.gates;
    let s = x_value(row * p.x_stride + p.sums_g_at + h) + pack[p.sums_dt_bias + h];
    return -exp(pack[p.sums_a_log + h]) * softplus(s);
}
#endif
