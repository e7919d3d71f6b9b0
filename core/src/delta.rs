//! The operators: one delta-rule recurrence over an application's own tensors.
//!
//! [`Inputs`] borrows host tensors; [`cpu::delta`](crate::cpu::delta) and [`gpu::delta`](crate::gpu::delta) each offer
//! `recurrent` (token by token) and `chunk` (chunkwise WY/UT transform) over the same types, and all four agree to the
//! tolerances of MATH.md §11. [`gpu::delta::Operator`](crate::gpu::delta::Operator) is the same on an application's own
//! GPU buffers. One entry serves every rule: it takes the rule as an argument.
//!
//! | rule | `beta` | `g` | `precond` | what it computes |
//! |---|---|---|---|---|
//! | [`Rule::LINEAR_ATTENTION`] | – | – | – | `S += kᵀv` |
//! | [`Rule::SCALAR_DECAY`] | – | `[B, T, HV]` | – | `S = e^g S + kᵀv`: Mamba-2's and RetNet's |
//! | [`Rule::CHANNEL_DECAY`] | – | `[B, T, HV, K]` | – | `S = diag(e^g) S + kᵀv`: GLA's, HGRN-2's |
//! | [`Rule::DELTANET`] | `[B, T, HV]` | – | – | `S += kᵀβ(v − kS)` |
//! | [`Rule::GATED_DELTANET`] | `[B, T, HV]` | `[B, T, HV]` | – | `S = e^g S`, then as DeltaNet |
//! | [`Rule::KDA`] | `[B, T, HV]` | `[B, T, HV, K]` | – | `S = diag(e^g) S`, then as DeltaNet |
//! | [`Rule::LONGHORN`] | b, `[B, T, HV]` | – | – | DeltaNet with `β = b / (1 + b‖k‖²)` |
//! | [`Rule::PRECONDITIONED_DELTANET`] | `[B, T, HV]` | – | yes | `S += k̃ᵀβ(v − kS)`, `k̃ = B ⊙ k` |
//! | [`Rule::PRECONDITIONED_GATED_DELTANET`] | `[B, T, HV]` | `[B, T, HV]` | yes | the same with decay |
//! | [`Rule::PRECONDITIONED_KDA`] | `[B, T, HV]` | `[B, T, HV, K]` | yes | the same with channel decay |
//!
//! Any other [`Rule`] value is as good: see its documentation.
//!
//! Units and limits: all tensors are f32, row-major; `g` is a natural logarithm, ≤ 0; `beta` is in \[0, 1\], or \[0, 2\]
//! for negative eigenvalues with unit keys (beyond `β⟨k, k̃⟩ = 2` a state grows without bound); K is at most 256, V has no
//! bound, nor has T on host tensors. Errors name the tensor, the shape it must have and what came.
//!
//! ```
//! use deltanet::delta::{Inputs, Options, Precond, Shape};
//! use deltanet::{Rule, cpu};
//!
//! // Preconditioned KDA: 3 tokens, 1 key head read by 2 value heads, K = 2, V = 1.
//! let shape = Shape { batch: 1, tokens: 3, heads: 1, value_heads: 2, key_dim: 2, value_dim: 1 };
//! let inputs = Inputs {
//!     q: &[1.0, 0.0, 1.0, 0.0, 0.0, 1.0],
//!     k: &[1.0, 0.0, 0.6, 0.8, 0.0, 1.0],
//!     v: &[1.0, -1.0, 2.0, 0.0, 0.5, 3.0],
//!     beta: Some(&[0.9; 6]),
//!     g: Some(&[-0.1; 12]),
//!     precond: Some(Precond { g: &[-0.01; 3], beta: &[0.5; 3], log_scale: &[-0.2], initial: None }),
//!     initial_state: None,
//!     cu_seqlens: None,
//! };
//! let options = Options::default();
//! let chunk = cpu::delta::chunk(&Rule::PRECONDITIONED_KDA, &shape, &inputs, &options)?;
//! let recurrent = cpu::delta::recurrent(&Rule::PRECONDITIONED_KDA, &shape, &inputs, &options)?;
//! assert!(chunk.o.iter().zip(&recurrent.o).all(|(a, b)| (a - b).abs() < 1e-6));
//! // The preconditioner's sums are part of what a caller keeps for the next call.
//! assert_eq!((chunk.o.len(), chunk.final_state.len(), chunk.final_sums.len()), (6, 4, 2));
//!
//! // What does not fit is refused before anything is computed.
//! let error = cpu::delta::chunk(&Rule::DELTANET, &shape, &inputs, &options).unwrap_err();
//! assert_eq!(error.to_string(), "g: expected nothing for rule deltanet, got a tensor");
//! # Ok::<(), deltanet::Error>(())
//! ```

use crate::error::{Error, Result};
use crate::rule::{Beta, Decay, Rule, WriteKey};

/// Sizes of one call. Value head `h` reads key head `h / (value_heads / heads)`.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Shape {
    /// B: sequences of equal length. 1 when `cu_seqlens` packs sequences of different lengths.
    pub batch: usize,
    /// T: tokens a sequence (or in all packed sequences together).
    pub tokens: usize,
    /// H: query and key heads.
    pub heads: usize,
    /// HV: value heads, a multiple of H.
    pub value_heads: usize,
    /// K: channels of a query or key, 1..=256.
    pub key_dim: usize,
    /// V: channels of a value, without bound.
    pub value_dim: usize,
}

/// Inputs of the preconditioner (MATH.md §8.3), per key head.
#[derive(Clone, Copy, Debug)]
pub struct Precond<'a> {
    /// Log decay of the running sums, `[B, T, H]`, ≤ 0.
    pub g: &'a [f32],
    /// Their write strength, `[B, T, H]`.
    pub beta: &'a [f32],
    /// `log_atk_scale` μ, `[H]`.
    pub log_scale: &'a [f32],
    /// Running sums at the start, `[N, H, K]`; zero when absent.
    pub initial: Option<&'a [f32]>,
}

/// Tensors of one call, row-major f32.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Queries, `[B, T, H, K]`.
    pub q: &'a [f32],
    /// Keys, `[B, T, H, K]`.
    pub k: &'a [f32],
    /// Values, `[B, T, HV, V]`.
    pub v: &'a [f32],
    /// Write strength, `[B, T, HV]`: present unless the rule's beta is [`Beta::One`]. In `[0, 2]` for unit keys.
    pub beta: Option<&'a [f32]>,
    /// Log decay (natural), ≤ 0: `[B, T, HV]` or `[B, T, HV, K]` as the rule says, absent without decay.
    /// Values below −10,000 (−∞ too) count as −10,000, which is a decay of exactly 0.
    pub g: Option<&'a [f32]>,
    /// State at the start, `[N, HV, K, V]`; zero when absent. N is B, or the number of packed sequences.
    pub initial_state: Option<&'a [f32]>,
    /// Present when the rule's write key is preconditioned.
    pub precond: Option<Precond<'a>>,
    /// Packed sequences: `[N + 1]` offsets into T, from 0 to T, rising. With B = 1 only.
    pub cu_seqlens: Option<&'a [u32]>,
}

/// Options of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// σ, applied to the queries once. `None`: `K^-1/2`.
    pub scale: Option<f32>,
    /// Normalise queries and keys first: `x / sqrt(Σx² + 1e-6)`.
    pub l2norm: bool,
    /// Also return the state at each chunk's start.
    pub chunk_states: bool,
    /// Chunk length, a power of two from 16 to 64; `None` lets the engine choose.
    pub chunk: Option<usize>,
    /// Lets the chunkwise form round what it multiplies to f16, on GPUs with cooperative matrices and in chunks of 64;
    /// sums, states and decays stay f32. Faster, and within [`HALF_TOLERANCE`] of the largest value instead of 1e-5;
    /// magnitudes beyond 65,504 are cut off, those below 6e-5 lose bits. Without effect where V is no multiple of 4,
    /// and on all other devices.
    pub half_products: bool,
    /// How many segments of a sequence the chunkwise form scans side by side, at three times the scan's work: for few
    /// heads, which leave most of a GPU idle. 1 for none; `None` lets the engine choose. At most [`MAX_SEGMENTS`].
    /// Without effect where K or V is no multiple of 4, and where the scan has no f16 operands.
    pub segments: Option<usize>,
}

/// Most segments, see [`Options::segments`].
pub const MAX_SEGMENTS: usize = 16;

/// What one call returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// `[B, T, HV, V]`.
    pub o: Vec<f32>,
    /// State after the last token, `[N, HV, K, V]`.
    pub final_state: Vec<f32>,
    /// Running sums of the preconditioner after the last token, `[N, H, K]`; empty for other rules.
    pub final_sums: Vec<f32>,
    /// With `chunk_states`: state before each chunk, `[chunks, HV, K, V]`, sequence after sequence, chunks restarting
    /// at each sequence. Empty otherwise.
    pub chunk_states: Vec<f32>,
    /// Chunk length used (1 for the recurrent form).
    pub chunk: usize,
}

/// What [`Options::half_products`] may do to outputs and final states, relative to the largest of each, for stable rules
/// and inputs within f16's range. Tests see 1.1e-3 at most.
pub const HALF_TOLERANCE: f64 = 3e-3;

/// ε of l2norm, inside the root (MATH.md §1).
pub const L2NORM_EPS: f32 = 1e-6;
/// x of the preconditioner's squash (MATH.md §8.3).
pub const SQUASH_X: f32 = 1.5;
/// ε of the preconditioner's logarithm.
pub const SQUASH_EPS: f32 = 1e-6;
/// Log decays are clamped here: `exp` of it is exactly 0, and differences of −∞ never arise (MATH.md §5).
pub const MIN_LOG_DECAY: f32 = -1e4;

impl Shape {
    /// N: number of states, one a sequence.
    pub fn sequences(&self, inputs: &Inputs<'_>) -> usize {
        inputs.cu_seqlens.map_or(self.batch, |c| c.len().saturating_sub(1))
    }

    /// `(first row, length)` of each sequence among the `B·T` rows.
    pub fn spans(&self, inputs: &Inputs<'_>) -> Vec<(usize, usize)> {
        match inputs.cu_seqlens {
            None => (0..self.batch).map(|b| (b * self.tokens, self.tokens)).collect(),
            Some(c) => c.windows(2).map(|w| (w[0] as usize, (w[1] - w[0]) as usize)).collect(),
        }
    }

    /// Checks the sizes and options alone: what [`Shape::check`] does before it looks at tensors.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the size or option, its domain and what came.
    pub fn check_sizes(&self, options: &Options) -> Result<()> {
        let Self { batch, heads, value_heads, key_dim, value_dim, .. } = *self;
        for (name, n) in [("batch", batch), ("heads", heads), ("value_heads", value_heads), ("value_dim", value_dim)] {
            if n == 0 {
                return Err(Error::argument(name, "at least 1", 0));
            }
        }
        if !(1..=256).contains(&key_dim) {
            return Err(Error::argument("key_dim", "1 to 256", key_dim));
        }
        if !value_heads.is_multiple_of(heads) {
            return Err(Error::argument("value_heads", format!("a multiple of {heads} heads"), value_heads));
        }
        if let Some(c) = options.chunk
            && !(c.is_power_of_two() && (16..=64).contains(&c))
        {
            return Err(Error::argument("chunk", "16, 32 or 64", c));
        }
        if let Some(n) = options.segments
            && !(1..=MAX_SEGMENTS).contains(&n)
        {
            return Err(Error::argument("segments", format!("1 to {MAX_SEGMENTS}"), n));
        }
        if let Some(s) = options.scale
            && !s.is_finite()
        {
            return Err(Error::argument("scale", "a finite number", s));
        }
        Ok(())
    }

    /// Checks every size and length against the rule, before anything is allocated.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the tensor, the shape it must have and the length that came.
    pub fn check(&self, rule: &Rule, inputs: &Inputs<'_>, options: &Options) -> Result<()> {
        self.check_sizes(options)?;
        let Self { batch, tokens, heads, value_heads, key_dim, value_dim } = *self;
        if let Some(c) = inputs.cu_seqlens {
            let rising = c.windows(2).all(|w| w[0] <= w[1]);
            let ends = c.len() >= 2 && c.first() == Some(&0) && c.last().map(|e| *e as usize) == Some(tokens);
            if batch != 1 || !rising || !ends {
                return Err(Error::argument(
                    "cu_seqlens",
                    format!("with batch 1, rising offsets from 0 to {tokens}"),
                    format!("{} offsets, batch {batch}", c.len()),
                ));
            }
        }
        let n = self.sequences(inputs);
        let size = |dims: &[usize]| dims.iter().try_fold(1usize, |a, d| a.checked_mul(*d));
        let want = |name: &str, got: Option<usize>, dims: &[usize], present: bool| -> Result<()> {
            match (got, present) {
                (None, false) => Ok(()),
                (Some(_), false) => Err(Error::argument(name, format!("nothing for rule {}", rule.name()), "a tensor")),
                (None, true) => Err(Error::argument(name, format!("{dims:?} for rule {}", rule.name()), "nothing")),
                (Some(got), true) if size(dims) == Some(got) => Ok(()),
                (Some(got), true) => Err(Error::argument(name, format!("{dims:?}"), format!("{got} elements"))),
            }
        };
        want("q", Some(inputs.q.len()), &[batch, tokens, heads, key_dim], true)?;
        want("k", Some(inputs.k.len()), &[batch, tokens, heads, key_dim], true)?;
        want("v", Some(inputs.v.len()), &[batch, tokens, value_heads, value_dim], true)?;
        let beta = inputs.beta.map(<[f32]>::len);
        want("beta", beta, &[batch, tokens, value_heads], rule.beta != Beta::One)?;
        let g = inputs.g.map(<[f32]>::len);
        match rule.decay {
            Decay::None => want("g", g, &[], false)?,
            Decay::PerHead => want("g", g, &[batch, tokens, value_heads], true)?,
            Decay::PerChannel => want("g", g, &[batch, tokens, value_heads, key_dim], true)?,
        }
        if let Some(s) = inputs.initial_state {
            want("initial_state", Some(s.len()), &[n, value_heads, key_dim, value_dim], true)?;
        }
        let preconditioned = rule.write_key == WriteKey::Preconditioned;
        match (&inputs.precond, preconditioned) {
            (None, false) => {}
            (Some(p), true) => {
                want("precond.g", Some(p.g.len()), &[batch, tokens, heads], true)?;
                want("precond.beta", Some(p.beta.len()), &[batch, tokens, heads], true)?;
                want("precond.log_scale", Some(p.log_scale.len()), &[heads], true)?;
                if let Some(a) = p.initial {
                    want("precond.initial", Some(a.len()), &[n, heads, key_dim], true)?;
                }
            }
            (got, _) => {
                let got = if got.is_some() { "given" } else { "nothing" };
                let rule = rule.name();
                return Err(Error::argument("precond", format!("present only when rule {rule} needs it"), got));
            }
        }
        Ok(())
    }

    /// σ.
    pub fn scale(&self, options: &Options) -> f32 {
        options.scale.unwrap_or_else(|| (self.key_dim as f32).sqrt().recip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_beyond_their_domain_are_named() {
        let shape = Shape { batch: 1, tokens: 4, heads: 1, value_heads: 1, key_dim: 8, value_dim: 8 };
        let domain = |options: Options| shape.check_sizes(&options).err().map(|e| e.to_string());
        for segments in [None, Some(1), Some(MAX_SEGMENTS)] {
            assert_eq!(domain(Options { segments, ..Options::default() }), None);
        }
        for (options, says) in [
            (Options { segments: Some(0), ..Options::default() }, "segments: expected 1 to 16, got 0"),
            (Options { segments: Some(17), ..Options::default() }, "segments: expected 1 to 16, got 17"),
            (Options { chunk: Some(48), ..Options::default() }, "chunk: expected 16, 32 or 64, got 48"),
            (Options { scale: Some(f32::NAN), ..Options::default() }, "scale: expected a finite number, got NaN"),
        ] {
            assert_eq!(domain(options).as_deref(), Some(says));
        }
    }
}
