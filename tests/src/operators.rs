//! Operator tests: tensors of one call, the golden cases, and every way to run a call.

use deltanet::cpu::delta::{Reference, reference};
use deltanet::delta::{Inputs, Options, Output, Precond, Shape};
use deltanet::gpu::delta::{Form, Kernels};
use deltanet::gpu::{Gpu, delta as on_gpu};
use deltanet::rule::{Beta, Decay, WriteKey};
use deltanet::{Result, Rule, cpu};

use crate::random::Random;
use crate::{compare, devices};

/// Owned tensors of one call.
#[derive(Clone, Debug)]
pub struct Tensors {
    /// The rule.
    pub rule: Rule,
    /// Sizes.
    pub shape: Shape,
    /// Options.
    pub options: Options,
    /// `[B, T, H, K]`.
    pub q: Vec<f32>,
    /// `[B, T, H, K]`.
    pub k: Vec<f32>,
    /// `[B, T, HV, V]`.
    pub v: Vec<f32>,
    /// `[B, T, HV]`; for Longhorn its b.
    pub beta: Vec<f32>,
    /// `[B, T, HV]` or `[B, T, HV, K]`.
    pub g: Vec<f32>,
    /// `[N, HV, K, V]`.
    pub initial_state: Option<Vec<f32>>,
    /// `[B, T, H]`.
    pub precond_g: Vec<f32>,
    /// `[B, T, H]`.
    pub precond_beta: Vec<f32>,
    /// `[H]`.
    pub log_scale: Vec<f32>,
    /// `[N, H, K]`.
    pub initial_sums: Option<Vec<f32>>,
    /// `[N + 1]`.
    pub cu_seqlens: Option<Vec<u32>>,
}

impl Tensors {
    /// Usual numbers: normal q, k and v, unit q and k, beta in (0, 1), gates of a trained layer's size.
    pub fn random(rule: Rule, shape: Shape, cu_seqlens: Option<&[u32]>, seed: u64) -> Self {
        let mut r = Random::new(seed);
        let Shape { batch, tokens, heads, value_heads, key_dim, value_dim } = shape;
        let rows = batch * tokens;
        let n = cu_seqlens.map_or(batch, |c| c.len() - 1);
        let channels = if rule.decay == Decay::PerChannel { key_dim } else { 1 };
        let mut units = |n: usize| {
            let mut x = r.normals(n * key_dim);
            for row in x.chunks_exact_mut(key_dim) {
                let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
                row.iter_mut().for_each(|x| *x /= norm);
            }
            x
        };
        let (q, k) = (units(rows * heads), units(rows * heads));
        let v = r.normals(rows * value_heads * value_dim);
        let mut between = |n: usize, low: f32, high: f32| (0..n).map(|_| r.range(low, high)).collect::<Vec<f32>>();
        Self {
            rule,
            shape,
            options: Options::default(),
            q,
            k,
            v,
            beta: between(rows * value_heads, 0.0, 1.0),
            g: between(rows * value_heads * channels, -0.5, 0.0),
            initial_state: Some(between(n * value_heads * key_dim * value_dim, -1.0, 1.0)),
            precond_g: between(rows * heads, -0.1, 0.0),
            precond_beta: between(rows * heads, 0.0, 1.0),
            log_scale: between(heads, -0.5, 0.5),
            initial_sums: Some(between(n * heads * key_dim, 0.0, 1.0)),
            cu_seqlens: cu_seqlens.map(<[u32]>::to_vec),
        }
    }

    /// The call's inputs: what the rule has.
    pub fn inputs(&self) -> Inputs<'_> {
        let precond = Precond {
            g: &self.precond_g,
            beta: &self.precond_beta,
            log_scale: &self.log_scale,
            initial: self.initial_sums.as_deref(),
        };
        Inputs {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            beta: (self.rule.beta != Beta::One).then_some(&self.beta),
            g: (self.rule.decay != Decay::None).then_some(&self.g),
            initial_state: self.initial_state.as_deref(),
            precond: (self.rule.write_key == WriteKey::Preconditioned).then_some(precond),
            cu_seqlens: self.cu_seqlens.as_deref(),
        }
    }

    /// The f64 recurrence.
    pub fn reference(&self) -> Reference {
        reference(&self.rule, &self.shape, &self.inputs(), &self.options).expect("the case is valid")
    }
}

/// One way to run an operator.
#[derive(Clone, Copy, Debug)]
pub enum Engine {
    /// The CPU engine.
    Cpu,
    /// A device and a set of kernels.
    Gpu(&'static Gpu, Kernels, &'static str),
}

impl Engine {
    /// Runs a call.
    pub fn run(&self, form: Form, t: &Tensors) -> Result<Output> {
        match (self, form) {
            (Self::Cpu, Form::Recurrent) => cpu::delta::recurrent(&t.rule, &t.shape, &t.inputs(), &t.options),
            (Self::Cpu, Form::Chunk) => cpu::delta::chunk(&t.rule, &t.shape, &t.inputs(), &t.options),
            (Self::Gpu(gpu, kernels, _), form) => {
                gpu.wait(on_gpu::run(gpu, form, *kernels, &t.rule, &t.shape, &t.inputs(), &t.options))
            }
        }
    }
    /// For messages.
    pub fn name(&self) -> String {
        match self {
            Self::Cpu => "CPU".into(),
            Self::Gpu(_, kernels, limits) => format!("GPU at {limits} limits, {kernels:?} kernels"),
        }
    }
}

/// Every engine: the CPU, and both sets of kernels at default and at best limits.
pub fn engines() -> Vec<Engine> {
    let mut all = vec![Engine::Cpu];
    for (gpu, limits) in [(devices::default_limits(), "default"), (devices::best(), "best")] {
        for kernels in [Kernels::Gpu, Kernels::Software] {
            all.push(Engine::Gpu(gpu, kernels, limits));
        }
    }
    all
}

/// The engines of [`engines`] at default limits: for tests of numbers that limits do not touch.
pub fn engines_at_default_limits() -> Vec<Engine> {
    engines().into_iter().filter(|e| !matches!(e, Engine::Gpu(_, _, "best"))).collect()
}

/// Worst error of one call's results against f64 values, and where.
pub fn error(out: &Output, want: &Reference) -> (f64, String) {
    let narrow = |x: &[f64]| x.iter().map(|x| *x as f32).collect::<Vec<f32>>();
    let mut all = vec![("o", &out.o, narrow(&want.o)), ("final_state", &out.final_state, narrow(&want.final_state))];
    all.push(("final_sums", &out.final_sums, narrow(&want.final_sums)));
    let mut most = (0.0, String::from("nowhere"));
    for (name, got, want) in all {
        let (error, at) = compare::worst(got, &want);
        if error > most.0 {
            most = (error, format!("{name}[{at}]: got {}, want {}", got[at], want[at]));
        }
    }
    most
}

/// Runs a case in both forms on the given engines against the f64 recurrence; returns a line for every failure.
pub fn check(what: &str, t: &Tensors, engines: &[Engine], recurrent: f64, chunk: f64) -> Vec<String> {
    let want = t.reference();
    let mut failures = Vec::new();
    for engine in engines {
        for (form, tolerance) in [(Form::Recurrent, recurrent), (Form::Chunk, chunk)] {
            let out = match engine.run(form, t) {
                Ok(out) => out,
                Err(e) => {
                    failures.push(format!("{what}, {}, {form:?}: {e}", engine.name()));
                    continue;
                }
            };
            let (error, place) = error(&out, &want);
            println!("{what}, {}, {form:?}: {error:.2e}", engine.name());
            if error > tolerance {
                let name = engine.name();
                failures.push(format!("{what}, {name}, {form:?}: {error:.2e} > {tolerance:.1e} at {place}"));
            }
        }
    }
    failures
}

/// Fails with every line, if there is any.
#[track_caller]
pub fn none(failures: &[String]) {
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
