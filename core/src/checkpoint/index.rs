//! Sharded checkpoints: `model.safetensors.index.json` says which file holds which tensor.

use std::collections::{BTreeMap, BTreeSet};

use super::files::Files;
use super::{TensorView, safetensors};
use crate::error::{Error, Result};

const INDEX: &str = "model.safetensors.index.json";
/// Most bytes of the index.
const MAX_INDEX: u64 = 64 << 20;
/// Most files of one checkpoint.
const MAX_SHARDS: usize = 4096;

#[derive(serde::Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Reads the index and the headers of all its files.
pub(super) fn read(files: &Files) -> Result<BTreeMap<String, TensorView>> {
    let path = files.path(INDEX);
    let Some(text) = files.text(INDEX, MAX_INDEX)? else {
        let advice = match ["pytorch_model.bin", "pytorch_model.bin.index.json"].iter().find(|f| files.has(f)) {
            Some(file) => format!("not found, only {file}: save the model as safetensors first"),
            None => format!("not found, and neither is {INDEX}"),
        };
        return Err(Error::missing(files.path("model.safetensors"), advice));
    };
    let index: Index = serde_json::from_str(&text).map_err(|e| Error::format(&path, format!("invalid index: {e}")))?;
    let shards: BTreeSet<&String> = index.weight_map.values().collect();
    if shards.is_empty() || shards.len() > MAX_SHARDS {
        let reason = format!("expected 1 to {MAX_SHARDS} files in weight_map, got {}", shards.len());
        return Err(Error::format(&path, reason));
    }
    if let Some(shard) = shards.iter().find(|s| !plain(s)) {
        let reason = format!("expected bare names of .safetensors files in weight_map, got {shard:?}");
        return Err(Error::format(&path, reason));
    }
    let mut tensors = BTreeMap::new();
    for shard in shards {
        let file = files.path(shard);
        let bytes =
            files.large(shard)?.ok_or_else(|| Error::missing(&file, format!("not found, but named in {INDEX}")))?;
        for tensor in safetensors::read(&file, &bytes)? {
            match index.weight_map.get(&tensor.name) {
                Some(place) if place == shard => tensors.insert(tensor.name.clone(), tensor),
                Some(place) => {
                    let reason = format!("holds tensor {}, which {INDEX} places in {place}", tensor.name);
                    return Err(Error::format(file, reason));
                }
                None => {
                    return Err(Error::format(
                        file,
                        format!("holds tensor {}, which {INDEX} does not list", tensor.name),
                    ));
                }
            };
        }
    }
    if let Some((name, shard)) = index.weight_map.iter().find(|(name, _)| !tensors.contains_key(*name)) {
        // Rotary frequencies are left out on reading.
        if !name.ends_with("inv_freq") {
            return Err(Error::format(path, format!("places tensor {name} in {shard}, which does not hold it")));
        }
    }
    Ok(tensors)
}

/// Whether a shard's name is a file of the checkpoint's own folder on every system: no path, no drive, no `..`.
fn plain(name: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.len() <= 255 && name.ends_with(".safetensors") && !name.starts_with('.') && name.chars().all(good)
}
