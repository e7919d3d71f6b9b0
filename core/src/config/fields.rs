//! Typed access to the fields of a JSON object, with errors that name file and field.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::model::DType;

/// Parses a text that must be a JSON object.
pub(super) fn value(file: &str, text: &str) -> Result<Value> {
    let root: Value = serde_json::from_str(text).map_err(|e| Error::format(file, format!("invalid JSON: {e}")))?;
    if !root.is_object() {
        return Err(Error::format(file, format!("expected a JSON object, got {}", brief(&root))));
    }
    Ok(root)
}

/// A value for an error message.
fn brief(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Array(a) => format!("an array of {}", a.len()),
        Value::Object(_) => "an object".into(),
        other => other.to_string(),
    }
}

/// The fields of one object. A field that is absent and one that is null count the same.
pub(super) struct Fields<'a> {
    object: &'a Value,
    file: &'static str,
    /// `attn.` inside of `attn`.
    prefix: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn new(object: &'a Value, file: &'static str, prefix: &'static str) -> Self {
        Self { object, file, prefix }
    }

    fn get(&self, field: &str) -> &'a Value {
        self.object.get(field).unwrap_or(&Value::Null)
    }

    /// Whether a field is there and not null.
    pub(super) fn is_set(&self, field: &str) -> bool {
        !self.get(field).is_null()
    }

    /// Whether a field is there, and null.
    pub(super) fn is_null(&self, field: &str) -> bool {
        self.object.get(field).is_some_and(Value::is_null)
    }

    /// The error about a field.
    pub(super) fn bad(&self, field: &str, expected: impl ToString, got: impl ToString) -> Error {
        if self.file == "config.json" {
            return Error::config(format!("{}{field}", self.prefix), expected, got);
        }
        Error::format(self.file, format!("{field}: expected {}, got {}", expected.to_string(), got.to_string()))
    }

    /// A size from 1 to `most`.
    pub(super) fn size(&self, field: &str, default: Option<usize>, most: usize) -> Result<usize> {
        let value = self.get(field);
        let size = match (value, default) {
            (Value::Null, Some(default)) => Some(default),
            (value, _) => value.as_u64().and_then(|n| usize::try_from(n).ok()),
        };
        match size {
            Some(n) if (1..=most).contains(&n) => Ok(n),
            _ => Err(self.bad(field, format!("a whole number from 1 to {most}"), brief(value))),
        }
    }

    /// A finite number that satisfies `good`.
    pub(super) fn float(
        &self,
        field: &str,
        default: Option<f32>,
        expected: &str,
        good: impl Fn(f32) -> bool,
    ) -> Result<f32> {
        let value = self.get(field);
        let float = match (value, default) {
            (Value::Null, Some(default)) => Some(default),
            (value, _) => value.as_f64().map(|x| x as f32),
        };
        match float {
            Some(x) if x.is_finite() && good(x) => Ok(x),
            _ => Err(self.bad(field, expected, brief(value))),
        }
    }

    /// A number that the kernels have built in.
    pub(super) fn fixed_float(&self, field: &str, only: f32) -> Result<()> {
        self.float(field, Some(only), &format!("{only}, the only supported value"), |x| x == only).map(|_| ())
    }

    /// true or false.
    pub(super) fn flag(&self, field: &str, default: bool) -> Result<bool> {
        match self.get(field) {
            Value::Null => Ok(default),
            Value::Bool(b) => Ok(*b),
            other => Err(self.bad(field, "true or false", brief(other))),
        }
    }

    /// A flag of which one value is supported.
    pub(super) fn fixed_bool(&self, field: &str, only: bool) -> Result<()> {
        match self.flag(field, only)? == only {
            true => Ok(()),
            false => Err(self.bad(field, format!("{only}, the only supported value"), !only)),
        }
    }

    /// A feature that this version does not have.
    pub(super) fn absent(&self, field: &str) -> Result<()> {
        match self.get(field) {
            Value::Null => Ok(()),
            other => Err(self.bad(field, "nothing, since it is not supported", brief(other))),
        }
    }

    /// One of several names.
    pub(super) fn name<T: Copy>(&self, field: &str, default: Option<T>, names: &[(&str, T)]) -> Result<T> {
        let value = self.get(field);
        if let (Value::Null, Some(default)) = (value, default) {
            return Ok(default);
        }
        let found = value.as_str().and_then(|s| names.iter().find(|(name, _)| *name == s));
        found.map(|(_, t)| *t).ok_or_else(|| {
            let names = names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            self.bad(field, format!("one of {names}"), brief(value))
        })
    }

    /// An object inside this one.
    pub(super) fn object(&self, field: &'static str) -> Result<Option<Self>> {
        let prefix = if field == "attn" { "attn." } else { field };
        match self.get(field) {
            Value::Null => Ok(None),
            object @ Value::Object(_) => Ok(Some(Self { object, file: self.file, prefix })),
            other => Err(self.bad(field, "an object", brief(other))),
        }
    }

    /// An array of numbers below `end`.
    pub(super) fn indices(&self, field: &str, end: usize) -> Result<Vec<usize>> {
        let expected = || format!("an array of whole numbers below {end}");
        let value = self.get(field);
        let array = value.as_array().ok_or_else(|| self.bad(field, expected(), brief(value)))?;
        let index = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n < end);
        array.iter().map(|v| index(v).ok_or_else(|| self.bad(field, expected(), brief(v)))).collect()
    }

    /// Token ids below `vocab`: one, an array, or none.
    pub(super) fn ids(&self, field: &str, vocab: usize) -> Result<Vec<u32>> {
        let id = |v: &Value| {
            let n = v.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| (*n as usize) < vocab);
            n.ok_or_else(|| self.bad(field, format!("token ids below {vocab}"), brief(v)))
        };
        match self.get(field) {
            Value::Null => Ok(Vec::new()),
            Value::Array(ids) => ids.iter().map(id).collect(),
            one => Ok(vec![id(one)?]),
        }
    }

    /// The element type, by either of its two field names.
    pub(super) fn dtype(&self) -> Result<Option<DType>> {
        let names = [("float32", DType::F32), ("float16", DType::F16), ("bfloat16", DType::Bf16)];
        let field = if self.is_set("dtype") { "dtype" } else { "torch_dtype" };
        if self.is_set(field) { self.name(field, None, &names).map(Some) } else { Ok(None) }
    }
}
