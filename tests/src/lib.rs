//! Harness of the integration tests.

pub mod attention_reference;
pub mod checkpoints;
pub mod compare;
pub mod devices;
pub mod engines;
pub mod expected;
pub mod files;
pub mod goldens;
pub mod mixer_reference;
pub mod operators;
pub mod plan_reference;
pub mod random;
pub mod skip;
pub mod small_spec;
