//! fla #913: reads and writes past a buffer's end. Every tensor lies between guard bands, in slots and rows with gaps,
//! and everything that a kernel should not read is NaN.

use deltanet::Rule;
use deltanet::delta::Shape;
use deltanet::gpu::delta::{
    DeltaCall, Form, PrecondViews, Slots, Spans, Table, View, chunk_length, lower_chunk, lower_recurrent,
};
use deltanet::gpu::{Caps, Gpu, GpuBuffer, Program, wgpu};
use deltanet_tests::compare;
use deltanet_tests::devices;
use deltanet_tests::operators::Tensors;

/// f32 elements before and after each tensor, and between rows.
const BAND: usize = 8;

/// A buffer table whose tensors are guarded, and what it held at the start.
struct Guarded<'a> {
    gpu: &'a Gpu,
    buffers: Vec<GpuBuffer>,
    /// Contents before the run; elements that may change are marked.
    before: Vec<(Vec<f32>, Vec<bool>)>,
}

impl Guarded<'_> {
    fn push(&mut self, name: &str, data: Vec<f32>, writable: Vec<bool>) -> usize {
        self.buffers.push(self.gpu.upload(name, &data).unwrap());
        self.before.push((data, writable));
        self.buffers.len() - 1
    }

    /// Rows of `width` elements, with gaps between them.
    fn rows(&mut self, name: &str, data: &[f32], width: usize, written: bool) -> View {
        let stride = width.next_multiple_of(4) + BAND;
        let mut all = vec![f32::NAN; BAND + data.len() / width * stride];
        let mut writable = vec![false; all.len()];
        for (i, row) in data.chunks(width).enumerate() {
            let at = BAND + i * stride;
            if !written {
                all[at..at + width].copy_from_slice(row);
            }
            writable[at..at + width].fill(written);
        }
        View { buffer: self.push(name, all, writable), stride: stride as u32, at: BAND as u32 }
    }

    /// Slot 1 of three, within a band.
    fn slot(&mut self, name: &str, data: &[f32]) -> Slots {
        let words = data.len() + 2 * BAND;
        let mut all = vec![f32::NAN; 3 * words];
        let mut writable = vec![false; all.len()];
        all[words + BAND..][..data.len()].copy_from_slice(data);
        writable[words + BAND..][..data.len()].fill(true);
        Slots { buffer: self.push(name, all, writable), words: words as u32, at: BAND as u32 }
    }

    fn table(&mut self, name: &str, rows: &[[u32; 4]]) -> Table {
        self.buffers.push(self.gpu.upload(name, rows).unwrap());
        self.before.push((Vec::new(), Vec::new()));
        Table { buffer: self.buffers.len() - 1, len: rows.len() as u32 }
    }

    fn scratch(&mut self, name: &'static str, words: u64) -> usize {
        let mut writable = vec![true; words as usize];
        writable.resize(words as usize + BAND, false);
        self.push(name, vec![f32::NAN; writable.len()], writable)
    }

    /// Fails when something changed that should not; returns all contents.
    fn check(&self, what: &str) -> Vec<Vec<f32>> {
        let ranges: Vec<_> = self.buffers.iter().map(|b| (b, 0, b.size())).collect();
        let read = self.gpu.wait(self.gpu.read(&ranges)).unwrap();
        let mut all = Vec::new();
        for (n, (bytes, (before, writable))) in read.iter().zip(&self.before).enumerate() {
            let now: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
            for (i, ((b, w), x)) in before.iter().zip(writable).zip(&now).enumerate() {
                assert!(*w || b.to_bits() == x.to_bits(), "{what}: element {i} of buffer {n} is {x}, was {b}");
            }
            all.push(now);
        }
        all
    }
}

fn run(gpu: &Gpu, caps: &Caps, form: Form, t: &Tensors) {
    let Shape { tokens, heads, value_heads, key_dim, value_dim, .. } = t.shape;
    let what = format!("{}, {form:?}, T={tokens}, software {}", t.rule.name(), caps.software);
    let mut g = Guarded { gpu, buffers: Vec::new(), before: Vec::new() };
    let inputs = t.inputs();
    let chunk = chunk_length(&t.rule, key_dim as u32, value_dim as u32, caps);
    // An empty entry after those in use.
    let spans = Spans::new(&[(0, tokens as u32, 1)], chunk);
    let count = spans.chunks.len() as u32;
    let spans = spans.padded(2, count + 1);
    let value_width = value_heads * value_dim;
    let optional =
        |g: &mut Guarded<'_>, name: &str, x: Option<&[f32]>| x.map(|x| g.rows(name, x, x.len() / tokens, false));
    let (beta, decay) = (optional(&mut g, "beta", inputs.beta), optional(&mut g, "g", inputs.g));
    let precond = inputs.precond.map(|p| PrecondViews {
        g: g.rows("precond g", p.g, heads, false),
        beta: g.rows("precond beta", p.beta, heads, false),
        log_scale: g.rows("log scale", p.log_scale, heads, false),
        sums: g.slot("sums", p.initial.unwrap()),
    });
    let call = DeltaCall {
        rule: t.rule,
        heads: heads as u32,
        value_heads: value_heads as u32,
        key_dim: key_dim as u32,
        value_dim: value_dim as u32,
        rows: tokens as u32,
        scale: t.shape.scale(&t.options),
        l2norm: t.options.l2norm,
        q: g.rows("q", &t.q, heads * key_dim, false),
        k: g.rows("k", &t.k, heads * key_dim, false),
        v: g.rows("v", &t.v, value_width, false),
        beta,
        g: decay,
        precond,
        out: g.rows("out", &t.v, value_width, true),
        state: g.slot("state", t.initial_state.as_deref().unwrap()),
        sequences: g.table("sequences", &spans.sequences),
        chunks: g.table("chunks", &spans.chunks),
        chunk,
        chunk_states: None,
        segments: None,
    };
    let mut sizes = Vec::new();
    let first = g.buffers.len();
    let mut scratch = |name: &'static str, words: u64| {
        sizes.push((name, words));
        first + sizes.len() - 1
    };
    let dispatches = match form {
        Form::Recurrent => lower_recurrent(&call, caps, &mut scratch).unwrap(),
        Form::Chunk => lower_chunk(&call, caps, &mut scratch).unwrap(),
    };
    for (name, words) in sizes {
        g.scratch(name, words);
    }
    let program = Program::compile(gpu, &dispatches, &g.buffers).unwrap();
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    program.encode(&mut encoder);
    gpu.queue().submit([encoder.finish()]);
    let all = g.check(&what);

    let want = t.reference();
    let narrow = |x: &[f64]| x.iter().map(|x| *x as f32).collect::<Vec<f32>>();
    let (out, stride) = (&all[call.out.buffer], call.out.stride as usize);
    let o: Vec<f32> = (0..tokens).flat_map(|i| out[BAND + i * stride..][..value_width].to_vec()).collect();
    compare::close(&format!("{what}: o"), &o, &narrow(&want.o), 6e-6);
    let state = &all[call.state.buffer][(call.state.words as usize + BAND)..][..want.final_state.len()];
    compare::close(&format!("{what}: state"), state, &narrow(&want.final_state), 6e-6);
    if let Some(p) = call.precond {
        let sums = &all[p.sums.buffer][(p.sums.words as usize + BAND)..][..want.final_sums.len()];
        compare::close(&format!("{what}: sums"), sums, &narrow(&want.final_sums), 6e-6);
    }
}

#[test]
fn nothing_is_touched_beyond_the_tensors() {
    for gpu in devices::both() {
        for software in [false, true] {
            let caps = Caps { software, ..gpu.caps().clone() };
            for rule in [Rule::GATED_DELTANET, Rule::KDA, Rule::PRECONDITIONED_GATED_DELTANET, Rule::LONGHORN] {
                for (tokens, dims) in [(1, (1, 2, 16, 16)), (33, (1, 2, 16, 16)), (70, (2, 2, 20, 12))] {
                    let t = Tensors::random(rule, crate::shape(tokens, dims), None, 31);
                    for form in [Form::Recurrent, Form::Chunk] {
                        run(gpu, &caps, form, &t);
                    }
                }
            }
        }
    }
}
