//! Gated DeltaNet (arXiv 2412.06464) in flash-linear-attention's format; MATH.md §1 and §2.
//!
//! ```text
//! g = −exp(A_log) · softplus(a + dt_bias)     one a value head
//! β = sigmoid(b) · beta_scale
//! ```

use super::mixer::{DeltaLayer, Gate, Proj, Tensors};
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
    let stack = Stack::load(t.loader, &t.prefix, t.hidden, parts)?;
    let (o_norm, o_proj) = t.output()?;
    Ok(DeltaLayer {
        rule: Rule::GATED_DELTANET,
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
        precond: None,
        gate: gate.map(Proj::Part),
        o_norm,
        o_proj,
    })
}
