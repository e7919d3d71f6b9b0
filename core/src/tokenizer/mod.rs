//! Text to token ids and back, by the `tokenizers` crate; and a decoder for text that arrives token by token.

mod check;
mod stream;

use std::sync::Arc;

pub use stream::TextStream;

use crate::error::{Error, Result};

/// A checkpoint's tokenizer. Cloning shares it.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
    /// Largest id, plus one.
    size: usize,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokenizer of {} tokens", self.size)
    }
}

/// Runs the library on input that it may not have foreseen: a panic inside it becomes an error, where panics unwind.
fn guarded<T>(what: &str, run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(Error::tokenizer(format!("{what}: {e}"))),
        Err(_) => Err(Error::tokenizer(format!("{what}: the tokenizer library failed"))),
    }
}

impl Tokenizer {
    /// Parses the bytes of a tokenizer.json. Its truncation and padding are switched off: what is encoded is the
    /// text, all of it and nothing else.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] saying where the file is broken.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        check::check(bytes)?;
        let mut inner = guarded("cannot be loaded", || tokenizers::Tokenizer::from_bytes(bytes))?;
        inner.with_padding(None);
        guarded("cannot be loaded", || inner.with_truncation(None).map(|_| ()))?;
        let size = inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1);
        if size == 0 {
            return Err(Error::tokenizer("expected a vocabulary, got none"));
        }
        Ok(Self { inner: Arc::new(inner), size })
    }

    /// Token ids of a text. With `special`, the tokenizer adds the tokens that it puts around every text (none, for
    /// many models).
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when the text cannot be encoded.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        let encoding = guarded("cannot encode the text", || self.inner.encode_fast(text, special))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of token ids; ids that the tokenizer does not know give none. With `special`, special tokens are written
    /// out, else they are left out. Bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when the tokenizer's decoder fails.
    pub fn decode(&self, ids: &[u32], special: bool) -> Result<String> {
        guarded("cannot decode tokens", || self.inner.decode(ids, !special))
    }

    /// The token of an id, as the vocabulary writes it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The id of a token, as the vocabulary writes it.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Largest id plus one.
    pub fn vocab_size(&self) -> usize {
        self.size
    }

    /// Checks that the tokenizer's ids are ids of a model. A model may have more (padding of its matrices).
    ///
    /// # Errors
    /// [`Error::Tokenizer`] with both sizes.
    pub fn check_fits(&self, vocab: usize) -> Result<()> {
        if self.size <= vocab {
            return Ok(());
        }
        let largest = self.size - 1;
        Err(Error::tokenizer(format!("expected ids below the model's vocabulary of {vocab}, got id {largest}")))
    }

    /// A decoder for text that arrives token by token.
    pub fn stream(&self, special: bool) -> TextStream {
        TextStream::new(self.clone(), special)
    }
}
