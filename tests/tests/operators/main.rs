//! The operators: third-party results, failures known from the field, limits of the numbers, memory.

mod apart;
mod gates;
mod guards;
mod halves;
mod in_place;
mod reductions;
mod sequences;

use deltanet::Rule;
use deltanet::delta::Shape;
use deltanet::gpu::delta::Form;
use deltanet_tests::operators::{Engine, Tensors, check, engines, engines_at_default_limits, none};
use deltanet_tests::{compare, goldens};

/// The chunk lengths that an engine takes.
fn chunks(engine: &Engine) -> Vec<usize> {
    match engine {
        Engine::Cpu => vec![16, 32, 64],
        Engine::Gpu(gpu, ..) if gpu.caps().workgroup_bytes < 34_000 => vec![16, 32],
        Engine::Gpu(..) => vec![16, 32, 64],
    }
}

#[test]
fn goldens_hold_on_every_engine() {
    let mut failures = Vec::new();
    let cases = goldens::all();
    for engine in engines() {
        let mut worst: (f64, String) = (0.0, String::new());
        for case in &cases {
            let mut runs = vec![(Form::Recurrent, None)];
            runs.extend(chunks(&engine).into_iter().map(|c| (Form::Chunk, Some(c))));
            for (form, chunk) in runs {
                let mut t = case.tensors.clone();
                t.options.chunk = chunk;
                let what = format!("{} on {}, {form:?} {chunk:?}", case.name, engine.name());
                let out = engine.run(form, &t).unwrap_or_else(|e| panic!("{what}: {e}"));
                let tolerance = match form {
                    Form::Recurrent => case.tolerance.recurrent_relmax,
                    Form::Chunk => case.tolerance.chunk_relmax,
                };
                let results = [
                    ("o", &out.o, &case.o),
                    ("final_state", &out.final_state, &case.final_state),
                    ("final_sums", &out.final_sums, &case.final_sums),
                ];
                for (name, got, want) in results {
                    let (error, at) = compare::worst(got, want);
                    let used = error / tolerance;
                    if used > worst.0 {
                        worst = (used, format!("{what}, {name}[{at}]: {error:.2e} of {tolerance:.1e}"));
                    }
                    if used > 1.0 {
                        failures.push(format!(
                            "{what}, {name}[{at}]: {error:.2e} > {tolerance:.1e} (got {}, want {})",
                            got[at], want[at]
                        ));
                    }
                }
            }
        }
        println!("{}: worst is {}", engine.name(), worst.1);
    }
    none(&failures);
}

/// `(H, HV, K, V)`.
type Dims = (usize, usize, usize, usize);

fn shape(tokens: usize, (heads, value_heads, key_dim, value_dim): Dims) -> Shape {
    Shape { batch: 1, tokens, heads, value_heads, key_dim, value_dim }
}

#[test]
fn lengths_around_chunk_boundaries() {
    let mut failures = Vec::new();
    for tokens in [1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 257] {
        for rule in [Rule::GATED_DELTANET, Rule::PRECONDITIONED_KDA] {
            let t = Tensors::random(rule, shape(tokens, (1, 1, 32, 32)), None, tokens as u64);
            let what = format!("{}, T={tokens}", rule.name());
            failures.extend(check(&what, &t, &engines_at_default_limits(), 2e-6, 5e-6));
        }
    }
    none(&failures);
}

/// fla #241, mlx-lm #1023, and dims that no tile divides.
#[test]
fn unusual_dims() {
    let mut failures = Vec::new();
    let dims: [Dims; 8] = [
        (1, 1, 96, 192),
        (1, 1, 256, 512),
        (1, 2, 60, 60),
        (2, 6, 4, 20),
        (1, 1, 128, 1),
        (1, 3, 7, 5),
        (1, 1, 1, 33),
        (2, 2, 252, 12),
    ];
    for (i, dims) in dims.into_iter().enumerate() {
        for rule in [Rule::GATED_DELTANET, Rule::KDA, Rule::PRECONDITIONED_DELTANET] {
            let mut t = Tensors::random(rule, shape(70, dims), None, i as u64);
            // beta in (0, 2).
            t.beta.iter_mut().for_each(|b| *b *= 2.0);
            let what = format!("{}, {dims:?}", rule.name());
            failures.extend(check(&what, &t, &engines_at_default_limits(), 3e-6, 1e-5));
        }
    }
    none(&failures);
}

#[test]
fn every_rule_with_batch_and_grouped_heads() {
    let mut failures = Vec::new();
    for (i, (name, rule)) in Rule::NAMED.into_iter().enumerate() {
        let sizes = Shape { batch: 2, tokens: 70, heads: 2, value_heads: 4, key_dim: 32, value_dim: 48 };
        let mut t = Tensors::random(rule, sizes, None, 100 + i as u64);
        t.options.l2norm = i % 2 == 0;
        t.options.scale = Some(0.3);
        failures.extend(check(name, &t, &engines_at_default_limits(), 3e-6, 6e-6));
    }
    // Parts that no named rule combines.
    for delta in [false, true] {
        let rule = Rule { delta, ..Rule::PRECONDITIONED_GATED_DELTANET };
        let t = Tensors::random(rule, shape(50, (1, 2, 16, 16)), None, 5);
        failures.extend(check(rule.name(), &t, &engines_at_default_limits(), 3e-6, 6e-6));
    }
    none(&failures);
}
