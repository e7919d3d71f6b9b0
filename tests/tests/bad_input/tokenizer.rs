//! tokenizer.json and the texts given to it.

use deltanet::tokenizer::Tokenizer;
use deltanet_tests::checkpoints::{Expected, stories, stories_tokenizer};
use deltanet_tests::files::message;

#[test]
fn the_demo_models_tokenizer_agrees_with_its_expected_tokens() {
    let tokenizer = Tokenizer::from_bytes(&stories_tokenizer()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 4096);
    tokenizer.check_fits(4096).unwrap();
    let expected = Expected::read(&stories());
    for i in 0..4 {
        let ids = expected.ids(&format!("{i}.ids"));
        let prompt_len = expected.ids(&format!("{i}.prompt_len"))[0] as usize;
        let (prompt, rest) = (&ids[1..prompt_len], &ids[prompt_len..]);
        let text = tokenizer.decode(prompt, false).unwrap();
        assert_eq!(tokenizer.encode(&text, true).unwrap(), prompt, "{text:?}");
        // Piece by piece or at once, the same story.
        let mut stream = tokenizer.stream(false);
        let mut story: String = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
        story += &stream.finish().unwrap();
        assert_eq!(story, tokenizer.decode(&ids, false).unwrap());
        assert!(story.starts_with(&text) && story.len() > text.len() + rest.len());
    }
}

#[test]
fn any_text_survives_the_round_trip() {
    let tokenizer = Tokenizer::from_bytes(&stories_tokenizer()).unwrap();
    let long = "Once upon a time, ".repeat(20_000);
    for text in ["", " ", "\n\n\t", "Zoë said 字 🙂\u{200d}!", "\u{0}\u{1}", "  two  spaces ", &long] {
        let ids = tokenizer.encode(text, true).unwrap();
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
        assert_eq!(ids.is_empty(), text.is_empty());
    }
    // Unknown ids give no text, and no error.
    assert_eq!(tokenizer.decode(&[u32::MAX, 4096], false).unwrap(), "");
}

#[test]
fn broken_tokenizers_are_refused() {
    let bytes = &stories_tokenizer();
    for broken in [&b""[..], b"null", &bytes[..bytes.len() / 2], b"\xff\xfe", b"{\"model\":{\"type\":\"GPT\"}}"] {
        let error = message(&Tokenizer::from_bytes(broken).unwrap_err());
        assert!(error.starts_with("tokenizer.json: cannot be loaded: "), "{error}");
    }
    // Padding and truncation in the file change nothing.
    let mut json: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    json["truncation"] =
        serde_json::json!({ "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0 });
    json["padding"] = serde_json::json!({ "strategy": { "Fixed": 1_000_000_000 }, "direction": "Right",
        "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "x" });
    let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
    let plain = Tokenizer::from_bytes(bytes).unwrap();
    let text = "There was a little girl who lived by the sea.";
    assert_eq!(tokenizer.encode(text, true).unwrap(), plain.encode(text, true).unwrap());
}
