//! Errors as JavaScript sees them: an `Error` with the one-line message, and a `code` to act on.

use deltanet::Error;
use wasm_bindgen::JsValue;

/// Result of everything exported.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// An error of the library on its way to JavaScript.
#[derive(Debug)]
pub struct Failure(pub(crate) Error);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<Failure> for JsValue {
    fn from(failure: Failure) -> Self {
        let message = match &failure.0 {
            Error::Argument { what, expected, got } => {
                Error::Argument { what: in_javascript(what), expected: expected.clone(), got: got.clone() }.to_string()
            }
            other => other.to_string(),
        };
        let error = js_sys::Error::new(&message);
        error.set_name("DeltanetError");
        // Setting a property of a fresh object cannot fail.
        let _ = js_sys::Reflect::set(&error, &"code".into(), &code(&failure.0).into());
        error.into()
    }
}

/// An argument's name as callers in JavaScript write it: the library's `top-p` and `qk_norm.eps` are `topP` and
/// `qkNorm.eps`.
fn in_javascript(name: &str) -> String {
    let mut parts = name.split(['-', '_']);
    let mut joined = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        joined.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        joined.push_str(letters.as_str());
    }
    joined
}

/// Kinds of errors that a page can do something about; documented in `js/index.d.ts`.
fn code(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } => "io",
        Error::Missing { .. } => "missing",
        Error::Format { .. } => "format",
        Error::Config { .. } => "config",
        Error::Tensor { .. } => "tensor",
        Error::Argument { .. } => "argument",
        Error::Tokenizer { .. } => "tokenizer",
        Error::NoAdapter(_) => "no-gpu",
        Error::Limit { .. } => "limit",
        Error::OutOfMemory(_) => "out-of-memory",
        Error::DeviceLost(_) => "device-lost",
        Error::Session(_) => "session-format",
        Error::OtherModel => "session",
        Error::Unsupported(_) => "unsupported",
        _ => "gpu",
    }
}

/// Whether the CPU engine may be able to do what the GPU could not.
pub(crate) fn cpu_may_help(error: &Error) -> bool {
    matches!(
        error,
        Error::NoAdapter(_) | Error::Limit { .. } | Error::OutOfMemory(_) | Error::DeviceLost(_) | Error::Gpu(_)
    )
}

/// The session is generating, or has been disposed of.
pub(crate) fn busy() -> Failure {
    Failure(Error::argument("session", "one that is idle", "one that is generating or has been disposed of"))
}
