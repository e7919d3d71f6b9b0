//! The operator on a GPU, on buffers that stay there: what a model pays for it.

use anyhow::Result;
use deltanet::delta::Output;
use deltanet::gpu::delta::{
    DeltaCall, PrecondViews, Slots, Spans, Table, View, chunk_length, lower_chunk, lower_recurrent,
};
use deltanet::gpu::{Caps, Gpu, GpuBuffer, Program, wgpu};

use super::operator::{Case, Data, Form, Measured, OPTIONS, check};
use crate::measure::{Effort, seconds};

/// Runs in one submission when one is short: a step of a model is one of many, too.
const STEPS: usize = 32;

/// Buffers of a call, by index.
#[derive(Default)]
struct Buffers(Vec<GpuBuffer>);

impl Buffers {
    fn add(&mut self, buffer: GpuBuffer) -> usize {
        self.0.push(buffer);
        self.0.len() - 1
    }

    fn view(&mut self, gpu: &Gpu, label: &str, data: &[f32], stride: usize) -> Result<View> {
        let buffer = self.add(gpu.upload(label, data)?);
        Ok(View { buffer, stride: stride as u32, at: 0 })
    }
}

pub(crate) fn run(gpu: &Gpu, case: &Case, data: &Data, want: &Output, effort: Effort) -> Result<Measured> {
    let s = &case.shape;
    let rows = s.batch * s.tokens;
    let (state_words, out_words) = (s.value_heads * s.key_dim * s.value_dim, rows * s.value_heads * s.value_dim);
    let (key_words, value_words) = (s.heads * s.key_dim, s.value_heads * s.value_dim);
    let caps = Caps { half_products: case.options().half_products, ..gpu.caps().clone() };
    let chunk = chunk_length(&case.rule, s.key_dim as u32, s.value_dim as u32, &caps);
    let sequences: Vec<(u32, u32, u32)> =
        (0..s.batch as u32).map(|b| (b * s.tokens as u32, s.tokens as u32, b)).collect();
    let spans = Spans::new(&sequences, chunk);

    let mut buffers = Buffers::default();
    let state = buffers.add(gpu.buffer("state", 4 * (s.batch * state_words) as u64)?);
    let out = buffers.add(gpu.buffer("out", 4 * out_words as u64)?);
    let table = |buffers: &mut Buffers, label: &str, rows: &[[u32; 4]]| -> Result<Table> {
        let buffer = buffers.add(gpu.upload(label, rows)?);
        Ok(Table { buffer, len: rows.len() as u32 })
    };
    let per_value_head = |words: usize| words / rows.max(1);
    let call = DeltaCall {
        rule: case.rule,
        heads: s.heads as u32,
        value_heads: s.value_heads as u32,
        key_dim: s.key_dim as u32,
        value_dim: s.value_dim as u32,
        rows: rows as u32,
        scale: s.scale(&OPTIONS),
        l2norm: OPTIONS.l2norm,
        q: buffers.view(gpu, "q", &data.q, key_words)?,
        k: buffers.view(gpu, "k", &data.k, key_words)?,
        v: buffers.view(gpu, "v", &data.v, value_words)?,
        beta: data.beta.as_ref().map(|b| buffers.view(gpu, "beta", b, per_value_head(b.len()))).transpose()?,
        g: data.g.as_ref().map(|g| buffers.view(gpu, "g", g, per_value_head(g.len()))).transpose()?,
        precond: match &data.precond {
            None => None,
            Some(p) => Some(PrecondViews {
                g: buffers.view(gpu, "sums g", &p.g, s.heads)?,
                beta: buffers.view(gpu, "sums beta", &p.beta, s.heads)?,
                log_scale: buffers.view(gpu, "log scale", &p.log_scale, s.heads)?,
                sums: Slots {
                    buffer: buffers.add(gpu.buffer("sums", 4 * (s.batch * key_words) as u64)?),
                    words: key_words as u32,
                    at: 0,
                },
            }),
        },
        out: View { buffer: out, stride: value_words as u32, at: 0 },
        state: Slots { buffer: state, words: state_words as u32, at: 0 },
        sequences: table(&mut buffers, "sequences", &spans.sequences)?,
        chunks: table(&mut buffers, "chunks", &spans.chunks)?,
        chunk,
        chunk_states: None,
        segments: None,
    };
    let mut failed = None;
    let mut scratch = |label: &'static str, words: u64| match gpu.buffer(label, 4 * words) {
        Ok(buffer) => buffers.add(buffer),
        Err(e) => {
            failed = Some(e);
            0
        }
    };
    let dispatches = match case.form {
        Form::Chunk => lower_chunk(&call, &caps, &mut scratch),
        Form::Step => lower_recurrent(&call, &caps, &mut scratch),
    }?;
    if let Some(e) = failed {
        return Err(e.into());
    }
    let program = Program::compile(gpu, &dispatches, &buffers.0)?;
    let (Some(state), Some(out)) = (buffers.0.get(state), buffers.0.get(out)) else {
        anyhow::bail!("operator: a buffer is missing");
    };

    // The states are zero: the first run is the one to check.
    submit(gpu, &program, 1);
    let read = gpu.wait(gpu.read(&[(out, 0, out.size()), (state, 0, state.size())]))?;
    let mut floats = read.iter().map(|b| floats(b));
    let (mut o, mut final_state) = (floats.next().unwrap_or_default(), floats.next().unwrap_or_default());
    // Buffers are rounded up.
    o.truncate(out_words);
    final_state.truncate(s.batch * state_words);
    let error = check(case, &Output { o, final_state, ..Output::default() }, want)?;

    let repeat = if case.form == Form::Step { STEPS } else { 1 };
    let wall = effort.measure(|| {
        seconds(|| {
            submit(gpu, &program, repeat);
            gpu.wait(gpu.read(&[(out, 0, 4)]))?;
            Ok(())
        })
    })?;
    let gpu_time = effort.measure_gpu(gpu, &program)?;
    Ok(Measured { wall: wall.per(repeat), gpu: gpu_time, error })
}

/// Bytes of state that one step reads and writes.
pub(crate) fn step_bytes(s: &deltanet::delta::Shape) -> f64 {
    8.0 * (s.batch * s.value_heads * s.key_dim * s.value_dim) as f64
}

fn submit(gpu: &Gpu, program: &Program, times: usize) {
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    for _ in 0..times {
        program.encode(&mut encoder);
    }
    gpu.queue().submit([encoder.finish()]);
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| b.try_into().map_or(f32::NAN, f32::from_le_bytes)).collect()
}
