//! Harness of the integration tests.

pub mod devices;
pub mod random;
pub mod skip;
