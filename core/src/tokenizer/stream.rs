//! Text that arrives token by token.

use super::Tokenizer;
use crate::error::Result;

/// What stands for bytes that are no UTF-8, or not yet.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;
/// Tokens kept as context: some decoders treat a text's first token differently.
const CONTEXT: usize = 4;
/// Tokens without an end of a character after which a place to cut is searched for.
const LONG: usize = 16;
/// Tokens after which bytes are taken for broken.
const BROKEN: usize = 64;

/// Turns tokens into text piece by piece: the pieces together are the text of all tokens. Bytes of a character that
/// is not complete yet are held back until it is.
#[derive(Clone, Debug)]
pub struct TextStream {
    tokenizer: Tokenizer,
    special: bool,
    /// Tokens before `pending`; their text is out.
    context: Vec<u32>,
    /// Tokens whose text is not all out.
    pending: Vec<u32>,
    /// Bytes of `pending`'s text that are out.
    emitted: usize,
}

impl TextStream {
    pub(super) fn new(tokenizer: Tokenizer, special: bool) -> Self {
        Self { tokenizer, special, context: Vec::new(), pending: Vec::new(), emitted: 0 }
    }

    /// Adds a token; returns the text that is complete now, possibly none.
    ///
    /// # Errors
    /// [`Error::Tokenizer`](crate::Error::Tokenizer) when the tokenizer's decoder fails.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.pending.push(id);
        let text = self.text(&self.pending)?;
        // An incomplete character shows as one U+FFFD, or as one a byte.
        let mut complete = text.as_str();
        for _ in 0..3 {
            complete = complete.strip_suffix(REPLACEMENT).unwrap_or(complete);
        }
        let whole = complete.len() == text.len();
        if whole || self.pending.len() >= BROKEN {
            let out = text.get(self.emitted..).unwrap_or_default().to_owned();
            self.settle(self.pending.len(), &text);
            return Ok(out);
        }
        let out = complete.get(self.emitted..).unwrap_or_default().to_owned();
        self.emitted = self.emitted.max(complete.len());
        if self.pending.len() >= LONG {
            self.cut(&text)?;
        }
        Ok(out)
    }

    /// Ends the text: returns what was held back.
    ///
    /// # Errors
    /// [`Error::Tokenizer`](crate::Error::Tokenizer) when the tokenizer's decoder fails.
    pub fn finish(&mut self) -> Result<String> {
        let text = self.text(&self.pending)?;
        let out = text.get(self.emitted..).unwrap_or_default().to_owned();
        self.settle(self.pending.len(), &text);
        Ok(out)
    }

    /// Text of tokens that follow the context.
    fn text(&self, tokens: &[u32]) -> Result<String> {
        let decode = |ids: &[u32]| self.tokenizer.decode(ids, self.special);
        if self.context.is_empty() {
            return decode(tokens);
        }
        let before = decode(&self.context)?;
        let all = decode(&[&self.context, tokens].concat())?;
        match all.strip_prefix(&before) {
            Some(text) => Ok(text.to_owned()),
            // The decoder reads the context differently now (bytes that it joins): on their own, then.
            None => decode(tokens),
        }
    }

    /// The first `n` pending tokens, whose text is `text`, are out.
    fn settle(&mut self, n: usize, text: &str) {
        let out: Vec<u32> = self.pending.drain(..n).collect();
        self.emitted = self.emitted.saturating_sub(text.len());
        if self.pending.is_empty() {
            self.emitted = 0;
        }
        // Tokens without text (special ones that are left out) are no context.
        if !text.is_empty() {
            self.context = out[out.len().saturating_sub(CONTEXT)..].to_vec();
        }
    }

    /// Settles as many pending tokens as can go without changing the text.
    fn cut(&mut self, text: &str) -> Result<()> {
        for n in (1..self.pending.len()).rev() {
            let head = self.text(&self.pending[..n])?;
            let after = Self { context: self.pending[..n].to_vec(), ..self.clone() };
            let tail = after.text(&self.pending[n..])?;
            if head.len() <= self.emitted && text.strip_prefix(&head) == Some(&tail) {
                self.settle(n, &head);
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte-level BPE without merges: token n is byte n, and 256 is special.
    fn bytes() -> Tokenizer {
        // The byte-level alphabet: printable Latin-1 as itself, the other bytes from U+0100 on.
        let mut next = 256;
        let vocab: serde_json::Map<_, _> = (0..=255u32)
            .map(|b| {
                let printable = (33..=126).contains(&b) || (161..=172).contains(&b) || b >= 174;
                let code = if printable { b } else { next };
                next += u32::from(!printable);
                (char::from_u32(code).unwrap().to_string(), b.into())
            })
            .collect();
        let special = serde_json::json!({ "id": 256, "content": "<end>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true });
        let json = serde_json::json!({ "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [special], "normalizer": null,
            "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
            "post_processor": null,
            "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
            "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": [] } });
        Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap()
    }

    /// SentencePiece style: words with a leading space, and bytes for the rest.
    fn fallback() -> Tokenizer {
        let mut vocab = serde_json::Map::new();
        vocab.insert("<unk>".into(), 0.into());
        for b in 0..=255u32 {
            vocab.insert(format!("<0x{b:02X}>"), (b + 1).into());
        }
        vocab.insert("▁a".into(), 257.into());
        vocab.insert("b".into(), 258.into());
        let json = serde_json::json!({ "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": null, "pre_tokenizer": null, "post_processor": null,
            "decoder": { "type": "Sequence", "decoders": [
                { "type": "Replace", "pattern": { "String": "▁" }, "content": " " }, { "type": "ByteFallback" },
                { "type": "Fuse" }, { "type": "Strip", "content": " ", "start": 1, "stop": 0 } ] },
            "model": { "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": [] } });
        Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap()
    }

    fn streamed(t: &Tokenizer, ids: &[u32]) -> (String, Vec<String>) {
        let mut stream = t.stream(false);
        let mut pieces: Vec<String> = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
        pieces.push(stream.finish().unwrap());
        (pieces.concat(), pieces)
    }

    #[test]
    fn characters_come_whole() {
        let text = "Zoë 字 🙂, done.";
        let ids: Vec<u32> = text.bytes().map(u32::from).collect();
        let (all, pieces) = streamed(&bytes(), &ids);
        assert_eq!(all, text);
        assert!(pieces.iter().all(|p| !p.contains(REPLACEMENT)), "{pieces:?}");
        assert!(pieces.iter().all(|p| p.chars().count() <= 1), "held back no longer than needed: {pieces:?}");
    }

    #[test]
    fn broken_bytes_are_neither_lost_nor_held_for_ever() {
        let t = bytes();
        for bytes in [vec![0xff; 200], vec![0x80; 100], [vec![0xe5, 0xad], vec![b'x'], vec![0xf0, 0x9f, 0x99]].concat()]
        {
            let ids: Vec<u32> = bytes.iter().map(|b| u32::from(*b)).collect();
            let mut stream = t.stream(false);
            let mut out = String::new();
            for id in ids {
                out += &stream.push(id).unwrap();
                assert!(stream.pending.len() <= BROKEN);
            }
            out += &stream.finish().unwrap();
            assert_eq!(out, String::from_utf8_lossy(&bytes));
        }
        // A character after many broken bytes still comes whole.
        let data = [vec![0xff; 40], "字".as_bytes().to_vec()].concat();
        let ids: Vec<u32> = data.iter().map(|b| u32::from(*b)).collect();
        assert_eq!(streamed(&t, &ids).0, String::from_utf8_lossy(&data));
    }

    #[test]
    fn special_tokens_are_left_out_or_written() {
        let t = bytes();
        let ids = [b'a'.into(), 256, b'b'.into()];
        assert_eq!(streamed(&t, &ids).0, "ab");
        assert_eq!(t.decode(&ids, true).unwrap(), "a<end>b");
        assert_eq!(t.encode("a<end>b", false).unwrap(), ids);
        assert_eq!((t.id("<end>"), t.token(256).as_deref(), t.token(999)), (Some(256), Some("<end>"), None));
        assert!(t.check_fits(257).is_ok());
        let error = t.check_fits(256).unwrap_err().to_string();
        assert_eq!(error, "tokenizer.json: expected ids below the model's vocabulary of 256, got id 256");
    }

    #[test]
    fn spaces_between_words_survive() {
        let t = fallback();
        let byte = |b: u8| u32::from(b) + 1;
        let ids = [257, 258, 257, byte(0xe5), byte(0xad), byte(0x97), 257, byte(0xc3)];
        assert_eq!(t.decode(&ids, false).unwrap(), "ab a字 a\u{fffd}");
        let (all, pieces) = streamed(&t, &ids);
        assert_eq!(all, "ab a字 a\u{fffd}");
        assert_eq!(pieces[5], "字");
    }

    #[test]
    fn broken_files_are_refused_in_one_line() {
        for text in
            ["", "{}", "[1]", "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "{\"version\":\"9\"}"]
        {
            let error = Tokenizer::from_bytes(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("tokenizer.json: ") && !error.contains('\n'), "{error}");
        }
    }
}
