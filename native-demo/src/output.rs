//! What is printed: generated text for people, or JSON lines for programs. Only this goes to standard output.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

/// How tokens are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The text as it is made.
    Text,
    /// A line a token: ln p, id, text.
    Lines,
    /// A JSON object a token, then one with the summary.
    Json,
}

/// One generated token.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Token<'a> {
    pub(crate) token: u32,
    pub(crate) text: &'a str,
    pub(crate) logprob: f32,
}

/// Writes tokens.
pub(crate) struct Writer<W> {
    out: W,
    format: Format,
    /// The last character written, to end with a newline.
    ends_line: bool,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(out: W, format: Format) -> Self {
        Self { out, format, ends_line: true }
    }

    /// One token, at once: nothing stays in a buffer.
    pub(crate) fn token(&mut self, token: Token<'_>) -> Result<()> {
        match self.format {
            Format::Text => return self.text(token.text),
            Format::Lines => writeln!(self.out, "{:9.4} {:>7} {:?}", token.logprob, token.token, token.text)?,
            Format::Json => writeln!(self.out, "{}", serde_json::to_string(&token)?)?,
        }
        self.out.flush()?;
        Ok(())
    }

    /// Text that no token completed.
    pub(crate) fn text(&mut self, text: &str) -> Result<()> {
        if !text.is_empty() && self.format == Format::Text {
            self.out.write_all(text.as_bytes())?;
            self.out.flush()?;
            self.ends_line = text.ends_with('\n');
        }
        Ok(())
    }

    /// Ends the output, for programs with the summary.
    pub(crate) fn finish<T: Serialize>(mut self, summary: &T) -> Result<()> {
        match self.format {
            Format::Json => json(&mut self.out, &Summary { summary })?,
            Format::Text if !self.ends_line => writeln!(self.out)?,
            _ => {}
        }
        self.out.flush()?;
        Ok(())
    }
}

#[derive(Serialize)]
struct Summary<'a, T> {
    summary: &'a T,
}

/// One JSON object on one line.
pub(crate) fn json<T: Serialize>(out: &mut impl Write, value: &T) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(())
}

/// Whether the reader of standard output has gone.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|e| e.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
    })
}

/// A line on standard output.
pub(crate) fn say(line: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{line}").context("standard output")
}

/// A line on standard error, for people. One that cannot be written is no reason to end.
pub(crate) fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// `1,234`: thousands apart.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `32.4 MiB`, `128 MiB`: binary units.
pub(crate) fn bytes(n: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let (mut x, mut unit) = (n as f64, "bytes");
    for next in units {
        if x < 1024.0 {
            break;
        }
        (x, unit) = (x / 1024.0, next);
    }
    let digits = usize::from(x.fract() != 0.0 && x < 100.0);
    format!("{x:.digits$} {unit}")
}

/// `17.0 M`: counts.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1} k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} M", n as f64 / 1e6),
        _ => format!("{:.2} G", n as f64 / 1e9),
    }
}

/// `0.35 ms`, `1.20 s`: three digits.
pub(crate) fn time(t: Duration) -> String {
    let s = t.as_secs_f64();
    let (x, unit) = if s < 1e-3 {
        (s * 1e6, "µs")
    } else if s < 1.0 {
        (s * 1e3, "ms")
    } else {
        (s, "s")
    };
    let digits = if x < 10.0 { 2 } else { usize::from(x < 100.0) };
    format!("{x:.digits$} {unit}")
}

/// Tokens a second; 0 when there is nothing to measure.
pub(crate) fn rate(tokens: usize, t: Duration) -> f64 {
    if tokens == 0 || t.is_zero() { 0.0 } else { tokens as f64 / t.as_secs_f64() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn written(format: Format) -> String {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, format);
        writer.token(Token { token: 5, text: " cat\n\"", logprob: -0.5 }).unwrap();
        writer.token(Token { token: 6, text: "é", logprob: -1.0 }).unwrap();
        writer.finish(&3).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn formats() {
        assert_eq!(written(Format::Text), " cat\n\"é\n");
        assert_eq!(written(Format::Lines), "  -0.5000       5 \" cat\\n\\\"\"\n  -1.0000       6 \"é\"\n");
        let json = written(Format::Json);
        let lines: Vec<&str> = json.lines().collect();
        assert_eq!(lines[0], r#"{"token":5,"text":" cat\n\"","logprob":-0.5}"#);
        assert_eq!(lines[2], r#"{"summary":3}"#);
    }

    #[test]
    fn numbers() {
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(12), "12");
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(34_000_000), "32.4 MiB");
        assert_eq!(bytes(128 << 20), "128 MiB");
        assert_eq!(count(16_999_488), "17.0 M");
        assert_eq!(time(Duration::from_micros(1234)), "1.23 ms");
        assert_eq!(time(Duration::from_secs(75)), "75.0 s");
    }

    #[test]
    fn a_closed_pipe_is_recognised() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("standard output");
        assert!(is_broken_pipe(&error));
        assert!(!is_broken_pipe(&anyhow::anyhow!("other")));
    }
}
