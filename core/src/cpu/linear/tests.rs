use std::sync::Arc;

use super::*;
use crate::checkpoint::TensorView;

fn numbers(n: usize, seed: u32) -> Vec<f32> {
    let mut s = seed.wrapping_mul(2_654_435_761).wrapping_add(99);
    (0..n)
        .map(|_| {
            s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (s >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// A matrix of parts with so many rows each, one byte off any alignment, and its elements as f32.
fn matrix(dtype: DType, parts: &[usize], cols: usize) -> (Matrix, Vec<f32>) {
    let rows: usize = parts.iter().sum();
    let values = numbers(rows * cols, cols as u32);
    let mut bytes = vec![0u8];
    let mut exact = Vec::new();
    for v in values {
        match dtype {
            DType::F32 => {
                bytes.extend(v.to_le_bytes());
                exact.push(v);
            }
            DType::F16 => {
                bytes.extend(half::f16::from_f32(v).to_le_bytes());
                exact.push(half::f16::from_f32(v).to_f32());
            }
            DType::Bf16 => {
                bytes.extend(half::bf16::from_f32(v).to_le_bytes());
                exact.push(half::bf16::from_f32(v).to_f32());
            }
        }
    }
    let bytes: crate::checkpoint::SharedBytes = Arc::new(bytes);
    let mut at = 1;
    let parts = parts
        .iter()
        .map(|rows| {
            let n = rows * cols * dtype.bytes();
            at += n;
            let (name, shape) = ("w".to_owned(), vec![*rows, cols]);
            TensorView { name, dtype, shape, bytes: bytes.clone(), range: at - n..at }
        })
        .collect();
    (Matrix { name: "w".into(), rows, cols, dtype, parts }, exact)
}

#[test]
fn products_of_all_types_and_sizes() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for (parts, cols) in [(&[1usize][..], 1), (&[5, 3, 9], 7), (&[4, 70], 64), (&[33], 130), (&[300], 24)] {
            let (m, w) = matrix(dtype, parts, cols);
            let bias = numbers(m.rows, 5);
            let mut alone = Vec::new();
            for n in [1, 2, 3, 4, 7, 40, MANY] {
                // Rows two elements apart, the first one at 3.
                let x = numbers(3 + n * (cols + 2), 11);
                let rows = Rows { data: &x, at: 3, row: cols + 2, n };
                for any_n_alike in [true, false] {
                    for (bias, add) in [(None, false), (Some(&bias[..]), false), (Some(&bias[..]), true)] {
                        let p = Product { weight: &m, x: rows, bias, add, any_n_alike };
                        let mut out = vec![0.5; n * m.rows];
                        p.run(&mut out);
                        for r in 0..n {
                            for o in 0..m.rows {
                                let dot = |i: usize| f64::from(w[o * cols + i]) * f64::from(rows.get(r, cols)[i]);
                                let mut want: f64 = (0..cols).map(dot).sum();
                                want += bias.map_or(0.0, |b| f64::from(b[o])) + if add { 0.5 } else { 0.0 };
                                let got = f64::from(out[r * m.rows + o]);
                                assert!((got - want).abs() < 2e-5, "{dtype:?} {cols} n {n}: {got} {want}");
                            }
                        }
                        if any_n_alike && bias.is_none() {
                            if n == 1 {
                                alone.clone_from(&out);
                            }
                            assert_eq!(out[..m.rows], alone, "row 0 must not depend on n = {n}");
                        }
                    }
                }
            }
            let mut row = vec![0.0; cols];
            unpack_row(&m, m.rows - 1, &mut row);
            assert_eq!(row, w[(m.rows - 1) * cols..]);
        }
    }
}

#[test]
fn products_without_special_instructions() {
    crate::cpu::simd::tests::all_plain(products_of_all_types_and_sizes);
}
