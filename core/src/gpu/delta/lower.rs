//! The choice of kernels for one call: the only place that knows which variant runs where.

use super::DeltaCall;
use crate::error::{Error, Result};
use crate::gpu::{Caps, Dispatch};
use crate::rule::Rule;

/// Makes a scratch buffer of so many f32 elements, named for listings, and returns its index in the buffer table.
pub type Scratch<'a> = dyn FnMut(&'static str, u64) -> usize + 'a;

/// C: the chunk length that `caps` runs best.
pub fn chunk_length(_rule: &Rule, _key_dim: u32, _value_dim: u32, _caps: &Caps) -> u32 {
    32
}

/// The recurrent form: token by token, any number of tokens a sequence, best for few.
///
/// # Errors
/// [`Error::Limit`] when the device cannot run it.
pub fn lower_recurrent(_call: &DeltaCall, _caps: &Caps, _scratch: &mut Scratch<'_>) -> Result<Vec<Dispatch>> {
    Err(Error::Unsupported("the recurrent form on the GPU".into()))
}

/// The chunkwise form: chunks in parallel but for one scan over them.
///
/// # Errors
/// [`Error::Limit`] when the device cannot run it.
pub fn lower_chunk(_call: &DeltaCall, _caps: &Caps, _scratch: &mut Scratch<'_>) -> Result<Vec<Dispatch>> {
    Err(Error::Unsupported("the chunkwise form on the GPU".into()))
}
