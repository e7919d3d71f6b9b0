//! Harness of the integration tests.

pub mod checkpoints;
pub mod compare;
pub mod devices;
pub mod engines;
pub mod expected;
pub mod random;
pub mod skip;
