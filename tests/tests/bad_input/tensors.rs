//! model.safetensors, its index and shards.

use std::sync::Arc;

use deltanet::checkpoint::Checkpoint;
use deltanet::model::{DType, Spec, Weight};
use deltanet::session::GenerateOptions;
use deltanet::{Device, LoadOptions, Model};
use deltanet_tests::checkpoints::tiny;
use deltanet_tests::files::{Files, join, message, sharded, split};
use serde_json::json;

use crate::{gdn, refuses};

const FILE: &str = "model.safetensors";
const A_LOG: &str = "model.layers.0.attn.A_log";
const NORM: &str = "model.norm.weight";

#[test]
fn lying_headers_are_refused() {
    let files = gdn();
    let bytes = files.get(FILE).to_vec();
    let length = bytes.len();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let data = length as u64 - 8 - header;
    let refused = |bytes: Vec<u8>, reason: &str| refuses(&files.with(FILE, bytes), &format!("{FILE}: {reason}"));

    refused(vec![], "expected at least 8 bytes of header length, got 0 bytes");
    refused(vec![1; 7], "expected at least 8 bytes of header length, got 7 bytes");
    for claim in [length as u64, u64::MAX, 1 << 40] {
        let reason = format!(
            "truncated or not safetensors: the header claims {claim} bytes, the file has {} after the length",
            length - 8
        );
        refused([claim.to_le_bytes().to_vec(), bytes[8..].to_vec()].concat(), &reason);
    }
    for (cut, got) in [(length - 1, data - 1), (8 + header as usize, 0)] {
        let reason = format!("truncated or padded: the header lists {data} bytes of tensors, the file has {got}");
        refused(bytes[..cut].to_vec(), &reason);
    }
    let reason = format!("truncated or padded: the header lists {data} bytes of tensors, the file has {}", data + 3);
    refused([bytes.clone(), vec![0; 3]].concat(), &reason);
    let reason = format!(
        "truncated or not safetensors: the header claims {header} bytes, the file has {} after the length",
        header - 1
    );
    refused(bytes[..7 + header as usize].to_vec(), &reason);
}

#[test]
fn lying_tensors_are_named() {
    let files = gdn();
    let refused = |name: &str, field: &str, value: serde_json::Value, reason: &str| {
        let files = files.with_header(|h| h[name][field] = value);
        refuses(&files, &format!("{FILE}: {reason}"));
    };
    refused(NORM, "shape", json!([65]), "tensor model.norm.weight: expected 260 bytes for F32 [65], got 256");
    refused(
        NORM,
        "shape",
        json!([u64::MAX, 2]),
        "tensor model.norm.weight: expected more than any file bytes for F32 [18446744073709551615, 2], got 256",
    );
    refused(NORM, "dtype", json!("F16"), "tensor model.norm.weight: expected 128 bytes for F16 [64], got 256");
    refused(NORM, "dtype", json!("I32"), "tensor model.norm.weight: expected type F32, F16 or BF16, got I32");
    refused(A_LOG, "data_offsets", json!([0, 8]), &format!("tensor {A_LOG}: expected 16 bytes for F32 [4], got 8"));
    refused(A_LOG, "data_offsets", json!([4, 20]), &format!("invalid offset for tensor `{A_LOG}`"));
    refused(A_LOG, "data_offsets", json!([16, 0]), &format!("invalid offset for tensor `{A_LOG}`"));
    let many = [1; 9].iter().map(|n| json!(n)).collect::<Vec<_>>();
    let files = files.with_header(|h| h[A_LOG]["shape"] = json!([many, vec![json!(4)]].concat()));
    refuses(&files, &format!("{FILE}: tensor {A_LOG}: expected at most 8 dimensions, got 10"));
}

#[test]
fn overlaps_gaps_and_doubles_are_refused() {
    let files = gdn();
    let (header, data) = split(files.get(FILE));
    // Two tensors over the same bytes, and so a gap where one of them was.
    let overlap =
        files.with_header(|h| h["model.layers.1.attn.A_log"]["data_offsets"] = h[A_LOG]["data_offsets"].clone());
    let error = message(&overlap.load().unwrap_err());
    assert!(error.starts_with("model.safetensors: invalid offset for tensor `model."), "{error}");
    // The same name twice, which JSON allows.
    let text = serde_json::Value::Object(header).to_string();
    let twice =
        text.replacen('{', &format!("{{\"{NORM}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}},"), 1);
    refuses(&files.with(FILE, join(&twice, &data)), &format!("{FILE}: tensor {NORM} is listed twice"));
}

#[test]
fn missing_extra_and_misshapen_tensors_are_named() {
    let files = gdn();
    // Renamed: one is missing, another one too many. The missing one comes first.
    let rename = |from: &str, to: &str| {
        files.with_header(|h| {
            let tensor = h.remove(from).unwrap();
            h.insert(to.into(), tensor);
        })
    };
    refuses(
        &rename(NORM, "model.nrm.weight"),
        "tensor model.norm.weight: expected [64], got no such tensor in the checkpoint",
    );
    refuses(
        &files.with_header(|h| h["lm_head.weight"]["shape"] = json!([128, 128])),
        "tensor lm_head.weight: expected [256, 64], got [128, 128]",
    );
    refuses(
        &files.with_config(json!({ "num_hidden_layers": 1 })),
        "tensor model.layers.1.attn.A_log: expected a tensor of a gated_deltanet with 1 layers, got an unknown one, [4]",
    );
    refuses(
        &files.with_config(json!({ "num_hidden_layers": 4000 })),
        "tensor model.layers.2.attn_norm.weight: expected [64], got no such tensor in the checkpoint",
    );
    refuses(
        &files.with_config(json!({ "use_gate": false })),
        "tensor model.layers.0.attn.g_proj.weight: expected a tensor of a gated_deltanet with 2 layers, got an unknown one, [192, 64]",
    );
    refuses(
        &files.with_config(json!({ "vocab_size": 16_000_000 })),
        "tensor model.embeddings.weight: expected [16000000, 64], got [256, 64]",
    );
    refuses(
        &files.with_config(json!({ "tie_word_embeddings": true })),
        "tensor lm_head.weight: expected the embedding's values, since tie_word_embeddings is true, got others",
    );
    refuses(&files.without(FILE), "model.safetensors: not found, and neither is model.safetensors.index.json");
    refuses(
        &files.without(FILE).with("pytorch_model.bin", "x"),
        "model.safetensors: not found, only pytorch_model.bin: save the model as safetensors first",
    );
}

#[test]
fn numbers_that_are_none_are_found_wherever_they_are() {
    let files = gdn();
    let (header, data) = split(files.get(FILE));
    let start = files.get(FILE).len() - data.len();
    for name in header.keys().filter(|k| *k != "__metadata__") {
        let at = |i: usize| header[name]["data_offsets"][i].as_u64().unwrap() as usize;
        let elements = (at(1) - at(0)) / 4;
        for (index, value, text) in [(0, f32::NAN, "NaN"), (elements - 1, f32::NEG_INFINITY, "-inf")] {
            let mut bytes = files.get(FILE).to_vec();
            let place = start + at(0) + 4 * index;
            bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
            let expected = format!("tensor {name}: expected finite numbers, got {text} at element {index}");
            refuses(&files.with(FILE, bytes), &expected);
        }
    }
}

#[test]
fn finite_weights_that_overflow_are_noticed() {
    let files = gdn();
    let (header, data) = split(files.get(FILE));
    let start = files.get(FILE).len() - data.len();
    let at = |i: usize| header["model.norm.weight"]["data_offsets"][i].as_u64().unwrap() as usize;
    let mut bytes = files.get(FILE).to_vec();
    for element in bytes[start + at(0)..start + at(1)].chunks_exact_mut(4) {
        element.copy_from_slice(&3e38f32.to_le_bytes());
    }
    let spec = Arc::new(files.with(FILE, bytes).load().unwrap());
    let model = Model::from_spec(spec, None, &Device::CPU, LoadOptions::default(), &mut |_| ()).unwrap();
    let mut session = model.session().unwrap();
    let expected = "tensor logits: expected finite numbers, got others: the weights or the state are too large for f32";
    assert_eq!(session.score(&[1, 2, 3, 4]).unwrap_err().to_string(), expected);
    let mut generation = session.generate(GenerateOptions::default()).unwrap();
    assert_eq!(generation.next().unwrap().unwrap_err().to_string(), expected);
    assert!(generation.next().is_none());
}

/// model.safetensors with its tensors in another type.
fn converted(files: &Files, pick: impl Fn(&str) -> &'static str, pad_header: usize) -> Files {
    let (header, data) = split(files.get(FILE));
    let (mut out, mut bytes) = (serde_json::Map::new(), Vec::new());
    for (name, info) in header.iter().filter(|(k, _)| *k != "__metadata__") {
        let at = |i: usize| info["data_offsets"][i].as_u64().unwrap() as usize;
        let start = bytes.len();
        for b in data[at(0)..at(1)].chunks_exact(4) {
            let x = f32::from_le_bytes(b.try_into().unwrap());
            match pick(name) {
                "F32" => bytes.extend(x.to_le_bytes()),
                "F16" => bytes.extend(half::f16::from_f32(x).to_le_bytes()),
                _ => bytes.extend(half::bf16::from_f32(x).to_le_bytes()),
            }
        }
        let offsets = [start, bytes.len()];
        out.insert(name.clone(), json!({ "dtype": pick(name), "shape": info["shape"], "data_offsets": offsets }));
    }
    let text = serde_json::Value::Object(out).to_string() + &" ".repeat(pad_header);
    files.with(FILE, join(&text, &bytes))
}

#[test]
fn all_types_load_aligned_or_not() {
    let files = gdn();
    let reference = files.load().unwrap();
    for (dtype, tolerance) in [("F32", 0.0), ("F16", 1e-3), ("BF16", 8e-3)] {
        // Any length of header, so that tensors begin at any address.
        for pad in 0..4 {
            let spec = converted(&files, |_| dtype, pad).load().unwrap();
            for ((a, b), name) in spec.weights.iter().zip(&reference.weights).zip(&reference.names) {
                let values = |w: &Weight| match w {
                    Weight::Matrix(m) => m.to_f32(),
                    Weight::Vector(v) => v.clone(),
                };
                let (a, b) = (values(a), values(b));
                assert_eq!(a.len(), b.len());
                assert!(
                    a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= tolerance * b.abs().max(1e-3)),
                    "{name} {dtype} {pad}"
                );
            }
        }
    }
}

#[test]
fn a_stack_of_several_types_becomes_several_products() {
    let files = gdn();
    let pick = |name: &str| if name.contains("a_proj") || name.contains("b_proj") { "F32" } else { "BF16" };
    let spec = converted(&files, pick, 1).load().unwrap();
    let plan = spec.plan(deltanet::plan::PlanKind::Decode, 1).unwrap();
    assert_eq!(plan.labels[1..3], ["layers.0 q|k|v|g", "layers.0 a|b"]);
    // Where one product cannot be split, all of it is widened.
    let spec = converted(&files, |name| if name.contains("up_proj") { "F32" } else { "F16" }, 0).load().unwrap();
    let types: Vec<_> = spec.weights.iter().zip(&spec.names).filter(|(_, n)| n.contains("gate|up")).collect();
    assert_eq!(types.len(), 2);
    assert!(types.iter().all(|(w, _)| matches!(w, Weight::Matrix(m) if m.dtype == DType::F32)));
}

#[test]
fn shards_are_checked() {
    let whole = gdn();
    let files = sharded(&whole);
    let (a, b) = (whole.load().unwrap(), files.load().unwrap());
    assert_eq!(a.fingerprint, b.fingerprint, "the same weights, however they are filed");
    assert_eq!(a.names, b.names);

    const INDEX: &str = "model.safetensors.index.json";
    const FIRST: &str = "model-00001-of-00002.safetensors";
    const SECOND: &str = "model-00002-of-00002.safetensors";
    refuses(&files.without(SECOND), &format!("{SECOND}: not found, but named in {INDEX}"));
    let with_map = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut index: serde_json::Value = serde_json::from_slice(files.get(INDEX)).unwrap();
        change(&mut index["weight_map"]);
        files.with(INDEX, index.to_string())
    };
    for evil in [
        "../model.safetensors",
        "/etc/x.safetensors",
        "a\\b.safetensors",
        "C:x.safetensors",
        "..safetensors",
        "x.bin",
        "",
    ] {
        let expected = format!("{INDEX}: expected bare names of .safetensors files in weight_map, got {evil:?}");
        refuses(&with_map(&|m| m[NORM] = json!(evil)), &expected);
    }
    refuses(
        &with_map(&|m| m[NORM] = json!(FIRST)),
        &format!("{SECOND}: holds tensor {NORM}, which {INDEX} places in {FIRST}"),
    );
    refuses(
        &with_map(&|m| drop(m.as_object_mut().unwrap().remove(NORM))),
        &format!("{SECOND}: holds tensor {NORM}, which {INDEX} does not list"),
    );
    refuses(
        &with_map(&|m| m["model.more.weight"] = json!(FIRST)),
        &format!("{INDEX}: places tensor model.more.weight in {FIRST}, which does not hold it"),
    );
    refuses(&with_map(&|m| *m = json!({})), &format!("{INDEX}: expected 1 to 4096 files in weight_map, got 0"));
    let error = message(&with_map(&|m| *m = json!(3)).load().unwrap_err());
    assert!(error.starts_with(&format!("{INDEX}: invalid index: ")), "{error}");
    // Cut in the middle.
    let cut = files.get(SECOND)[..1000].to_vec();
    let error = message(&files.with(SECOND, cut).load().unwrap_err());
    assert!(error.starts_with(&format!("{SECOND}: truncated")), "{error}");
}

#[test]
fn folders_say_what_is_wrong_with_them() {
    let open = |path: &std::path::Path| message(&Checkpoint::open(path).unwrap_err());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let missing = path.join("nothing-here");
    assert!(open(&missing).starts_with(&format!("{}: ", missing.display())));
    let config = path.join("config.json");
    assert_eq!(open(path), format!("{}: not found; a checkpoint needs one", config.display()));
    std::fs::copy(tiny("fla-gated_deltanet-tiny").join("config.json"), &config).unwrap();
    let model = path.join(FILE);
    let index = "neither is model.safetensors.index.json";
    assert_eq!(open(path), format!("{}: not found, and {index}", model.display()));
    std::fs::write(&model, "").unwrap();
    assert_eq!(open(path), format!("{}: expected tensors, got an empty file", model.display()));
    std::fs::remove_file(&model).unwrap();
    std::fs::create_dir(&model).unwrap();
    assert_eq!(open(path), format!("{}: expected a regular file, got something else", model.display()));
    let error = open(&config);
    assert_eq!(
        error,
        format!("model: expected a directory with config.json and model.safetensors, got {}", config.display())
    );
    // Mapped and given as bytes, the same model.
    let dir = tiny("fla-gated_deltanet-tiny");
    let mapped = Spec::from_checkpoint(&Checkpoint::open(dir).unwrap(), &mut |_, _| {}).unwrap();
    assert_eq!(mapped.fingerprint, gdn().load().unwrap().fingerprint);
    // Two models' files at once.
    let mut both = gdn();
    both.0.push(("other/config.json".into(), b"{}".to_vec()));
    refuses(&both, "config.json: given twice; give the files of one model only");
}

#[test]
fn the_fingerprint_depends_on_every_weight_and_size() {
    let files = gdn();
    let base = files.load().unwrap().fingerprint;
    let (_, data) = split(files.get(FILE));
    let start = files.get(FILE).len() - data.len();
    for at in [0, data.len() / 2, data.len() - 4] {
        let mut bytes = files.get(FILE).to_vec();
        bytes[start + at] ^= 1;
        assert_ne!(files.with(FILE, bytes).load().unwrap().fingerprint, base);
    }
    for change in [json!({ "norm_eps": 1e-5 }), json!({ "allow_neg_eigval": false })] {
        assert_ne!(files.with_config(change).load().unwrap().fingerprint, base);
    }
    // What does not change results does not change it.
    let change =
        json!({ "use_cache": false, "eos_token_id": 7, "transformers_version": "9", "attn_mode": "fused_recurrent" });
    assert_eq!(files.with_config(change).load().unwrap().fingerprint, base);
}
