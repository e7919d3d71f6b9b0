//! Softmax attention on some layers of a hybrid, in flash-linear-attention's format.
//!
//! ```text
//! q|k|v = W · norm(x) (+ bias);   q, k = rotary(norm(q), norm(k))
//! x += W_o · softmax(q kᵀ / √d) v        over a window, or everything so far
//! ```

use super::LayerState;
use super::builder::Builder;
use super::loader::Loader;
use super::stack::{Part, Stack};
use crate::config::{AttentionConfig, Config};
use crate::error::Result;
use crate::ops::{Attention, BufId, Cols, Input, Linear, Op, WeightId};

/// ε of the norms of q and k: the library's default, which no config changes.
const QK_NORM_EPS: f32 = 1e-5;

/// A loaded attention layer.
#[derive(Clone, Debug)]
pub(super) struct AttentionLayer {
    stack: Stack,
    qk_norm: Option<(WeightId, WeightId)>,
    o_proj: WeightId,
}

impl AttentionLayer {
    pub(super) fn load(loader: &mut Loader<'_>, prefix: &str, hidden: usize, a: &AttentionConfig) -> Result<Self> {
        let (q_rows, kv_rows) = (a.heads * a.head_dim, a.kv_heads * a.head_dim);
        let sizes = [("q_proj", q_rows), ("k_proj", kv_rows), ("v_proj", kv_rows)];
        let mut tensors = Vec::new();
        let mut bias = Vec::new();
        for (name, rows) in sizes {
            tensors.push(loader.tensor(&format!("{prefix}.{name}.weight"), &[rows, hidden])?);
            if a.qkv_bias {
                bias.extend(loader.tensor(&format!("{prefix}.{name}.bias"), &[rows])?.to_f32());
            }
        }
        let part = Part { label: "q|k|v", tensors, bias: a.qkv_bias.then_some(bias) };
        let stack = Stack::load(loader, prefix, hidden, vec![part])?;
        let qk_norm = if a.qk_norm {
            let q = loader.vector(&format!("{prefix}.q_norm.weight"), &[a.head_dim])?;
            Some((q, loader.vector(&format!("{prefix}.k_norm.weight"), &[a.head_dim])?))
        } else {
            None
        };
        let o_proj = loader.matrix(&format!("{prefix}.o_proj.weight"), hidden, q_rows)?;
        Ok(Self { stack, qk_norm, o_proj })
    }

    /// A ring of `window` tokens' k and v, or a cache that grows.
    pub(super) fn state(a: &AttentionConfig) -> LayerState {
        let token = 2 * a.kv_heads * a.head_dim;
        match a.window {
            Some(window) => LayerState { words: window * token, cache_per_token: 0 },
            None => LayerState { words: 0, cache_per_token: token },
        }
    }

    /// Adds the layer's ops: reads `input` (a norm of x), adds to `x`.
    pub(super) fn plan(
        &self,
        b: &mut Builder,
        config: &Config,
        a: &AttentionConfig,
        n: usize,
        input: &Input,
        x: BufId,
    ) -> Result<()> {
        let label = format!("layers.{n}");
        let parts = b.project(&label, &self.stack, input)?;
        let width = a.heads * a.head_dim;
        let out = b.scratch("o", width)?;
        let attention = Attention {
            heads: a.heads,
            kv_heads: a.kv_heads,
            head_dim: a.head_dim,
            qkv: parts[0],
            qk_norm: self.qk_norm.map(|(q, k)| (q, k, QK_NORM_EPS)),
            rope_theta: a.rope_theta,
            window: a.window,
            layer: n,
            out,
        };
        b.push(format!("{label} attention"), Op::Attention(attention));
        let linear = Linear {
            input: Input::Plain(Cols { buf: out, width, at: 0 }),
            weight: self.o_proj,
            bias: None,
            in_dim: width,
            out_dim: config.hidden,
            out: x,
            add: true,
            last_only: false,
        };
        b.push(format!("{label} o_proj"), Op::Linear(linear));
        Ok(())
    }
}
