//! A plan in plain f64, one token after the other, one op after the other: no engine, so that weights and plans can be
//! held against a third party's logits by themselves.

use deltanet::model::{Spec, Weight};
use deltanet::ops::{Activation, Attention, Cols, Input, Linear, Op, WeightId};
use deltanet::plan::{Plan, PlanKind};

use crate::mixer_reference::MixerSession;

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn norm(x: &mut [f64], weight: &[f32], eps: f32) {
    let mean = x.iter().map(|a| a * a).sum::<f64>() / x.len() as f64;
    let scale = (mean + f64::from(eps)).sqrt().recip();
    x.iter_mut().zip(weight).for_each(|(x, w)| *x *= scale * f64::from(*w));
}

/// One session of a model.
pub struct Reference<'a> {
    plan: Plan,
    /// Matrices and vectors alike, by weight.
    weights: Vec<Vec<f32>>,
    buffers: Vec<Vec<f64>>,
    /// By op.
    mixers: Vec<Option<MixerSession>>,
    /// By op: rotated keys and values of all tokens so far, `[kv_heads · head_dim]` each.
    caches: Vec<Vec<(Vec<f64>, Vec<f64>)>>,
    position: usize,
    spec: &'a Spec,
}

impl<'a> Reference<'a> {
    /// Nothing fed yet.
    pub fn new(spec: &'a Spec) -> Self {
        let plan = spec.plan(PlanKind::Decode, 1).expect("a plan of one row");
        let weights = spec.weights.iter().map(|w| match w {
            Weight::Matrix(m) => m.to_f32(),
            Weight::Vector(v) => v.clone(),
        });
        let mixers = plan.ops.iter().map(|op| if let Op::Mixer(m) = op { Some(MixerSession::new(m)) } else { None });
        Self {
            weights: weights.collect(),
            buffers: plan.buffers.iter().map(|b| vec![f64::NAN; b.width]).collect(),
            mixers: mixers.collect(),
            caches: vec![Vec::new(); plan.ops.len()],
            position: 0,
            plan,
            spec,
        }
    }

    fn cols(&self, c: &Cols, n: usize) -> Vec<f64> {
        assert_eq!(c.width, self.buffers[c.buf.0].len(), "columns of a buffer of another width");
        self.buffers[c.buf.0][c.at..c.at + n].to_vec()
    }

    fn weight(&self, id: WeightId) -> &[f32] {
        &self.weights[id.0]
    }

    fn input(&self, l: &Linear) -> Vec<f64> {
        match &l.input {
            Input::Plain(x) => self.cols(x, l.in_dim),
            Input::RmsNorm { x, weight, eps } => {
                let mut x = self.cols(x, l.in_dim);
                norm(&mut x, self.weight(*weight), *eps);
                x
            }
            Input::HeadNorm { x, head_dim, weight, eps, gate } => {
                let mut x = self.cols(x, l.in_dim);
                if let Some(w) = weight {
                    x.chunks_mut(*head_dim).for_each(|head| norm(head, self.weight(*w), *eps));
                }
                if let Some((g, activation)) = gate {
                    for (x, g) in x.iter_mut().zip(self.cols(g, l.in_dim)) {
                        *x *= sigmoid(g) * if *activation == Activation::Silu { g } else { 1.0 };
                    }
                }
                x
            }
            Input::SwiGlu(gate) => {
                let up = Cols { at: gate.at + l.in_dim, ..*gate };
                let pairs = self.cols(gate, l.in_dim).into_iter().zip(self.cols(&up, l.in_dim));
                pairs.map(|(g, u)| g * sigmoid(g) * u).collect()
            }
        }
    }

    fn linear(&mut self, l: &Linear) {
        let x = self.input(l);
        let w = self.weight(l.weight);
        assert_eq!(w.len(), l.out_dim * l.in_dim);
        let bias = l.bias.map(|b| self.weight(b));
        let y = w.chunks(l.in_dim).enumerate().map(|(row, w)| {
            let sum: f64 = w.iter().zip(&x).map(|(w, x)| f64::from(*w) * x).sum();
            sum + bias.map_or(0.0, |b| f64::from(b[row]))
        });
        let y: Vec<f64> = y.collect();
        let out = &mut self.buffers[l.out.0];
        assert_eq!(out.len(), l.out_dim);
        out.iter_mut().zip(y).for_each(|(out, y)| *out = if l.add { *out + y } else { y });
    }

    fn attention(&mut self, i: usize, a: &Attention) {
        let (d, width) = (a.head_dim, (a.heads + 2 * a.kv_heads) * a.head_dim);
        let qkv = self.cols(&a.qkv, width);
        let (q, kv) = qkv.split_at(a.heads * d);
        let (k, v) = kv.split_at(a.kv_heads * d);
        let prepare = |x: &[f64], weight: Option<WeightId>, eps: f32| -> Vec<f64> {
            let mut x = x.to_vec();
            for head in x.chunks_mut(d) {
                if let Some(w) = weight {
                    norm(head, self.weight(w), eps);
                }
                let Some(theta) = a.rope_theta else { continue };
                for j in 0..d / 2 {
                    let angle = self.position as f64 * f64::from(theta).powf(-2.0 * j as f64 / d as f64);
                    let (sin, cos) = angle.sin_cos();
                    let (x1, x2) = (head[j], head[j + d / 2]);
                    (head[j], head[j + d / 2]) = (x1 * cos - x2 * sin, x2 * cos + x1 * sin);
                }
            }
            x
        };
        let (wq, wk, eps) = a.qk_norm.map_or((None, None, 0.0), |(q, k, eps)| (Some(q), Some(k), eps));
        let (q, k) = (prepare(q, wq, eps), prepare(k, wk, eps));
        self.caches[i].push((k, v.to_vec()));
        let cache = &self.caches[i];
        let seen = &cache[cache.len() - a.window.unwrap_or(usize::MAX).min(cache.len())..];
        let mut out = Vec::new();
        for head in 0..a.heads {
            let at = head / (a.heads / a.kv_heads) * d;
            let score = |k: &[f64]| -> f64 {
                let dot: f64 = q[head * d..][..d].iter().zip(&k[at..at + d]).map(|(q, k)| q * k).sum();
                dot / (d as f64).sqrt()
            };
            let scores: Vec<f64> = seen.iter().map(|(k, _)| score(k)).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = scores.iter().map(|s| (s - most).exp()).sum();
            for j in 0..d {
                let sum: f64 = scores.iter().zip(seen).map(|(s, (_, v))| (s - most).exp() * v[at + j]).sum();
                out.push(sum / total);
            }
        }
        self.buffers[a.out.0] = out;
    }

    /// Feeds a token; returns the logits after it, `[vocab]`.
    pub fn feed(&mut self, token: u32) -> Vec<f32> {
        let ops = std::mem::take(&mut self.plan.ops);
        for (i, op) in ops.iter().enumerate() {
            match op {
                Op::Embed(e) => {
                    let row = &self.weight(e.table)[token as usize * e.width..][..e.width];
                    self.buffers[e.out.0] = row.iter().map(|x| f64::from(*x)).collect();
                }
                Op::Linear(l) => self.linear(l),
                Op::Mixer(m) => {
                    let single = |buffer: &[f64]| -> Vec<f32> { buffer.iter().map(|x| *x as f32).collect() };
                    let row = single(&self.buffers[m.qkv.buf.0]);
                    let aux = m.decay.as_ref().map_or(vec![], |d| single(&self.buffers[d.a.buf.0]));
                    let weights = &self.weights;
                    let session = self.mixers[i].as_mut().expect("a mixer's session");
                    self.buffers[m.out.0] = session.feed(m, &row, &aux, &|id| weights[id.0].clone());
                }
                Op::Attention(a) => self.attention(i, a),
            }
        }
        self.plan.ops = ops;
        self.position += 1;
        let logits = &self.buffers[self.plan.logits.0];
        assert_eq!(logits.len(), self.spec.vocab);
        logits.iter().map(|x| *x as f32).collect()
    }
}
