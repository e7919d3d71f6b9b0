//! The mixer op: convolution, gates and the delta rule on the rows' states.

use std::mem;

use super::conv;
use super::delta::{self, Call, Form, Places, PrecondViews, Sequence, View};
use super::gates;
use super::parallel::{self, Shared};
use super::slot::Slot;
use super::weights::Weights;
use crate::error::Result;
use crate::ops::{Cols, GateForm, Mixer};
use crate::rule::Decay;

/// Elements of elementwise work worth a task of their own.
const GRAIN: usize = 1 << 13;

/// Runs the op on `n` rows: of one session in order (`single`), or one of each session.
pub(super) fn run(
    m: &Mixer,
    weights: &Weights,
    buffers: &mut [Vec<f32>],
    n: usize,
    slots: &mut [Slot],
    single: bool,
) -> Result<()> {
    let mut conved = mem::take(&mut buffers[m.conved.0]);
    let mut gates = mem::take(&mut buffers[m.gates.0]);
    let mut out = mem::take(&mut buffers[m.out.0]);
    let done = convolve(m, weights, buffers, n, slots, single, &mut conved)
        .and_then(|()| make_gates(m, weights, buffers, n, &mut gates))
        .and_then(|g| mix(m, weights, n, slots, single, &conved, &gates, g, &mut out));
    buffers[m.conved.0] = conved;
    buffers[m.gates.0] = gates;
    buffers[m.out.0] = out;
    done
}

/// Columns of row r.
fn cols<'a>(buffers: &'a [Vec<f32>], c: &Cols, r: usize, n: usize) -> &'a [f32] {
    &buffers[c.buf.0][r * c.width + c.at..][..n]
}

/// `conved[r] = silu(conv(q|k|v))`, and the tails.
fn convolve(
    m: &Mixer,
    weights: &Weights,
    buffers: &[Vec<f32>],
    n: usize,
    slots: &mut [Slot],
    single: bool,
    conved: &mut [f32],
) -> Result<()> {
    let channels = m.channels();
    let weight = m.conv.map(|w| weights.derived(w)).transpose()?;
    let taps = if weight.is_some() { m.conv_size } else { 1 };
    let tail_at = m.state.tail..m.state.tail + (taps - 1) * channels;
    let shared = Shared::new(conved);
    let grain = (GRAIN / (taps * channels)).max(1);
    parallel::for_ranges(n, grain, |range| {
        for r in range {
            let (tail, before) = if single { (&slots[0], r) } else { (&slots[r], 0) };
            let tail = &tail.layers[m.layer][tail_at.clone()];
            // Tap j sees the row `taps − 1 − j` earlier; those before the run are in the tail.
            let input = |j: usize| match (before + j + 1).checked_sub(taps) {
                Some(_) => cols(buffers, &m.qkv, r + j + 1 - taps, channels),
                None => &tail[(before + j) * channels..][..channels],
            };
            // SAFETY: every row belongs to one range.
            conv::conv_silu(weight, input, taps, unsafe { shared.get(r * channels, channels) });
        }
    });
    let runs = if single { 1 } else { n };
    for (i, slot) in slots.iter_mut().take(runs).enumerate() {
        let tail = &mut slot.layers[m.layer][tail_at.clone()];
        let count = if single { n } else { 1 };
        conv::advance_tail(tail, channels, count, |t| cols(buffers, &m.qkv, i + t, channels));
    }
    Ok(())
}

/// Where the gates lie in their buffer: offsets of β, g, and the preconditioner's β and g.
struct Gates {
    beta: Option<usize>,
    g: Option<(usize, usize)>,
    precond: Option<(usize, usize)>,
}

/// β, g and the preconditioner's β and g of all rows, one block after the other.
fn make_gates(m: &Mixer, weights: &Weights, buffers: &[Vec<f32>], n: usize, gates: &mut [f32]) -> Result<Gates> {
    let g_width = match m.rule.decay {
        Decay::PerChannel => m.value_heads * m.key_dim,
        _ => m.value_heads,
    };
    let mut end = 0;
    let mut block = |width: usize| {
        end += n * width;
        end - n * width
    };
    let places = Gates {
        beta: m.beta.map(|_| block(m.value_heads)),
        g: m.decay.as_ref().map(|_| (block(g_width), g_width)),
        precond: m.precond.as_ref().map(|_| (block(m.heads), block(m.heads))),
    };
    let shared = Shared::new(gates);
    // SAFETY, of all four blocks below: they do not overlap, and every row of one belongs to one range.
    let fill = |at: usize, width: usize, from: &Cols, f: &(dyn Fn(&mut [f32]) + Sync)| {
        parallel::for_ranges(n, (GRAIN / width.max(1)).max(1), |range| {
            for r in range {
                let out = unsafe { shared.get(at + r * width, width) };
                out.copy_from_slice(cols(buffers, from, r, width));
                f(out);
            }
        });
    };
    if let (Some(at), Some(from)) = (places.beta, &m.beta) {
        fill(at, m.value_heads, from, &|b| gates::beta(b, m.beta_scale));
    }
    if let (Some((at, width)), Some(d)) = (places.g, &m.decay) {
        let (bias, rate) = (weights.vector(d.dt_bias)?, weights.derived(d.a_log)?);
        fill(at, width, &d.a, &|g| gates::decay(g, bias, rate, d.form));
    }
    if let (Some((beta, g)), Some(p)) = (places.precond, &m.precond) {
        let (bias, rate) = (weights.vector(p.dt_bias)?, weights.derived(p.a_log)?);
        fill(beta, m.heads, &p.b, &|b| gates::beta(b, 1.0));
        fill(g, m.heads, &p.a, &|a| gates::decay(a, bias, rate, GateForm::Softplus));
    }
    Ok(places)
}

/// The delta rule on the states, in place.
fn mix(
    m: &Mixer,
    weights: &Weights,
    n: usize,
    slots: &mut [Slot],
    single: bool,
    conved: &[f32],
    gates: &[f32],
    at: Gates,
    out: &mut [f32],
) -> Result<()> {
    let channels = m.channels();
    let keys = m.heads * m.key_dim;
    let conved = |at: usize, head: usize| View { data: conved, at, row: channels, head };
    let gate = |at: usize, heads: usize, width: usize| View { at, ..View::packed(gates, heads, width) };
    let precond = match (&m.precond, at.precond) {
        (Some(p), Some((beta, g))) => Some(PrecondViews {
            g: gate(g, m.heads, 1),
            beta: gate(beta, m.heads, 1),
            log_scale: weights.vector(p.log_scale)?,
        }),
        _ => None,
    };
    let call = Call {
        rule: m.rule,
        heads: m.heads,
        value_heads: m.value_heads,
        key_dim: m.key_dim,
        value_dim: m.value_dim,
        scale: (m.key_dim as f32).sqrt().recip(),
        l2norm: m.l2norm,
        q: conved(0, m.key_dim),
        k: conved(keys, m.key_dim),
        v: conved(2 * keys, m.value_dim),
        beta: at.beta.map(|b| gate(b, m.value_heads, 1)),
        g: at.g.map(|(g, width)| gate(g, m.value_heads, width / m.value_heads)),
        precond,
    };
    let runs = if single { 1 } else { n };
    let sums_len = if precond.is_some() { keys } else { 0 };
    // Tasks of one key head's value heads all read the sums from before; one of them writes those after.
    let sums: Vec<f32> =
        slots[..runs].iter().flat_map(|s| s.layers[m.layer][m.state.sums..][..sums_len].iter().copied()).collect();
    let states: Vec<Shared<'_, f32>> = slots[..runs].iter_mut().map(|s| Shared::new(&mut s.layers[m.layer])).collect();
    let sequences: Vec<Sequence<'_>> = states
        .iter()
        .enumerate()
        .map(|(i, state)| Sequence {
            rows: if single { (0, n) } else { (i, 1) },
            state: (state, m.state.s),
            sums: &sums[i * sums_len..(i + 1) * sums_len],
            sums_out: (state, m.state.sums),
            chunk_states: None,
        })
        .collect();
    let form = if single { Form::for_rows(n) } else { Form::Recurrent };
    let shared = Shared::new(out);
    let places = Places { out: (&shared, 0, m.value_heads * m.value_dim), chunk_states: None };
    delta::run(&call, &sequences, form, &places);
    Ok(())
}
