//! The operators over host tensors: uploaded, run and read back a bounded number of rows at a time, so that neither
//! the length of the input nor the number of its chunks meets a limit of the device.

use super::operator::{Piece, budget, pieces};
use super::{Buffers, Form, Kernels, Operator, PrecondBuffers, chunk_length};
use crate::delta::{Inputs, Options, Output, Shape};
use crate::error::{Error, Result};
use crate::gpu::{Gpu, GpuBuffer};
use crate::rule::{Decay, Rule};

/// The recurrent form on host tensors: token by token.
///
/// # Errors
/// [`Error::Unsupported`] with [`Options::chunk_states`]; what [`Shape::check`] finds; [`Error::Limit`] for a state larger than a storage binding; what the device reports.
pub async fn recurrent(
    gpu: &Gpu,
    rule: &Rule,
    shape: &Shape,
    inputs: &Inputs<'_>,
    options: &Options,
) -> Result<Output> {
    run(gpu, Form::Recurrent, Kernels::Auto, rule, shape, inputs, options).await
}

/// The chunkwise form on host tensors: the same result to rounding, faster on long inputs.
///
/// # Errors
/// What [`Shape::check`] finds; [`Error::Limit`] for a state larger than a storage binding; what the device reports.
pub async fn chunk(gpu: &Gpu, rule: &Rule, shape: &Shape, inputs: &Inputs<'_>, options: &Options) -> Result<Output> {
    run(gpu, Form::Chunk, Kernels::Auto, rule, shape, inputs, options).await
}

/// Either form, with a choice of kernels.
///
/// # Errors
/// What [`Shape::check`] finds; [`Error::Limit`] for a state larger than a storage binding; what the device reports.
pub async fn run(
    gpu: &Gpu,
    form: Form,
    kernels: Kernels,
    rule: &Rule,
    shape: &Shape,
    inputs: &Inputs<'_>,
    options: &Options,
) -> Result<Output> {
    shape.check(rule, inputs, options)?;
    if options.chunk_states && form == Form::Recurrent {
        return Err(Error::Unsupported("chunk_states in the recurrent form on the GPU: use the chunkwise form".into()));
    }
    let Shape { heads, value_heads, key_dim, value_dim, .. } = *shape;
    let n = shape.sequences(inputs);
    let narrow = |x: usize| {
        u32::try_from(x).map_err(|_| Error::argument("tokens", "fewer than 2³² rows", shape.batch * shape.tokens))
    };
    let mut sequences = Vec::with_capacity(n);
    for (slot, (first, length)) in shape.spans(inputs).into_iter().enumerate() {
        sequences.push((narrow(first)?, narrow(length)?, narrow(slot)?));
    }
    let chunk = match options.chunk {
        Some(c) => c as u32,
        None => chunk_length(rule, key_dim as u32, value_dim as u32, &kernels.caps(gpu, options)),
    };
    let all = pieces(&sequences, chunk, form, budget(gpu, shape, chunk));
    let rows_of = |piece: &Piece| piece.spans.iter().map(|s| s.1 as usize).sum::<usize>();
    let rows = all.iter().map(rows_of).max().unwrap_or(0);

    // Elements a row of each input that is there.
    let channels = if rule.decay == Decay::PerChannel { key_dim } else { 1 };
    let (qk, vo) = (heads * key_dim, value_heads * value_dim);
    let tensor = |name: &str, width: usize| gpu.buffer(name, (rows * width * 4) as u64);
    let optional = |name: &str, x: Option<&[f32]>, width: usize| x.map(|_| tensor(name, width)).transpose();
    let state_words = n * value_heads * key_dim * value_dim;
    let state = gpu.buffer("state", state_words as u64 * 4)?;
    if let Some(s) = inputs.initial_state {
        gpu.write(&state, 0, s);
    }
    let precond = match &inputs.precond {
        None => None,
        Some(p) => {
            let sums = gpu.buffer("sums", (n * heads * key_dim * 4) as u64)?;
            if let Some(a) = p.initial {
                gpu.write(&sums, 0, a);
            }
            let log_scale = gpu.upload("log scale", p.log_scale)?;
            Some(PrecondBuffers { g: tensor("g", heads)?, beta: tensor("beta", heads)?, log_scale, sums })
        }
    };
    let state_bytes = (value_heads * key_dim * value_dim * 4) as u64;
    let chunks_of = |spans: &[(u32, u32, u32)]| spans.iter().map(|s| u64::from(s.1.div_ceil(chunk))).sum::<u64>();
    let most_chunks = all.iter().map(|p| chunks_of(&p.spans)).max();
    let chunk_states = match (options.chunk_states && form == Form::Chunk, most_chunks) {
        (true, Some(most_chunks)) => Some(gpu.buffer("chunk states", most_chunks * state_bytes)?),
        _ => None,
    };
    let buffers = Buffers {
        q: tensor("q", qk)?,
        k: tensor("k", qk)?,
        v: tensor("v", vo)?,
        beta: optional("beta", inputs.beta, value_heads)?,
        g: optional("g", inputs.g, value_heads * channels)?,
        precond,
        o: tensor("o", vo)?,
        state,
        chunk_states,
    };
    let sizes = Shape { batch: 1, tokens: rows, ..*shape };
    let options = Options { chunk: Some(chunk as usize), scale: Some(shape.scale(options)), ..*options };
    let operator = Operator::new(gpu, form, kernels, rule, &sizes, &buffers, &options)?;

    let mut out = Output { chunk: operator.chunk(), ..Output::default() };
    for piece in &all {
        let first = piece.spans.first().map_or(0, |s| s.0);
        let count = rows_of(piece);
        let part = |x: &GpuBuffer, data: &[f32], width: usize| -> Result<()> {
            let range = first as usize * width..(first as usize + count) * width;
            let data = data.get(range).ok_or_else(|| Error::Gpu("rows out of range".into()))?;
            gpu.write(x, 0, data);
            Ok(())
        };
        part(&buffers.q, inputs.q, qk)?;
        part(&buffers.k, inputs.k, qk)?;
        part(&buffers.v, inputs.v, vo)?;
        if let (Some(b), Some(x)) = (&buffers.beta, inputs.beta) {
            part(b, x, value_heads)?;
        }
        if let (Some(b), Some(x)) = (&buffers.g, inputs.g) {
            part(b, x, value_heads * channels)?;
        }
        if let (Some(b), Some(x)) = (&buffers.precond, &inputs.precond) {
            part(&b.g, x.g, heads)?;
            part(&b.beta, x.beta, heads)?;
        }
        let spans: Vec<_> = piece.spans.iter().map(|&(row, length, slot)| (row - first, length, slot)).collect();
        let chunks = chunks_of(&spans);
        operator.run_piece(&Piece { spans, first_chunk: 0 })?;
        let mut wanted = vec![(&buffers.o, 0, (count * vo * 4) as u64)];
        wanted.extend(buffers.chunk_states.as_ref().map(|b| (b, 0, chunks * state_bytes)));
        let mut read = gpu.read(&wanted).await?.into_iter();
        out.o.extend(floats(read.next()));
        out.chunk_states.extend(floats(read.next()));
    }
    let mut wanted = vec![(&buffers.state, 0, state_words as u64 * 4)];
    wanted.extend(buffers.precond.as_ref().map(|p| (&p.sums, 0, (n * heads * key_dim * 4) as u64)));
    let mut read = gpu.read(&wanted).await?.into_iter();
    out.final_state = floats(read.next()).collect();
    out.final_sums = floats(read.next()).collect();
    Ok(out)
}

fn floats(bytes: Option<Vec<u8>>) -> impl Iterator<Item = f32> {
    let bytes = bytes.unwrap_or_default();
    let words: Vec<f32> = bytes.chunks_exact(4).filter_map(|b| b.try_into().ok()).map(f32::from_le_bytes).collect();
    words.into_iter()
}
