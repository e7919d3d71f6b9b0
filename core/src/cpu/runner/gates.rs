//! Prompts whose gates are handed out: what [`crate::Session::gates_async`] shows.

use std::mem;

use super::Runner;
use crate::cpu::execute::buffer;
use crate::error::{Error, Result};
use crate::plan::PlanKind;
use crate::session::gates::{GATE_ROWS, plan, widths};

impl Runner {
    /// Feeds tokens to a session as [`Runner::prefill`] does, and returns the gates of each mixer, `[tokens, width]`:
    /// β, then the log decay.
    ///
    /// # Errors
    /// As [`Runner::prefill`]; [`Error::Argument`] too for more than 64 tokens.
    pub fn gates(&mut self, slot: usize, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
        self.check_tokens(slot, tokens)?;
        let n = tokens.len();
        if n > GATE_ROWS {
            return Err(Error::argument("tokens at a time", format!("at most {GATE_ROWS}"), n));
        }
        let (mut kept, mixers) = plan(&self.spec, n)?;
        mem::swap(&mut self.prefill, &mut kept);
        let fed = self.feed(slot, tokens, PlanKind::Prefill);
        mem::swap(&mut self.prefill, &mut kept);
        fed?;
        // In the buffer all tokens' β come first, then all their decays.
        let gates = mixers.iter().map(|m| {
            let (beta, decay) = widths(m);
            let all = buffer(&self.buffers.plan, m.gates);
            let rows = |first: usize, width: usize, r: usize| all.get(first + r * width..first + (r + 1) * width);
            (0..n).flat_map(|r| [rows(0, beta, r), rows(n * beta, decay, r)]).flatten().flatten().copied().collect()
        });
        Ok(gates.collect())
    }
}
