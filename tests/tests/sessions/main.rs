//! Sessions of the demo model: expected tokens and logits, splitting, saving, forking, stopping, batches.

use deltanet::session::{Batch, Finish, GenerateOptions, Session};
use deltanet::{Device, LoadOptions, Model, Sampling};
use deltanet_tests::compare::{close, identical};
use deltanet_tests::{engines, expected};

mod devices;
mod pipelines;
mod reading;

fn load(device: &Device) -> Model {
    Model::open(expected::demo_directory(), device).unwrap()
}

/// Greedy, to the end of `max_tokens` whatever comes.
fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { sampling: Sampling::GREEDY, max_tokens, stop_at_eos: false, ..GenerateOptions::default() }
}

fn drawn(session: &mut Session, options: GenerateOptions) -> Vec<u32> {
    session.generate(options).unwrap().map(|p| p.unwrap().token).collect()
}

/// Everything that a session's state holds, in one list.
fn everything(session: &Session) -> Vec<f32> {
    let state = session.state().unwrap();
    assert_eq!(state.position, session.position());
    let mut all: Vec<f32> = state.layers.concat();
    all.extend(state.caches.concat());
    all.extend(state.logits);
    all.extend(state.seen.iter().map(|w| f32::from_bits(*w & 0x00ff_ffff)));
    all
}

#[test]
fn expected_tokens_and_logits() {
    for (name, device) in engines::all() {
        let model = load(&device);
        for case in expected::demo().prompts {
            let mut session = model.session().unwrap();
            let (prompt, rest) = case.ids.split_at(case.prompt_len);
            session.feed(prompt).unwrap();
            close(&format!("{name}: logits after the prompt"), &session.logits().unwrap(), &case.logits_prompt, 2e-5);
            assert_eq!(drawn(&mut session, greedy(rest.len())), rest, "{name}: greedy tokens");
            close(&format!("{name}: logits at the end"), &session.logits().unwrap(), &case.logits_last, 2e-5);
            session.reset().unwrap();
            session.feed(&case.ids).unwrap();
            close(&format!("{name}: all at once"), &session.logits().unwrap(), &case.logits_last, 2e-5);
        }
    }
}

#[test]
fn expected_long_text() {
    for (name, device) in engines::two() {
        let long = expected::demo().long;
        let mut session = load(&device).session().unwrap();
        let nll = session.score(&long.ids).unwrap();
        assert_eq!(nll.len(), long.nll.len());
        for (i, (got, want)) in nll.iter().zip(&long.nll).enumerate() {
            assert!((got - want).abs() <= 2e-4, "{name}: nll {i}: got {got}, want {want}");
        }
        close(&format!("{name}: logits at the end"), &session.logits().unwrap(), &long.logits_last, 2e-4);
    }
}

#[test]
fn a_prompt_may_be_split_anywhere() {
    let ids = &expected::demo().long.ids[..200];
    for (name, device) in engines::two() {
        let model = load(&device);
        let mut whole = model.session().unwrap();
        whole.feed(ids).unwrap();
        let (want, logits) = (whole.state().unwrap(), whole.logits().unwrap());
        for splits in [vec![1], vec![199], vec![3, 4, 70], vec![63, 64, 65, 128], vec![16, 17, 33, 100, 101]] {
            let mut session = model.session().unwrap();
            let mut from = 0;
            for to in splits.iter().copied().chain([ids.len()]) {
                session.feed(&ids[from..to]).unwrap();
                from = to;
            }
            close(&format!("{name}: logits, split {splits:?}"), &session.logits().unwrap(), &logits, 2e-5);
            let state = session.state().unwrap();
            for (i, (got, want)) in state.layers.iter().zip(&want.layers).enumerate() {
                close(&format!("{name}: state of layer {i}, split {splits:?}"), got, want, 2e-5);
            }
            assert_eq!(state.seen, want.seen);
        }
    }
}

#[test]
fn single_steps_equal_one_prefill() {
    let ids = &expected::demo().long.ids[..512];
    for (name, device) in engines::two() {
        let model = load(&device);
        let mut whole = model.session().unwrap();
        whole.feed(ids).unwrap();
        let mut steps = model.session().unwrap();
        for id in ids {
            steps.feed(&[*id]).unwrap();
        }
        close(&format!("{name}: logits"), &steps.logits().unwrap(), &whole.logits().unwrap(), 2e-5);
        let (got, want) = (steps.state().unwrap(), whole.state().unwrap());
        for (i, (got, want)) in got.layers.iter().zip(&want.layers).enumerate() {
            close(&format!("{name}: state of layer {i}"), got, want, 2e-5);
        }
    }
}

#[test]
fn saved_sessions_continue_bitwise_and_on_any_engine() {
    let prompt = &expected::demo().prompts[1].ids[..20];
    let mut files = Vec::new();
    for (name, device) in engines::two() {
        let model = load(&device);
        let mut session = model.session().unwrap();
        session.feed(prompt).unwrap();
        let options = GenerateOptions { max_tokens: 12, ..GenerateOptions::default() };
        drawn(&mut session, options.clone());
        let file = session.save().unwrap();
        let mut loaded = load(&device).session().unwrap();
        loaded.restore(&file).unwrap();
        assert_eq!(loaded.tokens(), session.tokens());
        assert_eq!(drawn(&mut loaded, options.clone()), drawn(&mut session, options.clone()), "{name}");
        identical(&format!("{name}: continued"), &everything(&loaded), &everything(&session));
        files.push((name, file));
    }
    for (name, device) in engines::two() {
        let model = load(&device);
        for (from, file) in &files {
            let mut session = model.session().unwrap();
            session.restore(file).unwrap();
            let mut fresh = model.session().unwrap();
            fresh.feed(session.tokens()).unwrap();
            let what = format!("{from} to {name}");
            close(&what, &session.logits().unwrap(), &fresh.logits().unwrap(), 2e-5);
            session.feed(&[5, 6, 7]).unwrap();
            fresh.feed(&[5, 6, 7]).unwrap();
            close(&what, &session.logits().unwrap(), &fresh.logits().unwrap(), 2e-5);
        }
    }
}

#[test]
fn saved_sessions_are_checked() {
    let model = load(&Device::CPU);
    let mut session = model.session().unwrap();
    session.feed(&[1, 2, 3]).unwrap();
    let file = session.save().unwrap();
    let mut other = model.session().unwrap();
    other.feed(&[9]).unwrap();
    let before = everything(&other);
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("truncated", file[..file.len() - 9].to_vec()),
        ("longer", [file.clone(), vec![0; 4]].concat()),
        ("not one", vec![7; 4000]),
        ("other version", [&file[..16], &[9, 0, 0, 0], &file[20..]].concat()),
        ("other model", [&file[..20], &[0; 16], &file[36..]].concat()),
        ("altered", {
            let mut f = file.clone();
            f[file.len() / 2] ^= 1;
            f
        }),
    ] {
        let error = other.restore(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("saved session: ") && !error.contains('\n'), "{what}: {error}");
        identical(what, &everything(&other), &before);
    }
}

#[test]
fn forks_are_independent() {
    for (name, device) in engines::two() {
        let model = load(&device);
        let mut session = model.session().unwrap();
        session.feed(&expected::demo().prompts[0].ids[..10]).unwrap();
        let mut fork = session.fork().unwrap();
        let before = everything(&session);
        identical(&format!("{name}: fork"), &everything(&fork), &before);
        fork.feed(&[100, 200, 300]).unwrap();
        identical(&format!("{name}: original"), &everything(&session), &before);
        assert_eq!(fork.position(), session.position() + 3);
    }
}

/// State after exactly `tokens`, fed and then drawn one step at a time by the same kernels.
fn stepped(model: &Model, prompt: &[u32], options: &GenerateOptions, n: usize) -> Vec<f32> {
    let mut session = model.session().unwrap();
    session.feed(prompt).unwrap();
    let options = GenerateOptions { max_tokens: n, steps_ahead: 1, stop: Vec::new(), ..options.clone() };
    drawn(&mut session, options);
    everything(&session)
}

#[test]
fn a_stop_inside_a_run_leaves_the_state_of_the_emitted_tokens() {
    let prompt = &expected::demo().prompts[0].ids[..8];
    for (name, device) in engines::two() {
        let model = load(&device);
        let options = GenerateOptions { max_tokens: 40, ..greedy(40) };
        let mut session = model.session().unwrap();
        session.feed(prompt).unwrap();
        let pieces: Vec<_> = session.generate(options.clone()).unwrap().map(Result::unwrap).collect();
        assert_eq!(pieces.len(), 40);

        // A stop string: a word of the text itself, wherever it lies in its run.
        let text: String = pieces.iter().map(|p| p.text.as_str()).collect();
        let word = text.split_whitespace().nth(9).unwrap().to_string();
        let mut session = model.session().unwrap();
        session.feed(prompt).unwrap();
        let mut generation = session.generate(GenerateOptions { stop: vec![word.clone()], ..options.clone() }).unwrap();
        let mut shown = String::new();
        let mut n = 0;
        for piece in generation.by_ref() {
            shown += &piece.unwrap().text;
            n += 1;
        }
        assert_eq!(generation.finish(), Some(Finish::Stop));
        drop(generation);
        assert_eq!(shown, text[..text.find(&word).unwrap()]);
        assert!(n < 40);
        identical(&format!("{name}: stop string"), &everything(&session), &stepped(&model, prompt, &options, n));

        // A reader who leaves after n tokens.
        for n in [0, 1, 2, 3, 5, 8, 13, 20] {
            let mut session = model.session().unwrap();
            session.feed(prompt).unwrap();
            let taken: Vec<_> = session.generate(options.clone()).unwrap().take(n).map(|p| p.unwrap().token).collect();
            assert_eq!(taken.len(), n);
            assert_eq!(session.position() as usize, prompt.len() + n);
            let want = stepped(&model, prompt, &options, n);
            identical(&format!("{name}: left after {n}"), &everything(&session), &want);
        }
    }
}

#[test]
fn end_of_text_is_not_fed() {
    for (name, device) in engines::two() {
        let model = load(&device);
        // After such an ending the text soon ends; which seed writes a few tokens more is the model's business.
        let ended = (0..12).any(|seed| {
            let mut session = model.session().unwrap();
            session.feed_text("And they all lived happily ever").unwrap();
            let prompt = session.tokens().to_vec();
            let sampling = Sampling { temperature: 1.0, top_p: 1.0, min_p: 0.0, seed, ..Sampling::default() };
            let options = GenerateOptions { sampling, max_tokens: 30, ..GenerateOptions::default() };
            let mut generation = session.generate(options.clone()).unwrap();
            let n = generation.by_ref().map(Result::unwrap).count();
            let finish = generation.finish();
            drop(generation);
            let Some(Finish::EndOfText(token)) = finish.filter(|_| n >= 2) else { return false };
            assert_eq!(token, 0);
            assert_eq!(session.position() as usize, prompt.len() + n);
            assert_ne!(session.tokens().last(), Some(&0));
            let want = stepped(&model, &prompt, &options, n);
            identical(&format!("{name}: end of text after {n}"), &everything(&session), &want);
            true
        });
        assert!(ended, "{name}: no seed reached an end of text: the test tests nothing");
    }
}

#[test]
fn a_batch_equals_its_sessions_alone() {
    for (name, device) in engines::two() {
        let model = Model::load(
            &deltanet::checkpoint::Checkpoint::open(expected::demo_directory()).unwrap(),
            &device,
            LoadOptions { sessions: 8, ..LoadOptions::default() },
            &mut |_| (),
        )
        .unwrap();
        let prompts = expected::demo().prompts;
        let options = |i: usize| GenerateOptions {
            sampling: Sampling { seed: i as u64, temperature: 0.2 * i as f32, ..Sampling::default() },
            max_tokens: [20, 5, 0, 12][i],
            stop: if i == 3 { vec!["the".into(), "a".into()] } else { Vec::new() },
            ..GenerateOptions::default()
        };
        let mut alone = Vec::new();
        for (i, case) in prompts.iter().enumerate() {
            let mut session = model.session().unwrap();
            session.feed(&case.ids[..case.prompt_len]).unwrap();
            drawn(&mut session, options(i));
            alone.push((session.tokens().to_vec(), everything(&session)));
        }
        let mut sessions: Vec<Session> = prompts.iter().map(|_| model.session().unwrap()).collect();
        for (session, case) in sessions.iter_mut().zip(&prompts) {
            session.feed(&case.ids[..case.prompt_len]).unwrap();
        }
        let mut batch = Batch::new(sessions.iter_mut().collect(), (0..4).map(options).collect()).unwrap();
        while batch.next_blocking().unwrap().is_some() {}
        assert_eq!(batch.finish(2), Some(Finish::Length));
        drop(batch);
        for (i, (session, (tokens, state))) in sessions.iter().zip(&alone).enumerate() {
            assert_eq!(session.tokens(), tokens, "{name}: session {i}");
            identical(&format!("{name}: session {i} of a batch"), &everything(session), state);
        }
    }
}

#[test]
fn same_seed_same_text_on_every_engine() {
    let mut texts = Vec::new();
    for (_, device) in engines::two() {
        let mut session = load(&device).session().unwrap();
        session.feed_text("Once upon a time").unwrap();
        let sampling = Sampling { seed: 7, repetition_penalty: 1.1, top_k: 50, top_p: 0.95, ..Sampling::default() };
        texts.push(drawn(&mut session, GenerateOptions { sampling, max_tokens: 40, ..GenerateOptions::default() }));
    }
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn wrong_calls_are_refused() {
    let model = load(&Device::CPU);
    let mut session = model.session().unwrap();
    let bad = |r: deltanet::Result<()>| {
        let text = r.unwrap_err().to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    assert!(bad(session.feed(&[1, 4096])).contains("token 1: expected an id below 4096, got 4096"));
    assert_eq!(session.position(), 0, "nothing is fed of a wrong prompt");
    assert!(bad(session.generate(greedy(1)).map(drop)).contains("prompt"));
    session.feed(&[1]).unwrap();
    for (sampling, word) in [
        (Sampling { temperature: -1.0, ..Sampling::default() }, "temperature"),
        (Sampling { temperature: f32::NAN, ..Sampling::default() }, "temperature"),
        (Sampling { top_p: 0.0, ..Sampling::default() }, "top-p"),
        (Sampling { min_p: 1.5, ..Sampling::default() }, "min-p"),
        (Sampling { repetition_penalty: 0.0, ..Sampling::default() }, "repetition-penalty"),
    ] {
        let options = GenerateOptions { sampling, ..GenerateOptions::default() };
        assert!(bad(session.generate(options).map(drop)).contains(word));
    }
    let options = GenerateOptions { stop: vec![String::new()], ..GenerateOptions::default() };
    assert!(bad(session.generate(options).map(drop)).contains("stop"));
    let held: Vec<_> = (0..3).map(|_| model.session().unwrap()).collect();
    assert!(bad(model.session().map(drop)).contains("at most 4"));
    drop(held);
    model.session().unwrap();
}
