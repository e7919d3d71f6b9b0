//! Sampling: from logits to a token, the same on every engine.
//!
//! The filters apply in this order: repetition penalty, temperature, top-k, top-p, min-p. The draw is an exponential
//! race: each kept token `i` gets `e_i ~ Exp(1)` from a counter generator keyed by (seed, position, i), and the token
//! with the largest `logit_i/temperature − ln e_i` wins. That is an exact sample of the softmax, needs no running sum
//! whose order would matter, and so gives the same token on CPU and GPU.

/// How a token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy: the largest logit, the lowest id among equals.
    pub temperature: f32,
    /// Keep the k largest logits; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of most likely tokens whose probability reaches p (1 keeps all).
    pub top_p: f32,
    /// Keep tokens at least this fraction as likely as the most likely one (0 keeps all).
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen before (1 is off).
    pub repetition_penalty: f32,
    /// Seed of the counter generator.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: 0, top_p: 0.95, min_p: 0.0, repetition_penalty: 1.0, seed: 0 }
    }
}
