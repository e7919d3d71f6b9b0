//! Generation: drawing tokens until something ends it.

use super::{Batch, Session};
use crate::error::{Error, Result};
use crate::lm::Model;
use crate::sampler::Sampling;

/// When and how to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Most tokens.
    pub max_tokens: usize,
    /// Texts that end the generation. They are not shown; the tokens that completed one stay in the state.
    pub stop: Vec<String>,
    /// Whether the model's end-of-text token ends the generation. It is then neither shown nor fed.
    pub stop_at_eos: bool,
    /// Most steps a submission on a GPU (runs grow from 1 to this).
    pub steps_ahead: usize,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { sampling: Sampling::default(), max_tokens: 256, stop: Vec::new(), stop_at_eos: true, steps_ahead: 16 }
    }
}

impl GenerateOptions {
    /// Checks them, for a generation by `model`: before a long prompt is fed, say.
    ///
    /// # Errors
    /// [`Error::Argument`] for options out of their domain; [`Error::Tokenizer`] for stop texts without a tokenizer.
    pub fn check(&self, model: &Model) -> Result<()> {
        self.sampling.check()?;
        if self.stop.iter().any(String::is_empty) {
            return Err(Error::argument("stop", "a text that is not empty", "\"\""));
        }
        if !self.stop.is_empty() {
            model.require_tokenizer()?;
        }
        Ok(())
    }
}

/// One token.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// The token's id.
    pub token: u32,
    /// Text that it completed: empty while characters or possible stop strings are incomplete, and without tokenizer.
    pub text: String,
    /// ln of its probability under the model itself.
    pub logprob: f32,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// `max_tokens` were drawn.
    Length,
    /// The model drew this end-of-text token.
    EndOfText(u32),
    /// A stop string appeared.
    Stop,
    /// The caller ended it.
    Cancelled,
}

impl Finish {
    /// `length`, `end of text`, `stop` or `cancelled`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::EndOfText(_) => "end of text",
            Self::Stop => "stop",
            Self::Cancelled => "cancelled",
        }
    }
}

/// One session generating. An iterator over its tokens on native targets.
pub struct Generation<'a> {
    batch: Batch<'a>,
}

impl<'a> Generation<'a> {
    pub(super) fn new(session: &'a mut Session, options: GenerateOptions) -> Result<Self> {
        Ok(Self { batch: Batch::new(vec![session], vec![options])? })
    }
    /// The next token; `None` at the end.
    pub async fn next_async(&mut self) -> Result<Option<Piece>> {
        Ok(self.batch.next_async().await?.map(|(_, piece)| piece))
    }
    /// Why it ended, once it has.
    pub fn finish(&self) -> Option<Finish> {
        self.batch.finish(0)
    }
    /// Text that no token completed, at the end: see [`Batch::tail`].
    pub fn tail(&self) -> &str {
        self.batch.tail(0)
    }
    /// Ends it here: the session's state is that of the tokens handed out. Dropping does the same.
    pub fn stop(&mut self) -> Result<()> {
        self.batch.stop()
    }
}

#[cfg(not(target_family = "wasm"))]
impl Iterator for Generation<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batch.next_blocking().map(|o| o.map(|(_, piece)| piece)).transpose()
    }
}
