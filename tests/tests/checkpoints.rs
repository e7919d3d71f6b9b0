//! Checkpoints from disk to plans, and (with an engine) to logits.

use deltanet::checkpoint::Checkpoint;
use deltanet::model::{Spec, Weight};
use deltanet::plan::PlanKind;
use deltanet_tests::checkpoints::{Expected, index, relmax, stories, tiny};
use deltanet_tests::files::{Files, join, message};
use deltanet_tests::plan_reference::Reference;

fn spec(dir: &std::path::Path) -> Spec {
    let checkpoint = Checkpoint::open(dir).unwrap();
    let mut last = (0, 0);
    let spec = Spec::from_checkpoint(&checkpoint, &mut |done, total| last = (done, total)).unwrap();
    assert_eq!(last.0, last.1, "progress ends at its total");
    assert_eq!(last.1, spec.weight_bytes);
    spec
}

#[test]
fn tiny_checkpoints_load_and_plan() {
    for entry in index() {
        let spec = spec(&tiny(&entry.name));
        assert_eq!(spec.model_type, entry.model_type, "{}", entry.name);
        assert_eq!(spec.parameters, entry.params, "{}", entry.name);
        for kind in [PlanKind::Prefill, PlanKind::Score, PlanKind::Decode] {
            let plan = spec.plan(kind, 7).unwrap();
            assert_eq!(plan.ops.len(), plan.labels.len());
            let logits = &plan.buffers[plan.logits.0];
            assert_eq!((logits.width, logits.rows), (256, if kind == PlanKind::Prefill { 1 } else { 7 }));
            let text = format!("{spec}{plan}");
            assert!(text.lines().all(|line| line.chars().count() < 250), "{text}");
        }
    }
}

#[test]
fn the_demo_model_loads_and_plans() {
    let start = std::time::Instant::now();
    let spec = spec(&stories());
    println!("loaded in {:?}", start.elapsed());
    assert_eq!(spec.parameters, 16_989_152);
    assert_eq!((spec.vocab, spec.hidden, spec.bos, spec.eos.as_slice()), (4096, 384, Some(0), &[0][..]));
    // 6 heads of 64×64, and three rows of 1,152 channels, a layer.
    assert_eq!(spec.state_words(), 8 * (6 * 64 * 64 + 3 * 1152));
    let big = spec.weights.iter().filter_map(|w| if let Weight::Matrix(m) = w { Some(m) } else { None });
    assert_eq!(big.map(|m| m.bytes()).sum::<u64>() / 1_000_000, 33);
    let text = format!("{spec}{}", spec.plan(PlanKind::Decode, 16).unwrap());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "gated_deltanet: 16,989,152 parameters, 32.4 MiB");
    assert_eq!(lines[1], "8 layers, width 384, MLP 1024, vocabulary 4096 (tied)");
    assert_eq!(lines[2], "6 heads of 64×64, convolution of 4, output gate silu");
    assert_eq!(lines[3], "matrices in bf16, state 876.0 KiB a session");
    assert_eq!(lines[5], "Decode of up to 16 rows: 42 ops");
    assert_eq!(lines[7], "   1  layers.0 q|k|v|g|a|b     proj = [1548, 384] × norm(x)");
    println!("{text}");
}

#[test]
fn plans_in_f64_give_the_third_partys_logits() {
    for entry in index() {
        let dir = tiny(&entry.name);
        let (spec, expected) = (spec(&dir), Expected::read(&dir));
        let mut reference = Reference::new(&spec);
        let logits: Vec<f32> = expected.ids("input_ids").iter().flat_map(|id| reference.feed(*id)).collect();
        assert_eq!(logits.len(), entry.tokens * spec.vocab);
        for name in ["logits", "logits_prefill_then_decode"] {
            let (worst, at) = relmax(&logits, expected.floats(name));
            println!("{}: {name}: {worst:.1e} at token {}, id {}", entry.name, at / spec.vocab, at % spec.vocab);
            assert!(worst <= entry.tolerance_logits_relmax, "{}: {name}: {worst:e} at {at}", entry.name);
        }
    }
}

#[test]
fn the_demo_models_plan_in_f64_gives_the_expected_logits() {
    let (spec, expected) = (spec(&stories()), Expected::read(&stories()));
    let mut reference = Reference::new(&spec);
    let prompt_len = expected.ids("0.prompt_len")[0] as usize;
    let mut last = Vec::new();
    for (i, id) in expected.ids("0.ids").into_iter().enumerate() {
        last = reference.feed(id);
        if i + 1 == prompt_len {
            let (worst, at) = relmax(&last, expected.floats("0.logits_prompt"));
            assert!(worst <= 2e-5, "after the prompt: {worst:e} at id {at}");
        }
    }
    let (worst, at) = relmax(&last, expected.floats("0.logits_last"));
    println!("after the last: {worst:.1e}");
    assert!(worst <= 2e-5, "after the last: {worst:e} at id {at}");
}

#[test]
fn random_models_of_every_kind_give_finite_logits() {
    let attention = r#", "attn": { "layers": [1], "num_heads": 4, "num_kv_heads": 2, "window_size": 3, "qk_norm": true,
        "qkv_bias": true }"#;
    // Grouped value heads (two ways of sharing β among them), no convolution, no gate, no β.
    let options = [
        ("gated_deltanet", r#", "num_v_heads": 6, "use_gate": false, "output_gate_activation": "sigmoid""#),
        ("gated_deltanet", r#", "use_short_conv": false, "output_gate_activation": "sigmoid""#),
        ("delta_net", r#", "use_beta": false, "use_gate": true, "conv_size": 2"#),
        ("kda", r#", "num_v_heads": 6, "lower_bound": -2.5, "safe_gate": true"#),
        ("precond_gated_deltanet", r#", "num_v_heads": 6"#),
        ("precond_kda", r#", "num_v_heads": 6, "allow_neg_eigval": true"#),
    ];
    for (model_type, option) in options {
        for attention in ["", attention] {
            let config = format!(
                r#"{{ "model_type": "{model_type}", "hidden_size": 24, "num_hidden_layers": 2, "num_heads": 3,
                "head_dim": 12, "expand_v": 2, "intermediate_size": 20, "vocab_size": 50 {option}{attention} }}"#
            );
            let spec = Spec::random(&config, 7).unwrap();
            let mut reference = Reference::new(&spec);
            let runs: Vec<Vec<f32>> = (0..8).map(|token| reference.feed(token)).collect();
            assert!(runs.iter().flatten().all(|x| x.is_finite()), "{config}");
            // Another seed, other weights; the same seed, the same.
            assert_eq!(Spec::random(&config, 7).unwrap().fingerprint, spec.fingerprint);
            assert_ne!(Spec::random(&config, 8).unwrap().fingerprint, spec.fingerprint);
            assert_eq!(Reference::new(&Spec::random(&config, 7).unwrap()).feed(0), runs[0]);
            assert_ne!(Reference::new(&Spec::random(&config, 8).unwrap()).feed(0), runs[0]);
        }
    }
}

#[test]
fn a_large_random_model_is_made_quickly_enough_to_benchmark() {
    let start = std::time::Instant::now();
    let config = r#"{ "model_type": "gated_deltanet", "hidden_size": 1024, "num_hidden_layers": 2, "num_heads": 8,
        "head_dim": 128, "expand_v": 1, "intermediate_size": 2816, "vocab_size": 32000, "tie_word_embeddings": true }"#;
    let spec = Spec::random(config, 1).unwrap();
    println!("{spec}made in {:?}", start.elapsed());
    let Weight::Matrix(table) = &spec.weights[0] else { panic!("the embedding is a matrix") };
    let values = table.to_f32();
    let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / values.len() as f64;
    let spread = (values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
    assert!(mean.abs() < 1e-4 && (spread - 0.02).abs() < 1e-4, "mean {mean}, standard deviation {spread}");
}

/// Reading a header takes time in proportion to its length: nothing is looked for in a list.
#[test]
fn a_header_of_very_many_tensors_is_read_in_seconds() {
    const MANY: usize = 300_000;
    let mut header = String::from("{");
    for i in 0..MANY {
        let comma = if i == 0 { "" } else { "," };
        let (name, start, end) = (format!("model.layers.{i}.weight"), 2 * i, 2 * i + 2);
        header += &format!("{comma}\"{name}\":{{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[{start},{end}]}}");
    }
    header += "}";
    let data = vec![0; 2 * MANY];
    let start = std::time::Instant::now();
    let files = Files::read(&tiny("fla-gated_deltanet-tiny"));
    let checkpoint = files.with("model.safetensors", join(&header, &data)).open().unwrap();
    assert_eq!(checkpoint.tensors().len(), MANY);
    // The last one misplaced, too long, and listed twice: what is said about it is found as fast.
    let last = format!("\"data_offsets\":[{},{}]", 2 * MANY - 2, 2 * MANY);
    let refused = |header: String| message(&files.with("model.safetensors", join(&header, &data)).open().unwrap_err());
    let moved = refused(header.replace(&last, &format!("\"data_offsets\":[{},{}]", 2 * MANY, 2 * MANY + 2)));
    assert!(moved.contains("299999"), "{moved}");
    let again = format!("\"model.layers.299999.weight\":{{\"dtype\":\"BF16\",\"shape\":[1],{last}}}");
    let twice = refused(format!("{},{again}}}", &header[..header.len() - 1]));
    assert_eq!(twice, "model.safetensors: tensor model.layers.299999.weight is listed twice");
    let longer = refused(header.replace(&format!("[1],{last}"), &format!("[2],{last}")));
    assert!(longer.contains("tensor model.layers.299999.weight: expected 4 bytes"), "{longer}");
    let took = start.elapsed();
    assert!(took.as_secs() < 60, "four headers of {MANY} tensors took {took:?}");
}
