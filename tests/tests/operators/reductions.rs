//! Rules that must become other rules: each a check that needs no reference.

use deltanet::delta::Shape;
use deltanet::gpu::delta::Form;
use deltanet::rule::{Beta, Decay, Rule, WriteKey};
use deltanet_tests::compare;
use deltanet_tests::operators::{Engine, Tensors, check, engines_at_default_limits, none};

use crate::shape;

/// Runs both calls in both forms everywhere; o and the final state must agree to rounding.
fn equal(what: &str, a: &Tensors, b: &Tensors) -> Vec<String> {
    let mut failures = Vec::new();
    for engine in engines_at_default_limits() {
        for form in [Form::Recurrent, Form::Chunk] {
            let run = |engine: &Engine, t: &Tensors| engine.run(form, t).unwrap_or_else(|e| panic!("{what}: {e}"));
            let (x, y) = (run(&engine, a), run(&engine, b));
            for (name, x, y) in [("o", &x.o, &y.o), ("final_state", &x.final_state, &y.final_state)] {
                let (error, at) = compare::worst(x, y);
                if error > 5e-6 {
                    let name = format!("{what}, {}, {form:?}, {name}[{at}]", engine.name());
                    failures.push(format!("{name}: {error:.2e}: {} and {}", x[at], y[at]));
                }
            }
        }
    }
    failures
}

const DIMS: (usize, usize, usize, usize) = (1, 2, 16, 16);

/// fla #104.
#[test]
fn no_decay_is_the_rule_without_decay() {
    let mut failures = Vec::new();
    for tokens in [7, 50, 200, 1000] {
        let mut t = Tensors::random(Rule::GATED_DELTANET, shape(tokens, DIMS), None, tokens as u64);
        t.g.fill(0.0);
        let plain = Tensors { rule: Rule::DELTANET, ..t.clone() };
        failures.extend(equal(&format!("g = 0, T={tokens}"), &t, &plain));
        let mut t = Tensors::random(Rule::KDA, shape(tokens, DIMS), None, tokens as u64);
        t.g.fill(0.0);
        failures.extend(equal(
            &format!("g = 0 a channel, T={tokens}"),
            &t,
            &Tensors { rule: Rule::DELTANET, ..t.clone() },
        ));
    }
    none(&failures);
}

#[test]
fn equal_channel_decays_are_one_decay() {
    let mut failures = Vec::new();
    for (channel, head) in [(Rule::KDA, Rule::GATED_DELTANET), (Rule::CHANNEL_DECAY, Rule::SCALAR_DECAY)] {
        let one = Tensors::random(head, shape(130, DIMS), None, 8);
        let g = one.g.iter().flat_map(|g| [*g; 16]).collect();
        let each = Tensors { rule: channel, g, ..one.clone() };
        failures.extend(equal(channel.name(), &each, &one));
    }
    none(&failures);
}

/// Sums that never change and a μ that is their logarithm: B = 1 and k̃ = k.
#[test]
fn preconditioner_off_is_the_plain_rule() {
    let mut failures = Vec::new();
    for (on, off) in [
        (Rule::PRECONDITIONED_DELTANET, Rule::DELTANET),
        (Rule::PRECONDITIONED_GATED_DELTANET, Rule::GATED_DELTANET),
        (Rule::PRECONDITIONED_KDA, Rule::KDA),
    ] {
        let mut t = Tensors::random(on, shape(130, DIMS), None, 9);
        t.precond_g.fill(0.0);
        t.precond_beta.fill(0.0);
        t.initial_sums = Some(vec![0.7; 16]);
        t.log_scale = vec![(0.7f32 + 1e-6).ln()];
        failures.extend(equal(on.name(), &t, &Tensors { rule: off, ..t.clone() }));
    }
    none(&failures);
}

/// Keys that are orthogonal, from an empty state: nothing is ever read back, so the delta term does nothing.
#[test]
fn orthogonal_keys_make_the_delta_term_nothing() {
    let mut failures = Vec::new();
    for (on, off) in [
        (Rule::DELTANET, Rule::LINEAR_ATTENTION),
        (Rule::GATED_DELTANET, Rule::SCALAR_DECAY),
        (Rule::KDA, Rule::CHANNEL_DECAY),
    ] {
        let mut t = Tensors::random(on, shape(64, (1, 1, 64, 16)), None, 10);
        t.initial_state = None;
        t.beta.fill(1.0);
        for (i, k) in t.k.iter_mut().enumerate() {
            *k = if i / 64 == i % 64 { 1.0 } else { 0.0 };
        }
        failures.extend(equal(on.name(), &t, &Tensors { rule: off, ..t.clone() }));
    }
    none(&failures);
}

/// mlx-lm #1798: the read-out scale is applied once. Powers of two change no rounding.
#[test]
fn scale_is_applied_once() {
    let mut t = Tensors::random(Rule::GATED_DELTANET, shape(70, DIMS), None, 11);
    let mut failures = Vec::new();
    for engine in engines_at_default_limits() {
        for form in [Form::Recurrent, Form::Chunk] {
            t.options.scale = Some(1.0);
            let one = engine.run(form, &t).unwrap();
            t.options.scale = Some(0.25);
            let quarter = engine.run(form, &t).unwrap();
            let scaled: Vec<f32> = one.o.iter().map(|o| 0.25 * o).collect();
            let (error, at) = compare::worst(&quarter.o, &scaled);
            if error > 1e-6 || quarter.final_state != one.final_state {
                failures.push(format!("{}, {form:?}: o[{at}] is off by {error:.1e}", engine.name()));
            }
        }
    }
    none(&failures);
}

/// A rule is data: those without a name run like the others. (Of all 36 combinations a few, with every part: each means
/// new pipelines.)
#[test]
fn rules_without_a_name_run_on_every_engine() {
    let rules = [
        Rule { decay: Decay::PerHead, delta: false, beta: Beta::Given, write_key: WriteKey::Preconditioned },
        Rule { decay: Decay::PerChannel, delta: true, beta: Beta::Longhorn, write_key: WriteKey::Key },
        Rule { decay: Decay::None, delta: true, beta: Beta::One, write_key: WriteKey::Key },
    ];
    let mut failures = Vec::new();
    for rule in rules {
        assert_eq!(rule.name(), "custom");
        let shape = Shape { batch: 1, tokens: 37, heads: 1, value_heads: 2, key_dim: 12, value_dim: 9 };
        let t = Tensors::random(rule, shape, None, 41);
        failures.extend(check(&format!("{rule:?}"), &t, &engines_at_default_limits(), 2e-6, 5e-6));
    }
    none(&failures);
}
