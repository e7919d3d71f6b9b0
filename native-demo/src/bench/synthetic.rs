//! Gated DeltaNets of common sizes with seeded random weights: speed without a download.

use std::sync::Arc;

use anyhow::Result;
use deltanet::model::Spec;
use deltanet::{Device, LoadOptions, Model};

use super::model::{Plan, check, measure};
use super::report::Report;
use crate::interrupt::Interrupt;
use crate::measure::Effort;

/// Largest difference of logits, relative to the largest: all activations of a prompt are rounded to f16 (2⁻¹¹) before
/// each product of 24 layers of random weights, which damp nothing; 1.0e-2 was measured. Products on their own are held
/// to 2e-3 by the matrix benchmark.
const TOLERANCE: f64 = 3e-2;
/// Sessions that decode together.
const MANY: u32 = 64;

/// 24 layers of `hidden`, heads of 128, a vocabulary of 32,000 tied to the output, bf16.
fn config(hidden: u32) -> String {
    let (heads, intermediate) = (hidden / 128, hidden * 11 / 4);
    format!(
        r#"{{ "model_type": "gated_deltanet", "hidden_size": {hidden}, "num_hidden_layers": 24, "num_heads": {heads},
        "head_dim": 128, "expand_v": 1, "intermediate_size": {intermediate}, "vocab_size": 32000,
        "tie_word_embeddings": true }}"#
    )
}

/// Measures the model of this hidden size: one session, and `MANY` decoding together if `many`.
pub(crate) fn run(
    hidden: u32,
    many: bool,
    device: &Device,
    effort: Effort,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    let spec = Arc::new(Spec::random(&config(hidden), 1)?);
    let sessions = if many { MANY as usize } else { 1 };
    let load = |device: &Device, sessions| {
        let options = LoadOptions { sessions, half_products: true };
        Model::from_spec(spec.clone(), None, device, options, &mut |_| ())
    };
    let model = load(device, sessions)?;
    report.head(&format!("gated_deltanet of hidden {hidden}, 24 layers, random bf16 weights, f16 products"))?;
    let off = check(&load(&Device::CPU, 1)?, &model, TOLERANCE)?;
    let one = Plan { sessions: &[1], prefill: &[2048], decode: &[128] };
    measure(&model, &one, off, effort, interrupt, report)?;
    if many {
        let together = Plan { sessions: &[MANY], prefill: &[], decode: &[128] };
        measure(&model, &together, off, effort, interrupt, report)?;
    }
    Ok(())
}
