//! Collects a plan's ops and buffers.

use super::stack::Stack;
use crate::error::{Error, Result};
use crate::ops::{BufId, Cols, Input, Linear, Op};
use crate::plan::{BufSpec, Life, Plan, PlanKind};

/// Elements of one buffer: below 2³¹, so that 32-bit indices reach all of them.
const MAX_ELEMENTS: u64 = (1 << 31) - 1;

/// A plan in the making.
pub(super) struct Builder {
    kind: PlanKind,
    rows: usize,
    ops: Vec<Op>,
    labels: Vec<String>,
    buffers: Vec<BufSpec>,
}

impl Builder {
    pub(super) fn new(kind: PlanKind, rows: usize) -> Result<Self> {
        if rows == 0 {
            return Err(Error::argument("rows", "at least 1", rows));
        }
        Ok(Self { kind, rows, ops: Vec::new(), labels: Vec::new(), buffers: Vec::new() })
    }

    pub(super) fn kind(&self) -> PlanKind {
        self.kind
    }

    /// Adds an op.
    pub(super) fn push(&mut self, label: impl Into<String>, op: Op) {
        self.ops.push(op);
        self.labels.push(label.into());
    }

    fn add(&mut self, spec: BufSpec) -> Result<BufId> {
        if (spec.width as u64).checked_mul(spec.rows as u64).is_none_or(|n| n > MAX_ELEMENTS) {
            let most = MAX_ELEMENTS / spec.width.max(1) as u64;
            return Err(Error::argument(
                "rows",
                format!("at most {most} with a {} of {}", spec.name, spec.width),
                spec.rows,
            ));
        }
        self.buffers.push(spec);
        Ok(BufId(self.buffers.len() - 1))
    }

    /// A scratch buffer `[rows, width]`. Layers share those with the same name and width: one layer's scratch is
    /// dead when the next begins.
    pub(super) fn scratch(&mut self, name: &'static str, width: usize) -> Result<BufId> {
        // A rule without gates still names a buffer for them; no engine has to know empty ones.
        let width = width.max(1);
        match self.buffers.iter().position(|b| b.name == name && b.width == width && b.life == Life::Scratch) {
            Some(i) => Ok(BufId(i)),
            None => self.add(BufSpec { name, width, rows: self.rows, life: Life::Scratch }),
        }
    }

    /// The logits, `[rows or 1, width]`.
    pub(super) fn logits(&mut self, width: usize) -> Result<BufId> {
        let rows = if self.kind == PlanKind::Prefill { 1 } else { self.rows };
        self.add(BufSpec { name: "logits", width, rows, life: Life::Saved })
    }

    /// The products of a stack; where each part's outputs lie.
    pub(super) fn project(&mut self, layer: &str, stack: &Stack, input: &Input) -> Result<Vec<Cols>> {
        const NAMES: [&str; 3] = ["proj", "proj2", "proj3"];
        let mut outs = Vec::new();
        for (group, name) in stack.groups.iter().zip(NAMES) {
            let out = self.scratch(name, group.rows)?;
            outs.push((out, group.rows));
            let linear = Linear {
                input: input.clone(),
                weight: group.weight,
                bias: group.bias,
                in_dim: stack.cols,
                out_dim: group.rows,
                out,
                add: false,
                last_only: false,
            };
            self.push(format!("{layer} {}", group.label), Op::Linear(linear));
        }
        let place = |&(group, at): &(usize, usize)| outs.get(group).map(|&(buf, width)| Cols { buf, width, at });
        Ok(stack.places.iter().filter_map(place).collect())
    }

    pub(super) fn finish(self, logits: BufId) -> Plan {
        let Self { kind, rows, ops, labels, buffers } = self;
        Plan { kind, rows, ops, labels, buffers, logits }
    }
}
