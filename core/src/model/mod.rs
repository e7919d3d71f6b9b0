//! A model: weights with names turned into a plan. One file an architecture; no shader is named here.

use crate::checkpoint::TensorView;
use crate::ops::WeightId;

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
    /// State of each layer.
    pub layers: Vec<LayerState>,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
    /// Number of parameters.
    pub parameters: u64,
    /// Bytes of all weights as stored.
    pub weight_bytes: u64,
    /// Identifies architecture, sizes and weights: a saved session belongs to one fingerprint.
    pub fingerprint: [u8; 16],
}

impl Spec {
    /// A weight.
    pub fn weight(&self, id: WeightId) -> &Weight {
        &self.weights[id.0]
    }
}
