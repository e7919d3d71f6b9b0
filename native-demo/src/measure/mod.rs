//! What checks and benchmarks share: random inputs, differences, times.

mod random;
mod stats;

pub(crate) use random::Random;
pub(crate) use stats::{Effort, Times, error, seconds};
