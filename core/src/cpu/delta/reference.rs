//! The recurrence of MATH.md §2, line by line, in f64.

use crate::delta::{Inputs, L2NORM_EPS, MIN_LOG_DECAY, Options, SQUASH_EPS, SQUASH_X, Shape};
use crate::error::Result;
use crate::rule::{Beta, Decay, Rule};

/// What [`reference`] returns: [`crate::delta::Output`] in f64.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reference {
    /// `[B, T, HV, V]`.
    pub o: Vec<f64>,
    /// `[N, HV, K, V]`.
    pub final_state: Vec<f64>,
    /// `[N, H, K]`, or empty.
    pub final_sums: Vec<f64>,
}

/// Token by token in f64, on one thread, written to be read. Inputs are the same f32 tensors; `chunk` and
/// `chunk_states` of the options are ignored.
///
/// # Errors
/// What [`Shape::check`] finds.
pub fn reference(rule: &Rule, shape: &Shape, inputs: &Inputs<'_>, options: &Options) -> Result<Reference> {
    shape.check(rule, inputs, options)?;
    let Shape { heads, value_heads, key_dim, value_dim, .. } = *shape;
    let wide = |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
    let scale = options.scale.map_or_else(|| (key_dim as f64).sqrt().recip(), f64::from);
    let alpha = |g: f32| f64::from(g.max(MIN_LOG_DECAY)).exp();

    let mut o = vec![0.0; inputs.v.len()];
    let mut final_state = Vec::new();
    let mut final_sums = Vec::new();
    for (n, (first, tokens)) in shape.spans(inputs).into_iter().enumerate() {
        // S [HV, K, V] and the preconditioner's sums A [H, K].
        let size = value_heads * key_dim * value_dim;
        let mut s = inputs.initial_state.map_or_else(|| vec![0.0; size], |x| wide(&x[n * size..][..size]));
        let size = heads * key_dim;
        let mut a = match inputs.precond {
            Some(p) => p.initial.map_or_else(|| vec![0.0; size], |x| wide(&x[n * size..][..size])),
            None => Vec::new(),
        };
        for t in first..first + tokens {
            for h in 0..heads {
                let mut q = wide(&inputs.q[(t * heads + h) * key_dim..][..key_dim]);
                let mut k = wide(&inputs.k[(t * heads + h) * key_dim..][..key_dim]);
                if options.l2norm {
                    for x in [&mut q, &mut k] {
                        let norm = (x.iter().map(|x| x * x).sum::<f64>() + f64::from(L2NORM_EPS)).sqrt();
                        x.iter_mut().for_each(|x| *x /= norm);
                    }
                }
                let mut write_key = k.clone();
                if let Some(p) = &inputs.precond {
                    let (decay, beta) = (alpha(p.g[t * heads + h]), f64::from(p.beta[t * heads + h]));
                    for (c, w) in write_key.iter_mut().enumerate() {
                        let sum = &mut a[h * key_dim + c];
                        *sum = decay * *sum + beta * k[c] * k[c];
                        let r = (*sum + f64::from(SQUASH_EPS)).ln() - f64::from(p.log_scale[h]);
                        *w *= (-f64::from(SQUASH_X).ln() * r / (1.0 + r.abs())).exp();
                    }
                }
                for hv in h * value_heads / heads..(h + 1) * value_heads / heads {
                    let given = inputs.beta.map_or(1.0, |b| f64::from(b[t * value_heads + hv]));
                    let beta = match rule.beta {
                        Beta::One => 1.0,
                        Beta::Given => given,
                        Beta::Longhorn => given / (1.0 + given * k.iter().map(|k| k * k).sum::<f64>()),
                    };
                    let s = &mut s[hv * key_dim * value_dim..][..key_dim * value_dim];
                    for c in 0..key_dim {
                        let decay = match (rule.decay, inputs.g) {
                            (Decay::PerHead, Some(g)) => alpha(g[t * value_heads + hv]),
                            (Decay::PerChannel, Some(g)) => alpha(g[(t * value_heads + hv) * key_dim + c]),
                            _ => 1.0,
                        };
                        s[c * value_dim..][..value_dim].iter_mut().for_each(|s| *s *= decay);
                    }
                    for j in 0..value_dim {
                        let at = (t * value_heads + hv) * value_dim + j;
                        let read: f64 = (0..key_dim).map(|c| k[c] * s[c * value_dim + j]).sum();
                        let e = beta * (f64::from(inputs.v[at]) - if rule.delta { read } else { 0.0 });
                        for c in 0..key_dim {
                            s[c * value_dim + j] += write_key[c] * e;
                            o[at] += scale * q[c] * s[c * value_dim + j];
                        }
                    }
                }
            }
        }
        final_state.append(&mut s);
        final_sums.append(&mut a);
    }
    Ok(Reference { o, final_state, final_sums })
}
