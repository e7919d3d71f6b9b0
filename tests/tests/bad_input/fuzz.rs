//! A few thousand broken files: each is read, or refused in one line. Seeded, so that a failure comes again.

use std::sync::Arc;

use deltanet::plan::PlanKind;
use deltanet::tokenizer::Tokenizer;
use deltanet::{Device, LoadOptions, Model, Result};
use deltanet_tests::checkpoints::{index, stories_tokenizer, tiny};
use deltanet_tests::files::{Files, damage, join, message, odd_value, sharded, split};
use deltanet_tests::random::Random;
use serde_json::{Value, json};

use crate::memory;

/// Most bytes of one allocation: the inputs are below a megabyte, and nothing made of them is much larger.
const MOST: usize = 16 << 20;

/// Runs `read` on `rounds` inputs from `make`; it may succeed or say why not.
fn fuzz<T>(name: &str, rounds: usize, mut make: impl FnMut(&mut Random) -> T, read: impl Fn(&T) -> Result<()>) {
    let (mut read_well, mut longest) = (0, 0);
    for round in 0..rounds {
        let mut random = Random::new(round as u64);
        let input = make(&mut random);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&input)));
        match result {
            Ok(Ok(())) => read_well += 1,
            Ok(Err(e)) => longest = longest.max(message(&e).chars().count()),
            Err(_) => panic!("{name}: round {round} panicked"),
        }
        let largest = memory::largest();
        assert!(largest <= MOST, "{name}: round {round} allocated {largest} bytes at once");
    }
    println!("{name}: {rounds} rounds, {read_well} read, longest message {longest} characters");
    assert!(read_well < rounds, "{name}: nothing was broken");
}

fn load(files: &Files) -> Result<()> {
    let spec = files.load()?;
    spec.plan(PlanKind::Prefill, 33)?;
    spec.plan(PlanKind::Decode, 1)?;
    Ok(())
}

fn models() -> Vec<Files> {
    index().iter().map(|e| Files::read(&tiny(&e.name))).collect()
}

#[test]
fn configs() {
    let models = models();
    let make = |random: &mut Random| {
        let files = &models[random.below(models.len())];
        let mut config: Value = serde_json::from_slice(files.get("config.json")).unwrap();
        for _ in 0..=random.below(3) {
            let object = config.as_object_mut().unwrap();
            let keys: Vec<String> = object.keys().cloned().collect();
            let key = &keys[random.below(keys.len())];
            if key == "attn" && object[key].is_object() && random.below(2) == 0 {
                let inner = object[key].as_object_mut().unwrap();
                let keys: Vec<String> = inner.keys().cloned().collect();
                inner.insert(keys[random.below(keys.len())].clone(), odd_value(random));
            } else {
                object.insert(key.clone(), odd_value(random));
            }
        }
        let mut bytes = config.to_string().into_bytes();
        if random.below(3) == 0 {
            damage(&mut bytes, random);
        }
        files.with("config.json", bytes)
    };
    fuzz("config.json", 3000, make, load);
}

#[test]
fn random_models_of_odd_configs() {
    // Here no tensors hold the config to its word; small sizes only, so that what succeeds stays small.
    let make = |random: &mut Random| {
        let types = ["delta_net", "gated_deltanet", "kda", "precond_gated_deltanet", "precond_kda"];
        let mut pick = |list: &[i64]| json!(list[random.below(list.len())]);
        let mut config = json!({
            "hidden_size": pick(&[8, 24, 32, 0]), "num_hidden_layers": pick(&[1, 2, 3, -1]), "num_heads": pick(&[1, 2, 4]),
            "num_v_heads": pick(&[1, 2, 4, 8]), "head_dim": pick(&[1, 4, 12, 16]), "expand_v": pick(&[1, 2, 3]),
            "intermediate_size": pick(&[1, 16, 40]), "vocab_size": pick(&[3, 50]), "conv_size": pick(&[1, 2, 4, 16]),
            "norm_eps": 1e-6, "use_short_conv": pick(&[0, 1]) == 1, "use_gate": pick(&[0, 1]) == 1,
            "use_beta": pick(&[0, 1]) == 1, "allow_neg_eigval": pick(&[0, 1]) == 1, "eos_token_id": 2,
            "tie_word_embeddings": pick(&[0, 1]) == 1,
        });
        config["model_type"] = json!(types[random.below(types.len())]);
        if random.below(2) == 0 {
            config["attn"] = json!({ "layers": [0], "num_heads": 4, "num_kv_heads": 2, "window_size": random.below(5),
                "qk_norm": random.below(2) == 0, "qkv_bias": random.below(2) == 0 });
        }
        config.to_string()
    };
    let read = |config: &String| {
        let spec = deltanet::model::Spec::random(config, 1)?;
        println!("{spec}{}", spec.plan(PlanKind::Decode, 3)?);
        Ok(())
    };
    fuzz("random models", 300, make, read);
}

#[test]
fn safetensors_headers() {
    let models = models();
    let make = |random: &mut Random| {
        let files = &models[random.below(models.len())];
        let bytes = files.get("model.safetensors");
        if random.below(2) == 0 {
            // Bytes of the header and its length.
            let n = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let mut header = bytes[..if random.below(4) == 0 { 8 } else { n }].to_vec();
            let rest = header.len();
            damage(&mut header, random);
            header.extend(&bytes[rest..]);
            return files.with("model.safetensors", header);
        }
        // Fields of the header.
        let (mut header, mut data) = split(bytes);
        let keys: Vec<String> = header.keys().cloned().collect();
        for _ in 0..=random.below(3) {
            let (a, b) = (&keys[random.below(keys.len())], &keys[random.below(keys.len())]);
            match random.below(7) {
                0 => drop(header.remove(a)),
                1 => drop(header.insert(a.clone(), odd_value(random))),
                2 => {
                    let value = header.get(a).cloned().unwrap_or_default();
                    header.insert(b.clone(), value);
                }
                3 => {
                    let field = ["shape", "dtype", "data_offsets"][random.below(3)];
                    if let Some(Value::Object(t)) = header.get_mut(a) {
                        t.insert(field.into(), odd_value(random));
                    }
                }
                4 => {
                    let dtype = ["BOOL", "F4", "F64", "F16", "BF16", "I64", "F8_E4M3", "C64"][random.below(8)];
                    if let Some(Value::Object(t)) = header.get_mut(a) {
                        t.insert("dtype".into(), json!(dtype));
                    }
                }
                5 => {
                    let at = random.below(data.len());
                    data[at] = 0xff;
                    let next = (at + 1).min(data.len() - 1);
                    data[next] = 0xff;
                }
                _ => data.truncate(random.below(data.len()).max(2)),
            }
        }
        files.with("model.safetensors", join(&Value::Object(header).to_string(), &data))
    };
    fuzz("model.safetensors", 3000, make, load);
}

#[test]
fn shard_indices() {
    let models: Vec<Files> = models().iter().map(sharded).collect();
    let make = |random: &mut Random| {
        let files = &models[random.below(models.len())];
        let names = ["model.safetensors.index.json", "model-00001-of-00002.safetensors"];
        let name = names[usize::from(random.below(4) == 0)];
        let mut bytes = files.get(name).to_vec();
        damage(&mut bytes, random);
        files.with(name, bytes)
    };
    fuzz("shards", 1000, make, load);
}

#[test]
fn tokenizers() {
    // The demo model's, cut down to its first merges, so that a round is short.
    let mut json: Value = serde_json::from_slice(&stories_tokenizer()).unwrap();
    let vocab = json["model"]["vocab"].as_object().unwrap();
    let vocab: serde_json::Map<_, _> =
        vocab.iter().filter(|(_, id)| id.as_u64().unwrap() < 300).map(|(k, v)| (k.clone(), v.clone())).collect();
    let merges: Vec<Value> = json["model"]["merges"].as_array().unwrap().iter().take(300 - 257).cloned().collect();
    json["model"]["vocab"] = Value::Object(vocab);
    json["model"]["merges"] = json!(merges);
    let base = json.to_string().into_bytes();
    Tokenizer::from_bytes(&base).unwrap();
    let make = |random: &mut Random| {
        if random.below(3) > 0 {
            let mut bytes = base.clone();
            damage(&mut bytes, random);
            return bytes;
        }
        let mut json = json.clone();
        let fields = [
            "added_tokens",
            "normalizer",
            "pre_tokenizer",
            "post_processor",
            "decoder",
            "model",
            "truncation",
            "padding",
        ];
        let field = fields[random.below(fields.len())];
        if random.below(2) == 0 {
            json[field] = odd_value(random);
        } else if let Some(inner) = json[field].as_object_mut() {
            let keys: Vec<String> = inner.keys().cloned().collect();
            inner.insert(keys[random.below(keys.len())].clone(), odd_value(random));
        }
        json.to_string().into_bytes()
    };
    let read = |bytes: &Vec<u8>| {
        let tokenizer = Tokenizer::from_bytes(bytes)?;
        let mut ids = tokenizer.encode("Once upon a time 🙂 <|endoftext|>\n", true)?;
        ids.extend([0, 299, 300, u32::MAX]);
        tokenizer.decode(&ids, true)?;
        let mut stream = tokenizer.stream(false);
        for id in ids {
            stream.push(id)?;
        }
        stream.finish()?;
        Ok(())
    };
    fuzz("tokenizer.json", 3000, make, read);
}

/// The checksum that ends a saved session: FNV-1a over words. Without it nearly every broken file would stop there.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |hash: u64, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3);
        hash ^ (hash >> 29)
    })
}

#[test]
fn saved_sessions() {
    // A model with a state, a window and a growing cache, small enough for a round in a fraction of a millisecond.
    let config = r#"{ "model_type": "gated_deltanet", "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 2,
        "head_dim": 4, "expand_v": 1, "intermediate_size": 16, "vocab_size": 40,
        "attn": { "layers": [1], "num_heads": 4, "num_kv_heads": 2 } }"#;
    let spec = Arc::new(deltanet::model::Spec::random(config, 1).unwrap());
    let model = Model::from_spec(spec, None, &Device::CPU, LoadOptions::default(), &mut |_| ()).unwrap();
    let mut session = model.session().unwrap();
    session.feed(&[1, 2, 3, 4, 5]).unwrap();
    let saved = session.save().unwrap();
    let body = saved.len() - 8;
    assert_eq!(saved[body..], checksum(&saved[..body]).to_le_bytes(), "the checksum is as written here");
    let make = |random: &mut Random| {
        let mut bytes = saved.clone();
        if random.below(4) == 0 {
            damage(&mut bytes, random);
            return bytes;
        }
        bytes.truncate(body);
        if random.below(2) == 0 {
            // Numbers of the header and of the layers, made extreme.
            let at = 4 * random.below(bytes.len() / 4);
            let extreme = [0, 1, 39, 40, 41, 0x7fff_ffff, u32::MAX][random.below(7)];
            bytes[at..at + 4].copy_from_slice(&extreme.to_le_bytes());
        } else {
            damage(&mut bytes, random);
        }
        let sum = checksum(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    };
    let other = std::cell::RefCell::new(model.session().unwrap());
    let read = |bytes: &Vec<u8>| {
        let mut other = other.borrow_mut();
        other.reset()?;
        other.feed(&[7])?;
        let before = other.state()?;
        if let Err(e) = other.restore(bytes) {
            assert_eq!(other.tokens(), [7], "a refused file changes nothing");
            assert_eq!(other.state()?, before, "a refused file changes nothing");
            return Err(e);
        }
        other.feed(&[8])
    };
    fuzz("saved sessions", 3000, make, read);
}
