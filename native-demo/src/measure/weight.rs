//! Random weights in the types that models store.

use std::sync::Arc;

use deltanet::checkpoint::TensorView;
use deltanet::model::{DType, Matrix, Weight};

use super::Random;

/// `[rows, cols]` values between `-limit` and `limit`, and the same as the type holds them.
pub(crate) fn random_matrix(
    random: &mut Random,
    (rows, cols): (usize, usize),
    limit: f32,
    dtype: DType,
) -> (Weight, Vec<f32>) {
    let (mut bytes, mut kept) = (Vec::with_capacity(rows * cols * dtype.bytes()), Vec::with_capacity(rows * cols));
    for v in random.ranges(rows * cols, -limit, limit) {
        match dtype {
            DType::F32 => {
                bytes.extend(v.to_le_bytes());
                kept.push(v);
            }
            DType::Bf16 => {
                let stored = half::bf16::from_f32(v);
                bytes.extend(stored.to_le_bytes());
                kept.push(stored.to_f32());
            }
            DType::F16 => {
                let stored = half::f16::from_f32(v);
                bytes.extend(stored.to_le_bytes());
                kept.push(stored.to_f32());
            }
        }
    }
    let range = 0..bytes.len();
    let view = TensorView { name: "weight".into(), dtype, shape: vec![rows, cols], bytes: Arc::new(bytes), range };
    (Weight::Matrix(Matrix { name: "weight".into(), rows, cols, dtype, parts: vec![view] }), kept)
}
