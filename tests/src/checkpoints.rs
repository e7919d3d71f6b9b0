//! The tiny third-party checkpoints and the demo model, with what their makers computed from them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The demo model's folder.
pub fn stories() -> PathBuf {
    root().join("models/stories-17m")
}

/// The demo model's tokenizer.json.
pub fn stories_tokenizer() -> Vec<u8> {
    let path = stories().join("tokenizer.json");
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The folder of the tiny checkpoint `name`.
pub fn tiny(name: &str) -> PathBuf {
    root().join("tests/golden/checkpoints").join(name)
}

/// An entry of the tiny checkpoints' index.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Entry {
    /// Folder.
    pub name: String,
    /// `model_type` of its config.
    pub model_type: String,
    /// Tokens of the expected run.
    #[serde(rename = "T")]
    pub tokens: usize,
    /// Tokens that `logits_prefill_then_decode` prefills; the rest are single steps.
    pub prefill_split: usize,
    /// Number of parameters.
    pub params: u64,
    /// Largest |difference| allowed, over the largest |logit|.
    pub tolerance_logits_relmax: f64,
    /// What is special about it.
    pub note: String,
}

/// All tiny checkpoints.
pub fn index() -> Vec<Entry> {
    let path = root().join("tests/golden/checkpoints/index.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A tensor of an `expected.safetensors`, as f32 or as integers.
#[derive(Clone, Debug)]
pub enum Values {
    /// Floats.
    Floats(Vec<f32>),
    /// Token ids and lengths.
    Ints(Vec<i64>),
}

/// A file of expected values, by name.
#[derive(Clone, Debug)]
pub struct Expected(BTreeMap<String, Values>);

impl Expected {
    /// Reads `expected.safetensors` of a folder.
    pub fn read(dir: &Path) -> Self {
        let path = dir.join("expected.safetensors");
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = SafeTensors::deserialize(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let values = file.iter().map(|(name, t)| {
            let d = t.data();
            let values = match t.dtype() {
                Dtype::F32 => Values::Floats(
                    d.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect(),
                ),
                Dtype::I64 => Values::Ints(
                    d.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes"))).collect(),
                ),
                Dtype::I32 => Values::Ints(
                    d.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().expect("4 bytes")).into()).collect(),
                ),
                other => panic!("{}: {name}: unexpected type {other:?}", path.display()),
            };
            (name.to_owned(), values)
        });
        Self(values.collect())
    }

    /// A float tensor.
    pub fn floats(&self, name: &str) -> &[f32] {
        match self.0.get(name) {
            Some(Values::Floats(v)) => v,
            other => panic!("expected.safetensors: {name}: expected floats, got {other:?}"),
        }
    }

    /// An integer tensor as token ids or lengths.
    pub fn ids(&self, name: &str) -> Vec<u32> {
        match self.0.get(name) {
            Some(Values::Ints(v)) => v.iter().map(|n| u32::try_from(*n).expect("a token id")).collect(),
            other => panic!("expected.safetensors: {name}: expected integers, got {other:?}"),
        }
    }
}

/// The largest |a − b| over the largest |b|, and where it is.
pub fn relmax(a: &[f32], b: &[f32]) -> (f64, usize) {
    assert_eq!(a.len(), b.len(), "lengths differ");
    let most = b.iter().fold(0f64, |m, x| m.max(f64::from(x.abs()))).max(1e-30);
    let mut worst = (0.0, 0);
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        let d = (f64::from(*x) - f64::from(*y)).abs() / most;
        // A NaN must not pass for a small difference.
        if d.is_nan() || d > worst.0 {
            worst = (if d.is_nan() { f64::INFINITY } else { d }, i);
        }
    }
    worst
}
