//! A shader variant: one kernel file, specialised by text.

use crate::bake::bake;
use crate::emulate::emulate;
use crate::kernels::{Kernel, SHARED, file};
use crate::params::Uniform;
use crate::preprocess::{PreprocessError, preprocess};

/// Optional device features that a variant uses. A base variant uses none.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Features {
    /// `enable f16;` and 16-bit storage.
    pub f16: bool,
    /// Subgroup operations.
    pub subgroups: bool,
    /// `enable wgpu_cooperative_matrix;`
    pub cooperative_matrix: bool,
}

/// One specialisation of one kernel: everything that decides its text, and nothing else.
///
/// Head dims and tile sizes are textual `const`s because WGSL cannot size a register array by an `override`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variant {
    /// Which kernel.
    pub kernel: Kernel,
    /// `const NAME: u32 = VALUE;` lines, prepended in this order. Non-zero ones are also defined for `#ifdef`.
    pub consts: Vec<(&'static str, u32)>,
    /// Names for `#ifdef`.
    pub flags: Vec<&'static str>,
    /// Features that the text uses.
    pub features: Features,
    /// The `Params` as they lie in memory, where they are consts of the text; empty where they are a uniform.
    pub baked: Vec<u32>,
}

/// The flag of [`Variant::emulated`].
const EMULATE: &str = "EMULATE";

/// How a kernel uses one binding.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Access {
    /// `var<uniform>` of a struct: the params.
    Uniform,
    /// `var<uniform>` of an array: a window of a buffer.
    UniformArray,
    /// `var … : texture_2d<u32>`
    Texture,
    /// `var<storage, read>`
    Read,
    /// `var<storage, read_write>`
    ReadWrite,
}

/// A variant's WGSL with what a host needs to bind it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Complete WGSL. The entry point is `main`.
    pub wgsl: String,
    /// Access of `@group(0) @binding(i)`, dense from 0.
    pub bindings: Vec<Access>,
}

impl Variant {
    /// A base variant of `kernel`.
    pub fn new(kernel: Kernel) -> Self {
        Self { kernel, consts: Vec::new(), flags: Vec::new(), features: Features::default(), baked: Vec::new() }
    }
    /// Adds `const name: u32 = value;`.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: u32) -> Self {
        self.consts.push((name, value));
        self
    }
    /// Defines `name` for `#ifdef` when `on`.
    #[must_use]
    pub fn flag(mut self, name: &'static str, on: bool) -> Self {
        if on {
            self.flags.push(name);
        }
        self
    }
    /// Sets the features that the text uses.
    #[must_use]
    pub fn features(mut self, features: Features) -> Self {
        self.features = features;
        self
    }
    /// Makes the `Params` consts of the text: a kernel that waits for little else then waits for no uniform either, and
    /// its loops have counts that the driver knows. For kernels that a plan runs with few different `Params`.
    #[must_use]
    pub fn baked<P: Uniform>(mut self, params: &P) -> Self {
        self.baked = bytemuck::cast_slice(bytemuck::bytes_of(params)).to_vec();
        self
    }
    /// Replaces cooperative matrices by plain WGSL when `on`: for tests on devices without them. Far slower, and the
    /// same but for the order of sums.
    #[must_use]
    pub fn emulated(mut self, on: bool) -> Self {
        if on && self.features.cooperative_matrix {
            self.features.cooperative_matrix = false;
            self.flags.push(EMULATE);
        }
        self
    }
    /// The value of a const, if set.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.consts.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }
    /// A short label for pipelines, listings and errors: `delta/step K=64 V=64 GATED`.
    pub fn label(&self) -> String {
        use std::fmt::Write;
        let mut s = self.kernel.path().to_string();
        for (n, v) in &self.consts {
            let _ = write!(s, " {n}={v}");
        }
        for f in &self.flags {
            let _ = write!(s, " {f}");
        }
        s
    }
    /// The whole variant as one line, which [`Variant::from_line`] reads: its label, then its features.
    pub fn line(&self) -> String {
        let f = self.features;
        let marks = [(f.f16, " +f16"), (f.subgroups, " +subgroups"), (f.cooperative_matrix, " +coop")];
        let line = marks.iter().filter(|(on, _)| *on).fold(self.label(), |line, (_, mark)| line + mark);
        self.baked.iter().fold(line, |line, word| format!("{line} @{word:x}"))
    }
    /// The variant that a line names; `None` for a kernel or a name that no shader has.
    pub fn from_line(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let path = words.next()?;
        let mut variant = Self::new(*Kernel::ALL.iter().find(|k| k.path() == path)?);
        for word in words {
            match word {
                "+f16" => variant.features.f16 = true,
                "+subgroups" => variant.features.subgroups = true,
                "+coop" => variant.features.cooperative_matrix = true,
                _ if word.starts_with('@') => variant.baked.push(u32::from_str_radix(word.get(1..)?, 16).ok()?),
                _ => match word.split_once('=') {
                    Some((name, value)) => variant.consts.push((known_name(name)?, value.parse().ok()?)),
                    None => variant.flags.push(known_name(word)?),
                },
            }
        }
        Some(variant)
    }
    /// The complete WGSL text and its bindings.
    pub fn source(&self) -> Result<Source, PreprocessError> {
        let mut body = preprocess(self.kernel.path(), &self.consts, &self.flags)?;
        if self.flags.contains(&EMULATE) {
            body = emulate(self.kernel.path(), &body)?;
        }
        if !self.baked.is_empty() {
            body = bake(self.kernel.path(), &body, &self.baked)?;
        }
        let mut wgsl = String::with_capacity(body.len() + 512);
        // `enable` directives must come before everything else.
        if self.features.f16 {
            wgsl.push_str("enable f16;\n");
        }
        if self.features.cooperative_matrix {
            wgsl.push_str("enable wgpu_cooperative_matrix;\n");
        }
        for (name, value) in &self.consts {
            wgsl.push_str(&format!("const {name}: u32 = {value}u;\n"));
        }
        number_bindings(&body, &mut wgsl);
        let bindings = bindings(self.kernel.path(), &wgsl)?;
        Ok(Source { wgsl, bindings })
    }
}

/// A name as it stands in a shader.
fn known_name(name: &str) -> Option<&'static str> {
    let texts = Kernel::ALL.iter().map(|k| k.path()).chain(SHARED.iter().copied()).filter_map(file);
    texts.flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')).find(|word| *word == name)
}

/// Copies `body`, giving each `@binding(auto)` the next number in order of the text. Kernels whose buffers depend on
/// flags use it; hosts pass the buffers in the same order.
fn number_bindings(body: &str, out: &mut String) {
    let mut parts = body.split("@binding(auto)");
    out.push_str(parts.next().unwrap_or_default());
    for (i, part) in parts.enumerate() {
        out.push_str(&format!("@binding({i})"));
        out.push_str(part);
    }
}

/// Reads the `@group(0) @binding(i) var<..>` lines. One declaration a line, dense from 0: a rule of this crate that
/// the tests check against naga's own reading.
fn bindings(file: &str, wgsl: &str) -> Result<Vec<Access>, PreprocessError> {
    let mut found: Vec<(usize, Access)> = Vec::new();
    for line in wgsl.lines() {
        let Some(rest) = line.trim_start().strip_prefix("@group(0) @binding(") else { continue };
        let bad = || PreprocessError::Binding { file: file.into(), line: line.into() };
        let (index, rest) = rest.split_once(')').ok_or_else(bad)?;
        let index = index.trim().parse().map_err(|_| bad())?;
        let rest = rest.trim_start();
        let access = if rest.starts_with("var<uniform>") && rest.contains(": array<") {
            Access::UniformArray
        } else if rest.starts_with("var<uniform>") {
            Access::Uniform
        } else if rest.starts_with("var ") && rest.contains(": texture_2d<u32>") {
            Access::Texture
        } else if rest.starts_with("var<storage, read>") {
            Access::Read
        } else if rest.starts_with("var<storage, read_write>") {
            Access::ReadWrite
        } else {
            return Err(bad());
        };
        found.push((index, access));
    }
    found.sort_by_key(|(i, _)| *i);
    for (want, (got, _)) in found.iter().enumerate() {
        if want != *got {
            return Err(PreprocessError::Sparse { file: file.into(), missing: want });
        }
    }
    Ok(found.into_iter().map(|(_, a)| a).collect())
}
