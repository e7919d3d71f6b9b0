//! A delta-rule layer, whatever its rule: one stacked projection, the mixer, and the gated output projection.
//!
//! ```text
//! q|k|v, g, a, b = W · norm(x)
//! o = rule(silu(conv(q|k|v)), β(b), decay(a))
//! x += W_o · (norm_head(o) ⊙ activation(g))
//! ```

use super::LayerState;
use super::builder::Builder;
use super::loader::Loader;
use super::stack::{Part, Stack};
use crate::checkpoint::TensorView;
use crate::config::{Config, MixerConfig};
use crate::error::Result;
use crate::model::Weight;
use crate::ops::{
    Activation, BufId, Cols, DecayGate, GateForm, Input, Linear, Mixer, MixerState, Op, PrecondGate, WeightId,
};
use crate::rule::{Decay, Rule, WriteKey};

/// Where a projection's columns come from.
#[derive(Clone, Debug)]
pub(super) enum Proj {
    /// A part of the stacked projection.
    Part(usize),
    /// A second product on a part of it: a projection of low rank.
    LowRank { part: usize, rank: usize, weight: WeightId, bias: Option<WeightId>, out: usize, name: &'static str },
}

/// Decay gate: see [`DecayGate`].
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) a: Proj,
    pub(super) a_log: WeightId,
    pub(super) dt_bias: WeightId,
    pub(super) form: GateForm,
}

/// Preconditioner: see [`PrecondGate`].
#[derive(Clone, Debug)]
pub(super) struct Precond {
    /// Parts of the stacked projection.
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) a_log: WeightId,
    pub(super) dt_bias: WeightId,
    pub(super) log_scale: WeightId,
}

/// A loaded delta-rule layer. Part 0 of the stack is q|k|v.
#[derive(Clone, Debug)]
pub(super) struct DeltaLayer {
    pub(super) rule: Rule,
    /// H as the kernels see it.
    pub(super) heads: usize,
    pub(super) stack: Stack,
    pub(super) conv: Option<WeightId>,
    /// Part of β's projection.
    pub(super) beta: Option<usize>,
    pub(super) decay: Option<Gate>,
    pub(super) precond: Option<Precond>,
    pub(super) gate: Option<Proj>,
    pub(super) o_norm: WeightId,
    pub(super) o_proj: WeightId,
}

/// A layer's tensors: `model.layers.N.attn.*`.
pub(super) struct Tensors<'l, 'a> {
    pub(super) loader: &'l mut Loader<'a>,
    /// `model.layers.N.attn`.
    pub(super) prefix: String,
    pub(super) hidden: usize,
    pub(super) config: &'l MixerConfig,
}

impl Tensors<'_, '_> {
    /// `attn.NAME.weight`, `[rows, hidden]`, as a part of its own.
    pub(super) fn part(&mut self, label: &'static str, name: &str, rows: usize) -> Result<Part> {
        Ok(Part::new(label, vec![self.weight(name, &[rows, self.hidden])?]))
    }

    /// `attn.NAME.weight`.
    pub(super) fn weight(&mut self, name: &str, shape: &[usize]) -> Result<TensorView> {
        self.loader.tensor(&format!("{}.{name}.weight", self.prefix), shape)
    }

    /// `attn.NAME`, as f32.
    pub(super) fn vector(&mut self, name: &str, shape: &[usize]) -> Result<WeightId> {
        self.loader.vector(&format!("{}.{name}", self.prefix), shape)
    }

    /// The second matrix of a projection of low rank, `attn.NAME.1`.
    pub(super) fn low_rank(&mut self, part: usize, name: &'static str, out: usize, bias: bool) -> Result<Proj> {
        let rank = self.config.value_dim;
        let weight = self.loader.matrix(&format!("{}.{name}.1.weight", self.prefix), out, rank)?;
        let bias = if bias { Some(self.vector(&format!("{name}.1.bias"), &[out])?) } else { None };
        Ok(Proj::LowRank { part, rank, weight, bias, out, name })
    }

    /// q|k|v, each head of q and k `repeat` times.
    pub(super) fn qkv(&mut self, repeat: usize) -> Result<Part> {
        let MixerConfig { heads, value_heads, key_dim, value_dim, .. } = *self.config;
        let q = self.weight("q_proj", &[heads * key_dim, self.hidden])?;
        let k = self.weight("k_proj", &[heads * key_dim, self.hidden])?;
        let v = self.weight("v_proj", &[value_heads * value_dim, self.hidden])?;
        let mut tensors = repeated(q, key_dim, repeat);
        tensors.extend(repeated(k, key_dim, repeat));
        tensors.push(v);
        Ok(Part::new("q|k|v", tensors))
    }

    /// The convolution's taps over q|k|v, `[channels, conv_size]`, newest last.
    pub(super) fn conv(&mut self, repeat: usize) -> Result<Option<WeightId>> {
        let MixerConfig { heads, value_heads, key_dim, value_dim, conv_size, .. } = *self.config;
        let Some(size) = conv_size else { return Ok(None) };
        let q = self.weight("q_conv1d", &[heads * key_dim, 1, size])?;
        let k = self.weight("k_conv1d", &[heads * key_dim, 1, size])?;
        let v = self.weight("v_conv1d", &[value_heads * value_dim, 1, size])?;
        let mut tensors = repeated(q, key_dim, repeat);
        tensors.extend(repeated(k, key_dim, repeat));
        tensors.push(v);
        let taps = tensors.iter().flat_map(TensorView::to_f32).collect();
        Ok(Some(self.loader.push(format!("{}.conv", self.prefix), Weight::Vector(taps))))
    }

    /// Output norm and projection: `[V]`, and `[hidden, HV·V]`.
    pub(super) fn output(&mut self) -> Result<(WeightId, WeightId)> {
        let MixerConfig { value_heads, value_dim, .. } = *self.config;
        let norm = self.vector("o_norm.weight", &[value_dim])?;
        let name = format!("{}.o_proj.weight", self.prefix);
        Ok((norm, self.loader.matrix(&name, self.hidden, value_heads * value_dim)?))
    }
}

/// A tensor's groups of `rows` rows, each `times` times over: `h0 h0 h1 h1 …`.
pub(super) fn repeated(tensor: TensorView, rows: usize, times: usize) -> Vec<TensorView> {
    if times == 1 {
        return vec![tensor];
    }
    let groups = tensor.shape.first().copied().unwrap_or_default() / rows.max(1);
    let group = |g: usize| tensor.rows(g * rows, rows);
    (0..groups).flat_map(|g| std::iter::repeat_n(g, times)).filter_map(group).collect()
}

impl DeltaLayer {
    /// Where the state's pieces lie, and its size. Pieces begin at multiples of four elements.
    fn layout(&self, c: &MixerConfig) -> (MixerState, usize) {
        let channels = 2 * self.heads * c.key_dim + c.value_heads * c.value_dim;
        let tail = (c.value_heads * c.key_dim * c.value_dim).next_multiple_of(4);
        let taps = self.conv.map_or(1, |_| c.conv_size.unwrap_or(1));
        let sums = tail + ((taps - 1) * channels).next_multiple_of(4);
        let preconditioned = self.rule.write_key == WriteKey::Preconditioned;
        let end = sums + if preconditioned { (self.heads * c.key_dim).next_multiple_of(4) } else { 0 };
        (MixerState { s: 0, tail, sums }, end)
    }

    pub(super) fn state(&self, c: &MixerConfig) -> LayerState {
        LayerState { words: self.layout(c).1, cache_per_token: 0 }
    }

    /// Adds the layer's ops: reads `input` (a norm of x), adds to `x`.
    pub(super) fn plan(&self, b: &mut Builder, config: &Config, n: usize, input: &Input, x: BufId) -> Result<()> {
        let c = &config.mixer;
        let label = format!("layers.{n}");
        let parts = b.project(&label, &self.stack, input)?;
        let part = |i: usize| parts[i];
        let resolve = |b: &mut Builder, proj: &Proj| -> Result<Cols> {
            match *proj {
                Proj::Part(i) => Ok(part(i)),
                Proj::LowRank { part: i, rank, weight, bias, out, name } => {
                    let buf = b.scratch(name, out)?;
                    let input = Input::Plain(part(i));
                    let linear = Linear {
                        input,
                        weight,
                        bias,
                        in_dim: rank,
                        out_dim: out,
                        out: buf,
                        add: false,
                        last_only: false,
                    };
                    b.push(format!("{label} {name}"), Op::Linear(linear));
                    Ok(Cols { buf, width: out, at: 0 })
                }
            }
        };
        let decay = match &self.decay {
            None => None,
            Some(g) => Some(DecayGate { a: resolve(b, &g.a)?, a_log: g.a_log, dt_bias: g.dt_bias, form: g.form }),
        };
        let gate = match &self.gate {
            None => None,
            Some(proj) => Some((resolve(b, proj)?, c.output_gate.unwrap_or(Activation::Silu))),
        };
        let precond = self.precond.as_ref().map(|p| PrecondGate {
            a: part(p.a),
            b: part(p.b),
            a_log: p.a_log,
            dt_bias: p.dt_bias,
            log_scale: p.log_scale,
        });
        let channels = 2 * self.heads * c.key_dim + c.value_heads * c.value_dim;
        let g_width = match self.rule.decay {
            Decay::None => 0,
            Decay::PerHead => c.value_heads,
            Decay::PerChannel => c.value_heads * c.key_dim,
        };
        let gates = self.beta.map_or(0, |_| c.value_heads) + g_width + precond.as_ref().map_or(0, |_| 2 * self.heads);
        let o_width = c.value_heads * c.value_dim;
        let out = b.scratch("o", o_width)?;
        let mixer = Mixer {
            rule: self.rule,
            heads: self.heads,
            value_heads: c.value_heads,
            key_dim: c.key_dim,
            value_dim: c.value_dim,
            qkv: part(0),
            conv: self.conv,
            conv_size: self.conv.map_or(1, |_| c.conv_size.unwrap_or(1)),
            l2norm: true,
            beta: self.beta.map(part),
            beta_scale: c.beta_scale,
            decay,
            precond,
            layer: n,
            state: self.layout(c).0,
            out,
            conved: b.scratch("conved", channels)?,
            gates: b.scratch("gates", gates)?,
        };
        b.push(format!("{label} {}", self.rule.name()), Op::Mixer(mixer));
        let head_norm = Input::HeadNorm {
            x: Cols { buf: out, width: o_width, at: 0 },
            head_dim: c.value_dim,
            weight: Some(self.o_norm),
            eps: config.norm_eps,
            gate,
        };
        let linear = Linear {
            input: head_norm,
            weight: self.o_proj,
            bias: None,
            in_dim: o_width,
            out_dim: config.hidden,
            out: x,
            add: true,
            last_only: false,
        };
        b.push(format!("{label} o_proj"), Op::Linear(linear));
        Ok(())
    }
}
