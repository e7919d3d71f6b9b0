//! Text that comes from outside: the prompt, a file to score.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

/// Most bytes of a saved session.
const MOST: u64 = 256 << 20;
/// Most bytes of a text: while it becomes tokens, it takes some 140 times as many.
const MOST_TEXT: u64 = 32 << 20;

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
    let mut text = utf8(bounded(&mut stdin, "standard input", MOST_TEXT)?, "standard input")?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// A file's whole text; `-` is standard input.
pub(crate) fn file(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return utf8(bounded(&mut std::io::stdin(), "standard input", MOST_TEXT)?, "standard input");
    }
    utf8(at_most(path, MOST_TEXT)?, &path.display().to_string())
}

/// A saved session's bytes.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>> {
    at_most(path, MOST)
}

/// Whether there is a place for a file: before hours of work go into what it is to hold.
pub(crate) fn can_be_written(path: &Path) -> Result<()> {
    let name = path.display();
    if path.is_dir() {
        bail!("{name}: expected a file to write, got a folder");
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        bail!("{name}: expected a file in a folder that exists, got none named {}", folder.display());
    }
    Ok(())
}

fn at_most(path: &Path, most: u64) -> Result<Vec<u8>> {
    let name = path.display().to_string();
    let mut file = std::fs::File::open(path).with_context(|| name.clone())?;
    let size = file.metadata().with_context(|| name.clone())?.len();
    if size > most {
        bail!("{name}: expected at most {most} bytes, got {size}");
    }
    bounded(&mut file, &name, most)
}

/// Everything that a source has, if it is not too much.
fn bounded(from: &mut dyn Read, name: &str, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes).with_context(|| name.to_string())?;
    if bytes.len() as u64 > most {
        bail!("{name}: expected at most {most} bytes, got more");
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
