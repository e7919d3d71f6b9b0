//! Seeded random tensors, for shapes that no file has.

use super::DType;
use super::loader::owned;
use crate::checkpoint::TensorView;
use crate::cpu::parallel::{Shared, for_ranges};
use crate::error::{Error, Result};

/// Most bytes of one random model.
const MAX_BYTES: u64 = 64 << 30;
/// Elements a worker makes at a time.
const BLOCK: usize = 1 << 16;

/// A source of random tensors.
pub(super) struct Random {
    seed: u64,
    dtype: DType,
    bytes: u64,
}

/// splitmix64: a bijection that scatters neighbouring numbers.
fn scatter(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Name to number (FNV-1a), so that a tensor's values depend on nothing but seed and name.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// What a tensor is, and so how training would start it.
#[derive(Clone, Copy)]
enum Kind {
    DecayRate,
    TimeStep,
    LogScale,
    Bias,
    Norm,
    Convolution,
    Matrix,
}

impl Kind {
    fn of(name: &str, last: &str) -> Self {
        match last {
            "A_log" | "A_log_atk" => Self::DecayRate,
            "dt_bias" | "dt_bias_atk" => Self::TimeStep,
            "log_atk_scale" => Self::LogScale,
            "bias" => Self::Bias,
            _ if name.contains("norm") => Self::Norm,
            _ if name.contains("conv1d") => Self::Convolution,
            _ => Self::Matrix,
        }
    }

    /// A value from `u`, uniform in [-1, 1).
    #[inline]
    fn value(self, u: f32) -> f32 {
        match self {
            // Standard deviation 0.02.
            Self::Matrix => 0.034_641_016 * u,
            // Rates of 1 to 16.
            Self::DecayRate => (1.0 + 7.5 * (1.0 + u)).ln(),
            // Time steps of 0.001 to 0.1, through softplus's inverse.
            Self::TimeStep => {
                let dt = (0.001f32.ln() + 0.5 * (1.0 + u) * 100f32.ln()).exp();
                dt + (-(-dt).exp_m1()).ln()
            }
            Self::LogScale => -0.2,
            Self::Bias => 0.0,
            Self::Norm => 1.0,
            Self::Convolution => 0.5 * u,
        }
    }
}

impl Random {
    pub(super) fn new(seed: u64, dtype: DType) -> Self {
        Self { seed, dtype, bytes: 0 }
    }

    /// A tensor. Its name says what it is.
    pub(super) fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<TensorView> {
        let gate = ["A_log", "A_log_atk", "dt_bias", "dt_bias_atk", "log_atk_scale"];
        let last = name.rsplit('.').next().unwrap_or_default();
        let dtype = if gate.contains(&last) { DType::F32 } else { self.dtype };
        let n = shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b)).unwrap_or(usize::MAX);
        self.bytes = self.bytes.saturating_add((n as u64).saturating_mul(dtype.bytes() as u64));
        if self.bytes > MAX_BYTES {
            return Err(Error::OutOfMemory(format!("random weights pass {} GiB", MAX_BYTES >> 30)));
        }
        let mut bytes = Vec::new();
        let room = n.saturating_mul(dtype.bytes());
        bytes.try_reserve_exact(room).map_err(|_| Error::OutOfMemory(format!("{room} bytes of tensor {name}")))?;
        bytes.resize(room, 0);
        let kind = Kind::of(name, last);
        let key = scatter(self.seed ^ scatter(hash(name)));
        let fill = |index: usize, block: &mut [u8]| {
            let mut state = scatter(key.wrapping_add(index as u64)) | 1;
            let mut next = || {
                // xorshift64*, and its upper bits as a number in [-1, 1).
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                let bits = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32;
                kind.value(bits * (2.0 / 16_777_216.0) - 1.0)
            };
            match dtype {
                DType::F32 => block.chunks_exact_mut(4).for_each(|e| e.copy_from_slice(&next().to_le_bytes())),
                DType::F16 => block
                    .chunks_exact_mut(2)
                    .for_each(|e| e.copy_from_slice(&half::f16::from_f32(next()).to_le_bytes())),
                DType::Bf16 => block
                    .chunks_exact_mut(2)
                    .for_each(|e| e.copy_from_slice(&half::bf16::from_f32(next()).to_le_bytes())),
            }
        };
        let grain = BLOCK * dtype.bytes();
        let shared = Shared::new(&mut bytes);
        for_ranges(room, grain, |range| {
            // SAFETY: no two ranges overlap.
            fill(range.start / grain, unsafe { shared.get(range.start, range.len()) });
        });
        Ok(owned(name, dtype, shape, bytes))
    }
}
