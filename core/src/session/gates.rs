//! What each token does to the memory: how strongly it is written, how much it lets fade.

use super::Session;
use crate::error::{Error, Result};
use crate::model::Spec;
use crate::ops::{BufId, Mixer, Op};
use crate::plan::{BufSpec, Life, Plan, PlanKind};
use crate::rule::Decay;

/// Most tokens whose gates an engine finds at once.
pub const GATE_ROWS: usize = 64;

/// A prefill plan in which every mixer keeps its gates in a buffer of its own, and those mixers.
pub(crate) fn plan(spec: &Spec, rows: usize) -> Result<(Plan, Vec<Mixer>)> {
    let mut plan = spec.plan(PlanKind::Prefill, rows)?;
    let mut mixers = Vec::new();
    for op in &mut plan.ops {
        let Op::Mixer(mixer) = op else { continue };
        let shared = plan.buffers.get(mixer.gates.0).cloned();
        let shared = shared.ok_or_else(|| Error::argument("plan", "a buffer for gates", "none"))?;
        mixer.gates = BufId(plan.buffers.len());
        plan.buffers.push(BufSpec { life: Life::Saved, ..shared });
        mixers.push(mixer.clone());
    }
    Ok((plan, mixers))
}

/// Elements of β, and of the log decay, in a row of a mixer's gates.
pub(crate) fn widths(m: &Mixer) -> (usize, usize) {
    let decay = match m.rule.decay {
        Decay::None => 0,
        Decay::PerHead => m.value_heads,
        Decay::PerChannel => m.value_heads * m.key_dim,
    };
    (m.beta.map_or(0, |_| m.value_heads), decay)
}

impl Session {
    /// Feeds tokens and returns what each did to every head's memory: `[tokens, layers, heads, 2]`, write strength β,
    /// then the decay `exp(g)`. Layers are those that have a state, heads the most of any layer; NaN where a layer has
    /// fewer. A decay a channel counts as its mean over channels; 1 where a rule has none.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for an id that is not in the vocabulary; nothing is fed then.
    pub async fn gates_async(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.check_tokens(tokens)?;
        self.model.runner().settle(self.slots[0], self.tokens.len());
        let (_, mixers) = plan(self.model.spec(), 1)?;
        let heads = mixers.iter().map(|m| m.value_heads).max().unwrap_or(0);
        let mut all = Vec::with_capacity(2 * heads * mixers.len() * tokens.len());
        for piece in tokens.chunks(GATE_ROWS) {
            // A mixer each: [piece, width], β first, then the log decay.
            let model = self.model.clone();
            let layers = self.fed(piece, model.gates(self.slots[0], piece)).await?;
            for row in 0..piece.len() {
                for (mixer, values) in mixers.iter().zip(&layers) {
                    let width = values.len() / piece.len();
                    let row = values.get(row * width..(row + 1) * width).unwrap_or_default();
                    all.extend((0..heads).flat_map(|h| of_head(mixer, row, h)));
                }
            }
        }
        Ok(all)
    }
}

/// β and decay of a head, from a row of gates.
fn of_head(m: &Mixer, row: &[f32], head: usize) -> [f32; 2] {
    if head >= m.value_heads {
        return [f32::NAN; 2];
    }
    let at = |i: usize| row.get(i).copied().unwrap_or(f32::NAN);
    let (first, _) = widths(m);
    let beta = if m.beta.is_some() { at(head) } else { 1.0 };
    let decay = match m.rule.decay {
        Decay::None => 1.0,
        Decay::PerHead => at(first + head).exp(),
        Decay::PerChannel => {
            let g = (0..m.key_dim).map(|k| at(first + head * m.key_dim + k).exp());
            g.sum::<f32>() / m.key_dim as f32
        }
    };
    [beta, decay]
}

/// Blocking form, for native programs.
#[cfg(not(target_family = "wasm"))]
impl Session {
    /// [`Session::gates_async`], waited for.
    pub fn gates(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        let model = self.model.clone();
        model.wait(self.gates_async(tokens))
    }
}
