//! The wgpu engine of a model: weights and a pool of session slots on a device, and plans compiled as they are needed.

mod gates;
mod reading;

use std::collections::HashMap;
use std::sync::Arc;

use deltanet_shaders::head::{CONTROL_SLOT, CONTROL_WORDS, HEAD_DONE};

use super::buffer::GpuBuffer;
use super::clock::Clock;
use super::device::Gpu;
use super::lower::{Place, lower_plan};
use super::pool::NO_SLOT;
use super::program::{Dispatch, Program, Timing, pipelines};
use super::readback::{Staging, Ticket};
use super::stage::Stage;
use crate::engine::{DecodeRow, Emit, SlotState};
use crate::error::{Error, Result};
use crate::model::Spec;
use crate::plan::PlanKind;

/// How a model runs on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuOptions {
    /// Session slots: how many sessions (and snapshots of sessions) live on the device at a time.
    pub slots: usize,
    /// See [`Stage::half_products`].
    pub half_products: bool,
}

impl Default for GpuOptions {
    fn default() -> Self {
        Self { slots: 8, half_products: false }
    }
}

/// Most rows of a decode.
pub const MAX_DECODE_ROWS: usize = 64;
/// Most decode steps in one submission.
pub const MAX_STEPS: usize = 64;
/// A plan, compiled.
#[derive(Debug)]
struct Compiled {
    program: Program,
    /// Dispatches before the logits.
    body: usize,
    logits: Option<Place>,
}

/// A model on a device.
#[derive(Debug)]
pub struct Runner {
    stage: Stage,
    spec: Arc<Spec>,
    plans: HashMap<(PlanKind, usize), Compiled>,
    /// Prefill plans that keep their gates, by rows.
    gates: HashMap<usize, gates::Gates>,
    /// Drawing programs by number of rows.
    draws: HashMap<usize, Program>,
    staging: Staging,
    /// Times decodes while there is one.
    clock: Option<Clock>,
}

impl Runner {
    /// Uploads a model and makes its slots. `progress` gets (bytes done, bytes in all).
    ///
    /// # Errors
    /// [`Error::Limit`] when a weight's row or the slots of a layer need a larger binding than the device has;
    /// [`Error::OutOfMemory`] when the device has no room.
    pub fn new(gpu: Gpu, spec: Arc<Spec>, options: GpuOptions, progress: &mut dyn FnMut(u64, u64)) -> Result<Self> {
        let mut stage = Stage::new(gpu, spec.vocab, &spec.weights, &spec.layers, options.slots, progress)?;
        stage.half_products(options.half_products);
        Ok(Self {
            stage,
            spec,
            plans: HashMap::new(),
            gates: HashMap::new(),
            draws: HashMap::new(),
            staging: Staging::default(),
            clock: None,
        })
    }

    /// The device.
    pub fn gpu(&self) -> &Gpu {
        &self.stage.gpu
    }
    /// The model.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }
    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.stage.pool.slots()
    }
    /// Most steps of one [`Runner::decode`].
    pub fn max_steps(&self) -> usize {
        MAX_STEPS
    }
    /// Runs the plan for `rows` once with a timestamp pair around every dispatch, on whatever the slots and tables hold:
    /// it is the time that counts, not the result. Slots' contents are undefined afterwards.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the device has no timestamps.
    pub async fn profile(&mut self, kind: PlanKind, rows: usize) -> Result<Vec<Timing>> {
        let key = (kind, rows);
        self.ensure(key)?;
        let compiled = self.plans.get(&key).ok_or_else(lost)?;
        compiled.program.profile(&self.stage.gpu).await
    }

    /// Times the decodes from now on, for benchmarks: until [`Runner::stop_clock`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the device has no timestamps.
    pub fn start_clock(&mut self) -> Result<()> {
        self.clock = Some(Clock::new(&self.stage.gpu)?);
        Ok(())
    }

    /// Seconds that the device spent in the decodes since [`Runner::start_clock`]: the sum over their passes, each from
    /// its start to its end on the device. Resolves when they are done.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without a clock, and for more than 2,048 submissions.
    pub fn stop_clock(&mut self) -> impl Future<Output = Result<f64>> + use<> {
        let reading = self.clock.take().map(Clock::read);
        async move {
            let reading = reading.ok_or_else(|| Error::Unsupported("a clock that was not started".into()))?;
            Ok(reading.await?.iter().sum())
        }
    }

    /// What the plans run on.
    pub fn stage(&mut self) -> &mut Stage {
        &mut self.stage
    }
    /// A layer's states, `[slots, words]`, and its words a slot; `None` for a layer without a state.
    pub fn layer_state(&self, layer: usize) -> Option<(&GpuBuffer, usize)> {
        let index = self.stage.fixed.states.get(layer).copied().flatten()?;
        Some((self.stage.buffers.get(index)?.buffer()?, self.spec.layers.get(layer)?.words))
    }
    /// Bytes of scratch that the plans compiled so far share.
    pub fn scratch_bytes(&self) -> u64 {
        self.stage.scratch.bytes()
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.stage.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    fn submit(&self, encoder: wgpu::CommandEncoder) -> Result<wgpu::SubmissionIndex> {
        let submission = self.stage.gpu.queue().submit([encoder.finish()]);
        // Frees what earlier submissions held; does not wait. (Browsers do this on their own.)
        #[cfg(not(target_family = "wasm"))]
        let _ = self.stage.gpu.device().poll(wgpu::PollType::Poll);
        self.stage.gpu.check()?;
        Ok(submission)
    }

    /// Zeroes a slot: a session that has been fed nothing.
    pub fn clear(&mut self, slot: usize) -> Result<()> {
        self.stage.pool.check(slot)?;
        self.stage.pages.clear(slot);
        let mut encoder = self.encoder();
        self.stage.pool.clear(&mut encoder, slot);
        self.submit(encoder).map(drop)
    }

    /// Gives back what a slot holds beyond its fixed share (pages of attention's caches). What it held is lost.
    pub fn release(&mut self, slot: usize) {
        self.stage.pages.clear(slot);
    }

    /// States how many tokens a slot has been fed, which a decode that ended early leaves open: so that caches keep no
    /// room for tokens that never came. Nothing of the slot may be in flight.
    pub fn settle(&mut self, slot: usize, tokens: u64) {
        self.stage.pages.settle(slot, tokens);
    }

    /// Makes room for tokens, so many a slot.
    fn reserve(&mut self, wants: &[(usize, u64)]) -> Result<()> {
        let grown = self.stage.reserve(wants)?;
        self.replaced(grown);
        Ok(())
    }

    /// Forgets the plans when buffers that they bind were replaced. Their pipelines are kept by the device.
    fn replaced(&mut self, grown: bool) {
        if grown {
            self.plans.clear();
            self.gates.clear();
        }
    }

    /// Copies a slot's whole content to another. A snapshot that goes back to the slot it was taken of, or the other
    /// way round, shares its attention caches and copies none.
    ///
    /// # Errors
    /// [`Error::Argument`] for a slot that does not exist; [`Error::OutOfMemory`] when attention caches find no room.
    pub fn copy(&mut self, from: usize, to: usize) -> Result<()> {
        self.stage.pool.check(from)?;
        self.stage.pool.check(to)?;
        if from == to {
            return Ok(());
        }
        let (pages, grown) = self.stage.pages.fork(&self.stage.gpu, &mut self.stage.buffers, from, to)?;
        self.replaced(grown);
        let mut encoder = self.encoder();
        self.stage.pool.copy(&self.stage.gpu, &mut encoder, &[(from, to)])?;
        let copies = self.stage.pages.copy(&self.stage.gpu, &self.stage.buffers, &mut encoder, &pages)?;
        self.submit(encoder)?;
        drop(copies);
        Ok(())
    }

    /// Runs up to `steps` decode steps of every row in one submission: snapshots first, then draw and feed, again and
    /// again. Rows end early at their limits and at the end of a text; nothing of theirs changes after that.
    ///
    /// # Errors
    /// [`Error::Argument`] for too many rows or steps, or a slot that is named twice.
    pub fn decode(&mut self, rows: &[DecodeRow], steps: usize) -> Result<Ticket> {
        self.decode_among(rows, steps, rows.len())
    }

    /// The same with the kernels of a decode of `company` rows, if these are fewer: where products may round
    /// ([`GpuOptions::half_products`]), many rows' kernels round otherwise than few rows' do, so whoever repeats the steps
    /// of some of the rows states how many there were.
    ///
    /// # Errors
    /// As [`Runner::decode`].
    pub fn decode_among(&mut self, rows: &[DecodeRow], steps: usize, company: usize) -> Result<Ticket> {
        if rows.is_empty() || rows.len() > MAX_DECODE_ROWS {
            return Err(Error::argument("rows", format!("1 to {MAX_DECODE_ROWS}"), rows.len()));
        }
        if !(1..=MAX_STEPS).contains(&steps) {
            return Err(Error::argument("steps", format!("1 to {MAX_STEPS}"), steps));
        }
        // Where nothing is rounded, a row's bits are the same in any plan.
        let company = if self.stage.caps.half_products { company.min(MAX_DECODE_ROWS) } else { 1 };
        let count = rows.len().max(company).next_power_of_two();
        let mut controls: Vec<[u32; CONTROL_WORDS as usize]> = Vec::with_capacity(count);
        let mut limits = Vec::with_capacity(rows.len());
        for (i, row) in rows.iter().enumerate() {
            self.stage.pool.check(row.slot)?;
            if rows.iter().skip(i + 1).any(|other| other.slot == row.slot) {
                return Err(Error::argument("slot of a decode row", "a slot of its own", row.slot));
            }
            let eos = if row.stop_at_eos { self.spec.eos.as_slice() } else { &[] };
            let limit = row.limit.min(steps as u32);
            controls.push(row.sampling.controls(row.slot as u32, limit, eos));
            limits.push(limit);
        }
        let mut padding = [0; CONTROL_WORDS as usize];
        if let Some(slot) = padding.get_mut(CONTROL_SLOT as usize) {
            *slot = NO_SLOT;
        }
        controls.resize(count, padding);
        let wants: Vec<_> = rows.iter().zip(&limits).map(|(row, limit)| (row.slot, u64::from(*limit))).collect();
        self.reserve(&wants)?;
        let key = (PlanKind::Decode, count);
        self.ensure(key)?;
        self.ensure_draw(count)?;
        let mut encoder = self.encoder();
        let snapshots: Vec<_> = rows.iter().filter_map(|r| r.snapshot.map(|to| (r.slot, to))).collect();
        self.stage.pool.copy(&self.stage.gpu, &mut encoder, &snapshots)?;
        self.stage.gpu.write(self.stage.buffer(self.stage.fixed.controls)?, 0, &controls);
        for row in rows {
            // DONE and EMITTED, side by side.
            self.stage.gpu.write(self.stage.pool.heads(), self.stage.pool.head_at(row.slot, HEAD_DONE), &[0u32; 2]);
        }
        let compiled = self.plans.get(&key).ok_or_else(lost)?;
        let draw = self.draws.get(&count).ok_or_else(lost)?;
        {
            let timestamp_writes = self.clock.as_mut().and_then(Clock::next);
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
            for _ in 0..steps {
                draw.encode_into(&mut pass);
                compiled.program.encode_into(&mut pass);
            }
        }
        let size = 16 * (rows.len() * MAX_STEPS) as u64;
        let staging = self.staging.take(&self.stage.gpu, 16 * (MAX_DECODE_ROWS * MAX_STEPS) as u64);
        encoder.copy_buffer_to_buffer(self.stage.buffer(self.stage.emits)?.raw(), 0, &staging, 0, size);
        for (from, to) in snapshots {
            self.stage.pages.share(from, to);
        }
        let submission = self.submit(encoder)?;
        for (slot, tokens) in wants {
            self.stage.pages.advance(slot, tokens);
        }
        Ok(Ticket::new(staging, submission, size, limits))
    }

    /// The tokens of a decode, per row. Resolves when its submission is done.
    pub fn read(&self, ticket: Ticket) -> impl Future<Output = Result<Vec<Vec<Emit>>>> + use<> {
        self.staging.read(&self.stage.gpu, ticket)
    }

    /// The logits in a slot, `[vocab]`: those after the last token fed.
    pub fn logits(&self, slot: usize) -> impl Future<Output = Result<Vec<f32>>> + use<> {
        let reading = self.stage.pool.check(slot).map(|()| {
            let at = self.stage.pool.head_at(slot, self.stage.pool.head.logits);
            self.stage.gpu.read(&[(self.stage.pool.heads(), at, 4 * self.spec.vocab as u64)])
        });
        async move { Ok(first_of(reading?.await?)) }
    }

    /// A slot's whole content.
    pub fn export(&self, slot: usize) -> impl Future<Output = Result<SlotState>> + use<> {
        self.stage.export(slot)
    }

    /// Replaces a slot's content.
    ///
    /// # Errors
    /// [`Error::Session`] when the sizes are not this model's, [`Error::OutOfMemory`] when there is no room; the slot
    /// is then as it was.
    pub fn import(&mut self, slot: usize, state: &SlotState) -> Result<()> {
        let grown = self.stage.import(slot, state)?;
        self.replaced(grown);
        Ok(())
    }

    /// Compiles what a prompt of so many tokens and a single session's decoding need, ahead of both: all kernels at
    /// once, in parallel where threads exist.
    ///
    /// # Errors
    /// [`Error::Limit`] and [`Error::Gpu`] as for the plans themselves.
    pub fn prepare(&mut self, prompt: usize) -> Result<()> {
        let mut plans = self.prefill_plans(prompt);
        plans.push((PlanKind::Decode, 1));
        self.compile(&plans, Some(&self.draw(1)))?;
        self.ensure_draw(1)
    }

    /// Compiles the plan for `key` unless that has been done.
    fn ensure(&mut self, key: (PlanKind, usize)) -> Result<()> {
        self.compile(&[key], None)
    }

    /// Compiles those of the plans that have not been; and the kernel of a dispatch that will be needed with them.
    fn compile(&mut self, keys: &[(PlanKind, usize)], with: Option<&Dispatch>) -> Result<()> {
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            if self.plans.contains_key(key) {
                continue;
            }
            let plan = self.spec.plan(key.0, key.1)?;
            self.stage.ensure_chunks(&plan)?;
            all.push((*key, lower_plan(&mut self.stage, &plan, false)?.0));
        }
        // The kernels of all of them together keep more threads busy.
        pipelines(&self.stage.gpu, all.iter().flat_map(|(_, lowered)| &lowered.dispatches).chain(with))?;
        for (key, lowered) in all {
            let program = Program::compile(&self.stage.gpu, &lowered.dispatches, &self.stage.buffers)?;
            self.plans.insert(key, Compiled { program, body: lowered.logits_from, logits: lowered.logits });
        }
        Ok(())
    }

    fn draw(&self, rows: usize) -> Dispatch {
        let (vocab, fixed) = (self.spec.vocab as u32, &self.stage.fixed);
        super::sample::lower_draw(vocab, fixed, self.stage.emits, rows as u32, &self.stage.caps)
    }

    fn ensure_draw(&mut self, rows: usize) -> Result<()> {
        if !self.draws.contains_key(&rows) {
            let program = Program::compile(&self.stage.gpu, &[self.draw(rows)], &self.stage.buffers)?;
            self.draws.insert(rows, program);
        }
        Ok(())
    }
}

/// The smallest bucket that holds `rows`, or the largest.
fn bucket(buckets: &[usize], rows: usize) -> usize {
    let fits = buckets.iter().copied().filter(|b| *b >= rows).min();
    fits.or_else(|| buckets.iter().copied().max()).unwrap_or(rows)
}

fn lost() -> Error {
    Error::Gpu("a compiled plan is missing".into())
}

/// What was read from the one range asked for.
fn first_of(read: Vec<Vec<u8>>) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(read.first().map_or(&[][..], Vec::as_slice))
}
