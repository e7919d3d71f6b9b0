//! Softmax attention in plain f64, and inputs for it.

use crate::random::Random;

/// One attention layer's form.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Channels a head.
    pub head_dim: usize,
    /// Tokens that a query sees.
    pub window: Option<usize>,
    /// Rotary base.
    pub theta: Option<f32>,
    /// Whether q and k are normed.
    pub norm: bool,
}

/// ε of the norms.
pub const EPS: f32 = 1e-5;

impl Form {
    /// Elements of q|k|v.
    pub fn width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Elements of the output.
    pub fn out(&self) -> usize {
        self.heads * self.head_dim
    }

    /// q|k|v of some tokens, `[tokens, width]`; scores of a few units, so that weights differ.
    pub fn inputs(&self, tokens: usize, random: &mut Random) -> Vec<f32> {
        random.normals(tokens * self.width()).iter().map(|x| 1.4 * x).collect()
    }

    /// Norms of q and k, `[head_dim]` each.
    pub fn norms(&self, random: &mut Random) -> (Vec<f32>, Vec<f32>) {
        let mut one = || random.normals(self.head_dim).iter().map(|x| 1.0 + 0.3 * x).collect();
        (one(), one())
    }
}

/// One session's keys and values.
#[derive(Clone, Debug)]
pub struct Session {
    form: Form,
    norms: (Vec<f32>, Vec<f32>),
    /// Position of the first token in `seen`.
    first: usize,
    /// k and v of every token, `[kv_heads, head_dim]` each.
    seen: Vec<(Vec<f64>, Vec<f64>)>,
}

impl Session {
    /// Nothing seen; the next token is at `position`.
    pub fn new(form: Form, norms: &(Vec<f32>, Vec<f32>), position: usize) -> Self {
        Self { form, norms: norms.clone(), first: position, seen: Vec::new() }
    }

    /// Norm and rotary embedding of the heads of one token.
    fn prepare(&self, x: &[f32], norm: &[f32]) -> Vec<f64> {
        let d = self.form.head_dim;
        let position = self.first + self.seen.len();
        let mut out: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        for head in out.chunks_mut(d) {
            if self.form.norm {
                let mean = head.iter().map(|x| x * x).sum::<f64>() / d as f64;
                let scale = (mean + f64::from(EPS)).sqrt().recip();
                head.iter_mut().zip(norm).for_each(|(x, w)| *x *= scale * f64::from(*w));
            }
            let Some(theta) = self.form.theta else { continue };
            for i in 0..d / 2 {
                // Products of f32 numbers, as everyone computes them.
                let inverse = f64::from(theta).powf(-2.0 * i as f64 / d as f64) as f32;
                let (sin, cos) = f64::from(position as f32 * inverse).sin_cos();
                let (a, b) = (head[i], head[i + d / 2]);
                (head[i], head[i + d / 2]) = (a * cos - b * sin, b * cos + a * sin);
            }
        }
        out
    }

    /// Feeds one token's q|k|v; returns its output, `[heads, head_dim]`.
    pub fn feed(&mut self, row: &[f32]) -> Vec<f64> {
        let Form { heads, kv_heads, head_dim: d, window, .. } = self.form;
        let (q, kv) = row.split_at(heads * d);
        let (k, v) = kv.split_at(kv_heads * d);
        let (q, k) = (self.prepare(q, &self.norms.0), self.prepare(k, &self.norms.1));
        self.seen.push((k, v.iter().map(|x| f64::from(*x)).collect()));
        let seen = &self.seen[self.seen.len() - window.unwrap_or(usize::MAX).min(self.seen.len())..];
        let mut out = Vec::new();
        for head in 0..heads {
            let at = head / (heads / kv_heads) * d;
            let dot = |k: &[f64]| q[head * d..][..d].iter().zip(&k[at..]).map(|(q, k)| q * k).sum::<f64>();
            let scores: Vec<f64> = seen.iter().map(|(k, _)| dot(k) / (d as f64).sqrt()).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
            let total: f64 = weights.iter().sum();
            for i in 0..d {
                out.push(weights.iter().zip(seen).map(|(w, (_, v))| w * v[at + i]).sum::<f64>() / total);
            }
        }
        out
    }
}
