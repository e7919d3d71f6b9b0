//! Takes tensors by name and shape, from a checkpoint or at random, and files them as weights.

use std::collections::BTreeSet;

use super::random::Random;
use super::{DType, Matrix, Weight};
use crate::checkpoint::{Checkpoint, TensorView};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::ops::WeightId;

/// Where tensors come from.
pub(super) enum Source<'a> {
    Checkpoint(&'a Checkpoint),
    Random(Random),
}

/// Collects a model's weights.
pub(super) struct Loader<'a> {
    source: Source<'a>,
    used: BTreeSet<String>,
    pub(super) weights: Vec<Weight>,
    /// By weight.
    pub(super) names: Vec<String>,
    pub(super) parameters: u64,
    /// Of the tensors as stored.
    pub(super) bytes: u64,
}

/// `[384, 384]`, for messages.
fn shape_text(shape: &[usize]) -> String {
    format!("{shape:?}")
}

impl<'a> Loader<'a> {
    pub(super) fn new(source: Source<'a>) -> Self {
        Self { source, used: BTreeSet::new(), weights: Vec::new(), names: Vec::new(), parameters: 0, bytes: 0 }
    }

    /// The tensor `name`, which must have `shape`.
    pub(super) fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<TensorView> {
        self.tensor_of(name, &[shape])
    }

    /// The tensor `name`, which must have one of several shapes; a random one has the first.
    pub(super) fn tensor_of(&mut self, name: &str, shapes: &[&[usize]]) -> Result<TensorView> {
        let expected = || shapes.iter().map(|s| shape_text(s)).collect::<Vec<_>>().join(" or ");
        let tensor = match &mut self.source {
            Source::Checkpoint(checkpoint) => match checkpoint.tensor(name) {
                Some(t) if shapes.contains(&t.shape.as_slice()) => t.clone(),
                Some(t) => return Err(Error::tensor(name, expected(), shape_text(&t.shape))),
                None => return Err(Error::tensor(name, expected(), "no such tensor in the checkpoint")),
            },
            Source::Random(random) => random.tensor(name, shapes.first().copied().unwrap_or_default())?,
        };
        if self.used.insert(name.to_owned()) {
            self.parameters += tensor.elements() as u64;
            self.bytes += tensor.range.len() as u64;
        }
        Ok(tensor)
    }

    /// A tensor that need not be there.
    pub(super) fn optional(&mut self, name: &str, shape: &[usize]) -> Result<Option<TensorView>> {
        match &self.source {
            Source::Checkpoint(checkpoint) if checkpoint.tensor(name).is_some() => self.tensor(name, shape).map(Some),
            _ => Ok(None),
        }
    }

    /// Files a weight.
    pub(super) fn push(&mut self, name: String, weight: Weight) -> WeightId {
        self.weights.push(weight);
        self.names.push(name);
        WeightId(self.weights.len() - 1)
    }

    /// A small tensor as f32.
    pub(super) fn vector(&mut self, name: &str, shape: &[usize]) -> Result<WeightId> {
        let values = self.tensor(name, shape)?.to_f32();
        Ok(self.push(name.to_owned(), Weight::Vector(values)))
    }

    /// A matrix of one tensor, `[rows, cols]`.
    pub(super) fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<WeightId> {
        let tensor = self.tensor(name, &[rows, cols])?;
        Ok(self.stacked(name.to_owned(), cols, vec![tensor]))
    }

    /// A matrix of tensors `[rows_i, cols]` under one another. Where their types differ, all become f32.
    pub(super) fn stacked(&mut self, name: String, cols: usize, mut parts: Vec<TensorView>) -> WeightId {
        let dtype = parts.first().map_or(DType::F32, |p| p.dtype);
        if parts.iter().any(|p| p.dtype != dtype) {
            parts = parts.iter().map(widened).collect();
        }
        let dtype = parts.first().map_or(DType::F32, |p| p.dtype);
        let rows = parts.iter().filter_map(|p| p.shape.first()).sum();
        self.push(name.clone(), Weight::Matrix(Matrix { name, rows, cols, dtype, parts }))
    }

    /// Refuses a checkpoint with tensors that the model has no place for: they would be ignored in silence.
    pub(super) fn check_all_used(&self, config: &Config) -> Result<()> {
        let Source::Checkpoint(checkpoint) = &self.source else { return Ok(()) };
        match checkpoint.tensors().find(|t| !self.used.contains(&t.name)) {
            None => Ok(()),
            Some(t) => {
                let what = format!("a tensor of a {} with {} layers", config.model_type.name(), config.layers);
                Err(Error::tensor(&t.name, what, format!("an unknown one, {:?}", t.shape)))
            }
        }
    }
}

/// The tensor in f32.
pub(super) fn widened(tensor: &TensorView) -> TensorView {
    if tensor.dtype == DType::F32 {
        return tensor.clone();
    }
    owned(&tensor.name, DType::F32, &tensor.shape, bytemuck::cast_slice(&tensor.to_f32()).to_vec())
}

/// A tensor with bytes of its own, which must be as many as shape and type say.
pub(super) fn owned(name: &str, dtype: DType, shape: &[usize], bytes: Vec<u8>) -> TensorView {
    let range = 0..bytes.len();
    TensorView { name: name.to_owned(), dtype, shape: shape.to_vec(), bytes: std::sync::Arc::new(bytes), range }
}
