//! DeltaNet (arXiv 2406.06484) in flash-linear-attention's format; MATH.md §1 and §2. No decay; β = sigmoid(b), or 1.

use super::mixer::{DeltaLayer, Proj, Tensors};
use super::stack::Stack;
use crate::error::Result;
use crate::rule::{Beta, Rule};

pub(super) fn layer(t: &mut Tensors<'_, '_>) -> Result<DeltaLayer> {
    let c = t.config;
    let mut parts = vec![t.qkv(1)?];
    let gate = c.output_gate.map(|_| parts.len());
    if gate.is_some() {
        parts.push(t.part("g", "g_proj", c.value_heads * c.value_dim)?);
    }
    let beta = c.use_beta.then_some(parts.len());
    if beta.is_some() {
        parts.push(t.part("b", "b_proj", c.value_heads)?);
    }
    let stack = Stack::load(t.loader, &t.prefix, t.hidden, parts)?;
    let (o_norm, o_proj) = t.output()?;
    Ok(DeltaLayer {
        rule: if beta.is_some() { Rule::DELTANET } else { Rule { beta: Beta::One, ..Rule::DELTANET } },
        heads: c.heads,
        stack,
        conv: t.conv(1)?,
        beta,
        decay: None,
        precond: None,
        gate: gate.map(Proj::Part),
        o_norm,
        o_proj,
    })
}
