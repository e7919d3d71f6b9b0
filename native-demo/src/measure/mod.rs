//! What checks and benchmarks share: random inputs, differences, times.

mod memory;
mod random;
mod stats;
mod weight;

pub(crate) use memory::room;
pub(crate) use random::Random;
pub(crate) use stats::{Effort, Times, error, seconds};
pub(crate) use weight::random_matrix;
