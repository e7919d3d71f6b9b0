//! Preconditioned Kimi Delta Attention (arXiv 2604.21100) in flash-linear-attention's format; MATH.md §8.3 and §8.5.
//!
//! [KDA](super::kda) with a preconditioner whose parameters are per *value* head: with grouped value heads each gets
//! its own preconditioned copy of the key, so here q and k are repeated up to the value heads, and H = HV.

use super::kda::{beta, channel_gate, low_rank_input};
use super::mixer::{DeltaLayer, Tensors};
use super::precond_gated_deltanet::precond;
use super::stack::Stack;
use crate::error::Result;
use crate::rule::Rule;

pub(super) fn layer(t: &mut Tensors<'_, '_>) -> Result<DeltaLayer> {
    let c = t.config;
    let repeat = c.value_heads / c.heads;
    let parts = vec![
        t.qkv(repeat)?,
        low_rank_input(t, "f", "f_proj")?,
        low_rank_input(t, "g", "g_proj")?,
        beta(t)?,
        t.part("a_atk", "a_proj", c.value_heads)?,
        t.part("b_atk", "b_atk_proj", c.value_heads)?,
    ];
    let stack = Stack::load(t.loader, &t.prefix, t.hidden, parts)?;
    let (o_norm, o_proj) = t.output()?;
    Ok(DeltaLayer {
        rule: Rule::PRECONDITIONED_KDA,
        heads: c.value_heads,
        stack,
        conv: t.conv(repeat)?,
        beta: Some(3),
        decay: Some(channel_gate(t, 1)?),
        precond: Some(precond(t, 4, 5, c.value_heads)?),
        gate: Some(t.low_rank(2, "g_proj", c.value_heads * c.value_dim, true)?),
        o_norm,
        o_proj,
    })
}
