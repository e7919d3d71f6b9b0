//! Gated DeltaNets of common sizes with seeded random weights: speed without a download.

use std::sync::Arc;

use anyhow::Result;
use deltanet::model::Spec;
use deltanet::{Device, LoadOptions, Model};

use super::model::{Goals, Plan, busy, check, measure};
use super::report::Report;
use crate::interrupt::Interrupt;
use crate::measure::Effort;

/// Largest difference of logits, relative to the largest: all activations of a prompt are rounded to f16 (2⁻¹¹) before
/// each product of 24 layers of random weights, which damp nothing; 1.0e-2 was measured. Products on their own are held
/// to 2e-3 by the matrix benchmark.
const TOLERANCE: f64 = 3e-2;

/// A model, and what is measured of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) hidden: u32,
    pub(crate) head_dim: u32,
    pub(crate) layers: u32,
    pub(crate) vocab: u32,
    /// Length of the prompt.
    pub(crate) prefill: u32,
    /// Tokens that are decoded.
    pub(crate) decode: u32,
    /// Sessions that decode together, besides the one alone.
    pub(crate) together: Option<u32>,
    /// Hopes for one session, and tokens a second for all of them.
    pub(crate) goals: Goals,
    pub(crate) together_goal: Option<f64>,
    /// Whether to measure how busy the GPU is while one session decodes.
    pub(crate) busy: bool,
    /// How busy it should be, in per cent.
    pub(crate) busy_goal: Option<f64>,
}

/// Hidden size 1,024.
pub(crate) const SMALL: Work = Work {
    hidden: 1024,
    head_dim: 128,
    layers: 24,
    vocab: 32_000,
    prefill: 2048,
    decode: 128,
    together: Some(64),
    goals: Goals { prefill: Some(80_000.0), decode: Some(1_500.0) },
    together_goal: Some(30_000.0),
    busy: true,
    busy_goal: Some(90.0),
};

/// Hidden size 2,048.
pub(crate) const LARGE: Work = Work {
    hidden: 2048,
    together: None,
    goals: Goals { prefill: None, decode: Some(700.0) },
    together_goal: None,
    busy: false,
    busy_goal: None,
    ..SMALL
};

impl Work {
    /// The same, hoping for nothing.
    pub(crate) fn without_bars(self) -> Self {
        Self { goals: Goals::default(), together_goal: None, busy_goal: None, ..self }
    }

    /// Tied to the output, bf16.
    fn config(&self) -> String {
        let Self { hidden, head_dim, layers, vocab, .. } = self;
        let (heads, intermediate) = (hidden / head_dim, hidden * 11 / 4);
        format!(
            r#"{{ "model_type": "gated_deltanet", "hidden_size": {hidden}, "num_hidden_layers": {layers},
            "num_heads": {heads}, "head_dim": {head_dim}, "expand_v": 1, "intermediate_size": {intermediate},
            "vocab_size": {vocab}, "tie_word_embeddings": true }}"#
        )
    }
}

/// Checks and measures one model.
pub(crate) fn run(
    work: &Work,
    device: &Device,
    effort: Effort,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    let spec = Arc::new(Spec::random(&work.config(), 1)?);
    let load = |device: &Device, sessions: u32| {
        let options = LoadOptions { sessions: sessions as usize, half_products: true };
        Model::from_spec(spec.clone(), None, device, options, &mut |_| ())
    };
    let model = load(device, work.together.unwrap_or(1))?;
    let Work { hidden, layers, .. } = work;
    report.head(&format!("gated_deltanet of hidden {hidden}, {layers} layers, random bf16 weights, f16 products"))?;
    let off = check(&load(&Device::CPU, 1)?, &model, TOLERANCE)?;
    let of = format!("hidden {hidden}");
    let one = Plan { of: &of, sessions: &[1], prefill: &[work.prefill], decode: &[work.decode], goals: work.goals };
    measure(&model, &one, off, effort, interrupt, report)?;
    if work.busy && !interrupt.pressed() {
        busy(&model, &of, work.decode, off, work.busy_goal, effort, report)?;
    }
    if let Some(sessions) = work.together {
        let goals = Goals { prefill: None, decode: work.together_goal };
        let together = Plan { of: &of, sessions: &[sessions], prefill: &[], decode: &[work.decode], goals };
        measure(&model, &together, off, effort, interrupt, report)?;
    }
    Ok(())
}
