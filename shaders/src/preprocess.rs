//! The text preprocessor: `#import name`, `#ifdef NAME`, `#ifndef NAME`, `#else`, `#endif`, and `#for i NAME` …
//! `#endfor`, which repeats its lines with `$i` as 0, 1, … below the const NAME. Nothing more.
//!
//! The repetition is for what must stay in registers: drivers keep private arrays in memory, whatever indexes them.

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
    /// A repetition counts to something that is no const of the variant.
    #[error("{file}:{line}: #for: no const {name}")]
    Count {
        /// File.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The name.
        name: String,
    },
    /// A binding line is not in the one form that this crate uses.
    #[error("{file}: unreadable binding: {line}")]
    Binding {
        /// File.
        file: String,
        /// The line.
        line: String,
    },
    /// A kernel with cooperative matrices is not written as the emulation wants it.
    #[error("{file}: cannot emulate: {what}")]
    Emulation {
        /// File.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// A kernel's `Params` cannot be made consts.
    #[error("{file}: Params as consts: {what}")]
    Params {
        /// File.
        file: String,
        /// What is wrong.
        what: &'static str,
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
    let mut out = String::new();
    let mut expansion = Expansion { consts, flags, seen: Vec::new() };
    expansion.import(path, path, &mut out)?;
    Ok(out)
}

struct Expansion<'a> {
    consts: &'a [(&'static str, u32)],
    flags: &'a [&'static str],
    /// Files taken so far.
    seen: Vec<String>,
}

impl Expansion<'_> {
    fn value(&self, name: &str) -> Option<u32> {
        self.consts.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    fn defined(&self, name: &str) -> bool {
        self.flags.contains(&name) || self.value(name).is_some_and(|v| v != 0)
    }

    fn import(&mut self, from: &str, path: &str, out: &mut String) -> Result<(), PreprocessError> {
        if self.seen.iter().any(|s| s == path) {
            return Ok(());
        }
        self.seen.push(path.to_string());
        let text = file(path).ok_or_else(|| PreprocessError::NoFile { file: from.into(), name: path.into() })?;
        self.expand(path, 0, text, out)
    }

    /// Expands lines of `path`, the first of which is its line `before + 1`.
    fn expand(&mut self, path: &str, before: usize, text: &str, out: &mut String) -> Result<(), PreprocessError> {
        // One entry an open conditional: (this branch is taken, all enclosing ones are).
        let mut stack: Vec<(bool, bool)> = Vec::new();
        let mut lines = text.lines().enumerate();
        while let Some((i, line)) = lines.next() {
            let bad = |what| PreprocessError::Conditional { file: path.into(), line: before + i + 1, what };
            let live = stack.last().is_none_or(|(taken, outer)| *taken && *outer);
            let word = line.trim();
            if let Some(name) = word.strip_prefix("#ifdef ") {
                stack.push((self.defined(name.trim()), live));
            } else if let Some(name) = word.strip_prefix("#ifndef ") {
                stack.push((!self.defined(name.trim()), live));
            } else if word == "#else" {
                let top = stack.last_mut().ok_or_else(|| bad("#else without #ifdef"))?;
                top.0 = !top.0;
            } else if word == "#endif" {
                stack.pop().ok_or_else(|| bad("#endif without #ifdef"))?;
            } else if let Some(name) = word.strip_prefix("#import ") {
                if live {
                    self.import(path, name.trim(), out)?;
                }
            } else if let Some(rest) = word.strip_prefix("#for ") {
                let (variable, name) = rest.trim().split_once(' ').ok_or_else(|| bad("#for without a count"))?;
                let mut body = String::new();
                let mut depth = 1;
                for (_, inner) in lines.by_ref() {
                    match inner.trim() {
                        w if w.starts_with("#for ") => depth += 1,
                        "#endfor" => depth -= 1,
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                    body.push_str(inner);
                    body.push('\n');
                }
                if depth > 0 {
                    return Err(bad("#for without #endfor"));
                }
                if live {
                    let line = before + i + 1;
                    let missing = || PreprocessError::Count { file: path.into(), line, name: name.trim().into() };
                    for round in 0..self.value(name.trim()).ok_or_else(missing)? {
                        let body = body.replace(&format!("${variable}"), &round.to_string());
                        self.expand(path, line, &body, out)?;
                    }
                }
            } else if word == "#endfor" {
                return Err(bad("#endfor without #for"));
            } else if live {
                out.push_str(line);
                out.push('\n');
            }
        }
        if !stack.is_empty() {
            return Err(PreprocessError::Conditional {
                file: path.into(),
                line: before + text.lines().count(),
                what: "#ifdef without #endif",
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_count_and_nest() {
        let text = "#for i N\na$i\n#for j M\n#ifdef M\nb$i$j\n#endif\n#endfor\n#endfor\n";
        let run = |consts: &[(&'static str, u32)], text| {
            let mut out = String::new();
            let mut expansion = Expansion { consts, flags: &[], seen: Vec::new() };
            expansion.expand("here", 0, text, &mut out).map(|()| out)
        };
        assert_eq!(run(&[("N", 2), ("M", 1)], text).unwrap(), "a0\nb00\na1\nb10\n");
        assert_eq!(run(&[("N", 1), ("M", 0)], text).unwrap(), "a0\n");
        assert!(matches!(run(&[("N", 1)], text), Err(PreprocessError::Count { .. })));
        assert!(matches!(run(&[], "#endfor\n"), Err(PreprocessError::Conditional { .. })));
        assert!(matches!(run(&[("N", 1)], "#for i N\n"), Err(PreprocessError::Conditional { .. })));
    }

    #[test]
    fn missing_file_is_an_error() {
        assert!(matches!(preprocess("no/such", &[], &[]), Err(PreprocessError::NoFile { .. })));
    }
}
