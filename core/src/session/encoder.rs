//! Text to the tokens of a session, apart from the session.

use crate::error::Result;
use crate::tokenizer::Tokenizer;

/// Text to the tokens that a session would be fed: see [`Session::encoder`](super::Session::encoder).
#[derive(Clone, Debug)]
pub struct Encoder {
    pub(super) tokenizer: Tokenizer,
    /// The beginning-of-text token, where the text is the session's first.
    pub(super) bos: Option<u32>,
}

impl Encoder {
    /// The tokens of a text.
    ///
    /// # Errors
    /// [`Error::Tokenizer`](crate::Error::Tokenizer) when the text cannot be encoded.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut tokens = self.tokenizer.encode(text, true)?;
        if let Some(bos) = self.bos.filter(|bos| tokens.first() != Some(bos)) {
            tokens.insert(0, bos);
        }
        Ok(tokens)
    }
}
