//! One safetensors file: eight bytes of header length, a JSON header, then the tensors' bytes.
//!
//! The `safetensors` crate checks the header (lengths, overflow, that tensors follow one another without gap or
//! overlap and cover the file). Here come the checks that it leaves out, and messages that name the tensor.

use std::collections::HashSet;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, SafeTensorError};

use super::{SharedBytes, TensorView};
use crate::error::{Error, Result};
use crate::model::DType;

/// Most dimensions of a tensor; real ones have at most four.
const MAX_RANK: usize = 8;

/// Reads the header of `file`'s bytes; the tensors are views.
pub(super) fn read(file: &str, bytes: &SharedBytes) -> Result<Vec<TensorView>> {
    let all = (**bytes).as_ref();
    let (header, metadata) = SafeTensors::read_metadata(all).map_err(|e| Error::format(file, explain(&e, all)))?;
    let listed = metadata.tensors();
    // The crate keeps the last of two tensors with one name. Names are compared only if some are missing.
    let text = all.get(8..8 + header).unwrap_or_default();
    if count(text) != Some(listed.len() + usize::from(metadata.metadata().is_some()))
        && let Some(name) = duplicate(text)
    {
        return Err(Error::format(file, format!("tensor {name} is listed twice")));
    }
    let mut tensors = Vec::with_capacity(listed.len());
    for (name, info) in listed {
        // Rotary frequencies that older exporters stored are constants, recomputed from the config.
        if name.ends_with("rotary.inv_freq") || name.ends_with("rotary_emb.inv_freq") {
            continue;
        }
        let dtype = match info.dtype {
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::Bf16,
            other => {
                let reason = format!("tensor {name}: expected type F32, F16 or BF16, got {other:?}");
                return Err(Error::format(file, reason));
            }
        };
        if info.shape.len() > MAX_RANK {
            let reason = format!("tensor {name}: expected at most {MAX_RANK} dimensions, got {}", info.shape.len());
            return Err(Error::format(file, reason));
        }
        // In bounds: the crate has checked that the last tensor ends where the file does.
        let (start, end) = info.data_offsets;
        let range = 8 + header + start..8 + header + end;
        tensors.push(TensorView { name, dtype, shape: info.shape.clone(), bytes: bytes.clone(), range });
    }
    tensors.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

/// Calls `see` with each key of a JSON object, in order.
struct Keys<F>(F);

impl<'de, F: FnMut(String)> serde::de::Visitor<'de> for Keys<F> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(mut self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<serde::de::IgnoredAny>()?;
            (self.0)(key);
        }
        Ok(())
    }
}

/// Counts the keys of a JSON object.
struct Count;

impl<'de> serde::de::Visitor<'de> for Count {
    type Value = usize;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> std::result::Result<usize, A::Error> {
        let mut n = 0;
        while map.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {
            n += 1;
        }
        Ok(n)
    }
}

/// Number of keys in the header.
fn count(header: &[u8]) -> Option<usize> {
    let mut json = serde_json::Deserializer::from_slice(header);
    serde::de::Deserializer::deserialize_map(&mut json, Count).ok()
}

/// A name that occurs twice in the header.
fn duplicate(header: &[u8]) -> Option<String> {
    let (mut seen, mut twice) = (HashSet::new(), None);
    let see = |key: String| {
        if seen.contains(&key) {
            twice.get_or_insert(key);
        } else {
            seen.insert(key);
        }
    };
    let mut json = serde_json::Deserializer::from_slice(header);
    // A header that does not parse has been refused already.
    let _ = serde::de::Deserializer::deserialize_map(&mut json, Keys(see));
    twice
}

/// The crate's error, with the tensor's name and numbers where they can be told.
fn explain(error: &SafeTensorError, bytes: &[u8]) -> String {
    let length = bytes.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
    let after_header = length.and_then(|n| (bytes.len() as u64).checked_sub(8)?.checked_sub(n));
    match (error, length) {
        (SafeTensorError::HeaderTooSmall, _) => {
            format!("expected at least 8 bytes of header length, got {} bytes", bytes.len())
        }
        (SafeTensorError::HeaderTooLarge | SafeTensorError::InvalidHeaderLength, Some(n)) => format!(
            "truncated or not safetensors: the header claims {n} bytes, the file has {} after the length",
            bytes.len().saturating_sub(8)
        ),
        (SafeTensorError::MetadataIncompleteBuffer, _) => {
            let claimed = ends(bytes).map(|e| e.to_string()).unwrap_or_else(|| "other".into());
            let got = after_header.unwrap_or_default();
            format!("truncated or padded: the header lists {claimed} bytes of tensors, the file has {got}")
        }
        (SafeTensorError::TensorInvalidInfo | SafeTensorError::ValidationOverflow, _) => match lying(bytes) {
            Some(reason) => reason,
            None => error.to_string(),
        },
        _ => error.to_string(),
    }
}

/// The parsed header of a file that was refused. At most as long as the file, and at most the crate's 100 MB.
fn header(bytes: &[u8]) -> Option<serde_json::Map<String, serde_json::Value>> {
    let n = usize::try_from(u64::from_le_bytes(*bytes.first_chunk::<8>()?)).ok()?;
    serde_json::from_slice(bytes.get(8..8usize.checked_add(n)?)?).ok()
}

/// Where the last tensor ends, by the header.
fn ends(bytes: &[u8]) -> Option<u64> {
    header(bytes)?.values().filter_map(|t| t.get("data_offsets")?.get(1)?.as_u64()).max()
}

/// The first tensor (by name) whose shape and type do not make its length.
fn lying(bytes: &[u8]) -> Option<String> {
    for (name, info) in header(bytes)? {
        let Some(dtype) = info.get("dtype").and_then(|d| Dtype::deserialize_str(d.as_str()?)) else { continue };
        let Some(shape) = info.get("shape").and_then(|s| s.as_array()) else { continue };
        let offsets = info.get("data_offsets");
        let at = |i: usize| offsets.and_then(|o| o.get(i)?.as_u64());
        let (Some(start), Some(end)) = (at(0), at(1)) else { continue };
        let need = shape
            .iter()
            .try_fold(1u64, |n, d| n.checked_mul(d.as_u64()?))
            .and_then(|n| Some(n.checked_mul(dtype.bitsize() as u64)? / 8));
        if need != Some(end.wrapping_sub(start)) {
            let need = need.map_or_else(|| "more than any file".into(), |n| n.to_string());
            let sizes = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let got = end.wrapping_sub(start);
            return Some(format!("tensor {name}: expected {need} bytes for {dtype:?} [{sizes}], got {got}"));
        }
    }
    None
}

/// A type by its name in headers.
trait ByName: Sized {
    fn deserialize_str(name: &str) -> Option<Self>;
}

impl ByName for Dtype {
    fn deserialize_str(name: &str) -> Option<Self> {
        serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
    }
}
