//! Kimi Delta Attention (arXiv 2510.26692) in flash-linear-attention's format; MATH.md §1 and §7.
//!
//! ```text
//! f = f_proj.1 · f_proj.0 · x                          one a value head and key channel
//! g = −exp(A_log) · softplus(f + dt_bias), or bounded: g = L · sigmoid(exp(A_log) (f + dt_bias))
//! output gate: sigmoid(g_proj.1 · g_proj.0 · x + bias)
//! ```

use super::mixer::{DeltaLayer, Gate, Tensors, repeated};
use super::stack::{Part, Stack};
use crate::error::Result;
use crate::ops::GateForm;
use crate::rule::Rule;

pub(super) fn layer(t: &mut Tensors<'_, '_>) -> Result<DeltaLayer> {
    let c = t.config;
    let parts = vec![t.qkv(1)?, low_rank_input(t, "f", "f_proj")?, low_rank_input(t, "g", "g_proj")?, beta(t)?];
    let stack = Stack::load(t.loader, &t.prefix, t.hidden, parts)?;
    let (o_norm, o_proj) = t.output()?;
    Ok(DeltaLayer {
        rule: Rule::KDA,
        heads: c.heads,
        stack,
        conv: t.conv(1)?,
        beta: Some(3),
        decay: Some(channel_gate(t, 1)?),
        precond: None,
        gate: Some(t.low_rank(2, "g_proj", c.value_heads * c.value_dim, true)?),
        o_norm,
        o_proj,
    })
}

/// The first matrix of a projection of low rank, `attn.NAME.0`, `[V, hidden]`.
pub(super) fn low_rank_input(t: &mut Tensors<'_, '_>, label: &'static str, name: &str) -> Result<Part> {
    t.part(label, &format!("{name}.0"), t.config.value_dim)
}

/// β's projection: one a value head, or one a key head, which its value heads then share.
pub(super) fn beta(t: &mut Tensors<'_, '_>) -> Result<Part> {
    let c = t.config;
    let name = format!("{}.b_proj.weight", t.prefix);
    let tensor = t.loader.tensor_of(&name, &[&[c.value_heads, t.hidden], &[c.heads, t.hidden]])?;
    let times = if tensor.shape.first() == Some(&c.value_heads) { 1 } else { c.value_heads / c.heads };
    Ok(Part::new("b", repeated(tensor, 1, times)))
}

/// The decay gate from part `part`, one number a value head and key channel.
pub(super) fn channel_gate(t: &mut Tensors<'_, '_>, part: usize) -> Result<Gate> {
    let c = t.config;
    let width = c.value_heads * c.key_dim;
    Ok(Gate {
        a: t.low_rank(part, "f_proj", width, false)?,
        a_log: t.vector("A_log", &[c.value_heads])?,
        dt_bias: t.vector("dt_bias", &[width])?,
        form: c.lower_bound.map_or(GateForm::Softplus, GateForm::Bounded),
    })
}
