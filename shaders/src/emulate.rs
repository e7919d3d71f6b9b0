//! Kernels with cooperative matrices rewritten in plain WGSL, so that devices without them can test such kernels: see
//! `common/emulated_coop`. A rewriting of the text, since WGSL has neither generics nor macros.
//!
//! It relies on how this crate writes such kernels: `coop_mat16x16` only; pointers of the form `&array[index]`; arrays
//! of `f16`, `f32` or `vec4` of them declared as `name: array<`; the entry point's `local_invocation_index` at hand.

use std::fmt::Write;

use crate::kernels::file;
use crate::preprocess::PreprocessError;

const BASE: &str = "common/emulated_coop";

/// One kind of load or store that a text has.
#[derive(PartialEq, Eq)]
struct Access<'a> {
    array: &'a str,
    /// `f32`, `f16`, or a vec4 of them.
    element: &'a str,
    /// Row after row, or column after column.
    by_rows: bool,
    /// Role of the matrix; a store is none of a role.
    role: Option<char>,
}

/// Rewrites a complete text.
pub(crate) fn emulate(path: &str, wgsl: &str) -> Result<String, PreprocessError> {
    let bad = |what: &str| PreprocessError::Emulation { file: path.into(), what: what.into() };
    let mut found: Vec<Access<'_>> = Vec::new();
    let mut out = String::with_capacity(2 * wgsl.len());
    let mut rest = wgsl;
    while let Some(at) = rest.find("coopLoad").into_iter().chain(rest.find("coopStore")).min() {
        out.push_str(&rest[..at]);
        let load = rest[at..].strip_prefix("coopLoad");
        rest = load.or(rest[at..].strip_prefix("coopStore")).unwrap_or_default();
        let by_rows = rest.starts_with('T');
        rest = rest.trim_start_matches('T');
        let mut role = None;
        if load.is_some() {
            let (ty, after) = enclosed(rest, '<', '>').ok_or_else(|| bad("coopLoad without a type"))?;
            role = ty.trim_end_matches('>').chars().last();
            rest = after;
        }
        let (arguments, after) = enclosed(rest, '(', ')').ok_or_else(|| bad("a call without arguments"))?;
        rest = after;
        let (value, pointer) = arguments.split_once('&').ok_or_else(|| bad("a call without a pointer"))?;
        let bracket = pointer.find('[').ok_or_else(|| bad("a pointer to no element"))?;
        let (array, place) = pointer.split_at(bracket);
        let (index, stride) = enclosed(place, '[', ']').ok_or_else(|| bad("an index without an end"))?;
        let element = element(wgsl, array).ok_or_else(|| bad("an array of something else"))?;
        let access = Access { array, element, by_rows, role };
        let number = found.iter().position(|f| *f == access).unwrap_or_else(|| {
            found.push(access);
            found.len() - 1
        });
        let _ = match role {
            Some('A' | 'B') => write!(out, "vec3<u32>({}u, {index}{stride})", number + 1),
            Some(_) => write!(out, "coop_load{number}({index}{stride})"),
            None => write!(out, "coop_store{number}({value}{index}{stride})"),
        };
    }
    out.push_str(rest);
    for role in ['A', 'B', 'C'] {
        for ty in ["f16", "f32"] {
            out = out.replace(&format!("coop_mat16x16<{ty}, {role}>"), &format!("Coop{role}"));
        }
    }
    out = out.replace("coopMultiplyAdd(", "coop_multiply_add(");
    // Every thread knows its place first of all.
    let lane = "@builtin(local_invocation_index) ";
    let at = out.find(lane).ok_or_else(|| bad("no local_invocation_index"))?;
    let thread = out[at + lane.len()..].split(':').next().unwrap_or_default().to_string();
    let body = at + out[at..].find('{').ok_or_else(|| bad("no body"))? + 1;
    out.insert_str(body, &format!("\ncoop_lane = {thread} % 32u; coop_zero = {thread} / 4096u;"));
    let mut out = rolled(&out);
    out.push_str(file(BASE).unwrap_or_default());
    functions(&found, &mut out);
    Ok(out)
}

/// Loops to a bound that compilers cannot know: lavapipe would unroll them, and take seconds for a kernel.
fn rolled(wgsl: &str) -> String {
    let mut out = String::with_capacity(wgsl.len());
    for line in wgsl.lines() {
        match line.trim_start().strip_prefix("for (").and_then(|rest| rest.split(';').nth(1)) {
            Some(condition) => out.push_str(&line.replacen(condition, &format!("{condition} + coop_zero"), 1)),
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// What stands between a bracket at the start of `text` and its partner, and what comes after.
fn enclosed(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        depth += i32::from(c == open) - i32::from(c == close);
        if depth == 0 {
            return text[..i].strip_prefix(open).map(|inside| (inside, &text[i + close.len_utf8()..]));
        }
    }
    None
}

/// Element type of an array of the module.
fn element<'a>(wgsl: &'a str, array: &str) -> Option<&'a str> {
    let declared = wgsl.split_once(&format!(" {array}: array<"))?.1;
    ["vec4<f16>", "vec4<f32>", "f16", "f32"].into_iter().find(|ty| declared.starts_with(ty))
}

impl Access<'_> {
    /// Element (row, column) of the matrix at `at`.
    fn place(&self, row: &str, column: &str) -> String {
        let (major, minor) = if self.by_rows { (row, column) } else { (column, row) };
        if self.element.starts_with("vec4") {
            format!("{}[at + ({major}) * stride + ({minor}) / 4u][({minor}) % 4u]", self.array)
        } else {
            format!("{}[at + ({major}) * stride + ({minor})]", self.array)
        }
    }

    /// A row of the matrix at `at`.
    fn row(&self, row: &str) -> String {
        let fours = (0..4).map(|four| {
            if self.by_rows && self.element.starts_with("vec4") {
                return format!("vec4<f32>({}[at + ({row}) * stride + {four}u])", self.array);
            }
            let each = (0..4).map(|i| format!("f32({})", self.place(row, &format!("{}u", 4 * four + i))));
            format!("vec4<f32>({})", each.collect::<Vec<_>>().join(", "))
        });
        format!("CoopC({})", fours.collect::<Vec<_>>().join(", "))
    }
}

/// The functions behind every access.
fn functions(found: &[Access<'_>], out: &mut String) {
    let (mut elements, mut rows) = (String::new(), String::new());
    for (i, access) in found.iter().enumerate() {
        let number = i + 1;
        let _ = match access.role {
            Some('A') => {
                writeln!(elements, "    case {number}u: {{ return f32({}); }}", access.place("row", "column"))
            }
            Some('B') => writeln!(rows, "    case {number}u: {{ return {}; }}", access.row("row")),
            Some(_) => write!(
                out,
                "fn coop_load{i}(at: u32, stride: u32) -> CoopC {{\n  return {};\n}}\n",
                access.row("coop_lane % 16u")
            ),
            None => {
                let ty = access.element.trim_start_matches("vec4<").trim_end_matches('>');
                let each = (0..16).map(|j| {
                    let place = access.place("coop_lane", &format!("{j}u"));
                    format!("    {place} = {ty}(tile[{}][{}]);\n", j / 4, j % 4)
                });
                let each = each.collect::<String>();
                write!(
                    out,
                    "fn coop_store{i}(tile: CoopC, at: u32, stride: u32) {{\n  if (coop_lane < 16u) {{\n{each}  }}\n}}\n"
                )
            }
        };
    }
    for (head, cases, none) in [
        ("coop_element(tile: CoopA, row: u32, column: u32) -> f32", elements, "0.0"),
        ("coop_row(tile: CoopB, row: u32) -> CoopC", rows, "CoopC()"),
    ] {
        let _ = write!(
            out,
            "fn {head} {{\n  let at = tile.y;\n  let stride = tile.z;\n  switch tile.x {{\n{cases}    \
             default: {{ return {none}; }}\n  }}\n}}\n"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_become_functions_of_their_array() {
        let text = "var<workgroup> xs: array<vec4<f16>, 64>;\n\
                    fn main(@builtin(local_invocation_index) lid: u32) {\n\
                    let a = coopLoadT<coop_mat16x16<f16, A>>(&xs[f(i) + k[0]], LD);\n\
                    coopStore(a + coop_mat16x16<f32, C>(), &xs[at], 4u);\n}\n";
        let out = emulate("here", text).unwrap();
        assert!(out.contains("let a = vec3<u32>(1u, f(i) + k[0], LD);"), "{out}");
        assert!(out.contains("coop_store1(a + CoopC(), at, 4u);"), "{out}");
        assert!(out.contains("{\ncoop_lane = lid % 32u;"), "{out}");
        assert!(
            out.contains("case 1u: { return f32(xs[at + (row) * stride + (column) / 4u][(column) % 4u]); }"),
            "{out}"
        );
        assert!(!out.contains("coopLoad") && !out.contains("coop_mat16x16"), "{out}");
        for unlike in ["coopLoad(&x[0], 1u)", "coopStore(x, y, 1u)", "coopStore(x, &zs[0], 1u)"] {
            let text = text.replace("coopStore(a + coop_mat16x16<f32, C>(), &xs[at], 4u)", unlike);
            assert!(matches!(emulate("here", &text), Err(PreprocessError::Emulation { .. })), "{unlike}");
        }
    }
}
