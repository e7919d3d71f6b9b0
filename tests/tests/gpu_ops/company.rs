//! Sessions of a model that decode together where products may round.

use std::sync::Arc;

use deltanet::engine::DecodeRow;
use deltanet::gpu::{Gpu, GpuOptions, Runner};
use deltanet::model::Spec;
use deltanet::sampler::Sampling;
use deltanet_tests::random::Random;
use deltanet_tests::{devices, skip};

use super::{close, cooperative_caps};

const SESSIONS: usize = 17;
const VOCAB: usize = 90;

fn runner(gpu: &Gpu, spec: &Arc<Spec>, half_products: bool) -> Runner {
    let options = GpuOptions { slots: SESSIONS + 1, half_products };
    let mut runner = Runner::new(gpu.clone(), spec.clone(), options, &mut |_, _| {}).unwrap();
    runner.stage().choose_for(cooperative_caps(gpu, half_products));
    let mut random = Random::new(5);
    for slot in 0..SESSIONS {
        let prompt: Vec<u32> = (0..3).map(|_| random.below(VOCAB) as u32).collect();
        runner.prefill(slot, &prompt).unwrap();
    }
    runner
}

fn row(slot: usize, seed: u64, limit: u32) -> DecodeRow {
    let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
    DecodeRow { slot, sampling, limit, stop_at_eos: false, snapshot: (slot == 3).then_some(SESSIONS) }
}

/// Within f16's rounding of what they are without; and a run that is repeated for one of them, as after a stop string,
/// has the same bits when it says how many there were.
#[test]
fn sessions_together_with_halves() {
    let gpu = devices::best();
    if !gpu.caps().f16 {
        skip::skip("sessions_together_with_halves", "no f16");
        return;
    }
    let config = format!(
        r#"{{ "model_type": "gated_deltanet", "hidden_size": 64, "num_hidden_layers": 1, "num_heads": 4,
        "head_dim": 16, "expand_v": 1, "intermediate_size": 72, "vocab_size": {VOCAB}, "tie_word_embeddings": true }}"#
    );
    let spec = Arc::new(Spec::random(&config, 1).unwrap());
    let rows: Vec<DecodeRow> = (0..SESSIONS).map(|slot| row(slot, slot as u64, 2)).collect();
    let mut runs = Vec::new();
    for half in [false, true] {
        let mut runner = runner(gpu, &spec, half);
        let ticket = runner.decode(&rows, 2).unwrap();
        let emits = gpu.wait(runner.read(ticket)).unwrap();
        let logits: Vec<Vec<f32>> = (0..SESSIONS).map(|slot| gpu.wait(runner.logits(slot)).unwrap()).collect();
        if half {
            let state = gpu.wait(runner.export(3)).unwrap();
            runner.copy(SESSIONS, 3).unwrap();
            let again = DecodeRow { snapshot: None, ..row(3, 3, 2) };
            let ticket = runner.decode_among(&[again], 2, SESSIONS).unwrap();
            assert_eq!(gpu.wait(runner.read(ticket)).unwrap()[0], emits[3]);
            assert_eq!(gpu.wait(runner.export(3)).unwrap(), state);
        }
        runs.push((emits, logits));
    }
    let [(emits, want), (half_emits, got)] = &runs[..] else { unreachable!() };
    for slot in 0..SESSIONS {
        let tokens = |emits: &[deltanet::engine::Emit]| emits.iter().map(|e| e.token).collect::<Vec<_>>();
        assert_eq!(tokens(&emits[slot]), tokens(&half_emits[slot]), "session {slot}");
        let want: Vec<f64> = want[slot].iter().map(|v| f64::from(*v)).collect();
        close(&got[slot], &want, 1e-2, &format!("session {slot}"));
    }
    let kernels = gpu.kernels();
    assert!(kernels.lines().any(|l| l.starts_with("linear/coop_decode") && l.contains(" OUT_HEAD")));
}
