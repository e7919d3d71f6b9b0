//! A model loaded on a device, ready for sessions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::checkpoint::Checkpoint;
use crate::cpu;
use crate::device::Device;
use crate::engine::{DecodeRow, Emit, SlotState};
use crate::error::{Error, Result};
use crate::gpu;
use crate::model::Spec;
use crate::session::Session;
use crate::tokenizer::Tokenizer;

/// How a model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Most sessions alive at once. Each takes three slots of state: its own, and two to roll back to.
    pub sessions: usize,
    /// Lets a GPU with cooperative matrices round activations to f16 where a prompt, or a decode of 16 or more sessions
    /// together, meets f16 or bf16 weights, and what the chunks of a delta rule multiply. Prompts are then read up to 1.7
    /// times as fast (with the products alone), and logits differ by up to about 1e-2 of the largest instead of 1e-5.
    /// Decode steps of fewer sessions, states and f32 weights stay f32.
    ///
    /// Without it a session's logits are the same bits in any company. With it they are so among 16 or more sessions, and
    /// among fewer, but between the two they differ by rounding: a session may draw other tokens than it would alone.
    /// Its state is that of the tokens handed out in any case.
    pub half_products: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { sessions: 4, half_products: false }
    }
}

/// How far loading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is going on.
    pub stage: Stage,
    /// Bytes done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// Stages of loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Weights are read and checked.
    Checking,
    /// Weights go to the GPU.
    Uploading,
}

/// Tokens of a prompt that [`Model::prepare_async`] counts on.
const SHORT: usize = 8;

/// A language model on a device. Clones share it; [`Model::session`] makes independent readers of it.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) spec: Arc<Spec>,
    pub(crate) tokenizer: Option<Tokenizer>,
    pub(crate) device: Device,
    runner: Mutex<Runner>,
    free: Mutex<Vec<usize>>,
    sessions: usize,
}

/// The engine's half. No method waits for a GPU: what must be waited for is a future that owns what it needs.
#[derive(Debug)]
pub(crate) enum Runner {
    Cpu(Box<cpu::Runner>),
    Gpu(Box<gpu::Runner>),
}

/// A run of decode steps whose tokens can be awaited.
pub(crate) enum Ticket {
    Ready(Vec<Vec<Emit>>),
    Gpu(gpu::Ticket),
}

impl Model {
    /// Loads a checkpoint directory: `config.json`, `*.safetensors`, and `tokenizer.json` if there is one.
    ///
    /// # Errors
    /// Anything wrong with the files, or a device too small for the model.
    #[cfg(not(target_family = "wasm"))]
    pub fn open(directory: impl AsRef<std::path::Path>, device: &Device) -> Result<Self> {
        let checkpoint = Checkpoint::open(directory.as_ref())?;
        Self::load(&checkpoint, device, LoadOptions::default(), &mut |_| ())
    }

    /// Loads a checkpoint, telling `progress` how far it is.
    pub fn load(
        checkpoint: &Checkpoint,
        device: &Device,
        options: LoadOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let (spec, tokenizer) = Self::read_checkpoint(checkpoint, progress)?;
        Self::from_spec(Arc::new(spec), tokenizer, device, options, progress)
    }

    /// The first half of [`Model::load`], which needs no device: reads and checks a checkpoint for
    /// [`Model::from_spec`]. A device can be opened meanwhile.
    ///
    /// # Errors
    /// Anything wrong with the files.
    pub fn read_checkpoint(
        checkpoint: &Checkpoint,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Spec, Option<Tokenizer>)> {
        let mut checking = |done, total| progress(Progress { stage: Stage::Checking, done, total });
        let spec = Spec::from_checkpoint(checkpoint, &mut checking)?;
        let tokenizer = checkpoint.tokenizer().map(|bytes| {
            let tokenizer = Tokenizer::from_bytes(bytes)?;
            tokenizer.check_fits(spec.vocab).map(|()| tokenizer)
        });
        let tokenizer = tokenizer.transpose().map_err(|e| checkpoint.locate(e))?;
        Ok((spec, tokenizer))
    }

    /// Puts a model on a device whose weights may come from anywhere.
    pub fn from_spec(
        spec: Arc<Spec>,
        tokenizer: Option<Tokenizer>,
        device: &Device,
        options: LoadOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        if !(1..=4096).contains(&options.sessions) {
            return Err(Error::argument("sessions", "1 to 4096", options.sessions));
        }
        let slots = 3 * options.sessions;
        let runner = match device {
            Device::Cpu { threads, .. } => {
                let options = cpu::CpuOptions { threads: *threads, slots };
                Runner::Cpu(Box::new(cpu::Runner::new(spec.clone(), options)?))
            }
            Device::Gpu(gpu) => {
                let mut uploading = |done, total| progress(Progress { stage: Stage::Uploading, done, total });
                let options = gpu::GpuOptions { slots, half_products: options.half_products };
                Runner::Gpu(Box::new(gpu::Runner::new(gpu.clone(), spec.clone(), options, &mut uploading)?))
            }
        };
        let inner = Inner {
            spec,
            tokenizer,
            device: device.clone(),
            runner: Mutex::new(runner),
            // Handed out from the end: low slots first.
            free: Mutex::new((0..slots).rev().collect()),
            sessions: options.sessions,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Compiles ahead of time what a short prompt and a single session's decoding need, and waits until the device has
    /// taken the model in: in a browser, a device that has no room says so only then.
    pub async fn prepare_async(&self) -> Result<()> {
        let session = self.session()?;
        if let Runner::Gpu(runner) = &mut *self.runner() {
            runner.prepare(SHORT)?;
        }
        // Reading anything back waits for all that was submitted before.
        self.logits(session.slot()).await.map(drop)
    }

    /// Compiles ahead of time what a prompt of so many tokens and a single session's decoding need, all kernels
    /// together, and puts the device's compiled pipelines into their file, if it has one. Native only.
    ///
    /// # Errors
    /// What the device refuses.
    #[cfg(not(target_family = "wasm"))]
    pub fn prepare(&self, prompt: usize) -> Result<()> {
        if let Runner::Gpu(runner) = &mut *self.runner() {
            runner.prepare(prompt)?;
            runner.gpu().save_pipelines();
        }
        Ok(())
    }

    /// Times decodes on the GPU from now on, for benchmarks: until [`Model::stop_clock`]. Native only.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on the CPU engine and on devices without timestamps.
    #[cfg(not(target_family = "wasm"))]
    pub fn start_clock(&self) -> Result<()> {
        match &mut *self.runner() {
            Runner::Gpu(runner) => runner.start_clock(),
            Runner::Cpu(_) => Err(Error::Unsupported("GPU time of the CPU engine".into())),
        }
    }

    /// Seconds that the GPU was busy with decodes since [`Model::start_clock`]. Waits for them. Native only.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without a clock.
    #[cfg(not(target_family = "wasm"))]
    pub fn stop_clock(&self) -> Result<f64> {
        let reading = match &mut *self.runner() {
            Runner::Gpu(runner) => runner.stop_clock(),
            Runner::Cpu(_) => return Err(Error::Unsupported("GPU time of the CPU engine".into())),
        };
        self.wait(reading)
    }

    /// A new, empty session.
    ///
    /// # Errors
    /// [`Error::Argument`] when as many sessions as the model was loaded for are alive.
    pub fn session(&self) -> Result<Session> {
        Session::new(self.clone())
    }

    /// Architecture, sizes, weights.
    pub fn spec(&self) -> &Spec {
        &self.inner.spec
    }
    /// The tokenizer, if the checkpoint has one.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.inner.tokenizer.as_ref()
    }
    /// The tokenizer, or an error that says there is none.
    pub fn require_tokenizer(&self) -> Result<&Tokenizer> {
        let none = || Error::tokenizer("this checkpoint has none: feed token ids instead of text");
        self.inner.tokenizer.as_ref().ok_or_else(none)
    }
    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    pub(crate) fn runner(&self) -> MutexGuard<'_, Runner> {
        self.inner.runner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_slots(&self) -> Result<[usize; 3]> {
        let mut free = self.inner.free.lock().unwrap_or_else(PoisonError::into_inner);
        match (free.pop(), free.pop(), free.pop()) {
            (Some(a), Some(b), Some(c)) => Ok([a, b, c]),
            _ => {
                let n = self.inner.sessions;
                Err(Error::argument("sessions", format!("at most {n} alive, as the model was loaded for"), n + 1))
            }
        }
    }

    pub(crate) fn give_slots(&self, slots: [usize; 3]) {
        {
            let mut runner = self.runner();
            slots.iter().for_each(|slot| runner.release(*slot));
        }
        let mut free = self.inner.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(slots.iter().rev());
    }

    /// Waits for a future of this model's device.
    #[cfg(not(target_family = "wasm"))]
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        match &self.inner.device {
            Device::Gpu(gpu) => gpu.wait(future),
            Device::Cpu { .. } => pollster::block_on(future),
        }
    }
}

impl Runner {
    pub(crate) fn clear(&mut self, slot: usize) -> Result<()> {
        match self {
            Self::Cpu(r) => r.clear(slot),
            Self::Gpu(r) => r.clear(slot),
        }
    }
    pub(crate) fn copy(&mut self, from: usize, to: usize) -> Result<()> {
        match self {
            Self::Cpu(r) => r.copy(from, to),
            Self::Gpu(r) => r.copy(from, to),
        }
    }
    /// Gives back what a slot holds beyond its fixed share. Its content is lost.
    pub(crate) fn release(&mut self, slot: usize) {
        match self {
            Self::Cpu(r) => r.release(slot),
            Self::Gpu(r) => r.release(slot),
        }
    }
    /// States how many tokens a slot has been fed; nothing of it may be in flight.
    pub(crate) fn settle(&mut self, slot: usize, tokens: usize) {
        match self {
            Self::Cpu(_) => {}
            Self::Gpu(r) => r.settle(slot, tokens as u64),
        }
    }
    pub(crate) fn prefill(&mut self, slot: usize, tokens: &[u32]) -> Result<()> {
        match self {
            Self::Cpu(r) => r.prefill(slot, tokens),
            Self::Gpu(r) => r.prefill(slot, tokens),
        }
    }
    /// `company`: rows whose kernels to use, if more.
    pub(crate) fn decode(&mut self, rows: &[DecodeRow], steps: usize, company: usize) -> Result<Ticket> {
        Ok(match self {
            Self::Cpu(r) => Ticket::Ready(r.decode(rows, steps)?),
            Self::Gpu(r) => Ticket::Gpu(r.decode_among(rows, steps, company)?),
        })
    }
    pub(crate) fn import(&mut self, slot: usize, state: &SlotState) -> Result<()> {
        match self {
            Self::Cpu(r) => r.import(slot, state),
            Self::Gpu(r) => r.import(slot, state),
        }
    }
    /// Whether steps run while the host does something else.
    pub(crate) fn runs_ahead(&self) -> bool {
        matches!(self, Self::Gpu(_))
    }
    /// Most steps a run.
    pub(crate) fn max_steps(&self) -> usize {
        match self {
            Self::Cpu(_) => 1,
            Self::Gpu(r) => r.max_steps(),
        }
    }
}

/// What is waited for must not hold the runner: other sessions go on meanwhile. So every future is made under the lock
/// and awaited without it.
impl Model {
    pub(crate) async fn read(&self, ticket: Ticket) -> Result<Vec<Vec<Emit>>> {
        let pending = match (&*self.runner(), ticket) {
            (Runner::Gpu(r), Ticket::Gpu(ticket)) => r.read(ticket),
            (_, Ticket::Ready(emits)) => return Ok(emits),
            (Runner::Cpu(_), Ticket::Gpu(_)) => return Err(Error::Gpu("a ticket of another engine".into())),
        };
        pending.await
    }
    /// Asked for at once, whenever it is awaited.
    pub(crate) fn logits(&self, slot: usize) -> impl Future<Output = Result<Vec<f32>>> + use<> {
        // There already, or on its way.
        let asked = match &*self.runner() {
            Runner::Cpu(r) => Err(r.logits(slot)),
            Runner::Gpu(r) => Ok(r.logits(slot)),
        };
        async move {
            match asked {
                Ok(pending) => pending.await,
                Err(ready) => ready,
            }
        }
    }
    /// At most [`Model::score_rows`] tokens.
    pub(crate) async fn score(&self, slot: usize, tokens: &[u32]) -> Result<Vec<f32>> {
        let pending = match &mut *self.runner() {
            Runner::Cpu(r) => return r.score(slot, tokens),
            Runner::Gpu(r) => r.score(slot, tokens),
        };
        pending.await
    }
    pub(crate) async fn export(&self, slot: usize) -> Result<SlotState> {
        let pending = match &*self.runner() {
            Runner::Cpu(r) => return r.export(slot),
            Runner::Gpu(r) => r.export(slot),
        };
        pending.await
    }
    /// Feeds at most [`crate::session::gates::GATE_ROWS`] tokens and returns each mixer's gates, `[tokens, width]`.
    pub(crate) async fn gates(&self, slot: usize, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        let pending = match &mut *self.runner() {
            Runner::Cpu(r) => return r.gates(slot, tokens),
            Runner::Gpu(r) => r.gates(slot, tokens)?,
        };
        pending.await
    }
    /// Tokens between two looks at whether to go on reading: what keeps the engine busy, but not for long.
    pub(crate) fn reading_rows(&self) -> usize {
        match &*self.runner() {
            Runner::Cpu(r) => r.reading_rows(),
            Runner::Gpu(r) => r.reading_rows(),
        }
    }
    /// Most rows that one [`Model::score`] takes.
    pub(crate) fn score_rows(&self) -> usize {
        match &*self.runner() {
            Runner::Cpu(r) => r.score_rows(),
            Runner::Gpu(r) => r.score_rows(),
        }
    }
}
