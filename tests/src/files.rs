//! Checkpoint files in memory, to be broken one way or another.

use std::path::Path;
use std::sync::Arc;

use deltanet::checkpoint::{Checkpoint, SharedBytes};
use deltanet::model::Spec;
use deltanet::{Error, Result};
use serde_json::{Map, Value, json};

use crate::random::Random;

/// A checkpoint's files, by name.
#[derive(Clone, Debug)]
pub struct Files(pub Vec<(String, Vec<u8>)>);

impl Files {
    /// The files of a folder that make a model.
    pub fn read(dir: &Path) -> Self {
        let names = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"];
        let read = |name: &str| std::fs::read(dir.join(name)).ok().map(|bytes| (name.to_owned(), bytes));
        let files = Self(names.iter().filter_map(|n| read(n)).collect());
        assert!(files.0.len() >= 2, "{}: no model", dir.display());
        files
    }

    /// One file's bytes.
    pub fn get(&self, name: &str) -> &[u8] {
        self.0.iter().find(|(n, _)| n == name).map(|(_, b)| b.as_slice()).unwrap_or_else(|| panic!("no {name}"))
    }

    /// The same with one file replaced or added.
    pub fn with(&self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        let mut files = self.without(name);
        files.0.push((name.to_owned(), bytes.into()));
        files
    }

    /// The same without one file.
    pub fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(n, _)| n != name).cloned().collect())
    }

    /// Opens them as a browser would.
    pub fn open(&self) -> Result<Checkpoint> {
        let share = |(name, bytes): &(String, Vec<u8>)| (name.clone(), Arc::new(bytes.clone()) as SharedBytes);
        Checkpoint::from_files(self.0.iter().map(share).collect())
    }

    /// Opens them and checks everything that loading checks.
    pub fn load(&self) -> Result<Spec> {
        Spec::from_checkpoint(&self.open()?, &mut |_, _| {})
    }

    /// config.json with some fields changed; null removes one.
    pub fn with_config(&self, fields: Value) -> Self {
        let mut config: Value = serde_json::from_slice(self.get("config.json")).expect("valid JSON");
        let (object, fields) = (config.as_object_mut().expect("an object"), fields);
        for (name, value) in fields.as_object().expect("an object") {
            object.insert(name.clone(), value.clone());
        }
        self.with("config.json", config.to_string())
    }

    /// model.safetensors with its header changed; the tensors' bytes stay.
    pub fn with_header(&self, change: impl FnOnce(&mut Map<String, Value>)) -> Self {
        let (mut header, data) = split(self.get("model.safetensors"));
        change(&mut header);
        self.with("model.safetensors", join(&Value::Object(header).to_string(), &data))
    }
}

/// A safetensors file's header and data.
pub fn split(bytes: &[u8]) -> (Map<String, Value>, Vec<u8>) {
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    (serde_json::from_slice(&bytes[8..8 + n]).expect("valid JSON"), bytes[8 + n..].to_vec())
}

/// A safetensors file of a header and data.
pub fn join(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// A safetensors file of tensors: name, type, shape, bytes.
pub fn safetensors(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert((*name).into(), json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }));
        data.extend(bytes);
    }
    join(&Value::Object(header).to_string(), &data)
}

/// Splits a model into two files and their index.
pub fn sharded(files: &Files) -> Files {
    let (header, data) = split(files.get("model.safetensors"));
    let mut names: Vec<&String> = header.keys().filter(|k| *k != "__metadata__").collect();
    names.sort();
    let (mut out, mut map) = (files.without("model.safetensors"), Map::new());
    for (i, half) in [&names[..names.len() / 2], &names[names.len() / 2..]].into_iter().enumerate() {
        let file = format!("model-0000{}-of-00002.safetensors", i + 1);
        let (mut part, mut bytes) = (Map::new(), Vec::new());
        for name in half {
            let mut info = header[*name].clone();
            let at = |i: usize| info["data_offsets"][i].as_u64().expect("a number") as usize;
            let tensor = &data[at(0)..at(1)];
            info["data_offsets"] = json!([bytes.len(), bytes.len() + tensor.len()]);
            bytes.extend(tensor);
            part.insert((*name).clone(), info);
            map.insert((*name).clone(), json!(file));
        }
        out = out.with(&file, join(&Value::Object(part).to_string(), &bytes));
    }
    let index = json!({ "metadata": { "total_size": data.len() }, "weight_map": map });
    out.with("model.safetensors.index.json", index.to_string())
}

/// Checks that an error is one line that a person can read, and returns it.
pub fn message(error: &Error) -> String {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.chars().any(char::is_control), "not one line: {text:?}");
    assert!(text.chars().count() <= 900, "{} characters: {text}", text.chars().count());
    text
}

/// Breaks bytes at random: flips, cuts, copies and inserts.
pub fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let n = bytes.len();
        let at = random.below(n);
        match random.below(6) {
            _ if n == 0 => bytes.push(random.bits() as u8),
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.bits() as u8,
            3 => {
                let piece = bytes[at..n.min(at + 1 + random.below(16))].to_vec();
                let to = random.below(n);
                bytes.splice(to..to, piece);
            }
            4 => drop(bytes.splice(at..n.min(at + 1 + random.below(16)), [])),
            _ => {
                // Digits, brackets and quotes break JSON in more places than arbitrary bytes do.
                let token = b"0123456789-+eE.,:[]{}\"\\ntf"[random.below(26)];
                bytes[at] = token;
            }
        }
    }
}

/// A value that no field expects, or only some do.
pub fn odd_value(random: &mut Random) -> Value {
    let list = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(2),
        json!(3),
        json!(4),
        json!(-1),
        json!(7),
        json!(64),
        json!(256),
        json!(257),
        json!(1024),
        json!(65_536),
        json!(4_294_967_295u64),
        json!(4_294_967_296u64),
        json!(9_223_372_036_854_775_807u64),
        json!(18_446_744_073_709_551_615u64),
        json!(0.0),
        json!(0.5),
        json!(-0.5),
        json!(1.5),
        json!(1e-30),
        json!(1e30),
        json!(1e300),
        json!(""),
        json!("silu"),
        json!("line\nbreak\u{7}"),
        json!("x".repeat(5000)),
        json!([]),
        json!([0]),
        json!([1, 0]),
        json!([-1]),
        json!([99_999]),
        json!({}),
        json!({ "layers": [0], "num_heads": 4 }),
        json!({ "layers": [0], "num_heads": 4, "window_size": 0 }),
    ];
    list[random.below(list.len())].clone()
}
