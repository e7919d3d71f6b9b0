//! Running one plan with every buffer kept: how a wrong result is traced to an op, and how the tests run ops alone.

use super::device::Gpu;
use super::lower::{Place, lower_plan};
use super::pool::NO_SLOT;
use super::program::Program;
use super::stage::Stage;
use crate::error::{Error, Result};
use crate::ops::BufId;
use crate::plan::{Plan, PlanKind};

/// What a traced run starts from and returns.
#[derive(Clone, Debug, Default)]
pub struct Trace<'a> {
    /// Prefill and score: the one session's slot. Decode: a slot for each row, fewer than the plan's rows to leave the
    /// rest without a session.
    pub slots: &'a [usize],
    /// Prefill and score: the piece's tokens. Decode: each row's token.
    pub tokens: &'a [u32],
    /// Contents of plan buffers before the run, `[rows, width]`.
    pub given: &'a [(BufId, &'a [f32])],
    /// Plan buffers to return, `[rows, width]`.
    pub wanted: &'a [BufId],
}

/// Scratch is filled with this NaN, and what lies beyond a buffer's rows must still be it after the run.
const POISON: u32 = 0x7fc0_dead;

impl Stage {
    /// Runs `plan`, a plan over this model's weights and layers but not necessarily the model's own, and returns the
    /// buffers asked for. Every buffer without given contents starts as NaN. The slots' state changes as in any run.
    ///
    /// # Errors
    /// As [`Runner::prefill`](super::Runner::prefill); [`Error::Gpu`] when a kernel wrote beyond its rows.
    pub async fn trace(&mut self, plan: &Plan, run: &Trace<'_>) -> Result<Vec<Vec<f32>>> {
        let (program, places) = self.prepare(plan, run)?;
        let gpu = self.gpu.clone();
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        program.encode(&mut encoder);
        gpu.queue().submit([encoder.finish()]);
        gpu.check()?;
        self.check_guards(&gpu, plan, &places).await?;
        let mut out = Vec::with_capacity(run.wanted.len());
        for id in run.wanted {
            let (place, width, rows) = self.found(plan, &places, *id)?;
            let values = read_f32(&gpu, self, place.buffer).await?;
            let rows = values.chunks(place.stride.max(1) as usize).take(rows);
            out.push(rows.flat_map(|row| row.iter().take(width).copied()).collect());
        }
        Ok(out)
    }

    /// What [`Stage::trace`] would run, with its buffers filled, for benchmarks: it may be encoded any number of times.
    ///
    /// # Errors
    /// As [`Stage::trace`].
    pub fn program(&mut self, plan: &Plan, run: &Trace<'_>) -> Result<Program> {
        Ok(self.prepare(plan, run)?.0)
    }

    /// Lowers and compiles a plan, poisons its buffers, and uploads what the run starts from.
    fn prepare(&mut self, plan: &Plan, run: &Trace<'_>) -> Result<(Program, Vec<Option<Place>>)> {
        for slot in run.slots {
            self.pool.check(*slot)?;
        }
        self.ensure_chunks(plan)?;
        let each = if plan.kind == PlanKind::Decode { 1 } else { run.tokens.len() as u64 };
        let wants: Vec<_> = run.slots.iter().map(|slot| (*slot, each)).collect();
        self.reserve(&wants)?;
        let (lowered, places) = lower_plan(self, plan, true)?;
        let gpu = self.gpu.clone();
        for index in self.scratch.indices() {
            let buffer = self.buffer(index)?;
            gpu.write(buffer, 0, &vec![POISON; (buffer.size() / 4) as usize]);
        }
        for (id, values) in run.given {
            let (place, width, rows) = self.found(plan, &places, *id)?;
            if values.len() != width * rows {
                return Err(Error::argument("given buffer", format!("{rows} × {width} elements"), values.len()));
            }
            let stride = place.stride as usize;
            let mut padded = vec![f32::from_bits(POISON); rows * stride];
            for (to, from) in padded.chunks_mut(stride.max(1)).zip(values.chunks(width.max(1))) {
                if let Some(to) = to.get_mut(..from.len()) {
                    to.copy_from_slice(from);
                }
            }
            gpu.write(self.buffer(place.buffer)?, 0, &padded);
        }
        match plan.kind {
            PlanKind::Decode => self.write_rows(plan.rows, run)?,
            _ => self.write_piece(run.slots.first().copied().unwrap_or(0), run.tokens)?,
        }
        for (slot, tokens) in wants {
            self.pages.advance(slot, tokens);
        }
        Ok((Program::compile(&gpu, &lowered.dispatches, &self.buffers)?, places))
    }

    fn found(&self, plan: &Plan, places: &[Option<Place>], id: BufId) -> Result<(Place, usize, usize)> {
        let place = places.get(id.0).copied().flatten();
        let spec = plan.buffers.get(id.0);
        match (place, spec) {
            (Some(place), Some(spec)) => Ok((place, spec.width, spec.rows)),
            _ => Err(Error::argument("plan buffer", "one that the plan's ops use", id.0)),
        }
    }

    /// The tables of a decode, as the embedding would write them.
    fn write_rows(&self, rows: usize, run: &Trace<'_>) -> Result<()> {
        let mut table = vec![[NO_SLOT, 0, 1, 0]; rows];
        let mut sequences = vec![[0, 0, 0, 0]; rows];
        for (r, (slot, (t, s))) in run.slots.iter().zip(table.iter_mut().zip(&mut sequences)).enumerate() {
            *t = [*slot as u32, 0, 1, self.pages.fed(*slot) as u32];
            *s = [r as u32, 1, *slot as u32, r as u32];
        }
        self.gpu.write(self.buffer(self.fixed.table)?, 0, &table);
        self.gpu.write(self.buffer(self.fixed.sequences)?, 0, &sequences);
        Ok(())
    }

    async fn check_guards(&self, gpu: &Gpu, plan: &Plan, places: &[Option<Place>]) -> Result<()> {
        for (id, place) in places.iter().enumerate() {
            let (Some(place), Some(spec)) = (place, plan.buffers.get(id)) else { continue };
            let values = read_f32(gpu, self, place.buffer).await?;
            let guard = values.get(spec.rows * place.stride as usize..).unwrap_or_default();
            if let Some(i) = guard.iter().position(|v| v.to_bits() != POISON) {
                return Err(Error::Gpu(format!("{}: written {i} elements beyond its {} rows", spec.name, spec.rows)));
            }
        }
        Ok(())
    }
}

async fn read_f32(gpu: &Gpu, stage: &Stage, index: usize) -> Result<Vec<f32>> {
    let buffer = stage.buffer(index)?;
    let read = gpu.read(&[(buffer, 0, buffer.size())]).await?;
    Ok(bytemuck::pod_collect_to_vec(read.first().map_or(&[][..], Vec::as_slice)))
}
