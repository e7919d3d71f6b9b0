//! `deltanet bench --suite`: fixed lists of measurements, each held against a bar, a function a group of rows.

use anyhow::Result;
use deltanet::delta::Shape;
use deltanet::{Device, Rule};

use super::operator::{Case, Form, measure};
use super::report::{Bar, Report};
use super::{copy, operator_gpu};
use crate::interrupt::Interrupt;
use crate::measure::Effort;

/// The rows for one H200 (or another large GPU).
pub(crate) fn h200(device: &Device, effort: Effort, interrupt: &Interrupt, report: &mut Report) -> Result<()> {
    let Device::Gpu(gpu) = device else {
        report.skip("suite h200: it measures a GPU".into());
        return Ok(());
    };
    report.head("copy bandwidth (read + write)")?;
    copy::gpu(gpu, effort, report)?;
    let copied = report.rows.iter().filter(|r| r.group == "copy").map(|r| r.rate).fold(0.0, f64::max);
    prefill_operator(device, effort, interrupt, report)?;
    step_operator(device, copied, effort, interrupt, report)
}

fn shape(batch: usize, tokens: usize) -> Shape {
    Shape { batch, tokens, heads: 16, value_heads: 16, key_dim: 128, value_dim: 128 }
}

/// Chunkwise calls, 16 heads of 128: by length, then every rule at one length.
fn prefill_operator(device: &Device, effort: Effort, interrupt: &Interrupt, report: &mut Report) -> Result<()> {
    report.head("operator, prefill (f32)")?;
    let mut cases = vec![
        (Rule::GATED_DELTANET, 2_048, None),
        (Rule::GATED_DELTANET, 8_192, Some(Bar::Seconds(1.1e-3))),
        (Rule::GATED_DELTANET, 32_768, None),
    ];
    let others = Rule::NAMED.iter().map(|(_, rule)| *rule).filter(|rule| *rule != Rule::GATED_DELTANET);
    cases.extend(others.map(|rule| (rule, 8_192, None)));
    // What a rule may cost is said in units of the scalar-gated rule's time.
    let mut scalar_gated = None;
    for (rule, tokens, mut bar) in cases {
        if interrupt.pressed() {
            return Ok(());
        }
        if let Some(base) = scalar_gated {
            bar = match rule {
                Rule::KDA => Some(Bar::Seconds(2.5 * base)),
                Rule::PRECONDITIONED_GATED_DELTANET => Some(Bar::Seconds(1.4 * base)),
                _ => bar,
            };
        }
        let row = measure(device, &Case { rule, form: Form::Chunk, shape: shape(1, tokens) }, effort)?;
        if (rule, tokens) == (Rule::GATED_DELTANET, 8_192) {
            scalar_gated = Some(row.gpu.unwrap_or(row.wall).median);
        }
        report.add(match bar {
            Some(bar) => row.against(bar),
            None => row,
        })?;
    }
    Ok(())
}

/// One token of one and of 64 sequences. `copied` is the copy bandwidth in GB/s.
fn step_operator(
    device: &Device,
    copied: f64,
    effort: Effort,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    report.head("operator, decode step (f32)")?;
    for (batch, bar) in [(1, Bar::Seconds(8e-6)), (64, Bar::Rate(0.7 * copied))] {
        if interrupt.pressed() {
            return Ok(());
        }
        let mut row =
            measure(device, &Case { rule: Rule::GATED_DELTANET, form: Form::Step, shape: shape(batch, 1) }, effort)?;
        if let Bar::Rate(_) = bar {
            // The states are read and written once.
            let bytes = operator_gpu::step_bytes(&shape(batch, 1));
            (row.rate, row.unit) = (bytes / 1e9 / row.gpu.unwrap_or(row.wall).median.max(1e-12), "GB/s");
        }
        report.add(row.against(bar))?;
    }
    Ok(())
}
