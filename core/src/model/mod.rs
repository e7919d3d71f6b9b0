//! A model: weights with names turned into a plan. One file an architecture; no shader is named here.
//!
//! [`Spec::from_checkpoint`] checks a checkpoint against its config and sorts its tensors into [`Weight`]s;
//! [`Spec::plan`] lists the ops that run it. Both are the same for every engine.

mod attention;
mod block;
mod builder;
mod delta_net;
mod gated_deltanet;
mod kda;
mod listing;
mod loader;
mod mixer;
mod precond_gated_deltanet;
mod precond_kda;
mod random;
mod stack;

use crate::checkpoint::scan::{self, Digest};
use crate::checkpoint::{Checkpoint, TensorView};
use crate::config::{Config, ModelType};
use crate::error::Result;
use crate::ops::WeightId;
use crate::plan::{Plan, PlanKind};
use block::Net;
use loader::{Loader, Source};

/// Element type of a stored tensor.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
}

impl DType {
    /// Bytes an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// The name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

/// A weight of a model.
#[derive(Clone, Debug)]
pub enum Weight {
    /// A matrix in the checkpoint's own type and memory (mapped natively): `[rows, cols]`, row-major.
    Matrix(Matrix),
    /// A small tensor as f32: norm weights, biases, gates, convolutions.
    Vector(Vec<f32>),
}

/// A matrix made of one tensor, or of several stacked by rows so that one product serves them all.
/// All parts have the same element type.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Name for errors and listings: the first part's, or a pattern.
    pub name: String,
    /// Rows of all parts together.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Element type.
    pub dtype: DType,
    /// The tensors, `[rows_i, cols]` each.
    pub parts: Vec<TensorView>,
}

impl Matrix {
    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.range.len() as u64).sum()
    }

    /// All elements as f32, `[rows, cols]`: for tests and small matrices.
    pub fn to_f32(&self) -> Vec<f32> {
        self.parts.iter().flat_map(TensorView::to_f32).collect()
    }
}

/// Session state of one layer.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq)]
pub struct LayerState {
    /// f32 elements a session slot: S, convolution tail, preconditioner sums, window ring; zero at the start.
    pub words: usize,
    /// f32 elements a token that an unbounded attention layer caches besides; 0 for all others.
    pub cache_per_token: usize,
}

/// What an engine needs to know of a model, besides its plans.
#[derive(Clone, Debug)]
pub struct Spec {
    /// `model_type` of config.json.
    pub model_type: String,
    /// Vocabulary size V.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Weights, by [`WeightId`].
    pub weights: Vec<Weight>,
    /// Names of the weights, for errors and listings.
    pub names: Vec<String>,
    /// State of each layer.
    pub layers: Vec<LayerState>,
    /// Token that begins a text, if the config names one.
    pub bos: Option<u32>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
    /// Number of parameters.
    pub parameters: u64,
    /// Bytes of all weights as stored.
    pub weight_bytes: u64,
    /// Identifies architecture, sizes and weights: a saved session belongs to one fingerprint.
    pub fingerprint: [u8; 16],
    /// The whole config.
    pub config: Config,
    net: Net,
}

impl Spec {
    /// Checks a checkpoint's tensors against its config, and every element for being a number.
    ///
    /// `progress` gets bytes checked and bytes in all. The weights stay where the checkpoint has them.
    ///
    /// # Errors
    /// [`Error::Config`] naming a field, [`Error::Tensor`] naming a tensor that is missing, misshapen, unexpected or
    /// holds an infinity or NaN.
    ///
    /// [`Error::Config`]: crate::Error::Config
    /// [`Error::Tensor`]: crate::Error::Tensor
    pub fn from_checkpoint(checkpoint: &Checkpoint, progress: &mut dyn FnMut(u64, u64)) -> Result<Self> {
        Self::read(checkpoint, progress).map_err(|e| checkpoint.locate(e))
    }

    fn read(checkpoint: &Checkpoint, progress: &mut dyn FnMut(u64, u64)) -> Result<Self> {
        let config = Config::parse(checkpoint.config(), checkpoint.generation_config())?;
        let mut loader = Loader::new(Source::Checkpoint(checkpoint));
        let net = Net::load(&config, &mut loader)?;
        loader.check_all_used(&config)?;
        let mut digest = Digest::new();
        digest.add(config.identity().as_bytes());
        scan::scan(checkpoint.tensors(), &mut digest, progress)?;
        Ok(Self::assemble(config, net, loader, digest))
    }

    /// Whether a config.json is one of a model that this crate runs: to know before the weights have come.
    ///
    /// # Errors
    /// [`Error::Config`] naming a field.
    ///
    /// [`Error::Config`]: crate::Error::Config
    pub fn check_config(config_json: &str) -> Result<()> {
        Config::parse(config_json, None).map(drop)
    }

    /// A model of a config's shape with seeded random weights: for benchmarks and tests of shapes that no file has.
    ///
    /// Matrices are in the config's `dtype` (bf16 if it names none), uniform with standard deviation 0.02; gates and
    /// convolutions lie where training starts.
    ///
    /// # Errors
    /// As for a config from a file; [`Error::OutOfMemory`] when the weights would not fit.
    ///
    /// [`Error::OutOfMemory`]: crate::Error::OutOfMemory
    pub fn random(config_json: &str, seed: u64) -> Result<Self> {
        let config = Config::parse(config_json, None)?;
        let dtype = config.dtype.unwrap_or(DType::Bf16);
        let mut loader = Loader::new(Source::Random(random::Random::new(seed, dtype)));
        let net = Net::load(&config, &mut loader)?;
        let mut digest = Digest::new();
        digest.add(format!("random {seed} {dtype:?} {}", config.identity()).as_bytes());
        Ok(Self::assemble(config, net, loader, digest))
    }

    fn assemble(config: Config, net: Net, loader: Loader<'_>, digest: Digest) -> Self {
        let Loader { weights, names, parameters, bytes, .. } = loader;
        Self {
            model_type: config.model_type.name().to_owned(),
            vocab: config.vocab,
            hidden: config.hidden,
            weights,
            names,
            layers: net.layers.iter().map(block::Layer::state).collect(),
            bos: config.bos,
            eos: config.eos.clone(),
            parameters,
            weight_bytes: bytes,
            fingerprint: digest.finish(),
            config,
            net,
        }
    }

    /// A weight.
    pub fn weight(&self, id: WeightId) -> &Weight {
        &self.weights[id.0]
    }

    /// f32 elements of one session's state, the caches of unbounded attention layers left out.
    pub fn state_words(&self) -> usize {
        self.layers.iter().map(|l| l.words).sum()
    }

    /// The ops that run the model on up to `rows` rows.
    ///
    /// # Errors
    /// [`Error::Argument`] when `rows` is 0, or so many that a buffer would pass 2³¹ elements.
    ///
    /// [`Error::Argument`]: crate::Error::Argument
    pub fn plan(&self, kind: PlanKind, rows: usize) -> Result<Plan> {
        self.net.plan(&self.config, kind, rows)
    }
}
