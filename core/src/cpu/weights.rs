//! A model's weights as the engine reads them: matrices where the checkpoint has them, small vectors as f32.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::model::{Matrix, Spec, Weight};
use crate::ops::{Mixer, Op, WeightId};
use crate::plan::Plan;

/// Access to the weights by id.
#[derive(Debug)]
pub(super) struct Weights {
    spec: Arc<Spec>,
    /// By weight id: convolutions turned to `[taps, channels]`, and `exp(A_log)`.
    derived: Vec<Option<Vec<f32>>>,
}

impl Weights {
    /// Derives what the plan's ops need.
    pub(super) fn new(spec: Arc<Spec>, plan: &Plan) -> Result<Self> {
        let mut derived = vec![None; spec.weights.len()];
        for op in &plan.ops {
            let Op::Mixer(m) = op else { continue };
            let mut put = |id: Option<WeightId>, f: &dyn Fn(&[f32]) -> Vec<f32>| -> Result<()> {
                if let Some(id) = id
                    && let Some(place) = derived.get_mut(id.0)
                {
                    *place = Some(f(vector(&spec, id)?));
                }
                Ok(())
            };
            put(m.conv, &|w| transpose(w, m))?;
            let exp = |w: &[f32]| w.iter().map(|a| a.exp()).collect();
            put(m.decay.as_ref().map(|d| d.a_log), &exp)?;
            put(m.precond.as_ref().map(|p| p.a_log), &exp)?;
        }
        Ok(Self { spec, derived })
    }

    pub(super) fn matrix(&self, id: WeightId) -> Result<&Matrix> {
        match self.spec.weights.get(id.0) {
            Some(Weight::Matrix(m)) => Ok(m),
            _ => Err(wrong(&self.spec, id, "a matrix")),
        }
    }

    pub(super) fn vector(&self, id: WeightId) -> Result<&[f32]> {
        vector(&self.spec, id)
    }

    /// A convolution `[taps, channels]`, or `exp(A_log)`.
    pub(super) fn derived(&self, id: WeightId) -> Result<&[f32]> {
        let found = self.derived.get(id.0).and_then(Option::as_deref);
        found.ok_or_else(|| wrong(&self.spec, id, "a convolution or A_log"))
    }
}

fn vector(spec: &Spec, id: WeightId) -> Result<&[f32]> {
    match spec.weights.get(id.0) {
        Some(Weight::Vector(v)) => Ok(v),
        _ => Err(wrong(spec, id, "a vector")),
    }
}

/// A plan that names the wrong weight: a defect of this crate, but no reason to bring a program down.
fn wrong(spec: &Spec, id: WeightId, expected: &str) -> Error {
    let name = spec.names.get(id.0).cloned().unwrap_or_else(|| format!("number {}", id.0));
    Error::tensor(name, expected, "something else")
}

/// `[channels, taps]` to `[taps, channels]`.
fn transpose(w: &[f32], m: &Mixer) -> Vec<f32> {
    let (channels, taps) = (m.channels(), m.conv_size);
    (0..taps * channels).map(|i| w.get(i % channels * taps + i / channels).copied().unwrap_or_default()).collect()
}
