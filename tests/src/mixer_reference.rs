//! A mixer in plain f64, token by token (MATH.md §1, §2, §8.3): what the engines are compared with.

use deltanet::ops::{GateForm, Mixer, WeightId};
use deltanet::rule::{Beta, Decay, WriteKey};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
fn softplus(x: f64) -> f64 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// State of one session, in f64.
#[derive(Clone, Debug)]
pub struct MixerSession {
    /// S, `[HV, K, V]`.
    pub s: Vec<f64>,
    /// Preconditioner sums, `[H, K]`.
    pub sums: Vec<f64>,
    /// Inputs of the convolution so far.
    history: Vec<Vec<f64>>,
}

impl MixerSession {
    /// Nothing fed yet.
    pub fn new(op: &Mixer) -> Self {
        let s = vec![0.0; op.value_heads * op.key_dim * op.value_dim];
        Self { s, sums: vec![0.0; op.heads * op.key_dim], history: Vec::new() }
    }

    /// Feeds a row of the projections' buffer (and of the buffer with the decay's projection), returns `[HV·V]`.
    pub fn feed(&mut self, op: &Mixer, row: &[f32], aux: &[f32], vector: &dyn Fn(WeightId) -> Vec<f32>) -> Vec<f64> {
        let (h, hv, k, v) = (op.heads, op.value_heads, op.key_dim, op.value_dim);
        let channels = op.channels();
        let now: Vec<f64> = row[op.qkv.at..][..channels].iter().map(|x| f64::from(*x)).collect();
        self.history.push(now);
        let taps = if op.conv.is_some() { op.conv_size } else { 1 };
        let conv = op.conv.map(vector);
        let u: Vec<f64> = (0..channels)
            .map(|c| {
                let mut sum = 0.0;
                for j in 0..taps {
                    let back = taps - 1 - j;
                    if back < self.history.len() {
                        let x = self.history[self.history.len() - 1 - back][c];
                        sum += conv.as_ref().map_or(1.0, |w| f64::from(w[c * taps + j])) * x;
                    }
                }
                sum * sigmoid(sum)
            })
            .collect();
        let unit = |x: &[f64]| -> Vec<f64> {
            let scale = if op.l2norm { (x.iter().map(|a| a * a).sum::<f64>() + 1e-6).sqrt().recip() } else { 1.0 };
            x.iter().map(|a| a * scale).collect()
        };
        let projection = |cols: &deltanet::ops::Cols, i: usize| f64::from(row[cols.at + i]);
        let mut out = Vec::new();
        let keys: Vec<(Vec<f64>, Vec<f64>)> = (0..h)
            .map(|head| {
                let key = unit(&u[(h + head) * k..][..k]);
                let mut write = key.clone();
                if let (WriteKey::Preconditioned, Some(p)) = (op.rule.write_key, &op.precond) {
                    let value = |id: WeightId| f64::from(vector(id)[head]);
                    let g = -value(p.a_log).exp() * softplus(projection(&p.a, head) + value(p.dt_bias));
                    let beta = sigmoid(projection(&p.b, head));
                    for (c, w) in write.iter_mut().enumerate() {
                        let a = &mut self.sums[head * k + c];
                        *a = g.exp() * *a + beta * key[c] * key[c];
                        let r = (*a + 1e-6).ln() - value(p.log_scale);
                        *w *= (-(1.5f64.ln()) * r / (1.0 + r.abs())).exp();
                    }
                }
                (key, write)
            })
            .collect();
        for head in 0..hv {
            let (key, write) = &keys[head / (hv / h)];
            let query = unit(&u[head / (hv / h) * k..][..k]);
            let decay = |c: usize| -> f64 {
                let Some(d) = &op.decay else { return 1.0 };
                let i = if op.rule.decay == Decay::PerChannel { head * k + c } else { head };
                let rate = f64::from(vector(d.a_log)[head]).exp();
                let a = if d.a.buf == op.qkv.buf { row[d.a.at + i] } else { aux[d.a.at + i] };
                let s = f64::from(a) + f64::from(vector(d.dt_bias)[i]);
                let g = match d.form {
                    GateForm::Softplus => -rate * softplus(s),
                    GateForm::Bounded(lower) => f64::from(lower) * sigmoid(rate * s),
                };
                g.exp()
            };
            let mut beta = op.beta.as_ref().map_or(1.0, |b| sigmoid(projection(b, head)) * f64::from(op.beta_scale));
            if op.rule.beta == Beta::Longhorn {
                beta /= 1.0 + beta * key.iter().map(|a| a * a).sum::<f64>();
            }
            let s = &mut self.s[head * k * v..][..k * v];
            for c in 0..k {
                let d = decay(c);
                s[c * v..][..v].iter_mut().for_each(|x| *x *= d);
            }
            for j in 0..v {
                let read: f64 = (0..k).map(|c| key[c] * s[c * v + j]).sum();
                let value = u[2 * h * k + head * v + j];
                let e = beta * if op.rule.delta { value - read } else { value };
                for c in 0..k {
                    s[c * v + j] += write[c] * e;
                }
                out.push((0..k).map(|c| query[c] * s[c * v + j]).sum::<f64>() / (k as f64).sqrt());
            }
        }
        out
    }

    /// The convolution's tail: the last `conv_size − 1` inputs, oldest first, zeros before the first.
    pub fn tail(&self, op: &Mixer) -> Vec<f64> {
        let taps = if op.conv.is_some() { op.conv_size } else { 1 };
        let mut tail = vec![0.0; (taps - 1) * op.channels()];
        for back in 1..taps {
            if back <= self.history.len() {
                let at = (taps - 1 - back) * op.channels();
                tail[at..at + op.channels()].copy_from_slice(&self.history[self.history.len() - back]);
            }
        }
        tail
    }
}
