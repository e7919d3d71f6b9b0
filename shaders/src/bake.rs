//! A kernel's `Params` as consts of its text.

use crate::preprocess::PreprocessError;

/// Replaces the uniform of type `Params` by a const of the same name with these words as its value.
pub(crate) fn bake(path: &str, body: &str, words: &[u32]) -> Result<String, PreprocessError> {
    let bad = |what| PreprocessError::Params { file: path.into(), what };
    let mark = "@group(0) @binding(auto) var<uniform> ";
    let (before, rest) = body.split_once(mark).ok_or_else(|| bad("no uniform"))?;
    let (name, after) = rest.split_once(": Params;").ok_or_else(|| bad("no uniform of type Params"))?;
    let mut words = words.iter().copied();
    let value =
        construct(body, "Params", &mut words).ok_or_else(|| bad("a field of no known type, or too few values"))?;
    if words.next().is_some() {
        return Err(bad("more values than fields"));
    }
    Ok(format!("{before}const {name} = {value};{after}"))
}

/// A constructor call of a struct that is declared in `body`, a field a line.
fn construct(body: &str, name: &str, words: &mut impl Iterator<Item = u32>) -> Option<String> {
    let (_, rest) = body.split_once(&format!("struct {name} {{"))?;
    let (fields, _) = rest.split_once('}')?;
    let mut values = Vec::new();
    for line in fields.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let Some((_, ty)) = line.split_once(':') else { continue };
        values.push(match ty.trim().trim_end_matches(',') {
            "u32" => format!("{}u", words.next()?),
            // The shortest text that reads as the same number again.
            "f32" => Some(f32::from_bits(words.next()?)).filter(|v| v.is_finite()).map(|v| format!("{v:?}f"))?,
            other => construct(body, other, words)?,
        });
    }
    Some(format!("{name}({})", values.join(", ")))
}
