//! Sessions: one reader's place in a text, with the memory of everything before it.

mod batch;
mod encoder;
mod file;
pub(crate) mod gates;
mod generate;
mod reading;
mod stop;

pub use batch::Batch;
pub use encoder::Encoder;
pub use gates::GATE_ROWS;
pub use generate::{Finish, GenerateOptions, Generation, Piece};
pub use reading::Ahead;

use crate::engine::{SlotState, check_ids};
use crate::error::{Error, Result};
use crate::lm::Model;
use crate::sampler;

/// A text being read and written by a model. It holds a slot of the model's state pool until it is dropped.
///
/// The state is always that after exactly the tokens fed ([`Session::tokens`]); nothing is pending.
#[derive(Debug)]
pub struct Session {
    model: Model,
    /// The state's slot, and two to roll back to.
    slots: [usize; 3],
    tokens: Vec<u32>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.model.give_slots(self.slots);
    }
}

impl Session {
    pub(crate) fn new(model: Model) -> Result<Self> {
        let slots = model.take_slots()?;
        // From here on dropping gives the slots back.
        let session = Self { model, slots, tokens: Vec::new() };
        session.model.runner().clear(session.slots[0])?;
        Ok(session)
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }
    /// Its slot of the state pool.
    pub(crate) fn slot(&self) -> usize {
        self.slots[0]
    }
    /// Every token fed so far: prompts and drawn tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }
    /// Number of tokens fed so far.
    pub fn position(&self) -> u64 {
        self.tokens.len() as u64
    }

    /// Feeds tokens (a prompt) through the model. On a GPU the work is only submitted.
    ///
    /// # Errors
    /// [`Error::Argument`] for an id that is not in the vocabulary; nothing is fed then.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<()> {
        self.check_tokens(tokens)?;
        if tokens.is_empty() {
            return Ok(());
        }
        let mut runner = self.model.runner();
        runner.settle(self.slots[0], self.tokens.len());
        runner.prefill(self.slots[0], tokens)?;
        drop(runner);
        self.tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// Feeds text. Returns the number of tokens. At the start of a session the model's beginning-of-text token comes
    /// first, if config.json names one.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when the model has no tokenizer, or it fails.
    pub fn feed_text(&mut self, text: &str) -> Result<usize> {
        let tokens = self.encode(text)?;
        self.feed(&tokens)?;
        Ok(tokens.len())
    }

    /// The tokens that [`Session::feed_text`] would feed.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when the model has no tokenizer, or it fails.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encoder()?.encode(text)
    }

    /// What [`Session::encode`] does now, for another thread: a text of megabytes takes seconds.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] when the model has no tokenizer.
    pub fn encoder(&self) -> Result<Encoder> {
        let tokenizer = self.model.require_tokenizer()?.clone();
        Ok(Encoder { tokenizer, bos: self.model.spec().bos.filter(|_| self.tokens.is_empty()) })
    }

    /// Forgets everything.
    pub fn reset(&mut self) -> Result<()> {
        self.model.runner().clear(self.slots[0])?;
        self.tokens.clear();
        Ok(())
    }

    /// A second session in the same state: the whole memory is copied, on the device.
    pub fn fork(&self) -> Result<Self> {
        let fork = Self { model: self.model.clone(), slots: self.model.take_slots()?, tokens: self.tokens.clone() };
        self.model.runner().copy(self.slots[0], fork.slots[0])?;
        Ok(fork)
    }

    /// Logits of the next token, `[vocab]`.
    ///
    /// # Errors
    /// [`Error::Argument`] when nothing has been fed.
    pub async fn logits_async(&self) -> Result<Vec<f32>> {
        self.check_fed()?;
        self.model.logits(self.slots[0]).await
    }

    /// Feeds tokens and returns the logits after each, `[tokens, vocab]`. For tests and scoring: it is large.
    pub async fn logits_of_async(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_tokens(tokens)?;
        self.model.runner().settle(self.slots[0], self.tokens.len());
        let mut all = Vec::new();
        for piece in tokens.chunks(self.model.score_rows()) {
            all.extend(self.scored(piece).await?);
        }
        Ok(all)
    }

    /// Most tokens whose scores an engine finds at once.
    pub fn score_rows(&self) -> usize {
        self.model.score_rows().min(self.model.reading_rows())
    }

    /// Feeds one piece; the logits after each token.
    async fn scored(&mut self, piece: &[u32]) -> Result<Vec<f32>> {
        let model = self.model.clone();
        self.fed(piece, model.score(self.slots[0], piece)).await
    }

    /// Counts a piece that has been handed to the engine before its results are waited for: whoever drops the future
    /// then leaves a session that knows what its state holds. A piece that fails is taken back.
    pub(crate) async fn fed<T>(&mut self, piece: &[u32], reading: impl Future<Output = Result<T>>) -> Result<T> {
        let before = self.tokens.len();
        self.tokens.extend_from_slice(piece);
        let result = reading.await;
        if result.is_err() {
            self.tokens.truncate(before);
        }
        result
    }

    /// Feeds tokens and returns `−ln p` (nats) of each under the model, given all before it. The very first token of a
    /// session has nothing before it: the result is one shorter then.
    pub async fn score_async(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_tokens(tokens)?;
        self.model.runner().settle(self.slots[0], self.tokens.len());
        let vocab = self.model.spec().vocab;
        let mut nll = Vec::with_capacity(tokens.len());
        // Logits for the first token of a piece come from before it.
        let mut before = if self.tokens.is_empty() { None } else { Some(self.logits_async().await?) };
        for piece in tokens.chunks(self.model.score_rows()) {
            let logits = self.scored(piece).await?;
            let rows = logits.chunks_exact(vocab);
            for (row, token) in before.iter().map(Vec::as_slice).chain(rows.clone()).zip(
                // Without a row before it, the first token is not scored.
                piece.iter().skip(usize::from(before.is_none())),
            ) {
                nll.push(-sampler::logprob(row, *token));
            }
            before = rows.last().map(<[f32]>::to_vec);
        }
        if nll.iter().any(|x| x.is_nan() || *x < -1.0) { Err(overflow()) } else { Ok(nll) }
    }

    /// The whole session as bytes: a header (version, model fingerprint, tokens), then the state. Any engine loads it.
    pub async fn save_async(&self) -> Result<Vec<u8>> {
        let state = self.state_async().await?;
        Ok(file::write(self.model.spec(), &self.tokens, &state))
    }

    /// The state itself, for pictures and checks.
    pub async fn state_async(&self) -> Result<SlotState> {
        self.model.export(self.slots[0]).await
    }

    /// Replaces this session by a saved one. Nothing changes when the bytes are refused.
    ///
    /// # Errors
    /// [`Error::Session`]: truncated or altered bytes, another version; [`Error::OtherModel`].
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (tokens, state) = file::read(self.model.spec(), bytes)?;
        self.model.runner().import(self.slots[0], &state)?;
        self.tokens = tokens;
        Ok(())
    }

    /// Generates tokens until one of the options' ends. The iterator blocks; [`Generation::next_async`] does not.
    ///
    /// # Errors
    /// [`Error::Argument`] for options out of their domain, or when nothing has been fed.
    pub fn generate(&mut self, options: GenerateOptions) -> Result<Generation<'_>> {
        Generation::new(self, options)
    }

    fn check_fed(&self) -> Result<()> {
        if self.tokens.is_empty() {
            return Err(Error::argument("prompt", "at least one token before generating", "none"));
        }
        Ok(())
    }

    fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        check_ids(tokens, self.model.spec().vocab)
    }
}

/// Blocking forms, for native programs.
#[cfg(not(target_family = "wasm"))]
impl Session {
    /// [`Session::logits_async`], waited for.
    pub fn logits(&self) -> Result<Vec<f32>> {
        self.model.wait(self.logits_async())
    }
    /// [`Session::logits_of_async`], waited for.
    pub fn logits_of(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let model = self.model.clone();
        model.wait(self.logits_of_async(tokens))
    }
    /// [`Session::score_async`], waited for.
    pub fn score(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let model = self.model.clone();
        model.wait(self.score_async(tokens))
    }
    /// [`Session::save_async`], waited for.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.model.wait(self.save_async())
    }
    /// [`Session::state_async`], waited for.
    pub fn state(&self) -> Result<SlotState> {
        self.model.wait(self.state_async())
    }
    /// Waits until everything submitted for this session has run, and reports any error.
    pub fn synchronize(&self) -> Result<()> {
        if self.tokens.is_empty() { Ok(()) } else { self.logits().map(drop) }
    }
}

/// Logits that are no numbers: finite weights do not promise finite activations.
fn overflow() -> Error {
    Error::tensor("logits", "finite numbers", "others: the weights or the state are too large for f32")
}
