//! The op-by-op half of `deltanet check`: each op on the GPU, fed with what the CPU engine fed the same op.
//!
//! An error of one op does not reach the next, so the op that is wrong is the one that is shown.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use deltanet::cpu;
use deltanet::gpu::{Gpu, Stage, Trace};
use deltanet::model::Spec;
use deltanet::ops::{BufId, Op};
use deltanet::plan::{Plan, PlanKind};

use crate::measure::error;

/// An op and how far the GPU's result is off, relative to the largest result.
pub(crate) struct Compared {
    pub(crate) label: String,
    pub(crate) error: f64,
}

/// Runs a prompt on the CPU engine, and each of its ops on `gpu`. `done` gets each comparison; it returns whether to
/// go on.
pub(crate) fn run(
    gpu: &Gpu,
    spec: &Arc<Spec>,
    tokens: &[u32],
    done: &mut dyn FnMut(Compared) -> Result<bool>,
) -> Result<()> {
    let plan = spec.plan(PlanKind::Prefill, tokens.len())?;
    let mut outputs: Vec<Vec<f32>> = Vec::with_capacity(plan.ops.len());
    let mut cpu = cpu::Runner::new(spec.clone(), cpu::CpuOptions { threads: None, slots: 1 })?;
    cpu.trace(&plan, 0, tokens, &mut |_, out| outputs.push(out.to_vec()))?;

    let mut stage = Stage::new(gpu.clone(), spec.vocab, &spec.weights, &spec.layers, 1, &mut |_, _| {})?;
    // What each buffer holds before the op: the CPU's values.
    let mut held: HashMap<BufId, Vec<f32>> = HashMap::new();
    for (i, (op, want)) in plan.ops.iter().zip(&outputs).enumerate() {
        let out = op.out();
        let alone = only(&plan, op);
        let given: Vec<(BufId, &[f32])> =
            inputs(op).into_iter().filter_map(|id| held.get(&id).map(|values| (id, values.as_slice()))).collect();
        let trace = Trace { slots: &[0], tokens, given: &given, wanted: &[out] };
        let got = gpu.wait(stage.trace(&alone, &trace))?.pop().unwrap_or_default();
        let label = plan.labels.get(i).cloned().unwrap_or_else(|| format!("op {i}"));
        if !done(Compared { label, error: error(&got, want) })? {
            break;
        }
        held.insert(out, want.clone());
    }
    Ok(())
}

/// A plan of one op. Its result stays in its buffer, the logits' too.
fn only(plan: &Plan, op: &Op) -> Plan {
    let nowhere = BufId(plan.buffers.len());
    Plan { ops: vec![op.clone()], labels: Vec::new(), logits: nowhere, ..plan.clone() }
}

/// Buffers whose contents matter to an op.
fn inputs(op: &Op) -> Vec<BufId> {
    use deltanet::ops::Input;
    match op {
        Op::Embed(_) => Vec::new(),
        Op::Linear(l) => {
            let mut ids = match &l.input {
                Input::Plain(x) | Input::RmsNorm { x, .. } | Input::SwiGlu(x) => vec![x.buf],
                Input::HeadNorm { x, gate, .. } => {
                    std::iter::once(x.buf).chain(gate.iter().map(|(gate, _)| gate.buf)).collect()
                }
            };
            if l.add && !ids.contains(&l.out) {
                ids.push(l.out);
            }
            ids
        }
        Op::Mixer(m) => {
            let mut ids = vec![m.qkv.buf];
            let gates = m.beta.iter().chain(m.decay.iter().map(|d| &d.a));
            let gates = gates.chain(m.precond.iter().flat_map(|p| [&p.a, &p.b]));
            for cols in gates {
                if !ids.contains(&cols.buf) {
                    ids.push(cols.buf);
                }
            }
            ids
        }
        Op::Attention(a) => vec![a.qkv.buf],
    }
}
