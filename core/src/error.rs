//! One error type: what was expected, what came, and where.

/// Result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. Each message is one line that names the file, tensor or option at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A checkpoint's file is malformed (header, offsets, JSON).
    #[error("{file}: {reason}")]
    Format {
        /// The file, or the name the caller gave to the bytes.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that a checkpoint needs is not there.
    #[error("{file}: {reason}")]
    Missing {
        /// The file.
        file: String,
        /// What needs it, and what there is instead.
        reason: String,
    },
    /// A field of config.json has a value that no model can have, or one this version does not support.
    #[error("{file}: {field}: expected {expected}, got {got}")]
    Config {
        /// The file: its path, or `config.json` where it came without one.
        file: String,
        /// The field's name.
        field: String,
        /// What would have been accepted.
        expected: String,
        /// What was there.
        got: String,
    },
    /// A tensor is missing, unexpected, misshapen or holds values that are not numbers.
    #[error("{}tensor {name}: expected {expected}, got {got}", within(.folder.as_deref()))]
    Tensor {
        /// The checkpoint's folder, where there is one.
        folder: Option<String>,
        /// The tensor's name in the checkpoint.
        name: String,
        /// Shape, type or property that was expected.
        expected: String,
        /// What was found.
        got: String,
    },
    /// An argument of a call (or an option of a program) is out of its domain.
    #[error("{what}: expected {expected}, got {got}")]
    Argument {
        /// The argument.
        what: String,
        /// Its domain.
        expected: String,
        /// What came.
        got: String,
    },
    /// The tokenizer's file is broken, or text could not be encoded.
    #[error("{file}: {reason}")]
    Tokenizer {
        /// The file: its path, or `tokenizer.json` where it came without one.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// No adapter, or none that fits the request.
    #[error("no usable GPU: {0}")]
    NoAdapter(String),
    /// The adapter's limits or features are too small for this model or operator.
    #[error("{device}: {what} needs {need}, the device has {have}")]
    Limit {
        /// The adapter's name.
        device: String,
        /// Limit or feature, and what for.
        what: String,
        /// The need.
        need: String,
        /// What there is.
        have: String,
    },
    /// Memory could not be had.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// The device was lost (reset, unplugged, driver restart). Saved sessions stay loadable.
    #[error("the GPU was lost: {0}; load the model again and restore the session from its last save")]
    DeviceLost(String),
    /// The driver or wgpu refused something that should have been valid.
    #[error("GPU error: {0}")]
    Gpu(String),
    /// A saved session's bytes are malformed, or of another version.
    #[error("saved session: {0}")]
    Session(String),
    /// A saved session belongs to another model.
    #[error("saved session: it belongs to another model")]
    OtherModel,
    /// The feature does not exist in this build or engine.
    #[error("not supported: {0}")]
    Unsupported(String),
}

impl Error {
    /// An [`Error::Argument`].
    pub fn argument(what: impl Into<String>, expected: impl ToString, got: impl ToString) -> Self {
        Self::Argument {
            what: one_line(what),
            expected: one_line(expected.to_string()),
            got: one_line(got.to_string()),
        }
    }
    /// An [`Error::Config`].
    pub fn config(field: impl Into<String>, expected: impl ToString, got: impl ToString) -> Self {
        Self::Config {
            file: "config.json".into(),
            field: one_line(field),
            expected: one_line(expected.to_string()),
            got: one_line(got.to_string()),
        }
    }
    /// An [`Error::Tensor`].
    pub fn tensor(name: impl Into<String>, expected: impl ToString, got: impl ToString) -> Self {
        Self::Tensor {
            folder: None,
            name: one_line(name),
            expected: one_line(expected.to_string()),
            got: one_line(got.to_string()),
        }
    }
    /// An [`Error::Tokenizer`].
    pub fn tokenizer(reason: impl ToString) -> Self {
        Self::Tokenizer { file: "tokenizer.json".into(), reason: one_line(reason.to_string()) }
    }
    /// An [`Error::Missing`].
    pub fn missing(file: impl Into<String>, reason: impl ToString) -> Self {
        Self::Missing { file: one_line(file), reason: one_line(reason.to_string()) }
    }
    /// An [`Error::Format`].
    pub fn format(file: impl Into<String>, reason: impl ToString) -> Self {
        Self::Format { file: one_line(file), reason: one_line(reason.to_string()) }
    }
}

fn within(folder: Option<&str>) -> String {
    folder.map_or_else(String::new, |folder| format!("{folder}: "))
}

/// Keeps text that comes from a file on one short line: control characters are escaped, and what is longer than 200
/// characters is cut.
pub(crate) fn one_line(text: impl Into<String>) -> String {
    const MOST: usize = 200;
    let text = text.into();
    if text.chars().nth(MOST).is_none() && !text.chars().any(char::is_control) {
        return text;
    }
    let mut line = String::new();
    for c in text.chars().take(MOST) {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    if text.chars().nth(MOST).is_some() {
        line.push('…');
    }
    line
}
