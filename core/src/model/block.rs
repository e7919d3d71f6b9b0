//! The frame that all architectures share: embedding, layers of mixing and MLP, norm, output matrix.
//!
//! ```text
//! x = E[token]
//! for each layer:   x += mix(norm(x));   x += W_down · (silu(W_gate · norm(x)) ⊙ W_up · norm(x))
//! logits = W_head · norm(x)
//! ```

use super::attention::AttentionLayer;
use super::builder::Builder;
use super::loader::Loader;
use super::mixer::{DeltaLayer, Tensors};
use super::stack::{Part, Stack};
use super::{LayerState, ModelType, delta_net, gated_deltanet, kda, precond_gated_deltanet, precond_kda};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::ops::{Cols, Embed, Input, Linear, Op, WeightId};
use crate::plan::{Plan, PlanKind};

/// How a layer mixes tokens.
#[derive(Clone, Debug)]
enum Mixing {
    Delta(Box<DeltaLayer>),
    Attention(AttentionLayer),
}

/// One layer.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    norm: WeightId,
    mixing: Mixing,
    mlp_norm: WeightId,
    gate_up: Stack,
    down: WeightId,
    state: LayerState,
}

impl Layer {
    pub(super) fn state(&self) -> LayerState {
        self.state
    }
}

/// A model's weights by role.
#[derive(Clone, Debug)]
pub(super) struct Net {
    embedding: WeightId,
    pub(super) layers: Vec<Layer>,
    norm: WeightId,
    head: WeightId,
}

impl Net {
    /// Takes all tensors that the config calls for.
    pub(super) fn load(config: &Config, loader: &mut Loader<'_>) -> Result<Self> {
        let (vocab, hidden) = (config.vocab, config.hidden);
        let embedding = loader.matrix("model.embeddings.weight", vocab, hidden)?;
        // Not reserved: a config's word for the number of layers is not trusted until their tensors are there.
        let mut layers = Vec::new();
        for n in 0..config.layers {
            layers.push(load_layer(config, loader, n)?);
        }
        let norm = loader.vector("model.norm.weight", &[hidden])?;
        let head = if config.tied {
            tied_head(loader, vocab, hidden)?;
            embedding
        } else {
            loader.matrix("lm_head.weight", vocab, hidden)?
        };
        Ok(Self { embedding, layers, norm, head })
    }

    /// See [`super::Spec::plan`].
    pub(super) fn plan(&self, config: &Config, kind: PlanKind, rows: usize) -> Result<Plan> {
        let hidden = config.hidden;
        let mut b = Builder::new(kind, rows)?;
        let x = b.scratch("x", hidden)?;
        let whole = Cols { buf: x, width: hidden, at: 0 };
        let norm = |weight: WeightId| Input::RmsNorm { x: whole, weight, eps: config.norm_eps };
        b.push("embeddings", Op::Embed(Embed { table: self.embedding, width: hidden, out: x }));
        for (n, layer) in self.layers.iter().enumerate() {
            let input = norm(layer.norm);
            match (&layer.mixing, &config.attention) {
                (Mixing::Attention(l), Some(a)) => l.plan(&mut b, config, a, n, &input, x)?,
                (Mixing::Delta(l), _) => l.plan(&mut b, config, n, &input, x)?,
                // Attention layers are loaded only where the config has them.
                (Mixing::Attention(_), None) => {}
            }
            let label = format!("layers.{n}");
            let cols = b.project(&label, &layer.gate_up, &norm(layer.mlp_norm))?;
            let linear = Linear {
                input: Input::SwiGlu(cols[0]),
                weight: layer.down,
                bias: None,
                in_dim: config.intermediate,
                out_dim: hidden,
                out: x,
                add: true,
                last_only: false,
            };
            b.push(format!("{label} down_proj"), Op::Linear(linear));
        }
        let logits = b.logits(config.vocab)?;
        let linear = Linear {
            input: norm(self.norm),
            weight: self.head,
            bias: None,
            in_dim: hidden,
            out_dim: config.vocab,
            out: logits,
            add: false,
            last_only: b.kind() == PlanKind::Prefill,
        };
        b.push("lm_head", Op::Linear(linear));
        Ok(b.finish(logits))
    }
}

fn load_layer(config: &Config, loader: &mut Loader<'_>, n: usize) -> Result<Layer> {
    let hidden = config.hidden;
    let prefix = format!("model.layers.{n}");
    let norm = loader.vector(&format!("{prefix}.attn_norm.weight"), &[hidden])?;
    let mixing_prefix = format!("{prefix}.attn");
    let (mixing, state) = match &config.attention {
        Some(a) if config.is_attention(n) => {
            let layer = AttentionLayer::load(loader, &mixing_prefix, hidden, a)?;
            (Mixing::Attention(layer), AttentionLayer::state(a))
        }
        _ => {
            let mut tensors = Tensors { loader, prefix: mixing_prefix, hidden, config: &config.mixer };
            let layer = match config.model_type {
                ModelType::DeltaNet => delta_net::layer(&mut tensors)?,
                ModelType::GatedDeltaNet => gated_deltanet::layer(&mut tensors)?,
                ModelType::Kda => kda::layer(&mut tensors)?,
                ModelType::PrecondGatedDeltaNet => precond_gated_deltanet::layer(&mut tensors)?,
                ModelType::PrecondKda => precond_kda::layer(&mut tensors)?,
            };
            let state = layer.state(&config.mixer);
            (Mixing::Delta(Box::new(layer)), state)
        }
    };
    let mlp_norm = loader.vector(&format!("{prefix}.mlp_norm.weight"), &[hidden])?;
    let gate = loader.tensor(&format!("{prefix}.mlp.gate_proj.weight"), &[config.intermediate, hidden])?;
    let up = loader.tensor(&format!("{prefix}.mlp.up_proj.weight"), &[config.intermediate, hidden])?;
    let part = Part::new("gate|up", vec![gate, up]);
    let gate_up = Stack::load(loader, &format!("{prefix}.mlp"), hidden, vec![part])?;
    let down = loader.matrix(&format!("{prefix}.mlp.down_proj.weight"), hidden, config.intermediate)?;
    Ok(Layer { norm, mixing, mlp_norm, gate_up, down, state })
}

/// A tied model may store the output matrix as well, but then it must be the embedding.
fn tied_head(loader: &mut Loader<'_>, vocab: usize, hidden: usize) -> Result<()> {
    let (parameters, bytes) = (loader.parameters, loader.bytes);
    let Some(head) = loader.optional("lm_head.weight", &[vocab, hidden])? else { return Ok(()) };
    let table = loader.tensor("model.embeddings.weight", &[vocab, hidden])?;
    if head.dtype != table.dtype || head.data() != table.data() {
        let expected = "the embedding's values, since tie_word_embeddings is true";
        return Err(Error::tensor("lm_head.weight", expected, "others"));
    }
    // Counted once.
    (loader.parameters, loader.bytes) = (parameters, bytes);
    Ok(())
}
