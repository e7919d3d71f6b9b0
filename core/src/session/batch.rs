//! Sessions that generate together, or one: several steps a submission.
//!
//! On a GPU, runs of steps are submitted ahead of the reader: while the tokens of one run are handed out, the next is
//! being computed. A run that turns out to have gone too far (a stop string, a reader who leaves) is undone: every run
//! starts by copying the state to a snapshot slot, and the accepted steps are replayed from there, by the kernels of as
//! many rows. They draw the very same tokens, so the state is bitwise that of the tokens handed out.

use std::collections::VecDeque;

use super::stop::StopMatcher;
use super::{Finish, GenerateOptions, Piece, Session};
use crate::engine::{DecodeRow, Emit};
use crate::error::{Error, Result};
use crate::lm::{Model, Ticket};
use crate::tokenizer::TextStream;

/// A run that has been submitted.
struct Run {
    ticket: Ticket,
    /// Row of the run of each of the batch's readers, if it takes part.
    rows: Vec<Option<usize>>,
    /// Which of a session's two snapshot slots holds its state before this run.
    snapshot: usize,
    /// How many rows it has.
    company: usize,
}

/// Tokens of a run that has been read.
#[derive(Default)]
struct Read {
    /// A reader each, tokens not yet handed out.
    emits: Vec<VecDeque<Emit>>,
    /// A reader each, tokens handed out.
    taken: Vec<u32>,
    /// A reader each: it took part in a run whose tokens have not arrived.
    waiting: Vec<bool>,
    /// Which snapshot holds the state before the run.
    snapshot: usize,
    /// Rows of the run.
    company: usize,
}

/// One session's part in a batch.
struct Reader {
    options: GenerateOptions,
    decoder: Option<TextStream>,
    stops: StopMatcher,
    /// Steps submitted in all.
    submitted: usize,
    /// Tokens handed out.
    taken: usize,
    finish: Option<Finish>,
    /// Text held back to the end.
    tail: String,
}

/// Several sessions of one model, stepping together: one submission moves them all.
pub struct Batch<'a> {
    model: Model,
    sessions: Vec<&'a mut Session>,
    readers: Vec<Reader>,
    ahead: Option<Run>,
    read: Read,
    /// Where the round over the readers stands.
    turn: usize,
    steps: usize,
    runs: usize,
}

impl<'a> Batch<'a> {
    /// Starts generating in all `sessions`, each with its own options.
    ///
    /// # Errors
    /// [`Error::Argument`]: no session, sessions of different models, a session that nothing was fed to, options out
    /// of their domain.
    pub fn new(sessions: Vec<&'a mut Session>, options: Vec<GenerateOptions>) -> Result<Self> {
        let Some(model) = sessions.first().map(|s| s.model.clone()) else {
            return Err(Error::argument("sessions", "at least one", 0));
        };
        if options.len() != sessions.len() {
            return Err(Error::argument("options", format!("{}, one a session", sessions.len()), options.len()));
        }
        let mut readers = Vec::with_capacity(sessions.len());
        for (session, options) in sessions.iter().zip(options) {
            if !std::sync::Arc::ptr_eq(&session.model.inner, &model.inner) {
                return Err(Error::argument("sessions", "sessions of one loaded model", "several models"));
            }
            session.check_fed()?;
            options.check(&model)?;
            let decoder = model.tokenizer().map(|t| t.stream(false));
            let stops = StopMatcher::new(options.stop.clone());
            let finish = (options.max_tokens == 0).then_some(Finish::Length);
            let tail = String::new();
            readers.push(Reader { options, decoder, stops, submitted: 0, taken: 0, finish, tail });
        }
        for session in &sessions {
            model.runner().settle(session.slots[0], session.tokens.len());
        }
        let n = readers.len();
        let read =
            Read { emits: vec![VecDeque::new(); n], taken: vec![0; n], waiting: vec![false; n], ..Read::default() };
        Ok(Self { model, sessions, readers, ahead: None, read, turn: 0, steps: 1, runs: 0 })
    }

    /// The next token of any of the sessions, and whose it is. `None` when all have ended.
    pub async fn next_async(&mut self) -> Result<Option<(usize, Piece)>> {
        if self.read.waiting.contains(&true) {
            // An earlier call of this function was dropped while it waited, and its tokens with it: draw them again.
            for i in 0..self.readers.len() {
                if self.readers[i].finish.is_none() {
                    self.roll_back(i)?;
                    self.readers[i].submitted = self.readers[i].taken;
                }
            }
            self.read.waiting.fill(false);
            self.ahead = None;
        }
        loop {
            let n = self.readers.len();
            while self.turn < n {
                let i = self.turn;
                self.turn += 1;
                if self.readers[i].finish.is_none()
                    && let Some(emit) = self.read.emits[i].pop_front()
                    && let Some(piece) = self.accept(i, emit)?
                {
                    return Ok(Some((i, piece)));
                }
            }
            self.turn = 0;
            if self.read.emits.iter().all(VecDeque::is_empty) && !self.read_next().await? {
                return Ok(None);
            }
        }
    }

    /// Reads the oldest run, having submitted the one after it. False when there is none: all have ended.
    async fn read_next(&mut self) -> Result<bool> {
        // Everything read before has been handed out, so its snapshots are free for the run after next.
        let run = match self.ahead.take() {
            Some(run) => run,
            None => match self.submit()? {
                Some(run) => run,
                None => return Ok(false),
            },
        };
        (self.read.snapshot, self.read.company) = (run.snapshot, run.company);
        self.read.taken.fill(0);
        for (waiting, row) in self.read.waiting.iter_mut().zip(&run.rows) {
            *waiting = row.is_some();
        }
        let runs_ahead = self.model.runner().runs_ahead();
        if runs_ahead {
            self.ahead = self.submit()?;
        }
        let emits = self.model.read(run.ticket).await?;
        self.read.waiting.fill(false);
        for (i, row) in run.rows.iter().enumerate() {
            let emits = row.and_then(|r| emits.get(r)).filter(|_| self.readers[i].finish.is_none());
            self.read.emits[i] = emits.map(|e| e.iter().copied().collect()).unwrap_or_default();
        }
        Ok(true)
    }

    /// Why session `i` ended, once it has.
    pub fn finish(&self, i: usize) -> Option<Finish> {
        self.readers.get(i).and_then(|r| r.finish)
    }

    /// Text of session `i` that no token completed (held back for a stop string, or half a character), at its end.
    pub fn tail(&self, i: usize) -> &str {
        self.readers.get(i).map_or("", |r| r.tail.as_str())
    }

    /// Submits the next run of steps for all that go on, if any does.
    fn submit(&mut self) -> Result<Option<Run>> {
        let snapshot = self.runs % 2;
        let mut runner = self.model.runner();
        let ahead = self.readers.iter().map(|r| r.options.steps_ahead).min().unwrap_or(1);
        let most = runner.max_steps().min(ahead).max(1);
        let going = |r: &Reader| r.finish.is_none() && r.submitted < r.options.max_tokens;
        let left = self.readers.iter().filter(|r| going(r)).map(|r| r.options.max_tokens - r.submitted).max();
        let Some(left) = left else { return Ok(None) };
        let steps = self.steps.min(most).min(left);
        let mut rows = Vec::new();
        let mut places = Vec::with_capacity(self.readers.len());
        for (reader, session) in self.readers.iter_mut().zip(&self.sessions) {
            if !going(reader) {
                places.push(None);
                continue;
            }
            let limit = steps.min(reader.options.max_tokens - reader.submitted);
            reader.submitted += limit;
            places.push(Some(rows.len()));
            rows.push(DecodeRow {
                slot: session.slots[0],
                sampling: reader.options.sampling,
                limit: limit as u32,
                stop_at_eos: reader.options.stop_at_eos,
                // Steps that are handed out one by one need no way back.
                snapshot: runner.runs_ahead().then_some(session.slots[1 + snapshot]),
            });
        }
        let company = rows.len();
        let ticket = runner.decode(&rows, steps, company)?;
        self.runs += 1;
        self.steps = (2 * self.steps).min(most);
        Ok(Some(Run { ticket, rows: places, snapshot, company }))
    }

    /// Takes one drawn token of reader `i`.
    fn accept(&mut self, i: usize, emit: Emit) -> Result<Option<Piece>> {
        let reader = &mut self.readers[i];
        if emit.end {
            reader.finish = Some(Finish::EndOfText(emit.token));
            reader.close();
            return Ok(None);
        }
        // A probability above 1, by more than rounding, or none at all.
        if emit.logprob.is_nan() || emit.logprob > 1.0 {
            reader.finish = Some(Finish::Cancelled);
            self.roll_back(i)?;
            return Err(super::overflow());
        }
        self.read.taken[i] += 1;
        reader.taken += 1;
        self.sessions[i].tokens.push(emit.token);
        let text = match &mut reader.decoder {
            Some(decoder) => decoder.push(emit.token)?,
            None => String::new(),
        };
        let (text, stopped) = reader.stops.push(&text);
        let mut piece = Piece { token: emit.token, text, logprob: emit.logprob };
        if stopped {
            reader.finish = Some(Finish::Stop);
            self.roll_back(i)?;
        } else if reader.taken == reader.options.max_tokens {
            reader.finish = Some(Finish::Length);
            reader.close();
            // The last token brings what was held back: nobody is asked for a tail in the common case.
            piece.text.push_str(&std::mem::take(&mut reader.tail));
        }
        Ok(Some(piece))
    }

    /// Makes session `i`'s state that of the tokens handed out, if steps beyond them have been submitted.
    fn roll_back(&mut self, i: usize) -> Result<()> {
        let beyond = !self.read.emits[i].is_empty() || self.read.waiting[i];
        let ahead = self.ahead.as_ref().filter(|run| run.rows[i].is_some()).map(|run| run.snapshot);
        self.read.emits[i].clear();
        self.read.waiting[i] = false;
        let slots = self.sessions[i].slots;
        let mut runner = self.model.runner();
        match (beyond, ahead) {
            (false, None) => Ok(()),
            // All of the run that was read is accepted: the next one's snapshot is the state after it.
            (false, Some(snapshot)) => runner.copy(slots[1 + snapshot], slots[0]),
            (true, _) => {
                runner.copy(slots[1 + self.read.snapshot], slots[0])?;
                let (limit, options) = (self.read.taken[i], &self.readers[i].options);
                if limit > 0 {
                    let (sampling, stop_at_eos) = (options.sampling, options.stop_at_eos);
                    let row = DecodeRow { slot: slots[0], sampling, limit, stop_at_eos, snapshot: None };
                    runner.decode(&[row], limit as usize, self.read.company)?;
                }
                Ok(())
            }
        }
    }

    /// Ends all sessions where they stand: each state is that of the tokens handed out. Dropping does the same.
    pub fn stop(&mut self) -> Result<()> {
        for i in 0..self.readers.len() {
            if self.readers[i].finish.is_none() {
                self.roll_back(i)?;
                self.readers[i].finish = Some(Finish::Cancelled);
                self.readers[i].close();
            }
        }
        self.ahead = None;
        Ok(())
    }
}

impl Reader {
    fn close(&mut self) {
        // A decoder that fails at the very end has nothing more to say.
        let rest = self.decoder.as_mut().and_then(|d| d.finish().ok()).unwrap_or_default();
        let (text, _) = self.stops.push(&rest);
        self.tail = text + &self.stops.finish();
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // Errors have nowhere to go here; a lost device reports itself at the session's next use.
        let _ = self.stop();
        // Nobody goes back any more.
        let mut runner = self.model.runner();
        for session in &self.sessions {
            session.slots[1..].iter().for_each(|slot| runner.release(*slot));
        }
    }
}

/// Blocking form, for native programs.
#[cfg(not(target_family = "wasm"))]
impl Batch<'_> {
    /// [`Batch::next_async`], waited for.
    pub fn next_blocking(&mut self) -> Result<Option<(usize, Piece)>> {
        let model = self.model.clone();
        model.wait(self.next_async())
    }
}
