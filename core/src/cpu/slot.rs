//! A session's place in the engine: its state, and the logits that follow it.

use super::cache::Cache;
use super::delta::zeros;
use crate::engine::SlotState;
use crate::error::{Error, Result};
use crate::model::Spec;

/// One slot's content.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Tokens fed.
    pub(super) position: u64,
    /// Bit mask of the tokens fed, `[ceil(vocab / 32)]`.
    pub(super) seen: Vec<u32>,
    /// `[vocab]`, or empty before the first token.
    pub(super) logits: Vec<f32>,
    /// A layer each, `[words]`: as the layer's op lays it out.
    pub(super) layers: Vec<Vec<f32>>,
    /// A layer each, `[position, cache_per_token]`: entries `k|v` of unbounded attention.
    pub(super) caches: Vec<Cache>,
}

impl Slot {
    /// Nothing fed, all state zero.
    pub(super) fn new(spec: &Spec) -> Result<Self> {
        Ok(Self {
            position: 0,
            seen: vec![0; spec.vocab.div_ceil(32)],
            logits: Vec::new(),
            layers: spec.layers.iter().map(|l| zeros(&[l.words])).collect::<Result<_>>()?,
            caches: spec.layers.iter().map(|l| Cache::new(l.cache_per_token)).collect(),
        })
    }

    /// Back to nothing fed, in the memory it has, but for attention's caches.
    pub(super) fn clear(&mut self) {
        self.position = 0;
        self.seen.fill(0);
        self.logits.clear();
        self.layers.iter_mut().for_each(|l| l.fill(0.0));
        self.caches.iter_mut().for_each(Cache::clear);
    }

    /// Takes over another slot's content, in the memory it has; caches are shared as far as they are alike.
    pub(super) fn copy_from(&mut self, from: &Self) {
        self.position = from.position;
        self.seen.clone_from(&from.seen);
        self.logits.clone_from(&from.logits);
        self.layers.clone_from(&from.layers);
        self.caches.clone_from(&from.caches);
    }

    /// Notes tokens as fed.
    pub(super) fn fed(&mut self, tokens: &[u32]) {
        self.position += tokens.len() as u64;
        for t in tokens {
            if let Some(word) = self.seen.get_mut(*t as usize / 32) {
                *word |= 1 << (t % 32);
            }
        }
    }

    pub(super) fn export(&self) -> SlotState {
        SlotState {
            position: self.position,
            seen: self.seen.clone(),
            logits: self.logits.clone(),
            layers: self.layers.clone(),
            caches: self.caches.iter().map(Cache::to_vec).collect(),
        }
    }

    /// A slot with a saved content.
    pub(super) fn import(spec: &Spec, state: &SlotState) -> Result<Self> {
        let sized = |what: &str, got: usize, want: usize| {
            let message = || Error::Session(format!("{what}: expected {want} elements, got {got}"));
            if got == want { Ok(()) } else { Err(message()) }
        };
        sized("seen tokens", state.seen.len(), spec.vocab.div_ceil(32))?;
        sized("logits", state.logits.len(), if state.position == 0 { 0 } else { spec.vocab })?;
        sized("layers", state.layers.len(), spec.layers.len())?;
        sized("caches", state.caches.len(), spec.layers.len())?;
        for (n, layer) in spec.layers.iter().enumerate() {
            sized(&format!("layer {n}"), state.layers[n].len(), layer.words)?;
            let tokens = usize::try_from(state.position).ok();
            let want = tokens.and_then(|t| t.checked_mul(layer.cache_per_token)).unwrap_or(usize::MAX);
            sized(&format!("cache of layer {n}"), state.caches[n].len(), want)?;
        }
        let caches = spec.layers.iter().zip(&state.caches).map(|(l, c)| Cache::of(l.cache_per_token, c));
        let oom = |_| Error::OutOfMemory("the attention caches of a saved session".into());
        let caches = caches.collect::<std::result::Result<_, _>>().map_err(oom)?;
        Ok(Self {
            position: state.position,
            seen: state.seen.clone(),
            logits: state.logits.clone(),
            layers: state.layers.clone(),
            caches,
        })
    }
}
