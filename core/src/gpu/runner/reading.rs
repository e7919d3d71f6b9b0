//! Prompts: read in pieces, or scored token by token.

use super::{Runner, bucket, first_of, lost};
use crate::engine::check_tokens;
use crate::error::{Error, Result};
use crate::gpu::buffer::GpuBuffer;
use crate::plan::PlanKind;

/// Rows of prefill and score plans.
pub(super) const PREFILL_ROWS: [usize; 6] = [1, 16, 64, 256, 512, 2048];
/// Most rows of a piece of a prompt.
const PREFILL_MOST: usize = 512;
/// The same on a large device, which 2,048 rows do not keep busy for long.
const PREFILL_MOST_LARGE: usize = 2048;
/// See [`Runner::reading_rows`].
const SOFTWARE_READING: usize = 64;
/// Most bytes of logits that a piece of [`Runner::score`] makes.
const SCORE_BYTES: usize = 32 << 20;

impl Runner {
    /// Feeds tokens to a session. Returns when the work is handed over; the logits of the last token lie in the slot.
    ///
    /// # Errors
    /// [`Error::Argument`] for no tokens, a token beyond the vocabulary or a slot that does not exist.
    pub fn prefill(&mut self, slot: usize, tokens: &[u32]) -> Result<()> {
        self.check_tokens(slot, tokens)?;
        self.reserve(&[(slot, tokens.len() as u64)])?;
        let pieces = tokens.chunks(self.prefill_rows());
        let count = pieces.len();
        // All plans first: what cannot be compiled must not leave a prompt half fed.
        self.compile(&self.prefill_plans(tokens.len()), None)?;
        for (i, piece) in pieces.enumerate() {
            let key = (PlanKind::Prefill, bucket(&PREFILL_ROWS, piece.len()));
            self.stage.write_piece(slot, piece)?;
            let mut encoder = self.encoder();
            let compiled = self.plans.get(&key).ok_or_else(lost)?;
            // The logits of a piece that is not the last are nobody's business.
            let end = if i + 1 == count { compiled.program.len() } else { compiled.body };
            compiled.program.encode_range(&mut encoder, 0..end);
            self.submit(encoder)?;
            self.stage.pages.advance(slot, piece.len() as u64);
        }
        Ok(())
    }

    /// Most rows of a piece of a prompt: none keeps a device busy so long that its driver ends it. Cooperative matrices
    /// mark large devices.
    fn prefill_rows(&self) -> usize {
        if self.stage.gpu.caps().coop16 { PREFILL_MOST_LARGE } else { PREFILL_MOST }
    }

    /// Tokens of a prompt after which its reader may end it: whole pieces of a prefill, or, where a program imitates the
    /// GPU, what it reads in half a second.
    pub(crate) fn reading_rows(&self) -> usize {
        if self.stage.gpu.caps().software { SOFTWARE_READING } else { PREFILL_MOST_LARGE }
    }

    /// Most tokens of one [`Runner::score`].
    pub fn score_rows(&self) -> usize {
        let fits = SCORE_BYTES / (4 * self.spec.vocab).max(1);
        PREFILL_ROWS.iter().copied().filter(|r| *r <= fits.min(PREFILL_MOST)).max().unwrap_or(PREFILL_ROWS[0])
    }

    /// Feeds tokens to a session; resolves to the logits after each of them, `[tokens, vocab]`. The work is handed over
    /// at once; nothing is borrowed while it is waited for.
    ///
    /// # Errors
    /// As [`Runner::prefill`]; [`Error::Argument`] too for more tokens than [`Runner::score_rows`].
    pub fn score(&mut self, slot: usize, tokens: &[u32]) -> impl Future<Output = Result<Vec<f32>>> + use<> {
        let vocab = self.spec.vocab;
        let reading = self.submit_score(slot, tokens).map(|(logits, stride)| {
            let read = self.stage.gpu.read(&[(&logits, 0, 4 * (stride * tokens.len()) as u64)]);
            (read, stride)
        });
        async move {
            let (read, stride) = reading?;
            let rows: Vec<f32> = first_of(read.await?);
            Ok(rows.chunks(stride).flat_map(|row| row.iter().take(vocab).copied()).collect())
        }
    }

    /// Returns the buffer with the logits, and its elements a row.
    fn submit_score(&mut self, slot: usize, tokens: &[u32]) -> Result<(GpuBuffer, usize)> {
        self.check_tokens(slot, tokens)?;
        let most = self.score_rows();
        if tokens.len() > most {
            return Err(Error::argument("tokens to score at a time", format!("at most {most}"), tokens.len()));
        }
        self.reserve(&[(slot, tokens.len() as u64)])?;
        let key = (PlanKind::Score, bucket(&PREFILL_ROWS, tokens.len()));
        self.ensure(key)?;
        self.stage.write_piece(slot, tokens)?;
        let mut encoder = self.encoder();
        let compiled = self.plans.get(&key).ok_or_else(lost)?;
        compiled.program.encode_range(&mut encoder, 0..compiled.program.len());
        let place = compiled.logits.ok_or_else(lost)?;
        let logits = self.stage.buffer(place.buffer)?.clone();
        // The slot holds the logits of the last token, as after a prefill.
        encoder.copy_buffer_to_buffer(
            logits.raw(),
            4 * u64::from(place.stride) * (tokens.len() as u64 - 1),
            self.stage.pool.heads().raw(),
            self.stage.pool.head_at(slot, self.stage.pool.head.logits),
            4 * self.spec.vocab as u64,
        );
        self.submit(encoder)?;
        self.stage.pages.advance(slot, tokens.len() as u64);
        Ok((logits, place.stride as usize))
    }

    pub(super) fn check_tokens(&self, slot: usize, tokens: &[u32]) -> Result<()> {
        self.stage.pool.check(slot)?;
        check_tokens(tokens, self.spec.vocab)
    }

    /// The plans that read a prompt of so many tokens.
    pub(super) fn prefill_plans(&self, tokens: usize) -> Vec<(PlanKind, usize)> {
        let most = self.prefill_rows();
        // Pieces are as large as can be, but for the last.
        let pieces = [(tokens >= most).then_some(most), Some(tokens % most).filter(|rest| *rest > 0)];
        pieces.into_iter().flatten().map(|piece| (PlanKind::Prefill, bucket(&PREFILL_ROWS, piece))).collect()
    }
}
