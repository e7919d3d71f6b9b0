//! Causal softmax attention as an operator over an application's own tensors: full or over a sliding window, with
//! grouped heads, rotary embedding and norms of q and k, all optional. The same types serve
//! [`cpu::attention`](crate::cpu::attention) and [`gpu::attention`](crate::gpu::attention), and both agree to rounding.
//!
//! ```text
//! q, k = rotary(norm(q), norm(k));   o_t = Σ_s softmax_s(σ q_t · k_s) v_s,   s = t − window + 1 ..= t
//! ```
//!
//! ```
//! use deltanet::attention::{Inputs, Options, Shape};
//! use deltanet::cpu;
//!
//! // Two tokens, two query heads that share one key head of 2 channels.
//! let shape = Shape { batch: 1, tokens: 2, heads: 2, kv_heads: 1, head_dim: 2 };
//! let inputs = Inputs {
//!     q: &[1.0, 0.0, 0.0, 1.0, 9.0, 0.0, 0.0, 9.0],
//!     k: &[9.0, 0.0, 0.0, 9.0],
//!     v: &[1.0, 2.0, 3.0, 4.0],
//!     qk_norm: None,
//!     cu_seqlens: None,
//! };
//! let o = cpu::attention::attend(&shape, &inputs, &Options::default())?;
//! // The first token sees itself alone; the second picks the key that its query resembles.
//! assert_eq!(o, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 3.0, 4.0]);
//! # Ok::<(), deltanet::Error>(())
//! ```

use crate::error::{Error, Result};

/// Sizes of one call. Query head `h` reads key and value head `h / (heads / kv_heads)`.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Shape {
    /// B: sequences of equal length. 1 when `cu_seqlens` packs sequences of different lengths.
    pub batch: usize,
    /// T: tokens a sequence (or in all packed sequences together).
    pub tokens: usize,
    /// H: query heads, a multiple of `kv_heads`.
    pub heads: usize,
    /// HK: key and value heads.
    pub kv_heads: usize,
    /// D: channels a head. On a GPU 512 at most.
    pub head_dim: usize,
}

/// RMSNorm of each head of q and k: `x / sqrt(mean x² + eps) ⊙ w`, before the rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QkNorm<'a> {
    /// Weights for q, `[D]`.
    pub q: &'a [f32],
    /// Weights for k, `[D]`.
    pub k: &'a [f32],
    /// Inside the root.
    pub eps: f32,
}

/// Tensors of one call, row-major f32.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Queries, `[B, T, H, D]`.
    pub q: &'a [f32],
    /// Keys, `[B, T, HK, D]`.
    pub k: &'a [f32],
    /// Values, `[B, T, HK, D]`.
    pub v: &'a [f32],
    /// Norms of q and k, if any.
    pub qk_norm: Option<QkNorm<'a>>,
    /// Packed sequences: `[N + 1]` offsets into T, from 0 to T, rising. With B = 1 only. No token sees another
    /// sequence's, and positions restart at 0.
    pub cu_seqlens: Option<&'a [u32]>,
}

/// Options of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// σ, by which scores are multiplied. `None`: `D^-1/2`.
    pub scale: Option<f32>,
    /// Tokens that a query sees, itself included. `None`: all before it.
    pub window: Option<usize>,
    /// Base θ of the rotary embedding, in its half-split form: channels i and i + D/2 are turned by
    /// `position · θ^(−2i/D)` radians. `None`: no positions.
    pub rope_theta: Option<f32>,
}

impl Shape {
    /// Checks sizes and options.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the size or option, its domain and what came.
    pub fn check_sizes(&self, options: &Options) -> Result<()> {
        let Self { batch, heads, kv_heads, head_dim, .. } = *self;
        for (name, n) in [("batch", batch), ("heads", heads), ("kv_heads", kv_heads), ("head_dim", head_dim)] {
            if n == 0 {
                return Err(Error::argument(name, "at least 1", 0));
            }
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(Error::argument("heads", format!("a multiple of {kv_heads} key heads"), heads));
        }
        if options.window == Some(0) {
            return Err(Error::argument("window", "at least 1", 0));
        }
        if let Some(s) = options.scale.filter(|s| !s.is_finite()) {
            return Err(Error::argument("scale", "a finite number", s));
        }
        if let Some(t) = options.rope_theta.filter(|t| !(t.is_finite() && *t > 0.0)) {
            return Err(Error::argument("rope_theta", "a positive number", t));
        }
        let elements =
            |heads: usize| [batch, self.tokens, heads, head_dim].iter().try_fold(1usize, |a, d| a.checked_mul(*d));
        if elements(heads).is_none_or(|n| n > isize::MAX as usize / 8) {
            let got = format!("{:?}", [batch, self.tokens, heads, head_dim]);
            return Err(Error::argument("q", "a tensor that memory can hold", got));
        }
        Ok(())
    }

    /// Checks every size and length, before anything is allocated.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the tensor, the shape it must have and the length that came.
    pub fn check(&self, inputs: &Inputs<'_>, options: &Options) -> Result<()> {
        self.check_sizes(options)?;
        self.check_packing(inputs)?;
        let Self { batch, tokens, heads, kv_heads, head_dim } = *self;
        want("q", inputs.q.len(), &[batch, tokens, heads, head_dim])?;
        want("k", inputs.k.len(), &[batch, tokens, kv_heads, head_dim])?;
        want("v", inputs.v.len(), &[batch, tokens, kv_heads, head_dim])
    }

    /// Checks offsets and norms, which need no tensors.
    pub(crate) fn check_packing(&self, inputs: &Inputs<'_>) -> Result<()> {
        let Self { batch, tokens, head_dim, .. } = *self;
        if let Some(c) = inputs.cu_seqlens {
            let rising = c.windows(2).all(|w| w[0] <= w[1]);
            let ends = c.len() >= 2 && c.first() == Some(&0) && c.last().map(|e| *e as usize) == Some(tokens);
            if batch != 1 || !rising || !ends {
                let expected = format!("with batch 1, rising offsets from 0 to {tokens}");
                return Err(Error::argument("cu_seqlens", expected, format!("{} offsets, batch {batch}", c.len())));
            }
        }
        if let Some(norm) = &inputs.qk_norm {
            want("qk_norm.q", norm.q.len(), &[head_dim])?;
            want("qk_norm.k", norm.k.len(), &[head_dim])?;
            if !(norm.eps.is_finite() && norm.eps >= 0.0) {
                return Err(Error::argument("qk_norm.eps", "a number that is not negative", norm.eps));
            }
        }
        Ok(())
    }

    /// `(first row, length)` of each sequence among the `B·T` rows.
    pub fn spans(&self, inputs: &Inputs<'_>) -> Vec<(usize, usize)> {
        match inputs.cu_seqlens {
            None => (0..self.batch).map(|b| (b * self.tokens, self.tokens)).collect(),
            Some(c) => c.windows(2).map(|w| (w[0] as usize, w[1].saturating_sub(w[0]) as usize)).collect(),
        }
    }

    /// σ.
    pub fn scale(&self, options: &Options) -> f32 {
        options.scale.unwrap_or_else(|| (self.head_dim as f32).sqrt().recip())
    }
}

fn want(name: &str, got: usize, dims: &[usize]) -> Result<()> {
    if dims.iter().product::<usize>() == got {
        return Ok(());
    }
    Err(Error::argument(name, format!("{dims:?}"), format!("{got} elements")))
}
