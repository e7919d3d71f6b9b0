//! Small models made in a test: weights from numbers, plans from ops.

use std::sync::Arc;

use deltanet::checkpoint::TensorView;
use deltanet::model::{DType, Matrix, Weight};

/// Stores numbers in an element type; returns the bytes and the numbers as stored.
pub fn store(values: &[f32], dtype: DType) -> (Vec<u8>, Vec<f32>) {
    let mut bytes = Vec::new();
    let mut rounded = Vec::new();
    for v in values {
        match dtype {
            DType::F32 => {
                bytes.extend(v.to_le_bytes());
                rounded.push(*v);
            }
            DType::F16 => {
                let h = half::f16::from_f32(*v);
                bytes.extend(h.to_le_bytes());
                rounded.push(h.to_f32());
            }
            DType::Bf16 => {
                let h = half::bf16::from_f32(*v);
                bytes.extend(h.to_le_bytes());
                rounded.push(h.to_f32());
            }
        }
    }
    (bytes, rounded)
}

/// A matrix weight of `[rows, cols]`, and its numbers as stored. Its rows come from two tensors.
pub fn matrix(values: &[f32], rows: usize, cols: usize, dtype: DType) -> (Weight, Vec<f32>) {
    let (bytes, rounded) = store(values, dtype);
    let split = rows / 2;
    let row = cols * dtype.bytes();
    let part = |name: &str, first: usize, n: usize| TensorView {
        name: name.into(),
        dtype,
        shape: vec![n, cols],
        bytes: Arc::new(bytes.clone()),
        range: first * row..(first + n) * row,
    };
    let parts = vec![part("first", 0, split), part("second", split, rows - split)];
    (Weight::Matrix(Matrix { name: "matrix".into(), rows, cols, dtype, parts }), rounded)
}
