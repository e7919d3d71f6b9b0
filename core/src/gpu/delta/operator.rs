//! The delta rule over an application's own GPU buffers.

use super::{DeltaCall, PrecondViews, Slots, Spans, Table, View, chunk_length, lower_chunk, lower_recurrent};
use crate::delta::{Options, Shape};
use crate::error::{Error, Result};
use crate::gpu::{Caps, Gpu, GpuBuffer, Program};
use crate::rule::{Beta, Decay, Rule, WriteKey};

/// Token by token, or chunk by chunk. Both give the same result to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One token after the other: for few tokens a sequence.
    Recurrent,
    /// Matrix products over chunks (MATH.md §3): for many.
    Chunk,
}

/// Which kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// Those that suit the device.
    #[default]
    Auto,
    /// Those for real GPUs, within the device's limits.
    Gpu,
    /// Those for real GPUs, within WebGPU's default limits whatever the device has.
    Portable,
    /// Those for software adapters.
    Software,
    /// Those for real GPUs with cooperative matrices, which are emulated, slowly: for tests on adapters without.
    Emulated,
}

impl Kernels {
    /// The device as the choice of kernels is to see it.
    pub(super) fn caps(self, gpu: &Gpu, options: &Options) -> Caps {
        let mut caps = gpu.caps().clone();
        caps.half_products = options.half_products;
        match self {
            Self::Auto => {}
            Self::Gpu => caps.software = false,
            Self::Portable => {
                caps.software = false;
                caps.workgroup_bytes = caps.workgroup_bytes.min(Caps::WEBGPU_DEFAULT.workgroup_bytes);
                caps.max_invocations = caps.max_invocations.min(Caps::WEBGPU_DEFAULT.max_invocations);
            }
            Self::Software => caps.software = true,
            Self::Emulated => {
                caps.software = false;
                (caps.coop16, caps.emulate) = (true, true);
                // What devices with such matrices have. Software adapters, whose workgroup memory is memory, run it too.
                caps.workgroup_bytes = caps.workgroup_bytes.max(48 << 10);
            }
        }
        caps
    }
}

/// Inputs of the preconditioner (MATH.md §8.3), f32.
#[derive(Clone, Debug)]
pub struct PrecondBuffers {
    /// Log decay of the running sums, `[B, T, H]`, ≤ 0.
    pub g: GpuBuffer,
    /// Their write strength, `[B, T, H]`.
    pub beta: GpuBuffer,
    /// μ, `[H]`.
    pub log_scale: GpuBuffer,
    /// Running sums, `[N, H, K]`, updated in place.
    pub sums: GpuBuffer,
}

/// Tensors of an [`Operator`], row-major f32. No buffer may be given twice, except among q, k, v, beta and g.
#[derive(Clone, Debug)]
pub struct Buffers {
    /// Queries, `[B, T, H, K]`.
    pub q: GpuBuffer,
    /// Keys, `[B, T, H, K]`.
    pub k: GpuBuffer,
    /// Values, `[B, T, HV, V]`.
    pub v: GpuBuffer,
    /// Write strength, `[B, T, HV]`, unless the rule's beta is one.
    pub beta: Option<GpuBuffer>,
    /// Log decay, `[B, T, HV]` or `[B, T, HV, K]`, if the rule decays.
    pub g: Option<GpuBuffer>,
    /// For rules with a preconditioned write key.
    pub precond: Option<PrecondBuffers>,
    /// Output, `[B, T, HV, V]`: written.
    pub o: GpuBuffer,
    /// States, `[N, HV, K, V]`: updated in place.
    pub state: GpuBuffer,
    /// With [`Options::chunk_states`]: `[chunks, HV, K, V]`, chunks counted as in [`crate::delta::Output`]. Written by
    /// the chunkwise form.
    pub chunk_states: Option<GpuBuffer>,
}

/// A delta rule compiled for given sizes and buffers; runs any number of times.
#[derive(Debug)]
pub struct Operator {
    gpu: Gpu,
    form: Form,
    /// Rows of the buffers, B·T.
    rows: usize,
    /// Slots of the state buffer.
    slots: usize,
    chunk: u32,
    /// Most chunks (recurrent form: rows) and sequences of one submission.
    budget: Budget,
    program: Program,
    sequences: GpuBuffer,
    chunks: GpuBuffer,
    scratch: Vec<GpuBuffer>,
    /// Where the scan leaves the states of a submission's chunks, where they go, and bytes of one.
    states: Option<(GpuBuffer, GpuBuffer, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) rows: u32,
    pub(super) chunks: u32,
}

/// f32 elements of the largest scratch buffer, so that long inputs need no more memory than this: 64 MiB.
const SCRATCH_WORDS: u64 = 16 << 20;
/// Most of `tokens · HV · K · V` in one submission: what a slow GPU does well within the second or two after which an
/// operating system takes it for hung.
const SUBMISSION_WORK: u64 = 1 << 30;

/// How much one submission may do.
pub(super) fn budget(gpu: &Gpu, shape: &Shape, chunk: u32) -> Budget {
    let (key_dim, value_dim, heads) = (shape.key_dim as u64, shape.value_dim as u64, shape.value_heads as u64);
    let discrete = gpu.info().device_type == wgpu::DeviceType::DiscreteGpu;
    let faster = if discrete { 16 } else { 1 };
    // lavapipe ends a thread's loops after 65,535 rounds; kernels that are not made for it do some 50 a row at most.
    let most = if gpu.caps().software { 1024 } else { 32_768 };
    let rows = (faster * SUBMISSION_WORK / (heads * key_dim * value_dim).max(1)).clamp(64, most);
    let c = u64::from(chunk);
    let block = heads * (c * (value_dim + 3 * key_dim).max(c * 3)).max(value_dim * (key_dim + c));
    let chunks = (faster.min(4) * SCRATCH_WORDS / block.max(1)).clamp(1, rows.div_ceil(u64::from(chunk)).max(2));
    Budget { rows: rows as u32, chunks: chunks as u32 }
}

/// Rows of one submission, as the tables say it, with the number of its first chunk in the whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) spans: Vec<(u32, u32, u32)>,
    pub(super) first_chunk: u64,
}

/// Splits sequences `(first row, length, slot)` into pieces within the budget, at chunk boundaries. Sequences without
/// tokens have no part in it.
pub(super) fn pieces(sequences: &[(u32, u32, u32)], chunk: u32, form: Form, budget: Budget) -> Vec<Piece> {
    let mut all = Vec::new();
    let mut open = Piece { spans: Vec::new(), first_chunk: 0 };
    let (mut rows, mut chunks, mut done) = (0, 0, 0u64);
    for &(mut first, mut length, slot) in sequences {
        while length > 0 {
            let room_rows = budget.rows.saturating_sub(rows);
            let room = match form {
                Form::Recurrent => room_rows,
                Form::Chunk => (room_rows / chunk).min(budget.chunks - chunks) * chunk,
            };
            // A piece that holds nothing yet takes at least one chunk.
            let room = if open.spans.is_empty() { room.max(chunk) } else { room };
            if room == 0 {
                let next = Piece { spans: Vec::new(), first_chunk: done };
                all.push(std::mem::replace(&mut open, next));
                (rows, chunks) = (0, 0);
                continue;
            }
            let take = room.min(length);
            open.spans.push((first, take, slot));
            rows += take;
            chunks += take.div_ceil(chunk);
            done += u64::from(take.div_ceil(chunk));
            first += take;
            length -= take;
        }
    }
    if !open.spans.is_empty() {
        all.push(open);
    }
    all
}

impl Operator {
    /// Compiles the rule for a shape and its buffers: B·T rows and as many state slots as fit `buffers.state`.
    ///
    /// # Errors
    /// [`Error::Argument`] for sizes or buffers that do not fit the rule or the shape; [`Error::Limit`] and
    /// [`Error::Gpu`] from the device.
    pub fn new(
        gpu: &Gpu,
        form: Form,
        kernels: Kernels,
        rule: &Rule,
        shape: &Shape,
        buffers: &Buffers,
        options: &Options,
    ) -> Result<Self> {
        let slots = check(rule, shape, buffers, options)?;
        let rows = shape.batch * shape.tokens;
        let caps = kernels.caps(gpu, options);
        let [heads, value_heads, key_dim, value_dim] =
            [shape.heads, shape.value_heads, shape.key_dim, shape.value_dim].map(|n| n as u32);
        let chunk = match options.chunk {
            Some(c) => c as u32,
            None => chunk_length(rule, key_dim, value_dim, &caps),
        };
        let budget = budget(gpu, shape, chunk);

        let mut table: Vec<GpuBuffer> = Vec::new();
        let mut add = |b: &GpuBuffer| {
            table.push(b.clone());
            table.len() - 1
        };
        let mut view = |b: &GpuBuffer, stride: u32| View { buffer: add(b), stride, at: 0 };
        let q = view(&buffers.q, heads * key_dim);
        let k = view(&buffers.k, heads * key_dim);
        let v = view(&buffers.v, value_heads * value_dim);
        let out = view(&buffers.o, value_heads * value_dim);
        let beta = buffers.beta.as_ref().map(|b| view(b, value_heads));
        let channels = if rule.decay == Decay::PerChannel { key_dim } else { 1 };
        let g = buffers.g.as_ref().map(|b| view(b, value_heads * channels));
        let precond = buffers.precond.as_ref().map(|p| PrecondViews {
            g: view(&p.g, heads),
            beta: view(&p.beta, heads),
            log_scale: view(&p.log_scale, heads),
            sums: Slots { buffer: view(&p.sums, 0).buffer, words: heads * key_dim, at: 0 },
        });
        let state_words = value_heads * key_dim * value_dim;
        let state = Slots { buffer: add(&buffers.state), words: state_words, at: 0 };

        // Tables hold as many entries as a submission can have.
        let (chunk_rows, entries) = match form {
            Form::Recurrent => (1, budget.rows),
            Form::Chunk => (chunk, budget.chunks),
        };
        let entries = entries.min((rows as u32).div_ceil(chunk_rows).max(1) + slots as u32);
        let sequences = gpu.buffer("sequences", u64::from(entries) * 16)?;
        let chunks = gpu.buffer("chunks", u64::from(entries) * 16)?;
        let sequence_table = Table { buffer: add(&sequences), len: entries.min(slots as u32) };
        let chunk_table = Table { buffer: add(&chunks), len: entries };
        let states = match (&buffers.chunk_states, form) {
            (Some(to), Form::Chunk) => {
                let bytes = u64::from(state_words) * 4;
                let local = gpu.buffer("chunk states", bytes * u64::from(entries))?;
                Some((add(&local), local, to.clone(), bytes))
            }
            _ => None,
        };
        let call = DeltaCall {
            rule: *rule,
            heads,
            value_heads,
            key_dim,
            value_dim,
            rows: rows as u32,
            scale: shape.scale(options),
            l2norm: options.l2norm,
            q,
            k,
            v,
            beta,
            g,
            precond,
            out,
            state,
            sequences: sequence_table,
            chunks: chunk_table,
            chunk,
            chunk_states: states.as_ref().map(|s| s.0),
            segments: options.segments.map(|n| n as u32),
        };
        let own = table.len();
        let mut sizes = Vec::new();
        let mut scratch = |name: &'static str, words: u64| {
            sizes.push((name, words));
            own + sizes.len() - 1
        };
        let dispatches = match form {
            Form::Recurrent => lower_recurrent(&call, &caps, &mut scratch)?,
            Form::Chunk => lower_chunk(&call, &caps, &mut scratch)?,
        };
        for (name, words) in sizes {
            table.push(gpu.buffer(name, words * 4)?);
        }
        let program = Program::compile(gpu, &dispatches, &table)?;
        let mut scratch = table.split_off(own);
        scratch.extend(states.as_ref().map(|s| s.1.clone()));
        Ok(Self {
            gpu: gpu.clone(),
            form,
            rows,
            slots,
            chunk,
            budget: Budget { rows: budget.rows, chunks: if form == Form::Chunk { entries } else { u32::MAX } },
            program,
            sequences,
            chunks,
            scratch,
            states: states.map(|(_, local, to, bytes)| (local, to, bytes)),
        })
    }

    /// Chunk length, 1 for the recurrent form.
    pub fn chunk(&self) -> usize {
        if self.form == Form::Chunk { self.chunk as usize } else { 1 }
    }

    /// The buffers that the operator made for itself. What they hold before a run does not matter.
    pub fn scratch(&self) -> &[GpuBuffer] {
        &self.scratch
    }

    /// The compiled dispatches, for timing.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Submits one run over sequences given as `(first row, length, state slot)`, with as many submissions as the
    /// amount of work calls for. Returns once they are queued.
    ///
    /// # Errors
    /// [`Error::Argument`] for rows or slots that are not there; what [`Gpu::check`] reports.
    pub fn run(&self, sequences: &[(u32, u32, u32)]) -> Result<()> {
        let mut used = vec![false; self.slots];
        for &(first, length, slot) in sequences {
            if used.get_mut(slot as usize).is_some_and(|u| std::mem::replace(u, true)) {
                return Err(Error::argument("sequences", "every slot at most once", format!("slot {slot} again")));
            }
            if u64::from(first) + u64::from(length) > self.rows as u64 || slot as usize >= self.slots {
                return Err(Error::argument(
                    "sequences",
                    format!("rows below {} and slots below {}", self.rows, self.slots),
                    format!("rows {first}..{first}+{length} in slot {slot}"),
                ));
            }
        }
        for piece in pieces(sequences, self.chunk, self.form, self.budget) {
            self.run_piece(&piece)?;
        }
        Ok(())
    }

    pub(super) fn run_piece(&self, piece: &Piece) -> Result<()> {
        let spans = Spans::new(&piece.spans, self.chunk);
        let count = spans.chunks.len() as u64;
        let entries = |b: &GpuBuffer| (b.size() / 16) as u32;
        let spans = spans.padded(entries(&self.sequences), entries(&self.chunks));
        self.gpu.write(&self.sequences, 0, &spans.sequences);
        if self.form == Form::Chunk {
            self.gpu.write(&self.chunks, 0, &spans.chunks);
        }
        let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.program.encode(&mut encoder);
        if let Some((local, to, bytes)) = &self.states {
            encoder.copy_buffer_to_buffer(local.raw(), 0, to.raw(), piece.first_chunk * bytes, count * bytes);
        }
        self.gpu.queue().submit([encoder.finish()]);
        self.gpu.check()
    }
}

/// Checks sizes and buffers; returns the number of state slots.
fn check(rule: &Rule, shape: &Shape, buffers: &Buffers, options: &Options) -> Result<usize> {
    shape.check_sizes(options)?;
    let Shape { batch, tokens, heads, value_heads, key_dim, value_dim } = *shape;
    let elements = |name: &str, dims: &[usize]| {
        let n = dims.iter().try_fold(1usize, |a, d| a.checked_mul(*d)).filter(|n| *n <= u32::MAX as usize / 4);
        n.ok_or_else(|| Error::argument(name, "a tensor below 4 GiB", format!("{dims:?}")))
    };
    let want = |name: &str, got: Option<&GpuBuffer>, dims: &[usize], present: bool| -> Result<()> {
        match (got, present) {
            (None, false) => Ok(()),
            (Some(_), false) => Err(Error::argument(name, format!("nothing for rule {}", rule.name()), "a buffer")),
            (None, true) => Err(Error::argument(name, format!("{dims:?} for rule {}", rule.name()), "nothing")),
            (Some(b), true) => {
                let bytes = elements(name, dims)? as u64 * 4;
                if b.size() >= bytes {
                    return Ok(());
                }
                Err(Error::argument(name, format!("{dims:?} f32, {bytes} bytes"), format!("{} bytes", b.size())))
            }
        }
    };
    want("q", Some(&buffers.q), &[batch, tokens, heads, key_dim], true)?;
    want("k", Some(&buffers.k), &[batch, tokens, heads, key_dim], true)?;
    want("v", Some(&buffers.v), &[batch, tokens, value_heads, value_dim], true)?;
    want("o", Some(&buffers.o), &[batch, tokens, value_heads, value_dim], true)?;
    want("beta", buffers.beta.as_ref(), &[batch, tokens, value_heads], rule.beta != Beta::One)?;
    match rule.decay {
        Decay::PerChannel => want("g", buffers.g.as_ref(), &[batch, tokens, value_heads, key_dim], true)?,
        decay => want("g", buffers.g.as_ref(), &[batch, tokens, value_heads], decay == Decay::PerHead)?,
    }
    want("state", Some(&buffers.state), &[value_heads, key_dim, value_dim], true)?;
    let slots = buffers.state.size() / (4 * elements("state", &[value_heads, key_dim, value_dim])? as u64);
    let slots = slots.min(u64::from(u32::MAX)) as usize;
    let p = buffers.precond.as_ref();
    if p.is_some() != (rule.write_key == WriteKey::Preconditioned) {
        let got = if p.is_some() { "given" } else { "nothing" };
        return Err(Error::argument("precond", format!("present only when rule {} needs it", rule.name()), got));
    }
    if let Some(p) = p {
        want("precond.g", Some(&p.g), &[batch, tokens, heads], true)?;
        want("precond.beta", Some(&p.beta), &[batch, tokens, heads], true)?;
        want("precond.log_scale", Some(&p.log_scale), &[heads], true)?;
        want("precond.sums", Some(&p.sums), &[slots, heads, key_dim], true)?;
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_split_at_chunk_boundaries_and_cover_every_row() {
        let budget = Budget { rows: 96, chunks: 3 };
        let sequences = [(0, 1, 0), (1, 0, 1), (1, 100, 2), (101, 40, 3)];
        let split = pieces(&sequences, 32, Form::Chunk, budget);
        #[allow(clippy::type_complexity)]
        let expected: [(&[(u32, u32, u32)], u64); 3] =
            [(&[(0, 1, 0), (1, 64, 2)], 0), (&[(65, 36, 2), (101, 32, 3)], 3), (&[(133, 8, 3)], 6)];
        assert_eq!(split.len(), expected.len(), "{split:?}");
        for (piece, (spans, first)) in split.iter().zip(expected) {
            assert_eq!((piece.spans.as_slice(), piece.first_chunk), (spans, first));
        }
    }
}
