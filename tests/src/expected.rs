//! The demo model's expected values: `models/stories-17m/expected.safetensors`.

use std::path::PathBuf;

use safetensors::SafeTensors;

/// One prompt and its greedy continuation.
pub struct Prompt {
    /// Prompt, then continuation.
    pub ids: Vec<u32>,
    /// Length of the prompt, end-of-text tokens included.
    pub prompt_len: usize,
    /// `[vocab]`, after the prompt.
    pub logits_prompt: Vec<f32>,
    /// `[vocab]`, after the last id.
    pub logits_last: Vec<f32>,
}

/// A long text.
pub struct Long {
    /// 700 tokens.
    pub ids: Vec<u32>,
    /// −ln p of tokens 1 … 699.
    pub nll: Vec<f32>,
    /// `[vocab]`, after the last.
    pub logits_last: Vec<f32>,
}

/// All of the file.
pub struct Demo {
    /// Four prompts.
    pub prompts: Vec<Prompt>,
    /// The long text.
    pub long: Long,
}

/// The demo model's folder.
pub fn demo_directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/stories-17m")
}

/// Reads the expected values.
pub fn demo() -> Demo {
    let bytes = std::fs::read(demo_directory().join("expected.safetensors")).expect("the demo model's expected values");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let raw = |name: &str| file.tensor(name).unwrap_or_else(|_| panic!("{name}")).data().to_vec();
    let floats = |name: &str| -> Vec<f32> { bytemuck::pod_collect_to_vec(&raw(name)) };
    let ids = |name: &str| -> Vec<u32> { bytemuck::pod_collect_to_vec(&raw(name)) };
    let prompts = (0..4)
        .map(|i| Prompt {
            ids: ids(&format!("{i}.ids")),
            prompt_len: ids(&format!("{i}.prompt_len"))[0] as usize,
            logits_prompt: floats(&format!("{i}.logits_prompt")),
            logits_last: floats(&format!("{i}.logits_last")),
        })
        .collect();
    let long = Long { ids: ids("long.ids"), nll: floats("long.nll"), logits_last: floats("long.logits_last") };
    Demo { prompts, long }
}
