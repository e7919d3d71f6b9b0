//! The CPU engine by itself: third-party logits, splits of a prompt, batches, saved slots, memory and speed.

use std::path::Path;
use std::sync::Arc;

use deltanet::checkpoint::Checkpoint;
use deltanet::cpu::{CpuOptions, Runner};
use deltanet::engine::{DecodeRow, Emit};
use deltanet::model::Spec;
use deltanet::sampler::Sampling;
use deltanet_tests::checkpoints::{Expected, index, stories, tiny};
use deltanet_tests::compare::{close, identical};

fn load(dir: &Path) -> Arc<Spec> {
    let checkpoint = Checkpoint::open(dir).unwrap();
    Arc::new(Spec::from_checkpoint(&checkpoint, &mut |_, _| ()).unwrap())
}

fn runner(spec: &Arc<Spec>, threads: usize) -> Runner {
    Runner::new(spec.clone(), CpuOptions { threads: Some(threads), slots: 20 }).unwrap()
}

fn greedy(slot: usize, limit: u32) -> DecodeRow {
    DecodeRow { slot, sampling: Sampling::GREEDY, limit, stop_at_eos: false, snapshot: None }
}

fn tokens(emits: &[Emit]) -> Vec<u32> {
    emits.iter().map(|e| e.token).collect()
}

/// All logits, at once and with single steps after a split: third-party numbers.
#[test]
fn tiny_checkpoints_logits() {
    for entry in index() {
        let dir = tiny(&entry.name);
        let expected = Expected::read(&dir);
        let spec = load(&dir);
        let mut r = runner(&spec, 2);
        let ids = expected.ids("input_ids");
        let at_once = r.score(0, &ids).unwrap();
        let tolerance = entry.tolerance_logits_relmax;
        close(&format!("{} at once", entry.name), &at_once, expected.floats("logits"), tolerance);

        let want = expected.floats("logits_prefill_then_decode");
        let mut got = r.score(1, &ids[..entry.prefill_split]).unwrap();
        for id in &ids[entry.prefill_split..] {
            got.extend(r.score(1, &[*id]).unwrap());
        }
        close(&format!("{} in steps", entry.name), &got, want, tolerance);

        // Prefill leaves the last row's logits, and the state of score.
        r.prefill(2, &ids).unwrap();
        close(&format!("{} prefill", entry.name), &r.logits(2).unwrap(), &at_once[at_once.len() - 256..], 1e-6);
        for (a, b) in r.export(2).unwrap().layers.iter().zip(&r.export(0).unwrap().layers) {
            close(&format!("{} state", entry.name), a, b, 1e-5);
        }
    }
}

#[test]
fn demo_model_greedy_ids_and_logits() {
    let expected = Expected::read(&stories());
    let spec = load(&stories());
    let mut r = runner(&spec, 2);
    for i in 0..4 {
        let ids = expected.ids(&format!("{i}.ids"));
        let prompt = expected.ids(&format!("{i}.prompt_len"))[0] as usize;
        r.clear(0).unwrap();
        r.prefill(0, &ids[..prompt]).unwrap();
        close("prompt", &r.logits(0).unwrap(), expected.floats(&format!("{i}.logits_prompt")), 2e-5);
        let steps = ids.len() - prompt;
        let emits = r.decode(&[greedy(0, steps as u32)], steps).unwrap();
        assert_eq!(tokens(&emits[0]), &ids[prompt..], "prompt {i}");
        close("last", &r.logits(0).unwrap(), expected.floats(&format!("{i}.logits_last")), 2e-5);
        r.clear(0).unwrap();
        r.prefill(0, &ids).unwrap();
        close("all at once", &r.logits(0).unwrap(), expected.floats(&format!("{i}.logits_last")), 2e-5);
    }
    let ids = expected.ids("long.ids");
    r.clear(0).unwrap();
    let mut nll = Vec::new();
    for (n, piece) in ids.chunks(r.score_rows()).enumerate() {
        let logits = r.score(0, piece).unwrap();
        for (row, next) in logits.chunks(spec.vocab).zip(&ids[n * r.score_rows() + 1..]) {
            nll.push(-deltanet::sampler::logprob(row, *next));
        }
    }
    close("long nll", &nll, expected.floats("long.nll"), 2e-4);
    close("long last", &r.logits(0).unwrap(), expected.floats("long.logits_last"), 2e-4);
}

#[test]
fn a_prompt_split_anywhere_is_the_same() {
    let ids = &Expected::read(&stories()).ids("long.ids")[..600];
    let spec = load(&stories());
    let mut r = runner(&spec, 2);
    r.prefill(0, ids).unwrap();
    let (logits, state) = (r.logits(0).unwrap(), r.export(0).unwrap());
    for split in [1, 3, 31, 70, 511, 512, 599] {
        r.clear(1).unwrap();
        r.prefill(1, &ids[..split]).unwrap();
        r.prefill(1, &ids[split..]).unwrap();
        close(&format!("logits, split {split}"), &r.logits(1).unwrap(), &logits, 2e-5);
        let got = r.export(1).unwrap();
        assert_eq!((got.position, &got.seen), (state.position, &state.seen));
        for (a, b) in got.layers.iter().zip(&state.layers) {
            close(&format!("state, split {split}"), a, b, 2e-5);
        }
    }
}

#[test]
fn batches_threads_snapshots_and_saves_change_no_bit() {
    let expected = Expected::read(&stories());
    let spec = load(&stories());
    let mut r = runner(&spec, 2);
    let sampling = |seed: u64| Sampling { seed, temperature: 0.9, repetition_penalty: 1.1, ..Sampling::default() };
    let row = |slot: usize| DecodeRow { sampling: sampling(slot as u64), ..greedy(slot, 12) };
    let prompt = |i: usize| expected.ids("long.ids")[i * 7..i * 7 + 5 + i].to_vec();
    for i in 0..16 {
        r.prefill(i, &prompt(i)).unwrap();
    }
    let saved = r.export(3).unwrap();
    let together: Vec<DecodeRow> = (0..16).map(row).collect();
    let emits = r.decode(&together, 12).unwrap();

    let mut alone = runner(&spec, 1);
    for i in [0, 3, 15] {
        alone.prefill(0, &prompt(i)).unwrap();
        let one = alone.decode(&[DecodeRow { snapshot: Some(1), ..DecodeRow { slot: 0, ..row(i) } }], 12).unwrap();
        assert_eq!(one[0], emits[i], "row {i} alone");
        identical("logits alone", &alone.logits(0).unwrap(), &r.logits(i).unwrap());
        assert_eq!(alone.export(0).unwrap(), r.export(i).unwrap());
        // Rolled back and stepped again, one by one.
        alone.copy(1, 0).unwrap();
        for e in &one[0] {
            let step = alone.decode(&[DecodeRow { slot: 0, ..row(i) }], 1).unwrap();
            assert_eq!(step[0], [*e]);
        }
        assert_eq!(alone.export(0).unwrap(), r.export(i).unwrap());
        alone.clear(0).unwrap();
    }
    alone.import(5, &saved).unwrap();
    let again = alone.decode(&[DecodeRow { slot: 5, ..row(3) }], 12).unwrap();
    assert_eq!(again[0], emits[3]);
}

#[test]
fn end_of_text_is_reported_and_not_fed() {
    let expected = Expected::read(&stories());
    let spec = load(&stories());
    let mut r = runner(&spec, 2);
    let ids = expected.ids("0.ids");
    r.prefill(0, &ids[1..8]).unwrap();
    // Long enough for a story to end.
    let rows = [DecodeRow { stop_at_eos: true, ..greedy(0, 1000) }];
    let emits = r.decode(&rows, 1000).unwrap();
    let last = emits[0].last().unwrap();
    assert!(last.end && spec.eos.contains(&last.token), "the story ends within 1,000 tokens");
    let fed: Vec<u32> = ids[1..8].iter().copied().chain(tokens(&emits[0][..emits[0].len() - 1])).collect();
    assert_eq!(r.export(0).unwrap().position, fed.len() as u64);
    r.prefill(1, &fed[..7]).unwrap();
    for t in &fed[7..] {
        // Fed one by one by force: greedy draws them anyway.
        let step = r.decode(&[greedy(1, 1)], 1).unwrap();
        assert_eq!(step[0][0].token, *t);
    }
    assert_eq!(r.export(0).unwrap(), r.export(1).unwrap());
}

#[test]
fn single_steps_equal_one_prefill() {
    let ids = &Expected::read(&stories()).ids("long.ids")[..512];
    let spec = load(&stories());
    let mut r = runner(&spec, 2);
    r.prefill(0, ids).unwrap();
    for id in ids {
        r.prefill(1, &[*id]).unwrap();
    }
    close("logits", &r.logits(1).unwrap(), &r.logits(0).unwrap(), 2e-5);
}

#[test]
fn bad_calls_are_errors() {
    let spec = load(&tiny("fla-delta_net-attn-tiny"));
    let mut r = runner(&spec, 1);
    let is = |e: deltanet::Result<()>, word: &str| {
        let text = e.unwrap_err().to_string();
        assert!(text.contains(word) && !text.contains('\n'), "{text}");
    };
    is(Runner::new(spec.clone(), CpuOptions { threads: Some(0), slots: 1 }).map(drop), "threads");
    is(Runner::new(spec.clone(), CpuOptions { threads: None, slots: 0 }).map(drop), "slots");
    is(r.prefill(0, &[]), "tokens");
    is(r.prefill(0, &[1, 256]), "256");
    is(r.prefill(20, &[1]), "slot");
    is(r.score(0, &vec![1; 513]).map(drop), "512");
    is(r.decode(&[greedy(0, 1)], 1).map(drop), "fed");
    r.prefill(0, &[1, 2]).unwrap();
    is(r.decode(&[greedy(0, 1), greedy(0, 1)], 1).map(drop), "once");
    is(r.decode(&[], 1).map(drop), "rows");
    let sampling = Sampling { top_p: 0.0, ..Sampling::GREEDY };
    is(r.decode(&[DecodeRow { sampling, ..greedy(0, 1) }], 1).map(drop), "top-p");
    let mut state = r.export(0).unwrap();
    assert_eq!(state.position, 2);
    state.caches.iter_mut().for_each(|c| c.truncate(c.len().saturating_sub(1)));
    is(r.import(1, &state), "cache");
    state.layers[0].pop();
    is(r.import(1, &state), "layer 0");
    assert_eq!(r.export(0).unwrap().position, 2, "nothing was fed by the failures");
}
