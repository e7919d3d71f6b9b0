//! A static file server for this machine only: enough of HTTP for a page, its module and partial downloads.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

/// Longest request head that is read.
const MAX_HEAD: u64 = 16 * 1024;

/// Serves `folder` until the program ends.
pub(crate) fn serve(folder: &Path, port: u16) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("127.0.0.1:{port}"))?;
    println!("serving {} on http://{}", folder.display(), listener.local_addr()?);
    println!("Ctrl-C ends it");
    for stream in listener.incoming().flatten() {
        let folder = folder.to_path_buf();
        // A browser that goes away in mid-file is no error.
        std::thread::spawn(move || connection(stream, &folder).ok());
    }
    Ok(())
}

fn connection(stream: TcpStream, folder: &Path) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    while let Some(request) = Request::read(&mut reader)? {
        let close = request.close;
        answer(&request, folder, &mut out)?;
        if close {
            break;
        }
    }
    Ok(())
}

/// What matters of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    method: String,
    /// Without query, still percent-encoded.
    path: String,
    range: Option<String>,
    close: bool,
}

impl Request {
    /// The next request of a connection; `None` when it has ended.
    fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Self>> {
        let mut head = reader.take(MAX_HEAD);
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let method = words.next().unwrap_or_default().to_string();
        let target = words.next().unwrap_or_default();
        let path = target.split(['?', '#']).next().unwrap_or_default().to_string();
        let mut request = Self { method, path, close: line.trim_end().ends_with("HTTP/1.0"), range: None };
        loop {
            line.clear();
            if head.read_line(&mut line)? == 0 || line.trim().is_empty() {
                return Ok(Some(request));
            }
            let Some((name, value)) = line.split_once(':') else { continue };
            match name.trim().to_ascii_lowercase().as_str() {
                "range" => request.range = Some(value.trim().to_string()),
                "connection" if value.trim().eq_ignore_ascii_case("close") => request.close = true,
                _ => {}
            }
        }
    }
}

fn answer(request: &Request, folder: &Path, out: &mut impl Write) -> std::io::Result<()> {
    let body = request.method != "HEAD";
    if body && request.method != "GET" {
        return short(out, "405 Method Not Allowed", body);
    }
    let Some(path) = local_path(&request.path, folder) else { return short(out, "400 Bad Request", body) };
    let path = if path.is_dir() { path.join("index.html") } else { path };
    let Ok(mut file) = File::open(&path) else { return short(out, "404 Not Found", body) };
    let size = file.metadata()?.len();
    let (status, first, length) = match request.range.as_deref().map(|r| parse_range(r, size)) {
        None | Some(RangeRequest::Ignored) => ("200 OK", 0, size),
        Some(RangeRequest::Part(first, length)) => ("206 Partial Content", first, length),
        Some(RangeRequest::OutOfBounds) => {
            write!(
                out,
                "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{size}\r\nContent-Length: 0\r\n\r\n"
            )?;
            return Ok(());
        }
    };
    write!(
        out,
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {length}\r\nAccept-Ranges: bytes\r\n\
         Cache-Control: no-cache\r\n",
        content_type(&path)
    )?;
    if status.starts_with("206") {
        // An empty part cannot be asked for: length is at least 1.
        write!(out, "Content-Range: bytes {first}-{}/{size}\r\n", first + length - 1)?;
    }
    write!(out, "\r\n")?;
    if body {
        file.seek(SeekFrom::Start(first))?;
        std::io::copy(&mut file.take(length), out)?;
    }
    out.flush()
}

fn short(out: &mut impl Write, status: &str, body: bool) -> std::io::Result<()> {
    let text = if body { status } else { "" };
    write!(out, "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}", status.len())?;
    out.flush()
}

/// The file that a URL path names, or nothing if it is malformed or leaves the folder.
fn local_path(url: &str, folder: &Path) -> Option<PathBuf> {
    let decoded = percent_decode(url.strip_prefix('/')?)?;
    let relative = Path::new(&decoded);
    let inside = relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    inside.then(|| folder.join(relative))
}

fn percent_decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let digit = |b: Option<u8>| (b? as char).to_digit(16);
        let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
        out.push((16 * high + low) as u8);
    }
    String::from_utf8(out).ok().filter(|s| !s.contains('\0'))
}

#[derive(Debug, PartialEq, Eq)]
enum RangeRequest {
    /// First byte and length.
    Part(u64, u64),
    OutOfBounds,
    /// Not a single byte range: the whole file is a correct answer.
    Ignored,
}

fn parse_range(value: &str, size: u64) -> RangeRequest {
    let parts = value.strip_prefix("bytes=").and_then(|r| r.split_once('-'));
    let Some((first, last)) = parts else { return RangeRequest::Ignored };
    let (first, last) = match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => (first, last),
        (Ok(first), Err(_)) if last.trim().is_empty() => (first, u64::MAX),
        (Err(_), Ok(0)) if first.trim().is_empty() => return RangeRequest::OutOfBounds,
        (Err(_), Ok(count)) if first.trim().is_empty() => (size.saturating_sub(count), u64::MAX),
        _ => return RangeRequest::Ignored,
    };
    if first >= size {
        return RangeRequest::OutOfBounds;
    }
    let last = last.min(size - 1);
    RangeRequest::Part(first, last - first + 1)
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|e| e.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("txt" | "md" | "ts" | "tsv") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!(parse_range("bytes=0-9", 100), RangeRequest::Part(0, 10));
        assert_eq!(parse_range("bytes=90-", 100), RangeRequest::Part(90, 10));
        assert_eq!(parse_range("bytes=-5", 100), RangeRequest::Part(95, 5));
        assert_eq!(parse_range("bytes=-500", 100), RangeRequest::Part(0, 100));
        assert_eq!(parse_range("bytes=5-1000", 100), RangeRequest::Part(5, 95));
        assert_eq!(parse_range("bytes=100-", 100), RangeRequest::OutOfBounds);
        assert_eq!(parse_range("bytes=0-", 0), RangeRequest::OutOfBounds);
        assert_eq!(parse_range("bytes=0-1,4-5", 100), RangeRequest::Ignored);
        assert_eq!(parse_range("lines=1-2", 100), RangeRequest::Ignored);
    }

    #[test]
    fn no_path_leaves_the_folder() {
        let folder = Path::new("site");
        assert_eq!(local_path("/a/b%20c.txt", folder), Some(folder.join("a/b c.txt")));
        assert_eq!(local_path("/", folder), Some(folder.join("")));
        for bad in ["/../x", "/a/../../x", "/%2e%2e/x", "//etc/passwd", "/%2fetc/passwd", "/%zz", "/%", "x", "/a%00"] {
            assert_eq!(local_path(bad, folder), None, "{bad}");
        }
    }

    #[test]
    fn requests_are_read_one_after_another() {
        let mut text = "GET /a?b=c HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\n\r\nHEAD / HTTP/1.0\r\n\r\n".as_bytes();
        let first = Request::read(&mut text).unwrap().unwrap();
        assert_eq!((first.path.as_str(), first.range.as_deref()), ("/a", Some("bytes=0-1")));
        assert!(Request::read(&mut text).unwrap().unwrap().close);
        assert_eq!(Request::read(&mut text).unwrap(), None);
    }
}
