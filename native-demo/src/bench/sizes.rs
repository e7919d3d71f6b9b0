//! Bytes that the sizes on the command line take, so that too many are refused before anything is opened.

use anyhow::Result;
use deltanet::model::Spec;
use deltanet::rule::{Decay, WriteKey};
use deltanet::{Device, Rule};

use super::operator::{self, Case};
use super::{attention, runs};
use crate::args::{BenchArgs, Part};
use crate::measure::room;

/// Refuses operators whose tensors no memory is left for.
pub(super) fn check(args: &BenchArgs, rules: &[(&str, Rule)]) -> Result<()> {
    if runs(args, Part::Operator) {
        for case in rules.iter().flat_map(|(_, rule)| operator::cases(args, *rule)) {
            room(&format!("operator {}", case.name()), of_operator(&case))?;
        }
    }
    if runs(args, Part::Attention) {
        for shape in args.tokens.iter().map(|tokens| attention::shape(args, *tokens)) {
            let row = shape.head_dim * (2 * shape.heads + 2 * shape.kv_heads);
            room(&format!("attention over {}", attention::name(&shape, None)), 4 * shape.tokens as u64 * row as u64)?;
        }
    }
    Ok(())
}

/// Inputs in f32; outputs and states of the form that is timed in f32, and of what it is checked against in f64.
fn of_operator(case: &Case) -> u64 {
    let s = case.shape;
    let [rows, batch] = [s.batch * s.tokens, s.batch].map(|n| n as u64);
    let [h, hv, k, v] = [s.heads, s.value_heads, s.key_dim, s.value_dim].map(|n| n as u64);
    let decay = match case.rule.decay {
        Decay::None => 0,
        Decay::PerHead => hv,
        Decay::PerChannel => hv * k,
    };
    let sums = if case.rule.write_key == WriteKey::Preconditioned { 2 * h } else { 0 };
    let inputs = rows * (2 * h * k + hv * v + hv + decay + sums);
    4 * inputs + (4 + 8) * (rows * hv * v + batch * hv * k * v)
}

/// Refuses sessions whose states and caches no memory is left for, each with so many tokens. (A GPU says so itself.)
pub(super) fn check_sessions(spec: &Spec, device: &Device, sessions: usize, tokens: u32) -> Result<()> {
    if matches!(device, Device::Gpu(_)) {
        return Ok(());
    }
    let state: u64 = spec.layers.iter().map(|l| l.words as u64).sum();
    let token: u64 = spec.layers.iter().map(|l| l.cache_per_token as u64).sum();
    let each = 4 * (state + spec.vocab as u64 + u64::from(tokens) * (token + 1));
    room(&format!("{sessions} sessions of {tokens} tokens"), sessions as u64 * each)
}
