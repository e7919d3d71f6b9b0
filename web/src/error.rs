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
        let error = js_sys::Error::new(&failure.0.to_string());
        error.set_name("DeltanetError");
        // Setting a property of a fresh object cannot fail.
        let _ = js_sys::Reflect::set(&error, &"code".into(), &code(&failure.0).into());
        error.into()
    }
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
