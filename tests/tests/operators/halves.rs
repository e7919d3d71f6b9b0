//! The chunk stages with cooperative matrices and f16 operands, emulated: all that the f32 kernels are held to, at
//! [`HALF_TOLERANCE`]. Compiling a kernel is what takes time here, so that the tests share dims: K = 64.

use deltanet::Rule;
use deltanet::delta::HALF_TOLERANCE;
use deltanet::gpu::delta::{Form, Kernels};
use deltanet_tests::operators::{Engine, Tensors, error, none};
use deltanet_tests::{compare, devices, goldens, skip};

use crate::shape;

/// The engine, where the adapter can emulate it.
fn engine(test: &str) -> Option<Engine> {
    let gpu = devices::best();
    if gpu.caps().f16 {
        return Some(Engine::Gpu(gpu, Kernels::Emulated, "best"));
    }
    skip::skip(test, "no f16");
    None
}

/// A case against the f64 recurrence: a line if it fails. Errors of f32 would say that other kernels ran.
fn check(what: &str, engine: &Engine, t: &Tensors) -> Option<String> {
    let mut t = t.clone();
    t.options.half_products = true;
    let out = match engine.run(Form::Chunk, &t) {
        Ok(out) => out,
        Err(e) => return Some(format!("{what}: {e}")),
    };
    let (error, place) = error(&out, &t.reference());
    println!("{what}: {error:.2e}");
    let bad = !(1e-6..=HALF_TOLERANCE).contains(&error) || out.chunk != 64;
    bad.then(|| format!("{what}, chunks of {}: {error:.2e}, at most {HALF_TOLERANCE:.1e}, at {place}", out.chunk))
}

#[test]
fn goldens_hold_with_halves() {
    let Some(engine) = engine("goldens_hold_with_halves") else { return };
    let mut failures = Vec::new();
    // Those of 32 × 48 repeat others' rules.
    for case in goldens::all().into_iter().filter(|c| c.tensors.shape.key_dim != 32) {
        let mut t = case.tensors.clone();
        t.options.half_products = true;
        let out = engine.run(Form::Chunk, &t).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        for (name, got, want) in [("o", &out.o, &case.o), ("final_state", &out.final_state, &case.final_state)] {
            let (error, at) = compare::worst(got, want);
            println!("{} ({}×{}), {name}: {error:.2e}", case.name, t.shape.key_dim, t.shape.value_dim);
            if error > HALF_TOLERANCE {
                failures.push(format!("{}, {name}[{at}]: {error:.2e} > {HALF_TOLERANCE:.1e}", case.name));
            }
        }
    }
    none(&failures);
}

/// Log decays that are strong, infinite, or both beside gentle ones.
#[test]
fn strong_gates_with_halves() {
    let Some(engine) = engine("strong_gates_with_halves") else { return };
    let mut failures = Vec::new();
    for rule in [Rule::GATED_DELTANET, Rule::KDA] {
        let gates: [(&str, &dyn Fn(usize) -> f32); 3] = [
            ("g = -20", &|_| -20.0),
            ("half zero", &|i| if i % 2 == 0 { 0.0 } else { -0.05 * (i % 37) as f32 }),
            ("zero, strong and infinite", &|i| [0.0, f32::NEG_INFINITY, -90.0, -0.3, -0.3, -0.3, -0.01][i % 7]),
        ];
        for (what, gate) in gates {
            let mut t = Tensors::random(rule, shape(130, (1, 2, 64, 64)), None, 3);
            t.g.iter_mut().enumerate().for_each(|(i, g)| *g = gate(i));
            failures.extend(check(&format!("{what}, {}", rule.name()), &engine, &t));
        }
    }
    none(&failures);
}

/// β up to 2, and the state before each chunk, over packed sequences of which one is empty.
#[test]
fn reflections_and_chunk_states_with_halves() {
    let Some(engine) = engine("reflections_and_chunk_states_with_halves") else { return };
    let mut t = Tensors::random(Rule::GATED_DELTANET, shape(200, (1, 2, 64, 64)), Some(&[0, 65, 65, 200]), 9);
    t.beta.iter_mut().for_each(|b| *b *= 2.0);
    t.options.chunk = Some(64);
    t.options.chunk_states = true;
    let exact = Engine::Cpu.run(Form::Chunk, &t).unwrap();
    t.options.half_products = true;
    none(&check("β up to 2", &engine, &t).into_iter().collect::<Vec<_>>());
    let got = engine.run(Form::Chunk, &t).unwrap();
    compare::close("chunk states", &got.chunk_states, &exact.chunk_states, HALF_TOLERANCE);
}

/// Segments of a sequence side by side: more of them than chunks, sequences of unlike lengths, an empty one, and states
/// before each chunk, which start anew from every segment's own.
#[test]
fn segments_with_halves() {
    let Some(engine) = engine("segments_with_halves") else { return };
    let mut failures = Vec::new();
    for rule in [Rule::GATED_DELTANET, Rule::KDA, Rule::PRECONDITIONED_GATED_DELTANET] {
        for (segments, ends) in [(3, vec![0, 300, 300, 365, 520]), (16, vec![0, 200])] {
            let tokens = *ends.last().unwrap() as usize;
            let mut t = Tensors::random(rule, shape(tokens, (1, 2, 64, 64)), Some(&ends), 11);
            // Slow decays: what earlier segments wrote is still there.
            t.g.iter_mut().for_each(|g| *g *= 0.02);
            t.options.l2norm = true;
            t.options.segments = Some(segments);
            t.options.chunk = Some(64);
            t.options.chunk_states = rule == Rule::GATED_DELTANET;
            failures.extend(check(&format!("{segments} segments, {}", rule.name()), &engine, &t));
            t.options.half_products = true;
            let apart = engine.run(Form::Chunk, &t).unwrap();
            t.options.segments = Some(1);
            assert_ne!(engine.run(Form::Chunk, &t).unwrap().o, apart.o, "the same bits: no segments ran");
            t.options.segments = Some(segments);
            if t.options.chunk_states {
                let exact = Engine::Cpu.run(Form::Chunk, &t).unwrap();
                compare::close("chunk states", &apart.chunk_states, &exact.chunk_states, HALF_TOLERANCE);
            }
        }
    }
    none(&failures);
}

/// Dims that no tile divides, more tiles of the state than subgroups, lengths around a chunk's ends.
#[test]
fn unusual_sizes_with_halves() {
    let Some(engine) = engine("unusual_sizes_with_halves") else { return };
    let mut failures = Vec::new();
    for (dims, tokens) in [((1, 1, 7, 20), 65), ((1, 2, 160, 4), 70)] {
        let mut t = Tensors::random(Rule::GATED_DELTANET, shape(tokens, dims), None, 5);
        t.options.l2norm = true;
        failures.extend(check(&format!("{dims:?}, {tokens} tokens"), &engine, &t));
    }
    for tokens in [1, 63, 64, 65, 257] {
        let t = Tensors::random(Rule::GATED_DELTANET, shape(tokens, (1, 1, 64, 64)), None, tokens as u64);
        failures.extend(check(&format!("{tokens} tokens"), &engine, &t));
    }
    none(&failures);
}
