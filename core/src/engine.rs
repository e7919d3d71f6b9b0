//! What the engines share: what they are asked, and what they answer.
//!
//! A session is a *slot* of an engine's state pool. A slot holds the state after every token it has been fed, and the
//! logits that follow the last one. A step draws a token from the logits and feeds it; nothing is pending between
//! steps. So the state is always that of exactly the tokens fed, and a saved slot needs no special cases.

use crate::error::{Error, Result};
use crate::sampler::Sampling;

/// One session's share in a run of decode steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeRow {
    /// Its slot. It must hold logits: something has been fed.
    pub slot: usize,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Most steps this row takes in the run.
    pub limit: u32,
    /// Whether an end-of-text token ends the row. It is then drawn and reported, but not fed.
    pub stop_at_eos: bool,
    /// Slot that receives a copy of the state before the first step, to roll back to.
    pub snapshot: Option<usize>,
}

/// One drawn token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Emit {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability under the model itself: before penalty, temperature and filters.
    pub logprob: f32,
    /// An end-of-text token that ended the row: not fed.
    pub end: bool,
}

/// A slot's whole content, the same for every engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotState {
    /// Tokens fed so far.
    pub position: u64,
    /// Bit mask of the tokens fed so far, `[ceil(vocab / 32)]`.
    pub seen: Vec<u32>,
    /// `[vocab]`, or empty when nothing has been fed.
    pub logits: Vec<f32>,
    /// A layer each, [`crate::model::LayerState::words`] elements.
    pub layers: Vec<Vec<f32>>,
    /// A layer each, `position ·` [`crate::model::LayerState::cache_per_token`] elements.
    pub caches: Vec<Vec<f32>>,
}

/// Refuses tokens that an engine cannot be fed: none, or ids that the vocabulary lacks.
pub(crate) fn check_tokens(tokens: &[u32], vocab: usize) -> Result<()> {
    if tokens.is_empty() {
        return Err(Error::argument("tokens", "at least one", "none"));
    }
    check_ids(tokens, vocab)
}

/// Refuses ids that a vocabulary lacks.
pub(crate) fn check_ids(tokens: &[u32], vocab: usize) -> Result<()> {
    match tokens.iter().enumerate().find(|(_, token)| **token as usize >= vocab) {
        None => Ok(()),
        Some((i, token)) => Err(Error::argument(format!("token {i}"), format!("an id below {vocab}"), token)),
    }
}
