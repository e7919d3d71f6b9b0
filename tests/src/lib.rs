//! Harness of the integration tests.

pub mod checkpoints;
pub mod devices;
pub mod random;
pub mod skip;
