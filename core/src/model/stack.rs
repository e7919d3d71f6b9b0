//! Projections of one input, stacked so that one product serves as many of them as possible.

use super::DType;
use super::loader::{Loader, widened};
use crate::checkpoint::TensorView;
use crate::error::Result;
use crate::model::Weight;
use crate::ops::WeightId;

/// One projection: tensors `[rows_i, cols]` whose outputs must lie side by side.
pub(super) struct Part {
    /// For listings: `q|k|v`.
    pub(super) label: &'static str,
    pub(super) tensors: Vec<TensorView>,
    /// `[rows]`, if the projection has one.
    pub(super) bias: Option<Vec<f32>>,
}

impl Part {
    pub(super) fn new(label: &'static str, tensors: Vec<TensorView>) -> Self {
        Self { label, tensors, bias: None }
    }

    fn rows(&self) -> usize {
        self.tensors.iter().filter_map(|t| t.shape.first()).sum()
    }
}

/// One product of a [`Stack`].
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) weight: WeightId,
    pub(super) bias: Option<WeightId>,
    pub(super) rows: usize,
    /// `q|k|v|g|a|b`.
    pub(super) label: String,
}

/// Projections of one input: one product an element type (nearly always one in all).
#[derive(Clone, Debug)]
pub(super) struct Stack {
    /// Columns of all matrices.
    pub(super) cols: usize,
    pub(super) groups: Vec<Group>,
    /// Of each part: its group, and its first column in the group's output.
    pub(super) places: Vec<(usize, usize)>,
}

impl Stack {
    /// Stacks parts in order. A part whose own tensors differ in type becomes f32, since it cannot be split.
    pub(super) fn load(loader: &mut Loader<'_>, layer: &str, cols: usize, parts: Vec<Part>) -> Result<Self> {
        struct Open {
            dtype: DType,
            rows: usize,
            labels: Vec<&'static str>,
            tensors: Vec<TensorView>,
            biases: Vec<(usize, Vec<f32>)>,
        }
        let (mut open, mut places): (Vec<Open>, _) = (Vec::new(), Vec::new());
        for mut part in parts {
            let rows = part.rows();
            let first = part.tensors.first().map_or(DType::F32, |t| t.dtype);
            if part.tensors.iter().any(|t| t.dtype != first) {
                part.tensors = part.tensors.iter().map(widened).collect();
            }
            let dtype = part.tensors.first().map_or(DType::F32, |t| t.dtype);
            let group = open.iter().position(|g| g.dtype == dtype).unwrap_or_else(|| {
                open.push(Open { dtype, rows: 0, labels: vec![], tensors: vec![], biases: vec![] });
                open.len() - 1
            });
            let g = &mut open[group];
            places.push((group, g.rows));
            g.labels.push(part.label);
            g.tensors.extend(part.tensors);
            if let Some(bias) = part.bias {
                g.biases.push((g.rows, bias));
            }
            g.rows += rows;
        }
        let groups = open.into_iter().map(|g| {
            let label = g.labels.join("|");
            let weight = loader.stacked(format!("{layer}.{label}"), cols, g.tensors);
            let bias = (!g.biases.is_empty()).then(|| {
                let mut all = vec![0.0; g.rows];
                for (at, bias) in g.biases {
                    all.iter_mut().skip(at).zip(bias).for_each(|(a, b)| *a = b);
                }
                loader.push(format!("{layer}.{label}.bias"), Weight::Vector(all))
            });
            Group { weight, bias, rows: g.rows, label }
        });
        let groups = groups.collect();
        Ok(Self { cols, groups, places })
    }
}
