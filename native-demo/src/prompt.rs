//! Text that comes from outside: the prompt, a file to score.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

/// Most bytes of a text or a saved session.
const MOST: u64 = 256 << 20;

/// The prompt: the argument, or standard input up to its end. One newline at the very end of standard input is
/// dropped: `echo` adds it, and a story goes on after "time", not after "time\n".
pub(crate) fn read(argument: Option<&str>) -> Result<String> {
    if let Some(text) = argument {
        return Ok(text.to_string());
    }
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        bail!(
            "prompt: expected an argument or text on standard input, got neither (try: deltanet \"Once upon a time\")"
        );
    }
    let mut text = utf8(bounded(&mut stdin, "standard input")?, "standard input")?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// A file's whole text.
pub(crate) fn file(path: &Path) -> Result<String> {
    utf8(bytes(path)?, &path.display().to_string())
}

/// A file's bytes.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>> {
    let name = path.display().to_string();
    let mut file = std::fs::File::open(path).with_context(|| name.clone())?;
    let size = file.metadata().with_context(|| name.clone())?.len();
    if size > MOST {
        bail!("{name}: expected at most {MOST} bytes, got {size}");
    }
    bounded(&mut file, &name)
}

/// Everything that a source has, if it is not too much.
fn bounded(from: &mut dyn Read, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MOST + 1).read_to_end(&mut bytes).with_context(|| name.to_string())?;
    if bytes.len() as u64 > MOST {
        bail!("{name}: expected at most {MOST} bytes, got more");
    }
    Ok(bytes)
}

fn utf8(bytes: Vec<u8>, source: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        let byte = e.as_bytes().get(at).copied().unwrap_or_default();
        anyhow!("{source}: expected UTF-8 text, got byte 0x{byte:02x} at offset {at}")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn bad_text_is_named_with_its_place() {
        let error = utf8(vec![b'a', b'b', 0xff, b'c'], "standard input").unwrap_err().to_string();
        assert_eq!(error, "standard input: expected UTF-8 text, got byte 0xff at offset 2");
        assert_eq!(utf8("café".into(), "x").unwrap(), "café");
    }
}
