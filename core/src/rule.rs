//! The family as data (MATH.md §2).
//!
//! Every rule is the same recurrence over a state `S` of shape `[K, V]`, one per value head:
//!
//! ```text
//! S ← D·S                    decay: none, one number a head, or one a channel of K
//! e ← β (v − k·S)            with the delta term;   e ← β·v without it
//! S ← S + k̃ᵀ e               write key k̃: the key itself, or the preconditioned key
//! o ← σ q·S
//! ```
//!
//! A [`Rule`] says which parts are there. Kernels are specialised from it; nothing else in the crate asks for a
//! variant's name.
//!
//! So a new rule is a new value, and runs at once on every engine, in both forms:
//!
//! ```
//! use deltanet::delta::{Inputs, Options, Precond, Shape};
//! use deltanet::gpu::{DeviceChoice, Gpu, LimitsChoice};
//! use deltanet::rule::{Beta, Decay, Rule, WriteKey};
//! use deltanet::{cpu, gpu};
//!
//! // Nobody's yet: scalar decay, no delta term, a write strength, and a preconditioned write key.
//! const MINE: Rule =
//!     Rule { decay: Decay::PerHead, delta: false, beta: Beta::Given, write_key: WriteKey::Preconditioned };
//!
//! # fn main() -> deltanet::Result<()> {
//! let shape = Shape { batch: 1, tokens: 40, heads: 1, value_heads: 1, key_dim: 4, value_dim: 4 };
//! let numbers: Vec<f32> = (0..160).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
//! let inputs = Inputs {
//!     q: &numbers,
//!     k: &numbers,
//!     v: &numbers,
//!     beta: Some(&[0.5; 40]),
//!     g: Some(&[-0.1; 40]),
//!     precond: Some(Precond { g: &[-0.1; 40], beta: &[0.5; 40], log_scale: &[-0.2], initial: None }),
//!     initial_state: None,
//!     cu_seqlens: None,
//! };
//! let options = Options { l2norm: true, ..Options::default() };
//! let exact = cpu::delta::reference(&MINE, &shape, &inputs, &options)?; // f64, the recurrence above
//! let mut results = vec![
//!     cpu::delta::recurrent(&MINE, &shape, &inputs, &options)?,
//!     cpu::delta::chunk(&MINE, &shape, &inputs, &options)?,
//! ];
//! // On whatever adapter there is, a software one too.
//! if let Ok(device) = pollster::block_on(Gpu::request(&DeviceChoice::Any, LimitsChoice::Best)) {
//!     results.push(device.wait(gpu::delta::recurrent(&device, &MINE, &shape, &inputs, &options))?);
//!     results.push(device.wait(gpu::delta::chunk(&device, &MINE, &shape, &inputs, &options))?);
//! }
//! for result in results {
//!     assert!(result.o.iter().zip(&exact.o).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5));
//! }
//! # Ok(())
//! # }
//! ```

/// How the state fades from token to token.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Decay {
    /// `D = I`.
    None,
    /// `D = exp(g)`, `g` one log decay per token and value head, `[T, HV]`.
    PerHead,
    /// `D = diag(exp(g))`, `g` one log decay per token, value head and key channel, `[T, HV, K]`.
    PerChannel,
}

/// Where the write strength β comes from.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Beta {
    /// β = 1.
    One,
    /// β is an input, `[T, HV]`.
    Given,
    /// Longhorn's exact scalar step: the input is `b`, `[T, HV]`, and `β = b / (1 + b‖k‖²)` with the key that the
    /// recurrence sees (after l2norm, if that is asked for).
    Longhorn,
}

/// Which key writes.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum WriteKey {
    /// `k̃ = k`.
    Key,
    /// `k̃ = B ⊙ k` with the diagonal preconditioner of MATH.md §8.3; its running sums `A` `[H, K]` join the state.
    Preconditioned,
}

/// One member of the delta-rule family. See the module's documentation for the recurrence.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Rule {
    /// The decay.
    pub decay: Decay,
    /// Whether the value read back from the state is subtracted before writing.
    pub delta: bool,
    /// The write strength.
    pub beta: Beta,
    /// The write key.
    pub write_key: WriteKey,
}

impl Rule {
    /// Linear attention: no decay, no delta.
    pub const LINEAR_ATTENTION: Self =
        Self { decay: Decay::None, delta: false, beta: Beta::One, write_key: WriteKey::Key };
    /// Scalar decay without delta: Mamba-2's and RetNet's rule.
    pub const SCALAR_DECAY: Self = Self { decay: Decay::PerHead, ..Self::LINEAR_ATTENTION };
    /// Channel decay without delta: GLA's rule; HGRN-2's with `k = 1 − exp(g)`.
    pub const CHANNEL_DECAY: Self = Self { decay: Decay::PerChannel, ..Self::LINEAR_ATTENTION };
    /// DeltaNet (arXiv 2406.06484).
    pub const DELTANET: Self = Self { decay: Decay::None, delta: true, beta: Beta::Given, write_key: WriteKey::Key };
    /// Gated DeltaNet (arXiv 2412.06464).
    pub const GATED_DELTANET: Self = Self { decay: Decay::PerHead, ..Self::DELTANET };
    /// Kimi Delta Attention (arXiv 2510.26692).
    pub const KDA: Self = Self { decay: Decay::PerChannel, ..Self::DELTANET };
    /// Longhorn's exact scalar rule.
    pub const LONGHORN: Self = Self { beta: Beta::Longhorn, ..Self::DELTANET };
    /// Preconditioned DeltaNet (arXiv 2604.21100).
    pub const PRECONDITIONED_DELTANET: Self = Self { write_key: WriteKey::Preconditioned, ..Self::DELTANET };
    /// Preconditioned Gated DeltaNet.
    pub const PRECONDITIONED_GATED_DELTANET: Self =
        Self { write_key: WriteKey::Preconditioned, ..Self::GATED_DELTANET };
    /// Preconditioned Kimi Delta Attention.
    pub const PRECONDITIONED_KDA: Self = Self { write_key: WriteKey::Preconditioned, ..Self::KDA };

    /// Every named rule, with the name used in listings and benchmarks.
    pub const NAMED: [(&'static str, Self); 10] = [
        ("linear_attention", Self::LINEAR_ATTENTION),
        ("scalar_decay", Self::SCALAR_DECAY),
        ("channel_decay", Self::CHANNEL_DECAY),
        ("deltanet", Self::DELTANET),
        ("gated_deltanet", Self::GATED_DELTANET),
        ("kda", Self::KDA),
        ("longhorn", Self::LONGHORN),
        ("preconditioned_deltanet", Self::PRECONDITIONED_DELTANET),
        ("preconditioned_gated_deltanet", Self::PRECONDITIONED_GATED_DELTANET),
        ("preconditioned_kda", Self::PRECONDITIONED_KDA),
    ];

    /// The rule's name in [`Rule::NAMED`], or "custom".
    pub fn name(&self) -> &'static str {
        Self::NAMED.iter().find(|(_, r)| r == self).map_or("custom", |(n, _)| n)
    }
}
