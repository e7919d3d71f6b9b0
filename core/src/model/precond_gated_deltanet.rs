//! Preconditioned Gated DeltaNet (arXiv 2604.21100) in flash-linear-attention's format; MATH.md §8.3.
//!
//! A [Gated DeltaNet](super::gated_deltanet) whose write key is preconditioned, with a gate of its own a key head.

use super::mixer::{DeltaLayer, Gate, Precond, Proj, Tensors};
use super::stack::Stack;
use crate::error::Result;
use crate::ops::GateForm;
use crate::rule::Rule;

pub(super) fn layer(t: &mut Tensors<'_, '_>) -> Result<DeltaLayer> {
    let c = t.config;
    let mut parts = vec![t.qkv(1)?];
    let gate = c.output_gate.map(|_| parts.len());
    if gate.is_some() {
        parts.push(t.part("g", "g_proj", c.value_heads * c.value_dim)?);
    }
    let a = parts.len();
    parts.push(t.part("a", "a_proj", c.value_heads)?);
    parts.push(t.part("b", "b_proj", c.value_heads)?);
    parts.push(t.part("a_atk", "a_atk_proj", c.heads)?);
    parts.push(t.part("b_atk", "b_atk_proj", c.heads)?);
    let stack = Stack::load(t.loader, &t.prefix, t.hidden, parts)?;
    let (o_norm, o_proj) = t.output()?;
    Ok(DeltaLayer {
        rule: Rule::PRECONDITIONED_GATED_DELTANET,
        heads: c.heads,
        stack,
        conv: t.conv(1)?,
        beta: Some(a + 1),
        decay: Some(Gate {
            a: Proj::Part(a),
            a_log: t.vector("A_log", &[c.value_heads])?,
            dt_bias: t.vector("dt_bias", &[c.value_heads])?,
            form: GateForm::Softplus,
        }),
        precond: Some(precond(t, a + 2, a + 3, c.heads)?),
        gate: gate.map(Proj::Part),
        o_norm,
        o_proj,
    })
}

/// The preconditioner's gate from two parts, one number each for `heads` heads.
pub(super) fn precond(t: &mut Tensors<'_, '_>, a: usize, b: usize, heads: usize) -> Result<Precond> {
    Ok(Precond {
        a,
        b,
        a_log: t.vector("A_log_atk", &[heads])?,
        dt_bias: t.vector("dt_bias_atk", &[heads])?,
        log_scale: t.vector("log_atk_scale", &[heads])?,
    })
}
