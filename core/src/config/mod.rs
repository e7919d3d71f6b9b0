//! config.json to a typed, validated [`Config`].
//!
//! Every number is checked against what any model could have, and every option that this crate does not implement is
//! refused by name: nothing is ignored silently that would change a result.

mod fields;

use fields::{Fields, value};

use crate::error::{Error, Result};
use crate::model::DType;
use crate::ops::Activation;

/// Architectures that checkpoints may name in `model_type`.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum ModelType {
    /// DeltaNet in flash-linear-attention's format.
    DeltaNet,
    /// Gated DeltaNet, likewise.
    GatedDeltaNet,
    /// Kimi Delta Attention, likewise.
    Kda,
    /// Preconditioned Gated DeltaNet, likewise.
    PrecondGatedDeltaNet,
    /// Preconditioned Kimi Delta Attention, likewise.
    PrecondKda,
}

impl ModelType {
    /// All of them, with their names in config.json.
    pub const ALL: [(&'static str, Self); 5] = [
        ("delta_net", Self::DeltaNet),
        ("gated_deltanet", Self::GatedDeltaNet),
        ("kda", Self::Kda),
        ("precond_gated_deltanet", Self::PrecondGatedDeltaNet),
        ("precond_kda", Self::PrecondKda),
    ];

    /// The name in config.json.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, t)| *t == self).map_or("", |(n, _)| n)
    }
}

/// A delta-rule layer's sizes and options.
#[derive(Clone, Debug, PartialEq)]
pub struct MixerConfig {
    /// H: query and key heads.
    pub heads: usize,
    /// HV: value heads, a multiple of H.
    pub value_heads: usize,
    /// K: channels of a key head.
    pub key_dim: usize,
    /// V: channels of a value head.
    pub value_dim: usize,
    /// Taps of the short convolution; `None` without one.
    pub conv_size: Option<usize>,
    /// Whether β is projected from the input; it is 1 otherwise.
    pub use_beta: bool,
    /// Factor of β: 1, or 2 where negative eigenvalues are allowed.
    pub beta_scale: f32,
    /// Activation of the output gate; `None` without one.
    pub output_gate: Option<Activation>,
    /// Lower bound of the bounded channel gate, in [−5, 0); `None` is the softplus gate.
    pub lower_bound: Option<f32>,
}

/// Softmax attention on some layers of a hybrid.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Layers that have it, rising.
    pub layers: Vec<usize>,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, dividing `heads`.
    pub kv_heads: usize,
    /// Channels a head.
    pub head_dim: usize,
    /// Whether the projections of q, k and v have biases.
    pub qkv_bias: bool,
    /// Whether q and k are normalised by RMSNorm, head by head.
    pub qk_norm: bool,
    /// Tokens a query sees, itself included; `None`: all.
    pub window: Option<usize>,
    /// Base of the rotary embedding; `None` without positions.
    pub rope_theta: Option<f32>,
}

/// A model's architecture and sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The architecture.
    pub model_type: ModelType,
    /// Vocabulary size.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Width of the gated MLP.
    pub intermediate: usize,
    /// ε of every RMSNorm of the residual stream and of the heads.
    pub norm_eps: f32,
    /// Whether the output matrix is the embedding.
    pub tied: bool,
    /// The delta-rule layers.
    pub mixer: MixerConfig,
    /// The attention layers of a hybrid.
    pub attention: Option<AttentionConfig>,
    /// Token that begins a text, if the model has one.
    pub bos: Option<u32>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
    /// Element type that the weights were saved in, as far as the config tells.
    pub dtype: Option<DType>,
}

/// Bounds that no model reaches: with them, every product of two sizes fits 64 bits and most fit 32.
const MAX_VOCAB: usize = 1 << 24;
const MAX_HIDDEN: usize = 1 << 16;
const MAX_LAYERS: usize = 1 << 12;
const MAX_HEADS: usize = 1 << 12;
const MAX_KEY_DIM: usize = 256;
const MAX_VALUE_DIM: usize = 1 << 16;
const MAX_CONV: usize = 16;
const MAX_WINDOW: usize = 1 << 24;
/// Elements of one matrix, and of one layer's state: below 2³¹, so that 32-bit indices reach all of them.
const MAX_ELEMENTS: u64 = (1 << 31) - 1;

impl Config {
    /// Parses config.json, and takes the tokens that end a text from generation_config.json where that names some.
    ///
    /// # Errors
    /// [`Error::Format`] when a text is not a JSON object; [`Error::Config`] naming the field.
    pub fn parse(config: &str, generation_config: Option<&str>) -> Result<Self> {
        let root = value("config.json", config)?;
        let f = Fields::new(&root, "config.json", "");
        let model_type = f.name("model_type", None, &ModelType::ALL)?;
        let mut config = parse_fla(&f, model_type)?;
        if let Some(text) = generation_config {
            let root = value("generation_config.json", text)?;
            let f = Fields::new(&root, "generation_config.json", "");
            let eos = f.ids("eos_token_id", config.vocab)?;
            if !eos.is_empty() {
                config.eos = eos;
            }
        }
        Ok(config)
    }

    /// The mixing layer of layer `n` is attention.
    pub fn is_attention(&self, n: usize) -> bool {
        self.attention.as_ref().is_some_and(|a| a.layers.contains(&n))
    }

    /// What a saved session depends on, in a form that stays the same from version to version.
    pub(crate) fn identity(&self) -> String {
        let Self { vocab, hidden, layers, intermediate, norm_eps, tied, mixer: m, .. } = self;
        let attention = self.attention.as_ref().map_or_else(String::new, |a| {
            format!(
                " attn {:?} {}/{}x{} bias {} norm {} window {:?} rope {:?}",
                a.layers, a.heads, a.kv_heads, a.head_dim, a.qkv_bias, a.qk_norm, a.window, a.rope_theta
            )
        });
        format!(
            "{} {vocab} {hidden} {layers} {intermediate} {norm_eps:e} {tied} {}/{} {}x{} conv {:?} beta {} {} gate {:?} \
             bound {:?}{attention}",
            self.model_type.name(),
            m.heads,
            m.value_heads,
            m.key_dim,
            m.value_dim,
            m.conv_size,
            m.use_beta,
            m.beta_scale,
            m.output_gate,
            m.lower_bound
        )
    }
}

/// A flash-linear-attention config. Fields that it omits have the defaults of that library's config classes.
fn parse_fla(f: &Fields<'_>, model_type: ModelType) -> Result<Config> {
    use ModelType::{DeltaNet, GatedDeltaNet, Kda, PrecondGatedDeltaNet, PrecondKda};
    let hidden = f.size("hidden_size", Some(2048), MAX_HIDDEN)?;
    let layers = match model_type {
        DeltaNet | Kda | PrecondKda => 24,
        GatedDeltaNet | PrecondGatedDeltaNet => 21,
    };
    let layers = f.size("num_hidden_layers", Some(layers), MAX_LAYERS)?;
    let vocab = f.size("vocab_size", Some(32_000), MAX_VOCAB)?;
    f.name("hidden_act", Some(()), &[("swish", ()), ("silu", ())])?;
    for field in ["attnres_block_size", "quantization_config", "rope_scaling"] {
        f.absent(field)?;
    }
    f.fixed_bool("conv_bias", false)?;

    let key = if model_type == DeltaNet { delta_net_sizes(f, hidden)? } else { head_sizes(f, model_type)? };
    let (heads, value_heads, key_dim, value_dim) = key;
    let conv = f.flag("use_short_conv", true)?;
    let conv_size = f.size("conv_size", Some(4), MAX_CONV)?;
    let neg_eigval = f.flag("allow_neg_eigval", false)?;
    let output_gate = match model_type {
        DeltaNet => f.flag("use_gate", false)?.then_some(Activation::Silu),
        GatedDeltaNet | PrecondGatedDeltaNet => {
            let names = [("swish", Activation::Silu), ("silu", Activation::Silu), ("sigmoid", Activation::Sigmoid)];
            let activation = f.name("output_gate_activation", Some(Activation::Silu), &names)?;
            f.flag("use_gate", true)?.then_some(activation)
        }
        Kda | PrecondKda => Some(Activation::Sigmoid),
    };
    if model_type == DeltaNet {
        f.name("qk_activation", Some(()), &[("silu", ())])?;
        f.name("qk_norm", Some(()), &[("l2", ())])?;
    }
    if matches!(model_type, PrecondGatedDeltaNet | PrecondKda) {
        f.fixed_float("squash_x", crate::delta::SQUASH_X)?;
        f.fixed_float("squash_eps", crate::delta::SQUASH_EPS)?;
    }
    let mixer = MixerConfig {
        heads,
        value_heads,
        key_dim,
        value_dim,
        conv_size: conv.then_some(conv_size),
        use_beta: model_type != DeltaNet || f.flag("use_beta", true)?,
        beta_scale: if neg_eigval { 2.0 } else { 1.0 },
        output_gate,
        lower_bound: if matches!(model_type, Kda | PrecondKda) { lower_bound(f)? } else { None },
    };
    let config = Config {
        model_type,
        vocab,
        hidden,
        layers,
        intermediate: intermediate(f, hidden)?,
        norm_eps: f.float("norm_eps", Some(1e-6), "a number in (0, 1]", |x| x > 0.0 && x <= 1.0)?,
        tied: f.flag("tie_word_embeddings", false)?,
        mixer,
        attention: f.object("attn")?.map(|a| parse_attention(&a, hidden, layers)).transpose()?,
        bos: f.ids("bos_token_id", vocab)?.first().copied(),
        eos: f.ids("eos_token_id", vocab)?,
        dtype: f.dtype()?,
    };
    check_products(&config)?;
    Ok(config)
}

/// Width of the MLP: given, or fla's rule, 2/3 · ratio · hidden rounded up to 256.
fn intermediate(f: &Fields<'_>, hidden: usize) -> Result<usize> {
    const MOST: usize = 1 << 20;
    if f.is_set("intermediate_size") {
        return f.size("intermediate_size", None, MOST);
    }
    let ratio = f.float("hidden_ratio", Some(4.0), "a number from 0 to 16", |x| x > 0.0 && x <= 16.0)?;
    Ok(((hidden as f64 * f64::from(ratio) * 2.0 / 3.0) as usize).next_multiple_of(256).max(256))
}

/// (H, HV, K, V) of delta_net: the widths are multiples of the hidden size, split over the heads.
fn delta_net_sizes(f: &Fields<'_>, hidden: usize) -> Result<(usize, usize, usize, usize)> {
    let heads = f.size("num_heads", Some(16), MAX_HEADS)?;
    let dim = |field: &str, most: usize| -> Result<usize> {
        let expand = f.float(field, Some(1.0), "a number from 0 to 64", |x| x > 0.0 && x <= 64.0)?;
        let width = (hidden as f64 * f64::from(expand)) as usize;
        if width == 0 || !width.is_multiple_of(heads) || width / heads > most {
            let expected = format!("hidden_size {hidden} times it a multiple of {heads} heads, at most {most} a head");
            return Err(f.bad(field, expected, expand));
        }
        Ok(width / heads)
    };
    Ok((heads, heads, dim("expand_k", MAX_KEY_DIM)?, dim("expand_v", MAX_VALUE_DIM)?))
}

/// (H, HV, K, V) of the other types.
fn head_sizes(f: &Fields<'_>, model_type: ModelType) -> Result<(usize, usize, usize, usize)> {
    let gated = matches!(model_type, ModelType::GatedDeltaNet | ModelType::PrecondGatedDeltaNet);
    let (heads, head_dim, expand) = if gated { (6, 256, 2.0) } else { (16, 128, 1.0) };
    let heads = f.size("num_heads", Some(heads), MAX_HEADS)?;
    let value_heads = f.size("num_v_heads", Some(heads), MAX_HEADS)?;
    if !value_heads.is_multiple_of(heads) {
        return Err(f.bad("num_v_heads", format!("a multiple of num_heads {heads}"), value_heads));
    }
    let key_dim = f.size("head_dim", Some(head_dim), MAX_KEY_DIM)?;
    let expand = f.float("expand_v", Some(expand), "a number from 0 to 256", |x| x > 0.0 && x <= 256.0)?;
    let value_dim = key_dim as f64 * f64::from(expand);
    let whole = (value_dim - value_dim.round()).abs() <= 1e-5 * value_dim;
    if !whole || value_dim.round() < 1.0 || value_dim > MAX_VALUE_DIM as f64 {
        let expected = format!("head_dim {key_dim} times it a whole number up to {MAX_VALUE_DIM}");
        return Err(f.bad("expand_v", expected, expand));
    }
    Ok((heads, value_heads, key_dim, value_dim.round() as usize))
}

/// The bounded gate's lower bound: fla bounds the gate whenever a bound is given, and `safe_gate` demands one.
fn lower_bound(f: &Fields<'_>) -> Result<Option<f32>> {
    let safe = f.flag("safe_gate", false)?;
    if f.is_set("lower_bound") {
        return f.float("lower_bound", None, "a number in [-5, 0)", |x| (-5.0..0.0).contains(&x)).map(Some);
    }
    if safe {
        return Err(f.bad("lower_bound", "a number in [-5, 0), since safe_gate is true", "nothing"));
    }
    Ok(None)
}

fn parse_attention(a: &Fields<'_>, hidden: usize, layers: usize) -> Result<AttentionConfig> {
    let mut on = a.indices("layers", layers)?;
    on.sort_unstable();
    on.dedup();
    let heads = a.size("num_heads", None, MAX_HEADS)?;
    let kv_heads = a.size("num_kv_heads", Some(heads), MAX_HEADS)?;
    if !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(2) || hidden / heads > 256 {
        return Err(a.bad("num_heads", format!("hidden_size {hidden} over it even, at most 256"), heads));
    }
    if !heads.is_multiple_of(kv_heads) {
        return Err(a.bad("num_kv_heads", format!("a divisor of num_heads {heads}"), kv_heads));
    }
    Ok(AttentionConfig {
        layers: on,
        heads,
        kv_heads,
        head_dim: hidden / heads,
        qkv_bias: a.flag("qkv_bias", false)?,
        qk_norm: a.flag("qk_norm", false)?,
        window: if a.is_set("window_size") { Some(a.size("window_size", None, MAX_WINDOW)?) } else { None },
        rope_theta: if a.is_null("rope_theta") {
            None
        } else {
            Some(a.float("rope_theta", Some(1e4), "a number from 1 to 1e12", |x| (1.0..=1e12).contains(&x))?)
        },
    })
}

/// No matrix and no layer's state is larger than 32-bit indices reach.
fn check_products(c: &Config) -> Result<()> {
    let product = |n: &[usize]| n.iter().try_fold(1u64, |a, b| a.checked_mul(*b as u64)).filter(|n| *n <= MAX_ELEMENTS);
    let MixerConfig { heads, value_heads, key_dim, value_dim, .. } = c.mixer;
    let checks: [(&str, &[usize]); 7] = [
        ("vocab_size times hidden_size", &[c.vocab, c.hidden]),
        ("intermediate_size times hidden_size", &[c.intermediate, c.hidden, 2]),
        ("num_heads times the key's size times hidden_size", &[heads, key_dim, c.hidden]),
        ("num_v_heads times the key's size times hidden_size", &[value_heads, key_dim, c.hidden]),
        ("num_v_heads times the value's size times hidden_size", &[value_heads, value_dim, c.hidden]),
        ("num_v_heads times the value's size squared", &[value_heads, value_dim, value_dim]),
        ("num_v_heads times the key's and the value's size", &[value_heads, key_dim, value_dim]),
    ];
    for (what, sizes) in checks {
        if product(sizes).is_none() {
            let got = sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" × ");
            return Err(Error::config(what, format!("at most {MAX_ELEMENTS}"), got));
        }
    }
    if let Some(a) = &c.attention
        && let Some(window) = a.window
        && product(&[window, 2, a.kv_heads, a.head_dim]).is_none()
    {
        let expected = format!("a window of at most {MAX_ELEMENTS} cached numbers");
        return Err(Error::config("attn.window_size", expected, window));
    }
    Ok(())
}
