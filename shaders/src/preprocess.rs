//! The text preprocessor: `#import name`, `#ifdef NAME`, `#ifndef NAME`, `#else`, `#endif`. Nothing more.

use crate::kernels::file;

/// What can be wrong with a shader's text. Only a mistake in this crate causes it; tests build every variant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreprocessError {
    /// An import or kernel names no file.
    #[error("{file}: no shader file {name}")]
    NoFile {
        /// Importing file.
        file: String,
        /// Name asked for.
        name: String,
    },
    /// Conditionals do not nest.
    #[error("{file}:{line}: {what}")]
    Conditional {
        /// File.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A binding line is not in the one form that this crate uses.
    #[error("{file}: unreadable binding: {line}")]
    Binding {
        /// File.
        file: String,
        /// The line.
        line: String,
    },
    /// Binding numbers have a gap.
    #[error("{file}: binding {missing} is missing")]
    Sparse {
        /// File.
        file: String,
        /// First missing number.
        missing: usize,
    },
}

/// Expands `path`. A const that is not zero counts as defined. Each import is taken once.
pub(crate) fn preprocess(
    path: &str,
    consts: &[(&'static str, u32)],
    flags: &[&'static str],
) -> Result<String, PreprocessError> {
    let defined = |name: &str| flags.contains(&name) || consts.iter().any(|(n, v)| *n == name && *v != 0);
    let mut out = String::new();
    let mut seen = Vec::new();
    expand(path, path, &defined, &mut seen, &mut out)?;
    Ok(out)
}

fn expand(
    from: &str,
    path: &str,
    defined: &dyn Fn(&str) -> bool,
    seen: &mut Vec<String>,
    out: &mut String,
) -> Result<(), PreprocessError> {
    if seen.iter().any(|s| s == path) {
        return Ok(());
    }
    seen.push(path.to_string());
    let text = file(path).ok_or_else(|| PreprocessError::NoFile { file: from.into(), name: path.into() })?;
    // One entry an open conditional: (this branch is taken, all enclosing ones are).
    let mut stack: Vec<(bool, bool)> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let bad = |what| PreprocessError::Conditional { file: path.into(), line: i + 1, what };
        let live = stack.last().is_none_or(|(taken, outer)| *taken && *outer);
        let word = line.trim();
        if let Some(name) = word.strip_prefix("#ifdef ") {
            stack.push((defined(name.trim()), live));
        } else if let Some(name) = word.strip_prefix("#ifndef ") {
            stack.push((!defined(name.trim()), live));
        } else if word == "#else" {
            let top = stack.last_mut().ok_or_else(|| bad("#else without #ifdef"))?;
            top.0 = !top.0;
        } else if word == "#endif" {
            stack.pop().ok_or_else(|| bad("#endif without #ifdef"))?;
        } else if let Some(name) = word.strip_prefix("#import ") {
            if live {
                expand(path, name.trim(), defined, seen, out)?;
            }
        } else if live {
            out.push_str(line);
            out.push('\n');
        }
    }
    if !stack.is_empty() {
        return Err(PreprocessError::Conditional {
            file: path.into(),
            line: text.lines().count(),
            what: "#ifdef without #endif",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_file_is_an_error() {
        assert!(matches!(preprocess("no/such", &[], &[]), Err(PreprocessError::NoFile { .. })));
    }
}
