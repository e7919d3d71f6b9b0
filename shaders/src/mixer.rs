//! Variants of the kernels around the delta rule in a model's layer: convolution, gates, a decode step.

use crate::delta::{Decay, LanesTile};
use crate::kernels::Kernel;
use crate::linear::{Gate, SOLO_WORKGROUP};
use crate::variant::{Features, Variant};

/// What specialises a layer's mixer.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct MixerForm {
    /// H.
    pub heads: u32,
    /// HV.
    pub value_heads: u32,
    /// K.
    pub key_dim: u32,
    /// V.
    pub value_dim: u32,
    /// Taps of the convolution; 1: none.
    pub taps: u32,
    /// l2norm of q and k.
    pub l2norm: bool,
    /// Whether the value read back is subtracted.
    pub delta: bool,
    /// Whether β is projected.
    pub beta: bool,
    /// Whether β is Longhorn's.
    pub longhorn: bool,
    /// Decay.
    pub decay: Decay,
    /// Whether its gate is the bounded one.
    pub bounded: bool,
    /// Whether its projection lies apart from the others.
    pub apart: bool,
    /// Whether there is a preconditioner.
    pub precond: bool,
}

impl MixerForm {
    /// Elements a row of gates.
    pub fn gates(&self) -> u32 {
        let decays = match self.decay {
            Decay::None => 0,
            Decay::Head => self.value_heads,
            Decay::Channel => self.value_heads * self.key_dim,
        };
        let beta = if self.beta { self.value_heads } else { 0 };
        beta + decays + if self.precond { 2 * self.heads } else { 0 }
    }

    /// Whether any small weights are read by [`prep`]; [`step`] has its own convolution elsewhere.
    pub fn packed(&self) -> bool {
        self.taps > 1 || self.decay != Decay::None || self.precond
    }

    fn variant(&self, kernel: Kernel) -> Variant {
        Variant::new(kernel)
            .with("H", self.heads)
            .with("HV", self.value_heads)
            .with("K", self.key_dim)
            .with("V", self.value_dim)
            .flag("L2NORM", self.l2norm)
            .flag("BETA", self.beta)
            .flag("DECAY", self.decay != Decay::None)
            .flag("CHANNELS", self.decay == Decay::Channel)
            .flag("BOUNDED", self.bounded)
            .flag("AUX", self.apart)
            .flag("PRECOND", self.precond)
    }
}

/// `conv/prep`: x, aux (`apart`), pack (if `packed`), row table, state (with a convolution), conved, gates (if any).
///
/// `own`: every row is a session of its own. Groups (rows, 2·H + HV + ⌈gates / workgroup⌉), or with `alone`
/// (⌈(2·H + HV + ⌈gates / 8⌉) / 8⌉, rows).
pub fn prep(form: &MixerForm, own: bool, alone: bool) -> Variant {
    form.variant(Kernel::MixerPrep)
        .with("WG", prep_workgroup(form, alone))
        .with("TAPS", form.taps)
        .with("GATES", form.gates())
        .flag("CONV", form.taps > 1)
        .flag("PACK", form.packed())
        .flag("OWN", own)
        .flag("SOLO", alone)
}

/// Invocations a workgroup of [`prep`].
pub fn prep_workgroup(form: &MixerForm, alone: bool) -> u32 {
    if alone { SOLO_WORKGROUP } else { form.key_dim.next_power_of_two().clamp(32, 128) }
}

/// `conv/tail`: x, row table, state. Groups (⌈channels / workgroup⌉).
pub fn conv_tail(taps: u32, alone: bool) -> Variant {
    Variant::new(Kernel::ConvTail)
        .with("WG", tail_workgroup(alone))
        .with("TAPS", taps)
        .flag("CONV", true)
        .flag("TAIL_ONLY", true)
}

/// Invocations a workgroup of [`conv_tail`].
pub fn tail_workgroup(alone: bool) -> u32 {
    if alone { SOLO_WORKGROUP } else { 64 }
}

/// How a step's columns and channels are spread over threads.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct StepTile {
    /// Columns of S a workgroup.
    pub columns: u32,
    /// Threads a column.
    pub split: u32,
}

/// What a step does to its output.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct StepOutput {
    /// RMSNorm of the head.
    pub norm: bool,
    /// The gate.
    pub gate: Gate,
}

/// `mixer/lanes`: x, aux (`apart`), z (with a gate), pack (with a decay or a norm), row table, state, sums (with a norm),
/// out. K is a multiple of `4 · subgroup / columns`, V of 4. The norm's scale is left to the product that follows.
///
/// `convolved`: x comes after convolution and SiLU. Groups (⌈V / tile.width()⌉, HV, rows).
pub fn lanes(form: &MixerForm, tile: LanesTile, output: StepOutput, convolved: bool) -> Variant {
    let v = form
        .variant(Kernel::MixerLanes)
        .with("SUBGROUP", tile.subgroup)
        .with("COLUMNS", tile.columns)
        .with("TEAMS", tile.teams)
        .with("BLOCKS", tile.blocks(form.value_dim))
        .with("FOURS", form.key_dim * tile.columns / (4 * tile.subgroup))
        .flag("XVEC", true)
        .flag("DELTA", form.delta)
        .flag("LONGHORN", form.longhorn)
        .flag("CONV", convolved)
        .flag("NORM", output.norm)
        .flag("PACK", step_packed(form, output))
        .features(Features { subgroups: true, ..Features::default() });
    output.gate.flags(v)
}

/// `mixer/step`: x, aux (`apart`), z (with a gate), pack (with a decay or a norm), row table, state, out.
///
/// `convolved`: x comes after convolution and SiLU. Groups (⌈V / columns⌉, HV, rows).
pub fn step(form: &MixerForm, tile: StepTile, output: StepOutput, convolved: bool) -> Variant {
    let v = form
        .variant(Kernel::MixerStep)
        .with("BV", tile.columns)
        .with("SPLIT", tile.split)
        .with("FOURS", form.key_dim.div_ceil(4 * tile.split))
        .flag("DELTA", form.delta)
        .flag("LONGHORN", form.longhorn)
        .flag("CONV", convolved)
        .flag("NORM", output.norm)
        .flag("PACK", step_packed(form, output));
    output.gate.flags(v)
}

/// Whether [`step`] and [`lanes`] read small weights.
pub fn step_packed(form: &MixerForm, output: StepOutput) -> bool {
    output.norm || form.decay != Decay::None
}

/// `mixer/solo`: x, aux (`apart`), pack (with a decay), row table, state, out. V must be a multiple of 4.
///
/// `window`: vec4s of the window of x that is bound as a uniform; 0: x is a storage buffer. `convolved`: x comes after
/// convolution and SiLU. Groups (⌈V / 4 / 8⌉, HV, rows).
pub fn solo_step(form: &MixerForm, window: u32, convolved: bool) -> Variant {
    let v = form
        .variant(Kernel::MixerSolo)
        .with("WG", SOLO_WORKGROUP)
        .with("STEP", [8, 4, 2, 1].into_iter().find(|n| form.key_dim.is_multiple_of(*n)).unwrap_or(1))
        .flag("XUNI", window > 0)
        .flag("DELTA", form.delta)
        .flag("LONGHORN", form.longhorn)
        .flag("CONV", convolved)
        .flag("PACK", form.decay != Decay::None);
    if window > 0 { v.with("XLEN", window) } else { v }
}
