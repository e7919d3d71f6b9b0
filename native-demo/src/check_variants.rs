//! The operator half of `deltanet check --all-variants`: every rule in every form, with every set of kernels and chunk
//! length that the adapter can run, against the recurrence in f64.

use anyhow::Result;
use deltanet::delta::{HALF_TOLERANCE, Inputs, Options, Precond, Shape};
use deltanet::gpu::Gpu;
use deltanet::gpu::delta::{Form, Kernels, run as run_operator};
use deltanet::rule::{Beta, Decay, WriteKey};
use deltanet::{Rule, cpu};

use crate::measure::{Random, error};

/// Largest difference that passes for variants that compute in f32.
pub(crate) const TOLERANCE: f64 = 1e-5;

/// Rows: chunks of 64, with a ragged last one.
const TOKENS: usize = 150;

/// `done` gets each variant's name, largest difference and tolerance; it returns whether to go on.
pub(crate) fn run(gpu: &Gpu, done: &mut dyn FnMut(String, f64, f64) -> Result<bool>) -> Result<()> {
    for (key_dim, value_dim) in [(128, 128), (96, 192), (20, 12)] {
        let shape = Shape { batch: 1, tokens: TOKENS, heads: 1, value_heads: 2, key_dim, value_dim };
        for (name, rule) in Rule::NAMED {
            let data = Data::new(&rule, &shape);
            let options = Options { l2norm: true, ..Options::default() };
            let want = cpu::delta::reference(&rule, &shape, &data.inputs(), &options)?;
            let narrow = |x: &[f64]| x.iter().map(|x| *x as f32).collect::<Vec<f32>>();
            let (o, state) = (narrow(&want.o), narrow(&want.final_state));
            for kernels in [Kernels::Gpu, Kernels::Portable, Kernels::Software] {
                for chunk in [None, Some(16), Some(32), Some(64)] {
                    let form = if chunk.is_none() { Form::Recurrent } else { Form::Chunk };
                    let options = Options { chunk, ..options };
                    let got = match gpu.wait(run_operator(gpu, form, kernels, &rule, &shape, &data.inputs(), &options))
                    {
                        // A chunk that is too long for the device's workgroup memory.
                        Err(deltanet::Error::Limit { .. }) => continue,
                        got => got?,
                    };
                    let off = error(&got.o, &o).max(error(&got.final_state, &state));
                    let form = chunk.map_or("recurrent".into(), |c| format!("chunks of {c}"));
                    let what = format!("{name} {key_dim}×{value_dim}, {kernels:?} kernels, {form}");
                    if !done(what, off, TOLERANCE)? {
                        return Ok(());
                    }
                }
            }
            // Without cooperative matrices these are the kernels above.
            if gpu.caps().coop16 {
                let options = Options { half_products: true, ..options };
                let form = Form::Chunk;
                let got = gpu.wait(run_operator(gpu, form, Kernels::Gpu, &rule, &shape, &data.inputs(), &options))?;
                let off = error(&got.o, &o).max(error(&got.final_state, &state));
                let what = format!("{name} {key_dim}×{value_dim}, half products, chunks of {}", got.chunk);
                if !done(what, off, HALF_TOLERANCE)? {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Random tensors of a call.
struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    beta: Option<Vec<f32>>,
    g: Option<Vec<f32>>,
    initial: Vec<f32>,
    /// g, beta and μ of the preconditioner.
    precond: Option<[Vec<f32>; 3]>,
}

impl Data {
    fn new(rule: &Rule, s: &Shape) -> Self {
        let mut random = Random::new(7);
        let mut range = |n: usize, low: f32, high: f32| random.ranges(n, low, high);
        let channels = if rule.decay == Decay::PerChannel { s.key_dim } else { 1 };
        Self {
            q: range(s.tokens * s.heads * s.key_dim, -1.0, 1.0),
            k: range(s.tokens * s.heads * s.key_dim, -1.0, 1.0),
            v: range(s.tokens * s.value_heads * s.value_dim, -1.0, 1.0),
            beta: (rule.beta != Beta::One).then(|| range(s.tokens * s.value_heads, 0.0, 1.0)),
            g: (rule.decay != Decay::None).then(|| range(s.tokens * s.value_heads * channels, -0.5, 0.0)),
            initial: range(s.value_heads * s.key_dim * s.value_dim, -1.0, 1.0),
            precond: (rule.write_key == WriteKey::Preconditioned).then(|| {
                let rows = s.tokens * s.heads;
                [range(rows, -0.1, 0.0), range(rows, 0.0, 1.0), range(s.heads, -0.5, 0.0)]
            }),
        }
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            beta: self.beta.as_deref(),
            g: self.g.as_deref(),
            initial_state: Some(&self.initial),
            precond: self.precond.as_ref().map(|[g, beta, log_scale]| Precond { g, beta, log_scale, initial: None }),
            cu_seqlens: None,
        }
    }
}
