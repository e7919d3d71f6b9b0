//! Prompts whose gates are read back: what [`crate::Session::gates_async`] shows.

use super::reading::PREFILL_ROWS;
use super::{Runner, bucket};
use crate::error::{Error, Result};
use crate::gpu::lower::{Place, lower_plan};
use crate::gpu::program::Program;
use crate::ops::Mixer;
use crate::session::gates::{GATE_ROWS, plan, widths};

/// A prefill plan that keeps the gates of every mixer.
#[derive(Debug)]
pub(super) struct Gates {
    program: Program,
    /// Each mixer's gates, `[rows, stride]`, and the elements a row that count.
    places: Vec<(Place, usize)>,
}

impl Runner {
    /// Feeds tokens to a session as [`Runner::prefill`] does; resolves to the gates of each mixer, `[tokens, width]`.
    ///
    /// # Errors
    /// As [`Runner::prefill`]; [`Error::Argument`] too for more than 64 tokens.
    pub fn gates(
        &mut self,
        slot: usize,
        tokens: &[u32],
    ) -> Result<impl Future<Output = Result<Vec<Vec<f32>>>> + use<>> {
        self.check_tokens(slot, tokens)?;
        if tokens.len() > GATE_ROWS {
            return Err(Error::argument("tokens at a time", format!("at most {GATE_ROWS}"), tokens.len()));
        }
        self.reserve(&[(slot, tokens.len() as u64)])?;
        let rows = bucket(&PREFILL_ROWS, tokens.len());
        if !self.gates.contains_key(&rows) {
            let gates = self.compile_gates(rows)?;
            self.gates.insert(rows, gates);
        }
        self.stage.write_piece(slot, tokens)?;
        let mut encoder = self.encoder();
        let gates = self.gates.get(&rows).ok_or_else(super::lost)?;
        gates.program.encode(&mut encoder);
        self.submit(encoder)?;
        self.stage.pages.advance(slot, tokens.len() as u64);
        // Read before any other plan's submission uses the scratch: the queue keeps the order.
        let mut ranges = Vec::with_capacity(gates.places.len());
        for (place, _) in &gates.places {
            ranges.push((self.stage.buffer(place.buffer)?, 0, 4 * u64::from(place.stride) * tokens.len() as u64));
        }
        let read = self.stage.gpu.read(&ranges);
        let shapes: Vec<_> = gates.places.iter().map(|(place, width)| (place.stride.max(1) as usize, *width)).collect();
        Ok(async move {
            let layers = read.await?;
            Ok(layers.iter().zip(shapes).map(|(bytes, (stride, width))| rows_of(bytes, stride, width)).collect())
        })
    }

    fn compile_gates(&mut self, rows: usize) -> Result<Gates> {
        let (plan, mixers) = plan(&self.spec, rows)?;
        self.stage.ensure_chunks(&plan)?;
        let (lowered, places) = lower_plan(&mut self.stage, &plan, false)?;
        let place = |m: &Mixer| {
            let (beta, decay) = widths(m);
            let place = places.get(m.gates.0).copied().flatten().ok_or_else(super::lost)?;
            Ok((place, beta + decay))
        };
        let places = mixers.iter().map(place).collect::<Result<Vec<_>>>()?;
        let program = Program::compile(&self.stage.gpu, &lowered.dispatches, &self.stage.buffers)?;
        Ok(Gates { program, places })
    }
}

fn rows_of(bytes: &[u8], stride: usize, width: usize) -> Vec<f32> {
    let all: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
    all.chunks(stride).flat_map(|row| row.iter().take(width).copied()).collect()
}
