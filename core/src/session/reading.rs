//! Long prompts, read piece by piece: whoever waits sees how far it is, and may end it.

use std::pin::Pin;

use super::Session;
use crate::error::Result;

/// A piece that the engine is reading: see [`Session::feed_ahead`].
pub struct Ahead(Pin<Box<Waiting>>);

#[cfg(not(target_family = "wasm"))]
type Waiting = dyn Future<Output = Result<Vec<f32>>> + Send;
/// What browsers do stays in its thread.
#[cfg(target_family = "wasm")]
type Waiting = dyn Future<Output = Result<Vec<f32>>>;

impl Session {
    /// [`Session::feed`] for prompts that take long: before each piece `go_on(read)` is asked, with the number of tokens
    /// read so far, whether to go on. When it says no, or a piece fails, nothing was fed: the session is as it was
    /// before. Whether all was fed.
    ///
    /// It resolves when the last piece is submitted, and on a GPU at most two pieces are under way at once. Their ends
    /// fall on those of [`Session::feed`]'s chunks, so the state is the same.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for an id that is not in the vocabulary; whatever the engine says.
    pub async fn feed_async(&mut self, tokens: &[u32], go_on: impl AsyncFnMut(usize) -> bool) -> Result<bool> {
        let mut ahead = None;
        let feed = async |session: &mut Self, piece: &[u32]| session.feed_ahead(piece, &mut ahead).await;
        self.in_pieces(tokens, self.reading_rows(), feed, go_on).await
    }

    /// Tokens between two looks at whether to go on: what keeps the engine busy, but not for long.
    pub fn reading_rows(&self) -> usize {
        self.model.reading_rows()
    }

    /// [`Session::feed`], then waits for the piece before: the engine has this one to go on with. `ahead` is empty before
    /// the first piece, and holds what tells that the last one is done.
    ///
    /// # Errors
    /// As [`Session::feed`], and whatever happened to the piece before.
    pub async fn feed_ahead(&mut self, piece: &[u32], ahead: &mut Option<Ahead>) -> Result<()> {
        self.feed(piece)?;
        match ahead.replace(Ahead(Box::pin(self.model.logits(self.slots[0])))) {
            Some(before) => before.0.await.map(drop),
            None => Ok(()),
        }
    }

    /// Calls `feed`, which feeds exactly what it is given, with pieces of at most `rows` tokens, and asks before each
    /// whether to go on, as [`Session::feed_async`] does.
    ///
    /// # Errors
    /// Those of `feed`, and [`crate::Error::Argument`] for an id that is not in the vocabulary.
    pub async fn in_pieces(
        &mut self,
        tokens: &[u32],
        rows: usize,
        mut feed: impl AsyncFnMut(&mut Self, &[u32]) -> Result<()>,
        mut go_on: impl AsyncFnMut(usize) -> bool,
    ) -> Result<bool> {
        self.check_tokens(tokens)?;
        let rows = rows.max(1);
        let before = self.tokens.len();
        // One piece alone is fed or not; a way back costs a copy of the state.
        let long = tokens.len() > rows;
        if long {
            self.model.runner().copy(self.slots[0], self.slots[1])?;
        }
        let mut result = Ok(true);
        for (i, piece) in tokens.chunks(rows).enumerate() {
            result = if go_on(i * rows).await { feed(self, piece).await.map(|()| true) } else { Ok(false) };
            if !matches!(result, Ok(true)) {
                break;
            }
        }
        let mut runner = self.model.runner();
        if long {
            if !matches!(result, Ok(true)) {
                self.tokens.truncate(before);
                let back = runner.copy(self.slots[1], self.slots[0]);
                // What went wrong first is what to tell.
                result = result.and_then(|read| back.map(|()| read));
            }
            runner.release(self.slots[1]);
        }
        drop(runner);
        result
    }
}
