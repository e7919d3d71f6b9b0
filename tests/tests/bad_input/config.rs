//! config.json and generation_config.json.

use deltanet::config::Config;
use deltanet_tests::files::message;
use serde_json::{Value, json};

use crate::{gdn, hybrid, refuses};

#[test]
fn every_absurd_value_is_named() {
    let size = |most: usize| format!("a whole number from 1 to {most}");
    let cases: Vec<(&str, Value, String, &str)> = vec![
        ("num_heads", json!(0), size(4096), "0"),
        ("num_heads", json!(-2), size(4096), "-2"),
        ("num_heads", json!(1e9), size(4096), "1000000000.0"),
        ("num_heads", json!("two"), size(4096), "\"two\""),
        ("num_heads", json!([2]), size(4096), "an array of 1"),
        ("num_v_heads", json!(3), "a multiple of num_heads 2".into(), "3"),
        ("head_dim", json!(257), size(256), "257"),
        ("head_dim", json!(2.5), size(256), "2.5"),
        ("expand_v", json!(1.01), "head_dim 32 times it a whole number up to 65536".into(), "1.01"),
        ("expand_v", json!(-1), "a number from 0 to 256".into(), "-1"),
        ("hidden_size", json!(0), size(65_536), "0"),
        ("hidden_size", json!(1u64 << 40), size(65_536), "1099511627776"),
        ("num_hidden_layers", json!(0), size(4096), "0"),
        ("num_hidden_layers", json!(u64::MAX), size(4096), "18446744073709551615"),
        ("vocab_size", json!(0), size(1 << 24), "0"),
        ("vocab_size", json!(4_000_000_000u64), size(1 << 24), "4000000000"),
        ("intermediate_size", json!(0), size(1 << 20), "0"),
        ("conv_size", json!(0), size(16), "0"),
        ("conv_size", json!(1000), size(16), "1000"),
        ("norm_eps", json!(0), "a number in (0, 1]".into(), "0"),
        ("norm_eps", json!(-1e-6), "a number in (0, 1]".into(), "-1e-6"),
        ("norm_eps", json!("1e-6"), "a number in (0, 1]".into(), "\"1e-6\""),
        ("norm_eps", json!(1e300), "a number in (0, 1]".into(), "1e+300"),
        ("hidden_act", json!("gelu"), "one of swish, silu".into(), "\"gelu\""),
        ("output_gate_activation", json!("tanh"), "one of swish, silu, sigmoid".into(), "\"tanh\""),
        ("use_gate", json!(1), "true or false".into(), "1"),
        ("tie_word_embeddings", json!("yes"), "true or false".into(), "\"yes\""),
        ("conv_bias", json!(true), "false, the only supported value".into(), "true"),
        ("attnres_block_size", json!(4), "nothing, since it is not supported".into(), "4"),
        ("quantization_config", json!({ "bits": 4 }), "nothing, since it is not supported".into(), "an object"),
        ("eos_token_id", json!(256), "token ids below 256".into(), "256"),
        ("eos_token_id", json!([2, -1]), "token ids below 256".into(), "-1"),
        ("attn", json!("all"), "an object".into(), "\"all\""),
        ("dtype", json!("int3"), "one of float32, float16, bfloat16".into(), "\"int3\""),
        ("model_type", json!(7), TYPES.into(), "7"),
        ("model_type", json!("llama"), TYPES.into(), "\"llama\""),
        ("model_type", json!(null), TYPES.into(), "nothing"),
    ];
    let files = gdn();
    for (field, value, expected, got) in cases {
        let message = format!("config.json: {field}: expected {expected}, got {got}");
        refuses(&files.with_config(json!({ field: value })), &message);
    }
}

const TYPES: &str = "one of delta_net, gated_deltanet, kda, precond_gated_deltanet, precond_kda";

#[test]
fn absurd_attention_is_named() {
    let base = json!({ "layers": [1], "num_heads": 4, "num_kv_heads": 2, "window_size": 16, "rope_theta": 10000.0 });
    let cases = [
        ("layers", json!([2]), "an array of whole numbers below 2", "2"),
        ("layers", json!([0.5]), "an array of whole numbers below 2", "0.5"),
        ("layers", json!(null), "an array of whole numbers below 2", "nothing"),
        ("window_size", json!(0), "a whole number from 1 to 16777216", "0"),
        ("window_size", json!(1u64 << 30), "a whole number from 1 to 16777216", "1073741824"),
        ("num_heads", json!(3), "hidden_size 64 over it even, at most 256", "3"),
        ("num_heads", json!(64), "hidden_size 64 over it even, at most 256", "64"),
        ("num_heads", json!(null), "a whole number from 1 to 4096", "nothing"),
        ("num_kv_heads", json!(3), "a divisor of num_heads 4", "3"),
        ("rope_theta", json!(0), "a number from 1 to 1e12", "0"),
        ("qkv_bias", json!("no"), "true or false", "\"no\""),
    ];
    for (field, value, expected, got) in cases {
        let mut attn = base.clone();
        attn[field] = value;
        let message = format!("config.json: attn.{field}: expected {expected}, got {got}");
        refuses(&hybrid().with_config(json!({ "attn": attn })), &message);
    }
}

#[test]
fn other_architectures_check_their_own_fields() {
    let parse = |json: Value| Config::parse(&json.to_string(), None).map_err(|e| message(&e));
    let refused = |json: Value, expected: &str| assert_eq!(parse(json).unwrap_err(), expected);
    refused(
        json!({ "model_type": "delta_net", "num_heads": 3 }),
        "config.json: expand_k: expected hidden_size 2048 times it a multiple of 3 heads, at most 256 a head, got 1",
    );
    refused(
        json!({ "model_type": "delta_net", "qk_activation": "relu" }),
        "config.json: qk_activation: expected one of silu, got \"relu\"",
    );
    refused(
        json!({ "model_type": "delta_net", "qk_norm": "sum" }),
        "config.json: qk_norm: expected one of l2, got \"sum\"",
    );
    refused(
        json!({ "model_type": "kda", "lower_bound": -6 }),
        "config.json: lower_bound: expected a number in [-5, 0), got -6",
    );
    refused(
        json!({ "model_type": "kda", "safe_gate": true }),
        "config.json: lower_bound: expected a number in [-5, 0), since safe_gate is true, got nothing",
    );
    refused(
        json!({ "model_type": "precond_kda", "squash_x": 2.0 }),
        "config.json: squash_x: expected 1.5, the only supported value, got 2.0",
    );
    refused(
        json!({ "model_type": "gated_deltanet", "hidden_size": 65_536, "vocab_size": 1 << 24 }),
        "config.json: vocab_size times hidden_size: expected at most 2147483647, got 16777216 × 65536",
    );
    refused(
        json!({ "model_type": "gated_deltanet", "num_heads": 4096, "num_v_heads": 4096, "expand_v": 256 }),
        "config.json: num_heads times the key's size times hidden_size: expected at most 2147483647, got 4096 × 256 × 2048",
    );
}

#[test]
fn defaults_are_those_of_the_format() {
    let c = Config::parse(r#"{ "model_type": "gated_deltanet" }"#, None).unwrap();
    let m = &c.mixer;
    assert_eq!((c.hidden, c.layers, c.vocab, c.intermediate, c.tied), (2048, 21, 32_000, 5632, false));
    assert_eq!((m.heads, m.value_heads, m.key_dim, m.value_dim, m.conv_size), (6, 6, 256, 512, Some(4)));
    // 2/3 · 4 · 384 is 1,024, and of 400 it is 1,066, so 1,280.
    for (hidden, intermediate) in [(384, 1024), (400, 1280)] {
        let json = json!({ "model_type": "kda", "hidden_size": hidden, "intermediate_size": null, "hidden_ratio": 4 });
        assert_eq!(Config::parse(&json.to_string(), None).unwrap().intermediate, intermediate);
    }
    let json = json!({ "model_type": "gated_deltanet", "eos_token_id": 2, "bos_token_id": 1 }).to_string();
    assert_eq!(Config::parse(&json, None).unwrap().eos, [2]);
    let c = Config::parse(&json, Some(r#"{ "eos_token_id": [5, 7] }"#)).unwrap();
    assert_eq!((c.eos.as_slice(), c.bos), (&[5, 7][..], Some(1)));
    let c = Config::parse(&json, Some(r#"{ "temperature": 0.5 }"#)).unwrap();
    assert_eq!(c.eos, [2], "a generation config that names none leaves the config's");
}

#[test]
fn what_is_no_json_object_is_refused() {
    let files = gdn();
    refuses(&files.without("config.json"), "config.json: not found; a checkpoint needs one");
    refuses(&files.with("config.json", ""), "config.json: invalid JSON: EOF while parsing a value at line 1 column 0");
    refuses(&files.with("config.json", "[1]"), "config.json: expected a JSON object, got an array of 1");
    refuses(
        &files.with("config.json", b"{\"a\":\"\xff\"}".to_vec()),
        "config.json: expected UTF-8, got other bytes: invalid utf-8 sequence of 1 bytes from index 6",
    );
    refuses(
        &files.with("config.json", vec![b' '; 5 << 20]),
        "config.json: expected at most 4194304 bytes, got 5242880",
    );
    refuses(
        &files.with("config.json", "[".repeat(100_000)),
        "config.json: invalid JSON: recursion limit exceeded at line 1 column 128",
    );
    // Python's json module writes these, but no JSON reader takes them.
    refuses(
        &files.with("config.json", "{\"norm_eps\": NaN}"),
        "config.json: invalid JSON: expected value at line 1 column 14",
    );
    refuses(
        &files.with("generation_config.json", "{\"eos_token_id\": 300}"),
        "generation_config.json: eos_token_id: expected token ids below 256, got 300",
    );
}
