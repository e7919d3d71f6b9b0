//! Hybrid models on every engine: logits, page growth, forks, saved sessions, roll-backs.

use std::sync::Arc;

use deltanet::checkpoint::Checkpoint;
use deltanet::engine::DecodeRow;
use deltanet::gpu::{Caps, GpuOptions, Runner};
use deltanet::model::Spec;
use deltanet::session::{Batch, Finish, GenerateOptions, Session};
use deltanet::tokenizer::Tokenizer;
use deltanet::{Device, LoadOptions, Model, Sampling};
use deltanet_tests::compare::{close, identical};
use deltanet_tests::plan_reference::Reference;
use deltanet_tests::{checkpoints, devices, engines};

/// A model of three layers, one of which (or two) is attention.
fn spec(attention: &str) -> Arc<Spec> {
    let config = format!(
        r#"{{ "model_type": "gated_deltanet", "hidden_size": 48, "num_hidden_layers": 3, "num_heads": 2, "head_dim": 12,
        "expand_v": 2, "intermediate_size": 40, "vocab_size": 4096, "tie_word_embeddings": true, "attn": {attention} }}"#
    );
    Arc::new(Spec::random(&config, 11).unwrap())
}

const FULL: &str = r#"{ "layers": [0, 2], "num_heads": 4, "num_kv_heads": 2, "qkv_bias": true, "qk_norm": true }"#;
const WINDOW: &str = r#"{ "layers": [1], "num_heads": 4, "num_kv_heads": 1, "window_size": 20 }"#;

fn load(spec: &Arc<Spec>, device: &Device) -> Model {
    let tokenizer = Tokenizer::from_bytes(&checkpoints::stories_tokenizer()).unwrap();
    Model::from_spec(
        spec.clone(),
        Some(tokenizer),
        device,
        LoadOptions { sessions: 6, ..Default::default() },
        &mut |_| (),
    )
    .unwrap()
}

fn prompt(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32).map(|i| (i * i * 31 + 7 * i + seed) % 4096).collect()
}

fn drawn(session: &mut Session, options: GenerateOptions) -> Vec<u32> {
    session.generate(options).unwrap().map(|p| p.unwrap().token).collect()
}

fn options(max_tokens: usize, seed: u64) -> GenerateOptions {
    let sampling = Sampling { seed, temperature: 1.0, ..Sampling::default() };
    GenerateOptions { sampling, max_tokens, stop_at_eos: false, ..GenerateOptions::default() }
}

fn everything(session: &Session) -> Vec<f32> {
    let state = session.state().unwrap();
    assert_eq!(state.position, session.position());
    for (cache, layer) in state.caches.iter().zip(&session.model().spec().layers) {
        assert_eq!(cache.len(), state.position as usize * layer.cache_per_token);
    }
    let mut all: Vec<f32> = state.layers.concat();
    all.extend(state.caches.concat());
    all.extend(state.logits);
    all
}

/// f64 logits after the tokens, `[vocab]`.
fn reference(spec: &Spec, tokens: &[u32]) -> Vec<f32> {
    let mut reference = Reference::new(spec);
    let mut logits = Vec::new();
    for token in tokens {
        logits = reference.feed(*token);
    }
    logits
}

#[test]
fn hybrids_give_the_logits_of_their_plans_in_f64() {
    for attention in [FULL, WINDOW] {
        let spec = spec(attention);
        let ids = prompt(90, 1);
        let want = reference(&spec, &ids);
        for (name, device) in engines::two() {
            let model = load(&spec, &device);
            let mut session = model.session().unwrap();
            session.feed(&ids).unwrap();
            close(&format!("{name}: one piece"), &session.logits().unwrap(), &want, 2e-5);
            let mut session = model.session().unwrap();
            for piece in [&ids[..1], &ids[1..2], &ids[2..40], &ids[40..89], &ids[89..]] {
                session.feed(piece).unwrap();
            }
            close(&format!("{name}: pieces"), &session.logits().unwrap(), &want, 2e-5);
            // Steps of several sessions together, then back to f64.
            let mut sessions: Vec<Session> = (0..3).map(|_| model.session().unwrap()).collect();
            for (i, session) in sessions.iter_mut().enumerate() {
                session.feed(&ids[..10 + 30 * i]).unwrap();
            }
            let all = sessions.iter_mut().collect();
            let mut batch = Batch::new(all, (0..3).map(|i| options(9, i)).collect()).unwrap();
            while batch.next_blocking().unwrap().is_some() {}
            drop(batch);
            for (i, session) in sessions.iter().enumerate() {
                assert_eq!(session.tokens().len(), 19 + 30 * i);
                let want = reference(&spec, session.tokens());
                close(&format!("{name}: batch {i}"), &session.logits().unwrap(), &want, 2e-5);
            }
        }
    }
}

#[test]
fn the_tiny_checkpoints_give_the_third_partys_logits() {
    for entry in checkpoints::index() {
        let dir = checkpoints::tiny(&entry.name);
        let expected = checkpoints::Expected::read(&dir);
        let ids = expected.ids("input_ids");
        for (name, device) in engines::all() {
            let model = Model::open(&dir, &device).unwrap();
            let vocab = model.spec().vocab;
            let what = |which: &str| format!("{}, {name}: {which}", entry.name);
            let tolerance = entry.tolerance_logits_relmax;
            let mut session = model.session().unwrap();
            let got = session.logits_of(&ids).unwrap();
            close(&what("prefill"), &got, expected.floats("logits"), tolerance);

            let mut session = model.session().unwrap();
            let (prompt, rest) = ids.split_at(entry.prefill_split);
            let mut got = session.logits_of(prompt).unwrap();
            for id in rest {
                session.feed(&[*id]).unwrap();
                got.extend(session.logits().unwrap());
            }
            assert_eq!(got.len(), ids.len() * vocab);
            close(&what("prefill, then steps"), &got, expected.floats("logits_prefill_then_decode"), tolerance);

            // Decode steps of its own choice, against the plan in f64.
            let options = GenerateOptions { stop_at_eos: false, max_tokens: 7, ..options(7, 3) };
            drawn(&mut session, options);
            let want = reference(model.spec(), session.tokens());
            close(&what("drawn tokens"), &session.logits().unwrap(), &want, tolerance);
        }
    }
}

/// The kernels that GPUs get, whatever the adapter: prompts, then steps of its own choice, two sessions at a time.
#[test]
fn the_tiny_checkpoints_on_the_kernels_of_gpus() {
    let gpu = devices::best();
    // Mixers whose decode is one kernel and whose is not, and both kinds of attention: pipelines are slow to make.
    let some =
        ["fla-kda-tiny", "fla-precond_gated_deltanet-tiny", "fla-gated_deltanet-swa-tiny", "fla-delta_net-attn-tiny"];
    for entry in checkpoints::index().into_iter().filter(|e| some.contains(&e.name.as_str())) {
        let dir = checkpoints::tiny(&entry.name);
        let ids = checkpoints::Expected::read(&dir).ids("input_ids");
        let spec = Spec::from_checkpoint(&Checkpoint::open(&dir).unwrap(), &mut |_, _| {}).unwrap();
        let spec = Arc::new(spec);
        let mut runner =
            Runner::new(gpu.clone(), spec.clone(), GpuOptions { slots: 2, ..Default::default() }, &mut |_, _| {})
                .unwrap();
        runner.stage().choose_for(Caps { software: false, ..gpu.caps().clone() });
        let prompts = [&ids[..], &ids[..5]];
        for (slot, prompt) in prompts.iter().enumerate() {
            runner.prefill(slot, prompt).unwrap();
        }
        let row = |slot| DecodeRow { slot, sampling: Sampling::GREEDY, limit: 6, stop_at_eos: false, snapshot: None };
        let ticket = runner.decode(&[row(0), row(1)], 6).unwrap();
        let emits = gpu.wait(runner.read(ticket)).unwrap();
        for (slot, prompt) in prompts.iter().enumerate() {
            let drawn = emits[slot].iter().map(|e| e.token);
            let want = reference(&spec, &prompt.iter().copied().chain(drawn).collect::<Vec<_>>());
            let got = gpu.wait(runner.logits(slot)).unwrap();
            close(&format!("{}, slot {slot}", entry.name), &got, &want, entry.tolerance_logits_relmax);
        }
    }
}

#[test]
fn caches_grow_by_pages_and_forks_are_independent() {
    let spec = spec(FULL);
    for (name, device) in engines::two() {
        let model = load(&spec, &device);
        // Several sessions grow in turns, past the pages that a pool begins with.
        let mut sessions: Vec<Session> = (0..3).map(|_| model.session().unwrap()).collect();
        for round in 0..4 {
            for (i, session) in sessions.iter_mut().enumerate() {
                session.feed(&prompt(50 + 40 * i, round)).unwrap();
            }
        }
        let mut fork = sessions[1].fork().unwrap();
        let before = everything(&sessions[1]);
        identical(&format!("{name}: fork"), &everything(&fork), &before);
        fork.feed(&prompt(70, 9)).unwrap();
        sessions[0].feed(&prompt(70, 8)).unwrap();
        identical(&format!("{name}: original"), &everything(&sessions[1]), &before);
        sessions[1].feed(&prompt(70, 9)).unwrap();
        identical(&format!("{name}: the same again"), &everything(&sessions[1]), &everything(&fork));
        for session in sessions.iter().chain([&fork]) {
            let mut alone = model.session().unwrap();
            alone.feed(session.tokens()).unwrap();
            close(&format!("{name}: alone"), &alone.logits().unwrap(), &session.logits().unwrap(), 2e-5);
        }
    }
}

#[test]
fn pages_are_given_back() {
    let spec = spec(FULL);
    // A device of its own: other tests make buffers too.
    let gpu = devices::own();
    let model = load(&spec, &Device::Gpu(gpu.clone()));
    let run = || {
        let mut session = model.session().unwrap();
        session.feed(&prompt(150, 1)).unwrap();
        drawn(&mut session, options(10, 1));
        let fork = session.fork().unwrap();
        session.reset().unwrap();
        session.feed(&prompt(250, 1)).unwrap();
        drop((session, fork));
    };
    // The second run makes the plans anew that the first lost when its caches grew.
    run();
    run();
    let bytes = gpu.live_bytes();
    for _ in 0..3 {
        run();
    }
    assert_eq!(gpu.live_bytes(), bytes, "five times the same needs no more memory than once");
}

#[test]
fn saved_hybrids_continue_on_any_engine() {
    for attention in [FULL, WINDOW] {
        let spec = spec(attention);
        let mut files = Vec::new();
        for (name, device) in engines::two() {
            let model = load(&spec, &device);
            let mut session = model.session().unwrap();
            session.feed(&prompt(77, 3)).unwrap();
            drawn(&mut session, options(12, 5));
            let file = session.save().unwrap();
            let mut loaded = load(&spec, &device).session().unwrap();
            loaded.restore(&file).unwrap();
            assert_eq!(drawn(&mut loaded, options(12, 6)), drawn(&mut session, options(12, 6)), "{name}");
            identical(&format!("{name}: continued"), &everything(&loaded), &everything(&session));
            files.push(file);
        }
        for (name, device) in engines::two() {
            let model = load(&spec, &device);
            for file in &files {
                let mut session = model.session().unwrap();
                session.restore(file).unwrap();
                session.feed(&[5, 6, 7]).unwrap();
                let want = reference(&spec, session.tokens());
                close(&format!("{name}: another engine's"), &session.logits().unwrap(), &want, 2e-5);
            }
        }
    }
}

#[test]
fn a_stop_string_leaves_the_state_of_the_emitted_tokens() {
    for attention in [FULL, WINDOW] {
        let spec = spec(attention);
        for (name, device) in engines::two() {
            let model = load(&spec, &device);
            let ids = prompt(60, 4);
            let start = || {
                let mut session = model.session().unwrap();
                session.feed(&ids).unwrap();
                session
            };
            let stepped = |n: usize| {
                let mut session = start();
                drawn(&mut session, GenerateOptions { steps_ahead: 1, ..options(n, 2) });
                everything(&session)
            };
            let mut session = start();
            let pieces: Vec<_> = session.generate(options(60, 2)).unwrap().map(Result::unwrap).collect();
            let text: String = pieces.iter().map(|p| p.text.as_str()).collect();
            let word = text.split_whitespace().nth(12).unwrap().to_string();
            let mut session = start();
            let mut generation = session.generate(GenerateOptions { stop: vec![word], ..options(60, 2) }).unwrap();
            let n = generation.by_ref().map(Result::unwrap).count();
            assert_eq!(generation.finish(), Some(Finish::Stop));
            drop(generation);
            assert!(n < 60);
            identical(&format!("{name}: stop string after {n}"), &everything(&session), &stepped(n));
            for n in [0, 1, 5, 13] {
                let mut session = start();
                assert_eq!(session.generate(options(60, 2)).unwrap().take(n).count(), n);
                identical(&format!("{name}: left after {n}"), &everything(&session), &stepped(n));
                // And on from there.
                session.feed(&[1, 2, 3]).unwrap();
                let want = reference(&spec, session.tokens());
                close(&format!("{name}: on after {n}"), &session.logits().unwrap(), &want, 2e-5);
            }
        }
    }
}

#[test]
fn a_cache_that_finds_no_room_is_an_error_and_the_session_goes_on() {
    // 16 heads of 64: an entry of 8 KiB, so that 128 MiB hold 16,384 tokens.
    let config = r#"{ "model_type": "gated_deltanet", "hidden_size": 1024, "num_hidden_layers": 1, "num_heads": 1,
        "head_dim": 4, "expand_v": 1, "intermediate_size": 8, "vocab_size": 64, "tie_word_embeddings": true,
        "attn": { "layers": [0], "num_heads": 16 } }"#;
    let spec = Arc::new(Spec::random(config, 1).unwrap());
    let device = Device::Gpu(devices::default_limits().clone());
    let model =
        Model::from_spec(spec, None, &device, LoadOptions { sessions: 1, ..Default::default() }, &mut |_| ()).unwrap();
    let mut session = model.session().unwrap();
    session.feed(&[1, 2, 3]).unwrap();
    let before = session.logits().unwrap();
    let error = session.feed(&vec![1; 17_000]).unwrap_err();
    assert!(matches!(error, deltanet::Error::OutOfMemory(_)), "{error:?}");
    assert!(error.to_string().contains("16384 tokens") && !error.to_string().contains('\n'), "{error}");
    assert_eq!(session.position(), 3);
    identical("logits", &session.logits().unwrap(), &before);
    session.feed(&[4]).unwrap();
    assert!(session.logits().unwrap().iter().all(|x| x.is_finite()));
}
