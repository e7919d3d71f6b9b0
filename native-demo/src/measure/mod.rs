//! What checks and benchmarks share: random inputs, differences, times.

mod random;
mod stats;
mod weight;

pub(crate) use random::Random;
pub(crate) use stats::{Effort, Times, error, seconds};
pub(crate) use weight::random_matrix;
