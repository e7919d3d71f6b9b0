//! Softmax attention on the GPU: an [`Operator`] over an application's own buffers, [`attend`] over host tensors, and
//! what models use. [`crate::attention`] says what is computed.
//!
//! The kernels keep no scores: tiles of 32 rows by 32 keys with a running maximum and sum. A model's decode splits the
//! keys of one row among workgroups instead. Software adapters get one invocation a row and head, without barriers.

mod cache;
mod lower;
mod operator;

pub use operator::{Buffers, Operator, attend, run};

pub(super) use cache::PagePool;
pub(super) use lower::PackKey;
