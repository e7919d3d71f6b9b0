//! Ops: what a plan does, as data. One op may become one dispatch on one adapter and five on another; `gpu::lower`
//! decides that, and nothing here knows.
//!
//! Rows are tokens. In a prefill all rows belong to one session; in a decode each row is the next token of a session
//! of its own. Sizes are in f32 elements.

use crate::rule::Rule;

/// A buffer of a plan.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct BufId(pub usize);

/// A weight of a model: an index into [`crate::model::Model`]'s weights.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeightId(pub usize);

/// Columns of a buffer `[rows, width]`: `at .. at + n` of each row, n known from context.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Cols {
    /// The buffer.
    pub buf: BufId,
    /// Elements a row of it.
    pub width: usize,
    /// First column.
    pub at: usize,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `out[r] = table[token[r]]`.
    Embed(Embed),
    /// `out[r] (+)= W · input(r) (+ bias)`.
    Linear(Linear),
    /// Short convolution, gates and the delta rule: projections in, one vector a value head out.
    Mixer(Mixer),
    /// Softmax attention with rotary embedding, over a window or everything so far.
    Attention(Attention),
}

impl Op {
    /// Every plan buffer that the op reads or writes. Some may come twice.
    pub fn buffers(&self) -> Vec<BufId> {
        match self {
            Self::Embed(op) => vec![op.out],
            Self::Linear(op) => {
                let mut all = vec![op.out];
                match &op.input {
                    Input::Plain(x) | Input::SwiGlu(x) | Input::RmsNorm { x, .. } => all.push(x.buf),
                    Input::HeadNorm { x, gate, .. } => {
                        all.push(x.buf);
                        all.extend(gate.iter().map(|(cols, _)| cols.buf));
                    }
                }
                all
            }
            Self::Mixer(op) => {
                let mut all = vec![op.qkv.buf, op.out, op.conved, op.gates];
                all.extend(op.beta.iter().map(|cols| cols.buf));
                all.extend(op.decay.iter().map(|d| d.a.buf));
                all.extend(op.precond.iter().flat_map(|p| [p.a.buf, p.b.buf]));
                all
            }
            Self::Attention(op) => vec![op.qkv.buf, op.out],
        }
    }
}

impl Op {
    /// The buffer that it writes.
    pub fn out(&self) -> BufId {
        match self {
            Self::Embed(op) => op.out,
            Self::Linear(op) => op.out,
            Self::Mixer(op) => op.out,
            Self::Attention(op) => op.out,
        }
    }
}

/// See [`Op::Embed`].
#[derive(Clone, Debug, PartialEq)]
pub struct Embed {
    /// `[vocab, width]`.
    pub table: WeightId,
    /// Elements a row.
    pub width: usize,
    /// `[rows, width]`.
    pub out: BufId,
}

/// What a [`Linear`] multiplies: applied to each row on the way in.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The columns as they are.
    Plain(Cols),
    /// `x / sqrt(mean x² + eps) ⊙ w`, w `[in_dim]`.
    RmsNorm {
        /// `[rows, in_dim]`.
        x: Cols,
        /// `[in_dim]`.
        weight: WeightId,
        /// Inside the root.
        eps: f32,
    },
    /// Per head of `head_dim`: RMSNorm (if `weight`), then times the activated gate (if `gate`).
    HeadNorm {
        /// `[rows, in_dim]`, in_dim a multiple of head_dim.
        x: Cols,
        /// Elements a head.
        head_dim: usize,
        /// `[head_dim]`, shared by all heads; `None`: no norm.
        weight: Option<WeightId>,
        /// Inside the root.
        eps: f32,
        /// `[rows, in_dim]` and its activation.
        gate: Option<(Cols, Activation)>,
    },
    /// `silu(gate) ⊙ up`, gate `[rows, in_dim]` at the columns, up `in_dim` columns further on.
    SwiGlu(Cols),
}

/// Activation of an output gate.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Activation {
    /// x·sigmoid(x), also called swish.
    Silu,
    /// 1 / (1 + exp(−x)).
    Sigmoid,
}

/// See [`Op::Linear`]. One weight may stack several matrices (q, k, v, gates): their rows follow one another.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// What is multiplied.
    pub input: Input,
    /// `[out_dim, in_dim]`.
    pub weight: WeightId,
    /// `[out_dim]`.
    pub bias: Option<WeightId>,
    /// Columns of the input.
    pub in_dim: usize,
    /// Rows of the weight.
    pub out_dim: usize,
    /// `[rows, out_dim]`, or `[sequences, out_dim]` with `last_only`.
    pub out: BufId,
    /// Adds to `out` (the residual stream) instead of writing it.
    pub add: bool,
    /// Only the last valid row of each session (the logits after a prompt).
    pub last_only: bool,
}

/// How g is made from its projection `a`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GateForm {
    /// `g = −exp(A_log) · softplus(a + dt_bias)`.
    Softplus,
    /// `g = lower · sigmoid(exp(A_log) (a + dt_bias))`, lower in [−5, 0).
    Bounded(f32),
}

/// Decay gate of a mixer: g `[rows, HV]` or `[rows, HV, K]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DecayGate {
    /// The projection, as many columns as g has.
    pub a: Cols,
    /// `[HV]`.
    pub a_log: WeightId,
    /// As many as g has a row.
    pub dt_bias: WeightId,
    /// The form.
    pub form: GateForm,
}

/// Preconditioner of a mixer (MATH.md §8.3), per key head.
#[derive(Clone, Debug, PartialEq)]
pub struct PrecondGate {
    /// Projection of the sums' decay, `[rows, H]`.
    pub a: Cols,
    /// Projection of their write strength, `[rows, H]`; sigmoid, never doubled.
    pub b: Cols,
    /// `[H]`.
    pub a_log: WeightId,
    /// `[H]`.
    pub dt_bias: WeightId,
    /// μ, `[H]`.
    pub log_scale: WeightId,
}

/// Where a mixer's state lies inside its layer's slot. Offsets in f32 elements.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq)]
pub struct MixerState {
    /// S, `[HV, K, V]`.
    pub s: usize,
    /// The last `conv_size − 1` inputs of the convolution, oldest first, `[conv_size − 1, channels]`.
    pub tail: usize,
    /// The preconditioner's sums, `[H, K]`.
    pub sums: usize,
}

/// See [`Op::Mixer`].
///
/// Per row: `u = silu(conv(q|k|v))`; q, k to heads and l2norm; β = sigmoid(b)·beta_scale; g from its gate; then the
/// rule on the state of the row's session. The convolution's channels are q `[H·K]`, k `[H·K]`, v `[HV·V]`, in this
/// order. Scale σ = K^-1/2.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixer {
    /// The rule.
    pub rule: Rule,
    /// H.
    pub heads: usize,
    /// HV.
    pub value_heads: usize,
    /// K.
    pub key_dim: usize,
    /// V.
    pub value_dim: usize,
    /// q|k|v before the convolution, `[rows, 2·H·K + HV·V]`.
    pub qkv: Cols,
    /// `[channels, conv_size]`, newest input last; `None`: no convolution (SiLU stays).
    pub conv: Option<WeightId>,
    /// Taps of the convolution, 1 without one.
    pub conv_size: usize,
    /// l2norm of q and k.
    pub l2norm: bool,
    /// Projection of β, `[rows, HV]`; `None`: β = 1.
    pub beta: Option<Cols>,
    /// 1, or 2 for negative eigenvalues.
    pub beta_scale: f32,
    /// Decay.
    pub decay: Option<DecayGate>,
    /// Preconditioner.
    pub precond: Option<PrecondGate>,
    /// Layer whose state this is.
    pub layer: usize,
    /// Places in the layer's slot.
    pub state: MixerState,
    /// `[rows, HV·V]`.
    pub out: BufId,
    /// Scratch for engines that do not fuse: q|k|v after convolution, SiLU and l2norm, `[rows, 2·H·K + HV·V]`.
    pub conved: BufId,
    /// Scratch likewise: β `[rows, HV]`, then g `[rows, HV or HV·K]`, then the preconditioner's β and g, `[rows, H]`
    /// each; those that the rule has, one after the other.
    pub gates: BufId,
}

impl Mixer {
    /// Channels of the convolution: `2·H·K + HV·V`.
    pub fn channels(&self) -> usize {
        2 * self.heads * self.key_dim + self.value_heads * self.value_dim
    }
}

/// See [`Op::Attention`]. Rotary embedding is the half-split form on the whole head, positions from the session.
///
/// A token's entry in the state is k after norm and rotary embedding, then v: `[2, kv_heads, head_dim]`. With a window
/// the layer's slot is a ring `[window]` of entries, that of position p at `p mod window`; without one the session's
/// cache is `[position]` entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, dividing `heads`.
    pub kv_heads: usize,
    /// Channels a head.
    pub head_dim: usize,
    /// q `[heads·head_dim]`, k, v `[kv_heads·head_dim]`, side by side.
    pub qkv: Cols,
    /// RMSNorm of q and k before the rotary embedding, `[head_dim]` each, with its eps.
    pub qk_norm: Option<(WeightId, WeightId, f32)>,
    /// Rotary base; `None`: no positions.
    pub rope_theta: Option<f32>,
    /// Tokens a query sees, itself included; `None`: all.
    pub window: Option<usize>,
    /// Layer whose cache this is.
    pub layer: usize,
    /// `[rows, heads·head_dim]`.
    pub out: BufId,
}
