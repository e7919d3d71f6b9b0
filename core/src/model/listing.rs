//! How plans and models print themselves, for `deltanet info`.

use std::fmt::{Display, Formatter, Result};

use super::{Spec, Weight};
use crate::ops::{Activation, Attention, GateForm, Input, Linear, Mixer, Op};
use crate::plan::{Life, Plan};
use crate::rule::Decay;

/// A number of bytes: `33.1 MiB`.
fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let (mut x, mut unit) = (n as f64, 0);
    while x >= 1024.0 && unit < UNITS.len() - 1 {
        x /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{x:.1} {}", UNITS[unit]) }
}

/// 16,989,152
fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

impl Plan {
    fn name(&self, id: crate::ops::BufId) -> &str {
        self.buffers.get(id.0).map_or("?", |b| b.name)
    }

    fn cols(&self, c: &crate::ops::Cols, n: usize) -> String {
        if c.at == 0 && c.width == n {
            self.name(c.buf).into()
        } else {
            format!("{}[{}..{}]", self.name(c.buf), c.at, c.at + n)
        }
    }

    fn linear(&self, l: &Linear) -> String {
        let input = match &l.input {
            Input::Plain(x) => self.cols(x, l.in_dim),
            Input::RmsNorm { x, .. } => format!("norm({})", self.cols(x, l.in_dim)),
            Input::HeadNorm { x, head_dim, weight, gate, .. } => {
                let x = self.cols(x, l.in_dim);
                let x = if weight.is_some() { format!("norm{head_dim}({x})") } else { x };
                match gate {
                    None => x,
                    Some((g, Activation::Silu)) => format!("{x} · silu({})", self.cols(g, l.in_dim)),
                    Some((g, Activation::Sigmoid)) => format!("{x} · sigmoid({})", self.cols(g, l.in_dim)),
                }
            }
            Input::SwiGlu(g) => {
                let up = crate::ops::Cols { at: g.at + l.in_dim, ..*g };
                format!("silu({}) · {}", self.cols(g, l.in_dim), self.cols(&up, l.in_dim))
            }
        };
        let (set, bias) = (if l.add { "+=" } else { "=" }, if l.bias.is_some() { " + bias" } else { "" });
        let last = if l.last_only { ", last row only" } else { "" };
        format!("{} {set} [{}, {}] × {input}{bias}{last}", self.name(l.out), l.out_dim, l.in_dim)
    }

    fn mixer(&self, m: &Mixer) -> String {
        let heads =
            if m.heads == m.value_heads { m.heads.to_string() } else { format!("{}/{}", m.heads, m.value_heads) };
        let mut text = format!("{} = rule({}", self.name(m.out), self.cols(&m.qkv, m.channels()));
        if let Some(b) = &m.beta {
            text += &format!(", β {}", self.cols(b, m.value_heads));
        }
        if let Some(d) = &m.decay {
            let n = m.value_heads * if m.rule.decay == Decay::PerChannel { m.key_dim } else { 1 };
            text += &format!(", decay {}", self.cols(&d.a, n));
            if let GateForm::Bounded(low) = d.form {
                text += &format!(" ≥ {low}");
            }
        }
        if let Some(p) = &m.precond {
            text += &format!(", preconditioner {} {}", self.cols(&p.a, m.heads), self.cols(&p.b, m.heads));
        }
        let conv = if m.conv.is_some() { format!(", conv {}", m.conv_size) } else { String::new() };
        format!("{text}), {heads} heads of {}×{}{conv}", m.key_dim, m.value_dim)
    }

    fn attention(&self, a: &Attention) -> String {
        let width = (a.heads + 2 * a.kv_heads) * a.head_dim;
        let span = a.window.map_or("all tokens".into(), |w| format!("{w} tokens"));
        let heads = format!("{}/{} heads of {}", a.heads, a.kv_heads, a.head_dim);
        format!("{} = attention({}), {heads}, over {span}", self.name(a.out), self.cols(&a.qkv, width))
    }

    /// f32 elements of state that a session has in these ops: fixed ones, and those a token of unbounded attention.
    fn state(&self) -> (u64, u64) {
        let (mut fixed, mut token) = (0, 0);
        for op in &self.ops {
            match op {
                Op::Mixer(m) => {
                    fixed += m.value_heads * m.key_dim * m.value_dim + (m.conv_size - 1) * m.channels();
                    fixed += m.precond.as_ref().map_or(0, |_| m.heads * m.key_dim);
                }
                Op::Attention(a) => {
                    let one = 2 * a.kv_heads * a.head_dim;
                    a.window.map_or_else(|| token += one, |w| fixed += w * one);
                }
                Op::Embed(_) | Op::Linear(_) => {}
            }
        }
        (fixed as u64, token as u64)
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "{:?} of up to {} rows: {} ops", self.kind, self.rows, self.ops.len())?;
        let wide = self.labels.iter().map(|l| l.chars().count()).max().unwrap_or(0);
        for (i, op) in self.ops.iter().enumerate() {
            let label = self.labels.get(i).map_or("", String::as_str);
            let text = match op {
                Op::Embed(e) => format!("{} = row of the token, {} wide", self.name(e.out), e.width),
                Op::Linear(l) => self.linear(l),
                Op::Mixer(m) => self.mixer(m),
                Op::Attention(a) => self.attention(a),
            };
            writeln!(f, "{i:>4}  {label:<wide$}  {text}")?;
        }
        for (life, title) in [(Life::Scratch, "scratch"), (Life::Saved, "kept")] {
            let list: Vec<_> = self.buffers.iter().filter(|b| b.life == life).collect();
            let size = list.iter().map(|b| 4 * b.width as u64 * b.rows as u64).sum();
            let list: Vec<_> = list.iter().map(|b| format!("{} [{}, {}]", b.name, b.rows, b.width)).collect();
            writeln!(f, "{title}: {} in {}", bytes(size), list.join(", "))?;
        }
        let (fixed, token) = self.state();
        write!(f, "state: {} a session", bytes(4 * fixed))?;
        if token > 0 {
            write!(f, ", and {} a token", bytes(4 * token))?;
        }
        writeln!(f)
    }
}

impl Display for Spec {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (c, m) = (&self.config, &self.config.mixer);
        writeln!(f, "{}: {} parameters, {}", self.model_type, thousands(self.parameters), bytes(self.weight_bytes))?;
        let heads =
            if m.heads == m.value_heads { m.heads.to_string() } else { format!("{}/{}", m.heads, m.value_heads) };
        writeln!(
            f,
            "{} layers, width {}, MLP {}, vocabulary {}{}",
            c.layers,
            c.hidden,
            c.intermediate,
            c.vocab,
            if c.tied { " (tied)" } else { "" }
        )?;
        write!(f, "{heads} heads of {}×{}", m.key_dim, m.value_dim)?;
        if let Some(n) = m.conv_size {
            write!(f, ", convolution of {n}")?;
        }
        match m.output_gate {
            Some(Activation::Silu) => write!(f, ", output gate silu")?,
            Some(Activation::Sigmoid) => write!(f, ", output gate sigmoid")?,
            None => {}
        }
        if m.beta_scale != 1.0 {
            write!(f, ", β up to {}", m.beta_scale)?;
        }
        writeln!(f)?;
        if let Some(a) = &c.attention {
            let span = a.window.map_or("all tokens".into(), |w| format!("{w} tokens"));
            let on = a.layers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            writeln!(f, "attention over {span} on layers {on}: {}/{} heads of {}", a.heads, a.kv_heads, a.head_dim)?;
        }
        let mut types: Vec<_> = Vec::new();
        for weight in &self.weights {
            if let Weight::Matrix(m) = weight
                && !types.contains(&m.dtype.name())
            {
                types.push(m.dtype.name());
            }
        }
        let token: u64 = self.layers.iter().map(|l| l.cache_per_token as u64).sum();
        write!(f, "matrices in {}, state {} a session", types.join(" and "), bytes(4 * self.state_words() as u64))?;
        if token > 0 {
            write!(f, " and {} a token", bytes(4 * token))?;
        }
        writeln!(f)?;
        let hex: String = self.fingerprint.iter().map(|b| format!("{b:02x}")).collect();
        writeln!(f, "fingerprint {hex}")
    }
}
