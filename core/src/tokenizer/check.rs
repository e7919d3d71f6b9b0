//! What the `tokenizers` crate takes for granted about a tokenizer.json, and fails on without an error: that it is
//! JSON to its end, and that no merge is longer than the longest token.

use std::fmt::{Formatter, Result as FmtResult};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::{Error, Result};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    model: Model,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Model {
    vocab: Sizes,
    merges: Sizes,
    continuing_subword_prefix: Sizes,
}

/// Sizes of strings in whatever is at a place: an object's keys, an array's pairs, or a string.
#[derive(Clone, Copy, Default)]
struct Sizes {
    /// Bytes of the longest key, string, or pair (its two strings together).
    longest: usize,
    /// Bytes of the shortest second string of a pair.
    shortest_second: Option<usize>,
}

/// Refuses what would make the crate panic; everything else it refuses itself.
pub(super) fn check(bytes: &[u8]) -> Result<()> {
    let bad = |e: String| Error::tokenizer(format!("cannot be loaded: {e}"));
    let File { model } = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
    let prefix = model.continuing_subword_prefix.longest;
    let Some(second) = model.merges.shortest_second else { return Ok(()) };
    if second < prefix || model.merges.longest - prefix > model.vocab.longest {
        return Err(bad("a merge makes a token that is not in the vocabulary".into()));
    }
    Ok(())
}

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(Anything)
    }
}

struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Sizes;

    fn expecting(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Sizes, A::Error> {
        let mut sizes = Sizes::default();
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            sizes.longest = sizes.longest.max(key.len());
            map.next_value::<IgnoredAny>()?;
        }
        Ok(sizes)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Sizes, A::Error> {
        let mut sizes = Sizes::default();
        while let Some(Pair(pair)) = seq.next_element()? {
            if let Some((first, second)) = pair {
                sizes.longest = sizes.longest.max(first + second);
                sizes.shortest_second = Some(sizes.shortest_second.map_or(second, |s| s.min(second)));
            }
        }
        Ok(sizes)
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Sizes, E> {
        Ok(Sizes { longest: text.len(), shortest_second: None })
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Sizes, E> {
        Ok(Sizes::default())
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Sizes, E> {
        Ok(Sizes::default())
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Sizes, E> {
        Ok(Sizes::default())
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Sizes, E> {
        Ok(Sizes::default())
    }

    fn visit_unit<E>(self) -> std::result::Result<Sizes, E> {
        Ok(Sizes::default())
    }
}

/// Bytes of a merge's two strings, written `"a b"` or `["a", "b"]`; `None` for anything else.
struct Pair(Option<(usize, usize)>);

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written<'a> {
            #[serde(borrow)]
            Text(std::borrow::Cow<'a, str>),
            Two(String, String),
            Other(IgnoredAny),
        }
        Ok(Self(match Written::deserialize(deserializer)? {
            Written::Text(text) => text.split_once(' ').map(|(a, b)| (a.len(), b.len())),
            Written::Two(a, b) => Some((a.len(), b.len())),
            Written::Other(_) => None,
        }))
    }
}
