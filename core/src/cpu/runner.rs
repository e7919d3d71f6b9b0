//! A model's engine on the CPU: slots of session state, and the plans that advance them.

mod gates;

use std::sync::Arc;

use super::execute::{Buffers, Run, buffer};
use super::parallel::{self, Shared};
use super::slot::Slot;
use super::team::Team;
use super::weights::Weights;
use crate::engine::{DecodeRow, Emit, SlotState, check_tokens};
use crate::error::{Error, Result};
use crate::model::Spec;
use crate::plan::{Plan, PlanKind};
use crate::sampler::{self, Drawn};

/// Rows of a piece of a prompt: bounds the scratch, whatever a prompt's length.
const PIECE: usize = 512;
/// Most bytes of logits that one [`Runner::score`] makes.
const SCORE_BYTES: usize = 32 << 20;
/// Sessions that decode at the same time; more take turns.
const DECODE_ROWS: usize = 64;

/// How the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads; `None`: one a core, or fewer where the system has no room for so many. (Always one on WebAssembly.)
    pub threads: Option<usize>,
    /// Slots of session state. Memory is taken when a slot is first used.
    pub slots: usize,
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self { threads: None, slots: 8 }
    }
}

/// A model on the CPU.
///
/// Weights stay where the checkpoint has them; the engine adds its state, buffers for 512 rows and little else.
/// Results do not depend on the number of threads, nor, for a decode, on the number of sessions that decode together.
#[derive(Debug)]
pub struct Runner {
    spec: Arc<Spec>,
    weights: Weights,
    prefill: Plan,
    score: Plan,
    decode: Plan,
    slots: Vec<Option<Slot>>,
    buffers: Buffers,
    team: Team,
}

impl Runner {
    /// An engine for a model.
    ///
    /// # Errors
    /// [`Error::Argument`] for no threads or no slots; [`Error::OutOfMemory`] when threads cannot be started.
    pub fn new(spec: Arc<Spec>, options: CpuOptions) -> Result<Self> {
        if options.slots == 0 {
            return Err(Error::argument("slots", "at least 1", 0));
        }
        if options.threads.is_some_and(|t| !(1..=1024).contains(&t)) {
            return Err(Error::argument("threads", "1 to 1024", options.threads.unwrap_or_default()));
        }
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let team = options.threads.map_or_else(|| Team::at_most(cores()), Team::new);
        let team = team.map_err(|e| Error::OutOfMemory(format!("threads of the CPU engine: {e}")))?;
        let decode = spec.plan(PlanKind::Decode, options.slots.min(DECODE_ROWS))?;
        Ok(Self {
            weights: Weights::new(spec.clone(), &decode)?,
            prefill: spec.plan(PlanKind::Prefill, PIECE)?,
            score: spec.plan(PlanKind::Score, score_rows(&spec))?,
            decode,
            slots: (0..options.slots).map(|_| None).collect(),
            buffers: Buffers::default(),
            spec,
            team,
        })
    }

    /// The model.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Threads that work.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }

    /// Tokens of a prompt after which its reader may end it. The bits of the result do not depend on it.
    pub(crate) fn reading_rows(&self) -> usize {
        // One thread takes seconds for a whole piece, and is as fast with fewer rows.
        if cfg!(target_family = "wasm") { 32 } else { PIECE }
    }

    /// Most tokens that one [`Runner::score`] takes.
    pub fn score_rows(&self) -> usize {
        self.score.rows
    }

    /// Empties a slot: a session that has been fed nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] for a slot that does not exist; [`Error::OutOfMemory`].
    pub fn clear(&mut self, slot: usize) -> Result<()> {
        self.check(slot)?;
        match &mut self.slots[slot] {
            Some(s) => s.clear(),
            empty => *empty = Some(Slot::new(&self.spec)?),
        }
        Ok(())
    }

    /// Gives back what a slot holds beyond its fixed share: attention's caches. What it held is lost.
    pub fn release(&mut self, slot: usize) {
        if let Some(Some(s)) = self.slots.get_mut(slot) {
            s.clear();
        }
    }

    /// Copies a slot's whole content to another one.
    ///
    /// # Errors
    /// As [`Runner::clear`].
    pub fn copy(&mut self, from: usize, to: usize) -> Result<()> {
        self.check(from)?;
        self.check(to)?;
        if from == to {
            return Ok(());
        }
        let Some(source) = self.slots[from].take() else { return self.clear(to) };
        let done = match &mut self.slots[to] {
            Some(target) => {
                target.copy_from(&source);
                Ok(())
            }
            empty => Slot::new(&self.spec).map(|mut target| {
                target.copy_from(&source);
                *empty = Some(target);
            }),
        };
        self.slots[from] = Some(source);
        done
    }

    /// Feeds tokens to a session, in pieces; afterwards the slot holds the logits of the last one.
    ///
    /// # Errors
    /// [`Error::Argument`] for no tokens, a token beyond the vocabulary (nothing has been fed then) or a slot that
    /// does not exist; [`Error::OutOfMemory`].
    pub fn prefill(&mut self, slot: usize, tokens: &[u32]) -> Result<()> {
        self.check_tokens(slot, tokens)?;
        for piece in tokens.chunks(PIECE) {
            self.feed(slot, piece, PlanKind::Prefill)?;
        }
        Ok(())
    }

    /// Feeds one piece of a prompt to a session with a plan of its model, and shows each op's output to `after`: the
    /// op's index, then `[rows, width]`. For tracing a wrong result to an op; the slot's logits are not updated.
    ///
    /// # Errors
    /// As [`Runner::prefill`]; [`Error::Argument`] too for a plan of another kind or with fewer rows than tokens.
    pub fn trace(
        &mut self,
        plan: &Plan,
        slot: usize,
        tokens: &[u32],
        after: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<()> {
        self.check_tokens(slot, tokens)?;
        if plan.kind == PlanKind::Decode || plan.rows < tokens.len() {
            let got = format!("{:?} of {} rows", plan.kind, plan.rows);
            return Err(Error::argument("plan", format!("a prefill of at least {} rows", tokens.len()), got));
        }
        let mut taken = [match self.slots[slot].take() {
            Some(slot) => slot,
            None => Slot::new(&self.spec)?,
        }];
        let mut run = Run { weights: &self.weights, plan, tokens, slots: &mut taken, buffers: &mut self.buffers };
        let done = self.team.install(|| run.execute_watched(after));
        let [mut used] = taken;
        used.fed(tokens);
        self.slots[slot] = Some(used);
        done
    }

    /// Feeds tokens to a session and returns the logits after each of them, `[tokens, vocab]`.
    ///
    /// # Errors
    /// As [`Runner::prefill`]; [`Error::Argument`] too for more than [`Runner::score_rows`] tokens.
    pub fn score(&mut self, slot: usize, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_tokens(slot, tokens)?;
        if tokens.len() > self.score.rows {
            let most = format!("at most {}", self.score.rows);
            return Err(Error::argument("tokens to score at a time", most, tokens.len()));
        }
        self.feed(slot, tokens, PlanKind::Score)?;
        let logits = buffer(&self.buffers.plan, self.score.logits);
        Ok(logits[..tokens.len() * self.spec.vocab].to_vec())
    }

    /// Runs up to `steps` decode steps: every row draws a token from its slot's logits, and feeds it. A row ends at
    /// its limit, or when it draws an end-of-text token (with `stop_at_eos`), which is reported but not fed.
    ///
    /// Returns each row's tokens.
    ///
    /// # Errors
    /// [`Error::Argument`] for a slot that does not exist, holds no logits or is named twice, or a sampling out of
    /// its domain; nothing has been fed then.
    pub fn decode(&mut self, rows: &[DecodeRow], steps: usize) -> Result<Vec<Vec<Emit>>> {
        self.check_rows(rows)?;
        for row in rows {
            if let Some(snapshot) = row.snapshot {
                self.copy(row.slot, snapshot)?;
            }
        }
        let mut emits: Vec<Vec<Emit>> = vec![Vec::new(); rows.len()];
        let mut active: Vec<usize> = (0..rows.len()).collect();
        for _ in 0..steps {
            active.retain(|i| {
                let limit = rows[*i].limit as usize;
                emits[*i].len() < limit && emits[*i].last().is_none_or(|e| !e.end)
            });
            if active.is_empty() {
                break;
            }
            self.step(rows, &active, &mut emits)?;
        }
        Ok(emits)
    }

    /// Draws a token for each active row, and feeds those that do not end it.
    fn step(&mut self, rows: &[DecodeRow], active: &[usize], emits: &mut [Vec<Emit>]) -> Result<()> {
        let mut drawn = vec![Drawn { token: 0, logprob: 0.0 }; active.len()];
        self.draw(rows, active, &mut drawn);
        let mut feeding = Vec::with_capacity(active.len());
        let mut tokens = Vec::with_capacity(active.len());
        for (i, Drawn { token, logprob }) in active.iter().zip(drawn) {
            let end = rows[*i].stop_at_eos && self.spec.eos.contains(&token);
            emits[*i].push(Emit { token, logprob, end });
            if !end {
                feeding.push(rows[*i].slot);
                tokens.push(token);
            }
        }
        for (slots, tokens) in feeding.chunks(self.decode.rows).zip(tokens.chunks(self.decode.rows)) {
            self.advance(slots, tokens, PlanKind::Decode)?;
        }
        Ok(())
    }

    fn draw(&mut self, rows: &[DecodeRow], active: &[usize], drawn: &mut [Drawn]) {
        let n = active.len();
        let slots = &self.slots;
        let shared = Shared::new(drawn);
        let one = |i: usize| {
            let row = &rows[active[i]];
            if let Some(slot) = &slots[row.slot] {
                let token = sampler::sample(&slot.logits, &row.sampling, slot.position, &slot.seen);
                // SAFETY: every row has a place of its own.
                unsafe { shared.get(i, 1) }.fill(token);
            }
        };
        self.team.install(|| parallel::for_each(n, one));
    }

    /// The logits of a slot's last token, `[vocab]`; empty when nothing has been fed.
    ///
    /// # Errors
    /// [`Error::Argument`] for a slot that does not exist.
    pub fn logits(&self, slot: usize) -> Result<Vec<f32>> {
        self.check(slot)?;
        Ok(self.slots[slot].as_ref().map(|s| s.logits.clone()).unwrap_or_default())
    }

    /// A slot's whole content.
    ///
    /// # Errors
    /// As [`Runner::clear`].
    pub fn export(&self, slot: usize) -> Result<SlotState> {
        self.check(slot)?;
        match &self.slots[slot] {
            Some(s) => Ok(s.export()),
            None => Ok(Slot::new(&self.spec)?.export()),
        }
    }

    /// Fills a slot with what [`Runner::export`] gave, here or on another engine.
    ///
    /// # Errors
    /// [`Error::Session`] for a content of another shape; [`Error::Argument`] for a slot that does not exist.
    pub fn import(&mut self, slot: usize, state: &SlotState) -> Result<()> {
        self.check(slot)?;
        self.slots[slot] = Some(Slot::import(&self.spec, state)?);
        Ok(())
    }

    fn feed(&mut self, slot: usize, tokens: &[u32], kind: PlanKind) -> Result<()> {
        if self.slots[slot].is_none() {
            self.slots[slot] = Some(Slot::new(&self.spec)?);
        }
        self.advance(&[slot], tokens, kind)
    }

    /// Runs a plan on slots that exist, and takes over positions, seen tokens and logits.
    fn advance(&mut self, slots: &[usize], tokens: &[u32], kind: PlanKind) -> Result<()> {
        if tokens.is_empty() {
            return Ok(());
        }
        let plan = match kind {
            PlanKind::Prefill => &self.prefill,
            PlanKind::Score => &self.score,
            PlanKind::Decode => &self.decode,
        };
        // Taken out of their places, so that a run can change several at a time.
        let mut taken: Vec<Slot> = slots.iter().filter_map(|s| self.slots[*s].take()).collect();
        let mut run = Run { weights: &self.weights, plan, tokens, slots: &mut taken, buffers: &mut self.buffers };
        let done = self.team.install(|| run.execute());
        let vocab = self.spec.vocab;
        let logits = buffer(&self.buffers.plan, plan.logits);
        for (i, (place, mut slot)) in slots.iter().zip(taken).enumerate() {
            if done.is_ok() {
                let (fed, last) = match kind {
                    PlanKind::Decode => (&tokens[i..=i], i),
                    PlanKind::Score => (tokens, tokens.len() - 1),
                    PlanKind::Prefill => (tokens, 0),
                };
                slot.fed(fed);
                slot.logits.clear();
                slot.logits.extend_from_slice(&logits[last * vocab..(last + 1) * vocab]);
            }
            self.slots[*place] = Some(slot);
        }
        done
    }

    fn check(&self, slot: usize) -> Result<()> {
        if slot < self.slots.len() {
            return Ok(());
        }
        Err(Error::argument("slot", format!("below {}", self.slots.len()), slot))
    }

    fn check_tokens(&self, slot: usize, tokens: &[u32]) -> Result<()> {
        self.check(slot)?;
        check_tokens(tokens, self.spec.vocab)
    }

    fn check_rows(&self, rows: &[DecodeRow]) -> Result<()> {
        if rows.is_empty() {
            return Err(Error::argument("rows", "at least one", "none"));
        }
        let mut named = vec![false; self.slots.len()];
        for row in rows {
            row.sampling.check()?;
            for slot in [Some(row.slot), row.snapshot].into_iter().flatten() {
                self.check(slot)?;
                if std::mem::replace(&mut named[slot], true) {
                    return Err(Error::argument("slot", "named once in a decode", slot));
                }
            }
            if self.slots[row.slot].as_ref().is_none_or(|s| s.logits.is_empty()) {
                return Err(Error::argument("slot", "one that has been fed", row.slot));
            }
        }
        Ok(())
    }
}

fn score_rows(spec: &Spec) -> usize {
    (SCORE_BYTES / (4 * spec.vocab.max(1))).clamp(1, PIECE)
}
