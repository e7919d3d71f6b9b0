//! An operator that is compiled once and run again and again: its states are updated where they lie, so two runs over
//! two parts of a sequence are one run over all of it.

use deltanet::Rule;
use deltanet::delta::Output;
use deltanet::gpu::delta::{Buffers, Form, Kernels, Operator, PrecondBuffers};
use deltanet::gpu::{Gpu, GpuBuffer};
use deltanet_tests::operators::{Tensors, error, none};
use deltanet_tests::{compare, devices};

/// State slots; the sequence has the second, so that a slot is not just where the buffer begins.
const SLOTS: usize = 3;
const SLOT: usize = 1;
/// Elements of a state, and of the sums: one head, 16×16.
const STATE: usize = 256;
const SUMS: usize = 16;
/// Tokens in all: several chunks, and a ragged end.
const TOKENS: usize = 150;

/// An operator over buffers with room for `room` tokens, its states as `t` has them.
struct Held {
    gpu: &'static Gpu,
    buffers: Buffers,
    operator: Operator,
}

fn in_slot(x: &[f32]) -> Vec<f32> {
    let mut all = vec![7.0; SLOTS * x.len()];
    all[SLOT * x.len()..][..x.len()].copy_from_slice(x);
    all
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

impl Held {
    fn new(gpu: &'static Gpu, form: Form, kernels: Kernels, t: &Tensors, room: usize) -> Self {
        let buffer = |name: &str, width: usize| gpu.buffer(name, 4 * (room * width) as u64).unwrap();
        let inputs = t.inputs();
        let width = |x: &[f32]| x.len() / t.shape.tokens;
        let buffers = Buffers {
            q: buffer("q", width(&t.q)),
            k: buffer("k", width(&t.k)),
            v: buffer("v", width(&t.v)),
            beta: inputs.beta.map(|x| buffer("beta", width(x))),
            g: inputs.g.map(|x| buffer("g", width(x))),
            precond: inputs.precond.map(|p| PrecondBuffers {
                g: buffer("precond g", 1),
                beta: buffer("precond beta", 1),
                log_scale: gpu.upload("log scale", p.log_scale).unwrap(),
                sums: gpu.upload("sums", &in_slot(p.initial.unwrap())).unwrap(),
            }),
            o: buffer("o", width(&t.v)),
            state: gpu.upload("state", &in_slot(t.initial_state.as_deref().unwrap())).unwrap(),
            chunk_states: None,
        };
        let shape = crate::shape(room, (1, 1, 16, 16));
        let operator = Operator::new(gpu, form, kernels, &t.rule, &shape, &buffers, &t.options).unwrap();
        Self { gpu, buffers, operator }
    }

    /// Writes tokens `from..to` of `t` to the buffers' rows from `row` on.
    fn write(&self, t: &Tensors, from: usize, to: usize, row: usize) {
        let write = |buffer: &GpuBuffer, x: &[f32]| {
            let width = x.len() / TOKENS;
            self.gpu.write(buffer, 4 * (row * width) as u64, &x[from * width..to * width]);
        };
        let (b, inputs) = (&self.buffers, t.inputs());
        let optional = |buffer: &Option<GpuBuffer>, x: Option<&[f32]>| {
            if let (Some(buffer), Some(x)) = (buffer, x) {
                write(buffer, x);
            }
        };
        write(&b.q, inputs.q);
        write(&b.k, inputs.k);
        write(&b.v, inputs.v);
        optional(&b.beta, inputs.beta);
        optional(&b.g, inputs.g);
        if let (Some(buffers), Some(p)) = (&b.precond, inputs.precond) {
            write(&buffers.g, p.g);
            write(&buffers.beta, p.beta);
        }
    }

    /// The first `rows` rows of the output.
    fn output(&self, rows: usize) -> Vec<f32> {
        let read = self.gpu.read(&[(&self.buffers.o, 0, 4 * (rows * 16) as u64)]);
        numbers(&self.gpu.wait(read).unwrap()[0])
    }

    /// The sequence's state and sums. The other slots must be as they were.
    fn state(&self, what: &str) -> (Vec<f32>, Vec<f32>) {
        let slot = |buffer: &GpuBuffer, words: usize| {
            let read = self.gpu.read(&[(buffer, 0, 4 * (SLOTS * words) as u64)]);
            let all = numbers(&self.gpu.wait(read).unwrap()[0]);
            let others = all.chunks(words).enumerate().filter(|(n, _)| *n != SLOT);
            assert!(others.flat_map(|(_, x)| x).all(|x| *x == 7.0), "{what}: another slot has changed");
            all[SLOT * words..][..words].to_vec()
        };
        let sums = self.buffers.precond.as_ref().map(|p| slot(&p.sums, SUMS)).unwrap_or_default();
        (slot(&self.buffers.state, STATE), sums)
    }
}

/// What there is to run it with.
fn ways() -> Vec<(&'static Gpu, Form, Kernels)> {
    let forms = [Form::Recurrent, Form::Chunk];
    let kernels = [Kernels::Gpu, Kernels::Software];
    let each = |gpu| forms.into_iter().flat_map(move |form| kernels.into_iter().map(move |k| (gpu, form, k)));
    devices::both().into_iter().flat_map(each).collect()
}

#[test]
fn two_runs_are_one_run_over_both_parts() {
    let mut failures = Vec::new();
    for rule in [Rule::GATED_DELTANET, Rule::KDA, Rule::PRECONDITIONED_KDA, Rule::LINEAR_ATTENTION] {
        let t = Tensors::random(rule, crate::shape(TOKENS, (1, 1, 16, 16)), None, 41);
        let want = t.reference();
        for (gpu, form, kernels) in ways() {
            let whole = Held::new(gpu, form, kernels, &t, TOKENS);
            whole.write(&t, 0, TOKENS, 0);
            whole.operator.run(&[(0, TOKENS as u32, SLOT as u32)]).unwrap();
            let one = (whole.output(TOKENS), whole.state("one run"));
            let chunk = whole.operator.chunk();
            for n in [1, chunk, 2 * chunk, 77] {
                let what = format!("{}, {form:?}, {kernels:?} kernels, {n} + {}", rule.name(), TOKENS - n);
                let held = Held::new(gpu, form, kernels, &t, TOKENS);
                held.write(&t, 0, TOKENS, 0);
                // Nothing is read or waited for in between.
                held.operator.run(&[(0, n as u32, SLOT as u32)]).unwrap();
                held.operator.run(&[(n as u32, (TOKENS - n) as u32, SLOT as u32)]).unwrap();
                let (o, (final_state, final_sums)) = (held.output(TOKENS), held.state(&what));
                if n % chunk == 0 {
                    compare::identical(&what, &o, &one.0);
                    compare::identical(&what, &final_state, &one.1.0);
                    compare::identical(&what, &final_sums, &one.1.1);
                }
                let (off, place) = error(&Output { o, final_state, final_sums, ..Output::default() }, &want);
                if off > 6e-6 {
                    failures.push(format!("{what}: {off:.1e} at {place}"));
                }
            }
        }
    }
    none(&failures);
}

/// A generation's steps: room for one token, whose inputs are written anew for every run.
#[test]
fn a_token_at_a_time_through_the_same_buffers() {
    let mut failures = Vec::new();
    for rule in [Rule::GATED_DELTANET, Rule::PRECONDITIONED_KDA] {
        let t = Tensors::random(rule, crate::shape(TOKENS, (1, 1, 16, 16)), None, 42);
        let want = t.reference();
        for (gpu, form, kernels) in ways() {
            let what = format!("{}, {form:?}, {kernels:?} kernels, a token at a time", rule.name());
            let held = Held::new(gpu, form, kernels, &t, 1);
            let mut o = Vec::new();
            for i in 0..TOKENS {
                held.write(&t, i, i + 1, 0);
                held.operator.run(&[(0, 1, SLOT as u32)]).unwrap();
                o.extend(held.output(1));
            }
            let (final_state, final_sums) = held.state(&what);
            let (off, place) = error(&Output { o, final_state, final_sums, ..Output::default() }, &want);
            if off > 6e-6 {
                failures.push(format!("{what}: {off:.1e} at {place}"));
            }
        }
    }
    none(&failures);
}
