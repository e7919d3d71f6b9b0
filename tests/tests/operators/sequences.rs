//! Sequences and states: packing, splitting, continuing, exporting.

use deltanet::Rule;
use deltanet::delta::{Output, Shape};
use deltanet::gpu::delta::Form;
use deltanet_tests::compare;
use deltanet_tests::operators::{Tensors, check, engines_at_default_limits, error, none};

use crate::shape;

const DIMS: (usize, usize, usize, usize) = (1, 1, 16, 16);

/// Rows `from..to` of a call as a call of its own, from a given state and sums.
fn rows(t: &Tensors, from: usize, to: usize, state: Option<&[f32]>, sums: Option<&[f32]>) -> Tensors {
    let total = t.shape.batch * t.shape.tokens;
    let cut = |x: &[f32]| x[x.len() / total * from..x.len() / total * to].to_vec();
    Tensors {
        shape: Shape { batch: 1, tokens: to - from, ..t.shape },
        q: cut(&t.q),
        k: cut(&t.k),
        v: cut(&t.v),
        beta: cut(&t.beta),
        g: cut(&t.g),
        precond_g: cut(&t.precond_g),
        precond_beta: cut(&t.precond_beta),
        initial_state: state.map(<[f32]>::to_vec),
        initial_sums: sums.map(<[f32]>::to_vec),
        cu_seqlens: None,
        ..t.clone()
    }
}

/// flashinfer #3698, fla #1184: short, ragged and long sequences in one call.
#[test]
fn packed_sequences() {
    let mut failures = Vec::new();
    for rule in [Rule::GATED_DELTANET, Rule::PRECONDITIONED_GATED_DELTANET] {
        let offsets = [0, 1, 2, 65, 129, 194, 4291];
        let t = Tensors::random(rule, shape(4291, DIMS), Some(&offsets), 21);
        failures.extend(check(&format!("packed {}", rule.name()), &t, &engines_at_default_limits(), 3e-6, 6e-6));
    }
    none(&failures);
}

/// Values in odd numbers take the kernels that are not made for software adapters; lavapipe ends a thread's loops after
/// 65,535 rounds, so long sequences must come in pieces.
#[test]
fn a_long_sequence_of_odd_values() {
    let t = Tensors::random(Rule::GATED_DELTANET, shape(30_000, (1, 1, 4, 6)), None, 26);
    none(&check("30,000 tokens, V = 6", &t, &engines_at_default_limits(), 3e-6, 6e-6));
}

/// What one sequence holds reaches no other: each gives the same bits alone, empty ones leave their state as it was.
#[test]
fn packed_sequences_do_not_leak() {
    let offsets = [0, 1, 1, 2, 65, 129, 194];
    for rule in [Rule::GATED_DELTANET, Rule::KDA, Rule::PRECONDITIONED_KDA] {
        let mut t = Tensors::random(rule, shape(194, DIMS), Some(&offsets), 22);
        // Values of one sequence that would drown all others.
        t.v[2 * 16..65 * 16].iter_mut().for_each(|v| *v *= 1e6);
        let (states, sums) = (t.initial_state.clone().unwrap(), t.initial_sums.clone().unwrap());
        for engine in engines_at_default_limits() {
            for form in [Form::Recurrent, Form::Chunk] {
                let packed = engine.run(form, &t).unwrap();
                for (n, span) in offsets.windows(2).enumerate() {
                    let what = format!("{}, {}, {form:?}, sequence {n}", rule.name(), engine.name());
                    let (from, to) = (span[0] as usize, span[1] as usize);
                    let state = &states[n * 256..][..256];
                    let alone = rows(&t, from, to, Some(state), Some(&sums[n * 16..][..16]));
                    let alone = engine.run(form, &alone).unwrap();
                    compare::identical(&what, &packed.o[from * 16..to * 16], &alone.o);
                    compare::identical(&what, &packed.final_state[n * 256..][..256], &alone.final_state);
                    if from == to {
                        compare::identical(&what, &alone.final_state, state);
                    }
                }
            }
        }
    }
}

#[test]
fn zero_state_is_no_state() {
    for rule in [Rule::DELTANET, Rule::PRECONDITIONED_KDA] {
        let mut t = Tensors::random(rule, shape(70, DIMS), None, 23);
        (t.initial_state, t.initial_sums) = (None, None);
        let mut zero = t.clone();
        (zero.initial_state, zero.initial_sums) = (Some(vec![0.0; 256]), Some(vec![0.0; 16]));
        for engine in engines_at_default_limits() {
            for form in [Form::Recurrent, Form::Chunk] {
                assert_eq!(engine.run(form, &t).unwrap(), engine.run(form, &zero).unwrap(), "{}", engine.name());
            }
        }
    }
}

/// No token: no output, and the state as it came.
#[test]
fn no_tokens() {
    for rule in [Rule::GATED_DELTANET, Rule::PRECONDITIONED_KDA] {
        let t = Tensors::random(rule, shape(0, DIMS), None, 24);
        for engine in engines_at_default_limits() {
            for form in [Form::Recurrent, Form::Chunk] {
                let what = format!("{}, {}, {form:?}", rule.name(), engine.name());
                let out = engine.run(form, &t).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(out.o.is_empty(), "{what}");
                compare::identical(&what, &out.final_state, t.initial_state.as_deref().unwrap());
            }
        }
    }
}

/// transformers #45513: n tokens and then m are n + m tokens.
#[test]
fn split_anywhere() {
    let mut failures = Vec::new();
    for rule in [Rule::GATED_DELTANET, Rule::PRECONDITIONED_KDA] {
        let t = Tensors::random(rule, shape(140, DIMS), None, 25);
        let want = t.reference();
        for engine in engines_at_default_limits() {
            for n in [1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 70, 139] {
                let (state, sums) = (t.initial_state.as_deref(), t.initial_sums.as_deref());
                let mut out = engine.run(Form::Chunk, &rows(&t, 0, n, state, sums)).unwrap();
                let sums = (!out.final_sums.is_empty()).then_some(out.final_sums.as_slice());
                let rest = rows(&t, n, 140, Some(&out.final_state), sums);
                let rest = engine.run(Form::Chunk, &rest).unwrap();
                out.o.extend(rest.o);
                let (off, place) = error(&Output { o: out.o, ..rest_of(rest.final_state, rest.final_sums) }, &want);
                if off > 5e-6 {
                    let what = format!("{}, {}", rule.name(), engine.name());
                    failures.push(format!("{what}, {n} + {}: {off:.1e} at {place}", 140 - n));
                }
            }
        }
    }
    none(&failures);
}

fn rest_of(final_state: Vec<f32>, final_sums: Vec<f32>) -> Output {
    Output { final_state, final_sums, ..Output::default() }
}

/// ollama #15865: 512 single steps are one prefill.
#[test]
fn single_steps_are_one_prefill() {
    let t = Tensors::random(Rule::GATED_DELTANET, shape(512, DIMS), None, 26);
    let want = t.reference();
    let mut failures = Vec::new();
    for engine in engines_at_default_limits() {
        let mut state = t.initial_state.clone().unwrap();
        let mut o = Vec::new();
        for i in 0..512 {
            let out = engine.run(Form::Recurrent, &rows(&t, i, i + 1, Some(&state), None)).unwrap();
            state = out.final_state;
            o.extend(out.o);
        }
        let (off, place) = error(&Output { o, ..rest_of(state, Vec::new()) }, &want);
        println!("{}: {off:.2e}", engine.name());
        if off > 5e-6 {
            failures.push(format!("{}: {off:.1e} at {place}", engine.name()));
        }
    }
    none(&failures);
}

/// sglang #33515: the state at every chunk boundary is the state there, and a run from it gives the same bits.
#[test]
fn states_at_chunk_boundaries_restart() {
    for rule in [Rule::GATED_DELTANET, Rule::KDA, Rule::LINEAR_ATTENTION] {
        let mut t = Tensors::random(rule, shape(150, DIMS), None, 27);
        t.options.chunk_states = true;
        for engine in engines_at_default_limits() {
            let whole = engine.run(Form::Chunk, &t).unwrap();
            let chunk = whole.chunk;
            assert_eq!(whole.chunk_states.len(), 150usize.div_ceil(chunk) * 256);
            for (n, state) in whole.chunk_states.chunks(256).enumerate() {
                let what = format!("{}, {}, from chunk {n}", rule.name(), engine.name());
                let mut part = rows(&t, n * chunk, 150, Some(state), None);
                part.options.chunk = Some(chunk);
                let part = engine.run(Form::Chunk, &part).unwrap();
                compare::identical(&what, &part.o, &whole.o[n * chunk * 16..]);
                compare::identical(&what, &part.final_state, &whole.final_state);
            }
        }
    }
}
