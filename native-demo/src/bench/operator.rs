//! The delta-rule operator on its own, chunkwise and token by token.

use anyhow::{Result, bail};
use deltanet::delta::{HALF_TOLERANCE, Inputs, Options, Output, Precond, Shape};
use deltanet::rule::{Beta, Decay, WriteKey};
use deltanet::{Device, Rule, cpu};

use super::operator_gpu;
use super::report::{Report, Row};
use crate::args::BenchArgs;
use crate::interrupt::Interrupt;
use crate::measure::{Effort, Random, Times, error, seconds};

/// Largest difference that still counts as right: f32 on random inputs of unit size.
pub(crate) const TOLERANCE: f64 = 1e-4;

/// Which form of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Chunk by chunk, one sequence of `tokens`.
    Chunk,
    /// Token by token: one step of `batch` sequences.
    Step,
}

/// One benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) rule: Rule,
    pub(crate) form: Form,
    pub(crate) shape: Shape,
    /// See [`Options::half_products`].
    pub(crate) half: bool,
}

impl Case {
    /// Options of the call.
    pub(crate) fn options(&self) -> Options {
        Options { half_products: self.half, ..OPTIONS }
    }

    pub(crate) fn name(&self) -> String {
        let s = &self.shape;
        let sizes = format!("{}/{} heads {}×{}", s.heads, s.value_heads, s.key_dim, s.value_dim);
        match self.form {
            Form::Chunk if self.half => format!("{} T={} {sizes}, f16", self.rule.name(), s.tokens),
            Form::Chunk => format!("{} T={} {sizes}", self.rule.name(), s.tokens),
            Form::Step => format!("{} step of {} {sizes}", self.rule.name(), s.batch),
        }
    }
}

pub(crate) fn run(
    args: &BenchArgs,
    rules: &[(&str, Rule)],
    device: &Device,
    effort: Effort,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    report.head("operator (f32)")?;
    for (_, rule) in rules {
        for case in cases(args, *rule) {
            if interrupt.pressed() {
                return Ok(());
            }
            report.add(measure(device, &case, effort)?)?;
        }
    }
    Ok(())
}

/// Checks and times one case.
pub(crate) fn measure(device: &Device, case: &Case, effort: Effort) -> Result<Row> {
    let data = Data::new(case);
    let want = cpu::delta::recurrent(&case.rule, &case.shape, &data.inputs(), &OPTIONS)?;
    let measured = match device {
        Device::Cpu { .. } => on_cpu(case, &data, &want, effort)?,
        Device::Gpu(gpu) => operator_gpu::run(gpu, case, &data, &want, effort)?,
    };
    let tokens = (case.shape.batch * case.shape.tokens) as f64;
    Ok(Row::new("operator", case.name(), (measured.wall, measured.gpu), (tokens, "tokens/s"), measured.error))
}

/// Queries and keys are normalised by the operator, as models do.
pub(crate) const OPTIONS: Options =
    Options { scale: None, l2norm: true, chunk_states: false, chunk: None, half_products: false, segments: None };

pub(super) fn cases(args: &BenchArgs, rule: Rule) -> Vec<Case> {
    let shape = |batch, tokens| Shape {
        batch,
        tokens,
        heads: args.heads as usize,
        value_heads: args.value_heads.unwrap_or(args.heads) as usize,
        key_dim: args.key_dim as usize,
        value_dim: args.value_dim.unwrap_or(args.key_dim) as usize,
    };
    let chunk = args.tokens.iter().map(|t| Case { rule, form: Form::Chunk, shape: shape(1, *t as usize), half: false });
    let step = args.batch.iter().map(|b| Case { rule, form: Form::Step, shape: shape(*b as usize, 1), half: false });
    chunk.chain(step).collect()
}

/// What a run measured.
pub(crate) struct Measured {
    pub(crate) wall: Times,
    pub(crate) gpu: Option<Times>,
    pub(crate) error: f64,
}

/// Fails when a result is wrong; returns how far it is off.
pub(crate) fn check(case: &Case, got: &Output, want: &Output) -> Result<f64> {
    let off = error(&got.o, &want.o).max(error(&got.final_state, &want.final_state));
    let tolerance = if case.half { HALF_TOLERANCE } else { TOLERANCE };
    if off > tolerance {
        bail!("{}: expected results within {tolerance:e} of the recurrence, got {off:.1e}", case.name());
    }
    Ok(off)
}

fn on_cpu(case: &Case, data: &Data, want: &Output, effort: Effort) -> Result<Measured> {
    let run = match case.form {
        Form::Chunk => cpu::delta::chunk,
        Form::Step => cpu::delta::recurrent,
    };
    let inputs = data.inputs();
    let off = match case.form {
        Form::Chunk => check(case, &run(&case.rule, &case.shape, &inputs, &OPTIONS)?, want)?,
        // The recurrence itself is checked against the one in f64.
        Form::Step => {
            let exact = cpu::delta::reference(&case.rule, &case.shape, &inputs, &OPTIONS)?;
            let o: Vec<f32> = exact.o.iter().map(|x| *x as f32).collect();
            let final_state: Vec<f32> = exact.final_state.iter().map(|x| *x as f32).collect();
            check(case, want, &Output { o, final_state, ..Output::default() })?
        }
    };
    let wall = effort.measure(|| {
        seconds(|| {
            run(&case.rule, &case.shape, &inputs, &OPTIONS)?;
            Ok(())
        })
    })?;
    Ok(Measured { wall, gpu: None, error: off })
}

/// Random inputs of a case.
pub(crate) struct Data {
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
    pub(crate) beta: Option<Vec<f32>>,
    pub(crate) g: Option<Vec<f32>>,
    pub(crate) precond: Option<PrecondData>,
}

/// Of the preconditioner.
pub(crate) struct PrecondData {
    pub(crate) g: Vec<f32>,
    pub(crate) beta: Vec<f32>,
    pub(crate) log_scale: Vec<f32>,
}

impl Data {
    fn new(case: &Case) -> Self {
        let Shape { batch, tokens, heads, value_heads, key_dim, value_dim } = case.shape;
        let mut random = Random::new(1);
        let rows = batch * tokens;
        let q = random.ranges(rows * heads * key_dim, -1.0, 1.0);
        let k = random.ranges(rows * heads * key_dim, -1.0, 1.0);
        let v = random.ranges(rows * value_heads * value_dim, -1.0, 1.0);
        let beta = (case.rule.beta != Beta::One).then(|| random.ranges(rows * value_heads, 0.05, 0.95));
        let g = match case.rule.decay {
            Decay::None => None,
            Decay::PerHead => Some(random.ranges(rows * value_heads, -0.2, 0.0)),
            Decay::PerChannel => Some(random.ranges(rows * value_heads * key_dim, -0.2, 0.0)),
        };
        let precond = (case.rule.write_key == WriteKey::Preconditioned).then(|| PrecondData {
            g: random.ranges(rows * heads, -0.1, 0.0),
            beta: random.ranges(rows * heads, 0.05, 0.95),
            log_scale: random.ranges(heads, -0.5, 0.0),
        });
        Self { q, k, v, beta, g, precond }
    }

    pub(crate) fn inputs(&self) -> Inputs<'_> {
        Inputs {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            beta: self.beta.as_deref(),
            g: self.g.as_deref(),
            initial_state: None,
            precond: self.precond.as_ref().map(|p| Precond {
                g: &p.g,
                beta: &p.beta,
                log_scale: &p.log_scale,
                initial: None,
            }),
            cu_seqlens: None,
        }
    }
}
