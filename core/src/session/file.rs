//! Saved sessions: bytes that any engine of the same model can load.
//!
//! ```text
//! magic "deltanet session", version u32, fingerprint [16], vocab u32, layers u32
//! tokens u64, then [tokens] u32
//! logits u32 (0 or vocab), then [logits] f32
//! a layer each: state words u64, cache words u64, then [state] f32, [cache] f32
//! checksum u64 (FNV-1a of everything before it)
//! ```
//! All little-endian. The mask of seen tokens follows from the tokens, so it is not stored.

use crate::engine::SlotState;
use crate::error::{Error, Result};
use crate::model::Spec;

const MAGIC: &[u8; 16] = b"deltanet session";
const VERSION: u32 = 1;

fn checksum(bytes: &[u8]) -> u64 {
    // FNV-1a over words: catches truncation and altered bytes; it is no signature.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3);
        hash ^= hash >> 29;
    }
    hash
}

pub(super) fn write(spec: &Spec, tokens: &[u32], state: &SlotState) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&spec.fingerprint);
    out.extend_from_slice(&(spec.vocab as u32).to_le_bytes());
    out.extend_from_slice(&(spec.layers.len() as u32).to_le_bytes());
    out.extend_from_slice(&(tokens.len() as u64).to_le_bytes());
    tokens.iter().for_each(|t| out.extend_from_slice(&t.to_le_bytes()));
    let floats =
        |out: &mut Vec<u8>, values: &[f32]| values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
    out.extend_from_slice(&(state.logits.len() as u32).to_le_bytes());
    floats(&mut out, &state.logits);
    for (i, layer) in state.layers.iter().enumerate() {
        let cache = state.caches.get(i).map(Vec::as_slice).unwrap_or_default();
        out.extend_from_slice(&(layer.len() as u64).to_le_bytes());
        out.extend_from_slice(&(cache.len() as u64).to_le_bytes());
        floats(&mut out, layer);
        floats(&mut out, cache);
    }
    let sum = checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Takes bytes off the front; nothing is allocated before its bytes are known to be there.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: u64) -> Result<&'a [u8]> {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        let (head, tail) = self.0.split_at_checked(n).ok_or_else(|| Error::Session("the bytes end early".into()))?;
        self.0 = tail;
        Ok(head)
    }
    fn u32(&mut self) -> Result<u32> {
        Ok(self.bytes(4)?.try_into().map_or(0, u32::from_le_bytes))
    }
    fn u64(&mut self) -> Result<u64> {
        Ok(self.bytes(8)?.try_into().map_or(0, u64::from_le_bytes))
    }
    fn words<T>(&mut self, n: u64, from: impl Fn([u8; 4]) -> T) -> Result<Vec<T>> {
        let bytes = self.bytes(n.saturating_mul(4))?;
        Ok(bytes.chunks_exact(4).map(|b| from([b[0], b[1], b[2], b[3]])).collect())
    }
}

pub(super) fn read(spec: &Spec, bytes: &[u8]) -> Result<(Vec<u32>, SlotState)> {
    let bad = |what: String| Error::Session(what);
    let mut r = Reader(bytes);
    if r.bytes(16).ok() != Some(MAGIC) {
        return Err(bad("these bytes are not a saved session".into()));
    }
    let version = r.u32()?;
    if version != VERSION {
        return Err(bad(format!("expected version {VERSION}, got {version}")));
    }
    if r.bytes(16)? != spec.fingerprint {
        return Err(Error::OtherModel);
    }
    let (body, sum) = bytes.split_at_checked(bytes.len().saturating_sub(8)).unwrap_or_default();
    if sum.try_into().map(u64::from_le_bytes).ok() != Some(checksum(body)) {
        return Err(bad("its checksum does not match: truncated or altered".into()));
    }
    let (vocab, layers) = (r.u32()? as usize, r.u32()? as usize);
    if vocab != spec.vocab || layers != spec.layers.len() {
        let want = (spec.vocab, spec.layers.len());
        return Err(bad(format!("expected vocabulary and layers {want:?}, got {:?}", (vocab, layers))));
    }
    let count = r.u64()?;
    let tokens = r.words(count, u32::from_le_bytes)?;
    if let Some(t) = tokens.iter().find(|t| **t as usize >= vocab) {
        return Err(bad(format!("token id {t} is not below {vocab}")));
    }
    let logits = r.u32()?;
    if logits as usize != if tokens.is_empty() { 0 } else { vocab } {
        return Err(bad(format!("expected {vocab} logits, got {logits}")));
    }
    let mut state = SlotState {
        position: count,
        seen: vec![0; vocab.div_ceil(32)],
        logits: r.words(u64::from(logits), f32::from_le_bytes)?,
        ..SlotState::default()
    };
    for (i, layer) in spec.layers.iter().enumerate() {
        let (words, cache) = (r.u64()?, r.u64()?);
        let want = (layer.words as u64, count.saturating_mul(layer.cache_per_token as u64));
        if (words, cache) != want {
            return Err(bad(format!("layer {i}: expected {want:?} elements, got {:?}", (words, cache))));
        }
        state.layers.push(r.words(words, f32::from_le_bytes)?);
        state.caches.push(r.words(cache, f32::from_le_bytes)?);
    }
    if r.0.len() != 8 {
        return Err(bad(format!("{} bytes too many", r.0.len().saturating_sub(8))));
    }
    for t in &tokens {
        if let Some(word) = state.seen.get_mut(*t as usize / 32) {
            *word |= 1 << (t % 32);
        }
    }
    Ok((tokens, state))
}
