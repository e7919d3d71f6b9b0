//! The operators on the CPU: every [`Rule`] token by token ([`recurrent`]) and chunk by chunk ([`chunk`]), in f32, on
//! all threads of rayon's current pool; and the plain f64 recurrence they are tested against ([`reference`]).
//!
//! ```
//! use deltanet::{Rule, cpu, delta::{Inputs, Options, Shape}};
//!
//! // Two tokens, one head, K = V = 2: write 5 under the first key, then read it back with a query.
//! let shape = Shape { batch: 1, tokens: 2, heads: 1, value_heads: 1, key_dim: 2, value_dim: 2 };
//! let inputs = Inputs {
//!     q: &[0.0, 0.0, 1.0, 0.0],
//!     k: &[1.0, 0.0, 0.0, 1.0],
//!     v: &[5.0, -5.0, 1.0, 1.0],
//!     beta: Some(&[1.0, 0.5]),
//!     g: None,
//!     initial_state: None,
//!     precond: None,
//!     cu_seqlens: None,
//! };
//! let options = Options { scale: Some(1.0), ..Options::default() };
//! let out = cpu::delta::chunk(&Rule::DELTANET, &shape, &inputs, &options)?;
//! assert_eq!(out.o, [0.0, 0.0, 5.0, -5.0]);
//! assert_eq!(out.final_state, [5.0, -5.0, 0.5, 0.5]);
//! # Ok::<(), deltanet::Error>(())
//! ```

mod call;
mod chunk;
mod recurrent;
mod reference;
#[cfg(test)]
mod tests;

pub use reference::{Reference, reference};

pub(crate) use call::{Call, PrecondViews, Task, View};

use super::panel::PANEL;
use super::parallel::{self, Shared};
use super::simd;
use crate::delta::{Inputs, Options, Output, Shape};
use crate::error::{Error, Result};
use crate::rule::{Rule, WriteKey};

/// Chunk length when the caller leaves the choice: at K = V = 128 the products with the state and those between the
/// tokens of a chunk are then in balance on a processor's caches.
pub const DEFAULT_CHUNK: usize = 32;

/// Token by token: `7·K·V` operations a token and value head, each depending on the one before. For single tokens and
/// short pieces; also the form whose rounding is smallest.
///
/// # Errors
/// What [`Shape::check`] finds; [`Error::OutOfMemory`].
pub fn recurrent(rule: &Rule, shape: &Shape, inputs: &Inputs<'_>, options: &Options) -> Result<Output> {
    operator(rule, shape, inputs, options, Form::Recurrent)
}

/// Chunk by chunk, through matrix products (MATH.md §3, §7): the same result to rounding, several times as fast on
/// long inputs.
///
/// # Errors
/// What [`Shape::check`] finds; [`Error::OutOfMemory`].
pub fn chunk(rule: &Rule, shape: &Shape, inputs: &Inputs<'_>, options: &Options) -> Result<Output> {
    operator(rule, shape, inputs, options, Form::Chunk(options.chunk.unwrap_or(DEFAULT_CHUNK)))
}

/// Which of the two.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Recurrent,
    /// Rows of a chunk: 16, 32 or 64.
    Chunk(usize),
}

impl Form {
    /// The faster one for so many rows.
    pub(crate) fn for_rows(rows: usize) -> Self {
        if rows < 8 { Self::Recurrent } else { Self::Chunk(DEFAULT_CHUNK) }
    }
    fn len(self) -> usize {
        match self {
            Self::Recurrent => 1,
            Self::Chunk(n) => n,
        }
    }
}

fn operator(rule: &Rule, shape: &Shape, inputs: &Inputs<'_>, options: &Options, form: Form) -> Result<Output> {
    shape.check(rule, inputs, options)?;
    let Shape { heads, value_heads, key_dim, value_dim, .. } = *shape;
    let spans = shape.spans(inputs);
    let state = value_heads * key_dim * value_dim;
    let preconditioned = rule.write_key == WriteKey::Preconditioned;

    let mut o = zeros(&[inputs.v.len()])?;
    let mut final_state = match inputs.initial_state {
        Some(s) => s.to_vec(),
        None => zeros(&[spans.len(), state])?,
    };
    let mut final_sums = if preconditioned { zeros(&[spans.len(), heads, key_dim])? } else { Vec::new() };
    let initial_sums = match inputs.precond.and_then(|p| p.initial) {
        Some(a) => a.to_vec(),
        None => final_sums.clone(),
    };
    let chunks: Vec<usize> = spans.iter().map(|(_, n)| n.div_ceil(form.len())).collect();
    let total = if options.chunk_states { chunks.iter().sum() } else { 0 };
    let mut chunk_states = zeros(&[total, state])?;

    let call = Call {
        rule: *rule,
        heads,
        value_heads,
        key_dim,
        value_dim,
        scale: shape.scale(options),
        l2norm: options.l2norm,
        q: View::packed(inputs.q, heads, key_dim),
        k: View::packed(inputs.k, heads, key_dim),
        v: View::packed(inputs.v, value_heads, value_dim),
        beta: inputs.beta.map(|b| View::packed(b, value_heads, 1)),
        g: inputs.g.map(|g| View::packed(g, value_heads, g.len() / (shape.batch * shape.tokens * value_heads).max(1))),
        precond: inputs.precond.map(|p| PrecondViews {
            g: View::packed(p.g, heads, 1),
            beta: View::packed(p.beta, heads, 1),
            log_scale: p.log_scale,
        }),
    };
    let firsts: Vec<usize> = chunks
        .iter()
        .scan(0, |sum, n| {
            let first = *sum;
            *sum += n;
            Some(first)
        })
        .collect();
    let (states, sums) = (Shared::new(&mut final_state), Shared::new(&mut final_sums));
    let sequences: Vec<Sequence<'_>> = spans
        .iter()
        .enumerate()
        .map(|(n, rows)| Sequence {
            rows: *rows,
            state: (&states, n * state),
            sums: if preconditioned { &initial_sums[n * heads * key_dim..][..heads * key_dim] } else { &[] },
            sums_out: (&sums, n * heads * key_dim),
            chunk_states: options.chunk_states.then(|| firsts[n] * state),
        })
        .collect();
    let (out, boundaries) = (Shared::new(&mut o), Shared::new(&mut chunk_states));
    let places = Places { out: (&out, 0, value_heads * value_dim), chunk_states: Some(&boundaries) };
    run(&call, &sequences, form, &places);
    Ok(Output { o, final_state, final_sums, chunk_states, chunk: form.len() })
}

/// One sequence of a call.
pub(crate) struct Sequence<'a> {
    /// First row and number of rows.
    pub rows: (usize, usize),
    /// Buffer and place of its S `[HV, K, V]`.
    pub state: (&'a Shared<'a, f32>, usize),
    /// The preconditioner's sums before it, `[H, K]`, or empty.
    pub sums: &'a [f32],
    /// Buffer and place of the sums after it.
    pub sums_out: (&'a Shared<'a, f32>, usize),
    /// Place of the states before its chunks, `[chunks, HV, K, V]`.
    pub chunk_states: Option<usize>,
}

/// Buffers that a call writes.
pub(crate) struct Places<'a> {
    /// `[rows, HV, V]`: buffer, place of the first element, elements a row.
    pub out: (&'a Shared<'a, f32>, usize, usize),
    /// States before chunks, where a sequence has a place for them.
    pub chunk_states: Option<&'a Shared<'a, f32>>,
}

/// Runs a call: a task for each sequence and value head, and for parts of its columns when those are too few for the
/// threads. How it is split changes no result, since columns of S are independent.
pub(crate) fn run(call: &Call<'_>, sequences: &[Sequence<'_>], form: Form, places: &Places<'_>) {
    let heads = sequences.len() * call.value_heads;
    let panels = call.value_dim.div_ceil(PANEL);
    let splits = (2 * parallel::threads()).div_ceil(heads.max(1)).clamp(1, panels.max(1));
    // A task costs about 4·K·V operations a row; tiny calls stay on this thread.
    let rows: usize = sequences.iter().map(|s| s.rows.1).sum();
    let work = rows * call.value_heads * call.key_dim * call.value_dim;
    let threaded = work >= 1 << 15 && parallel::threads() > 1;
    let splits = if threaded { splits } else { 1 };
    let width = panels.div_ceil(splits) * PANEL;
    let splits = call.value_dim.div_ceil(width);
    let state = call.key_dim * call.value_dim;
    let one = |i: usize| {
        let (n, rest) = (i / (call.value_heads * splits), i % (call.value_heads * splits));
        let (head, split) = (rest / splits, rest % splits);
        let (sequence, key_head) = (&sequences[n], call.key_head(head));
        let owner = split == 0 && head % (call.value_heads / call.heads) == 0 && !sequence.sums.is_empty();
        let first = split * width;
        let task = Task {
            rows: sequence.rows,
            head,
            cols: (first, width.min(call.value_dim - first)),
            state: (sequence.state.0, sequence.state.1 + head * state),
            sums: sequence.sums.get(key_head * call.key_dim..(key_head + 1) * call.key_dim).unwrap_or_default(),
            sums_out: owner.then_some((sequence.sums_out.0, sequence.sums_out.1 + key_head * call.key_dim)),
            out: places.out,
            chunk_states: places
                .chunk_states
                .zip(sequence.chunk_states)
                .map(|(to, at)| (to, at + head * state, call.value_heads * state)),
        };
        match form {
            Form::Recurrent => simd::run(recurrent::Recurrent { call, task: &task }),
            Form::Chunk(len) => simd::run(chunk::Chunked { call, task: &task, len }),
        }
    };
    if threaded {
        parallel::for_each(heads * splits, one);
    } else {
        (0..heads * splits).for_each(one);
    }
}

/// A zeroed tensor, or an error where a plain vector would abort the program.
pub(crate) fn zeros(dims: &[usize]) -> Result<Vec<f32>> {
    let n = dims.iter().try_fold(1usize, |a, d| a.checked_mul(*d));
    let mut x = Vec::new();
    match n {
        Some(n) if x.try_reserve_exact(n).is_ok() => {
            x.resize(n, 0.0);
            Ok(x)
        }
        _ => Err(Error::OutOfMemory(format!("a tensor {dims:?} of f32 on the CPU"))),
    }
}
