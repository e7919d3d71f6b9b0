//! The operators on typed arrays.

use deltanet::delta::{Inputs, Options, Output, Precond, Shape};
use deltanet::rule::Rule;
use deltanet::{Device, Error, attention, cpu, gpu};
use js_sys::{Float32Array, Object, Uint32Array};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::engine::Engine;
use crate::error::Result;
use crate::options::{self, field, set};

fn floats(inputs: &JsValue, name: &str) -> Result<Option<Vec<f32>>> {
    let Some(value) = field(inputs, name) else { return Ok(None) };
    match value.dyn_ref::<Float32Array>() {
        Some(array) => Ok(Some(array.to_vec())),
        None => Err(Error::argument(name, "a Float32Array", options::kind(&value)).into()),
    }
}

fn required(inputs: &JsValue, name: &str) -> Result<Vec<f32>> {
    Ok(floats(inputs, name)?.ok_or_else(|| Error::argument(name, "a Float32Array", "nothing"))?)
}

fn size(shape: &JsValue, name: &str, default: Option<usize>) -> Result<usize> {
    let given = options::whole(shape, name, 0.0)?.map(options::clamp).or(default);
    Ok(given.ok_or_else(|| Error::argument(name, "a number", "nothing"))?)
}

/// Offsets of packed sequences.
fn offsets(call: &JsValue) -> Result<Option<Vec<u32>>> {
    let Some(value) = field(call, "cuSeqlens") else { return Ok(None) };
    match value.dyn_ref::<Uint32Array>() {
        Some(array) => Ok(Some(array.to_vec())),
        None => Err(Error::argument("cuSeqlens", "a Uint32Array", options::kind(&value)).into()),
    }
}

fn output(out: &Output) -> Object {
    let object = Object::new();
    set(&object, "o", Float32Array::from(out.o.as_slice()));
    set(&object, "finalState", Float32Array::from(out.final_state.as_slice()));
    set(&object, "finalSums", Float32Array::from(out.final_sums.as_slice()));
    set(&object, "chunkStates", Float32Array::from(out.chunk_states.as_slice()));
    set(&object, "chunk", out.chunk as u32);
    object
}

#[wasm_bindgen]
impl Engine {
    /// Runs one operator: `form` is `recurrent` or `chunk`, `rule` a name of the family; shape, inputs, options and
    /// result as `DeltaCall` and `DeltaResult` of `js/index.d.ts`.
    pub async fn delta(&self, form: String, rule: String, call: JsValue) -> Result<Object> {
        let named = Rule::NAMED.iter().find(|(name, _)| *name == rule);
        let (_, rule) = named.ok_or_else(|| {
            let names: Vec<&str> = Rule::NAMED.iter().map(|(n, _)| *n).collect();
            Error::argument("rule", format!("one of {}", names.join(", ")), &rule)
        })?;
        let chunkwise = match form.as_str() {
            "chunk" => true,
            "recurrent" => false,
            other => return Err(Error::argument("form", "recurrent or chunk", other).into()),
        };
        let device = options::device(field(&call, "device").and_then(|d| d.as_string()).as_deref())?;
        let shape = field(&call, "shape").unwrap_or(JsValue::UNDEFINED);
        let heads = size(&shape, "heads", Some(1))?;
        let shape = Shape {
            batch: size(&shape, "batch", Some(1))?,
            tokens: size(&shape, "tokens", None)?,
            heads,
            value_heads: size(&shape, "valueHeads", Some(heads))?,
            key_dim: size(&shape, "keyDim", None)?,
            value_dim: size(&shape, "valueDim", None)?,
        };
        let (q, k, v) = (required(&call, "q")?, required(&call, "k")?, required(&call, "v")?);
        let (beta, g) = (floats(&call, "beta")?, floats(&call, "g")?);
        let initial_state = floats(&call, "initialState")?;
        let precond = field(&call, "precond");
        let sums = match &precond {
            Some(p) => Some((
                required(p, "precond.g")?,
                required(p, "precond.beta")?,
                required(p, "precond.logScale")?,
                floats(p, "precond.initial")?,
            )),
            None => None,
        };
        let cu_seqlens = offsets(&call)?;
        let inputs = Inputs {
            q: &q,
            k: &k,
            v: &v,
            beta: beta.as_deref(),
            g: g.as_deref(),
            initial_state: initial_state.as_deref(),
            precond: sums.as_ref().map(|(g, beta, log_scale, initial)| Precond {
                g,
                beta,
                log_scale,
                initial: initial.as_deref(),
            }),
            cu_seqlens: cu_seqlens.as_deref(),
        };
        let options = Options {
            scale: options::number(&call, "scale")?.map(|s| s as f32),
            l2norm: options::boolean(&call, "l2norm")?.unwrap_or(false),
            chunk_states: options::boolean(&call, "chunkStates")?.unwrap_or(false),
            chunk: options::whole(&call, "chunk", 1.0)?.map(options::clamp),
            half_products: false,
            segments: None,
        };
        let out = match (self.device(&device).await?, chunkwise) {
            (Device::Gpu(g), true) => gpu::delta::chunk(&g, rule, &shape, &inputs, &options).await?,
            (Device::Gpu(g), false) => gpu::delta::recurrent(&g, rule, &shape, &inputs, &options).await?,
            (Device::Cpu { .. }, true) => cpu::delta::chunk(rule, &shape, &inputs, &options)?,
            (Device::Cpu { .. }, false) => cpu::delta::recurrent(rule, &shape, &inputs, &options)?,
        };
        Ok(output(&out))
    }

    /// Causal softmax attention: shape, inputs and options as `AttentionCall` of `js/index.d.ts`; returns
    /// `[batch, tokens, heads, headDim]`.
    pub async fn attention(&self, call: JsValue) -> Result<Float32Array> {
        let device = options::device(field(&call, "device").and_then(|d| d.as_string()).as_deref())?;
        let shape = field(&call, "shape").unwrap_or(JsValue::UNDEFINED);
        let heads = size(&shape, "heads", Some(1))?;
        let shape = attention::Shape {
            batch: size(&shape, "batch", Some(1))?,
            tokens: size(&shape, "tokens", None)?,
            heads,
            kv_heads: size(&shape, "kvHeads", Some(heads))?,
            head_dim: size(&shape, "headDim", None)?,
        };
        let (q, k, v) = (required(&call, "q")?, required(&call, "k")?, required(&call, "v")?);
        let norms = match field(&call, "qkNorm") {
            Some(n) => {
                let eps = options::number(&n, "qkNorm.eps")?.map_or(1e-5, |e| e as f32);
                Some((required(&n, "qkNorm.q")?, required(&n, "qkNorm.k")?, eps))
            }
            None => None,
        };
        let cu_seqlens = offsets(&call)?;
        let inputs = attention::Inputs {
            q: &q,
            k: &k,
            v: &v,
            qk_norm: norms.as_ref().map(|(q, k, eps)| attention::QkNorm { q, k, eps: *eps }),
            cu_seqlens: cu_seqlens.as_deref(),
        };
        let options = attention::Options {
            scale: options::number(&call, "scale")?.map(|s| s as f32),
            window: options::whole(&call, "window", 1.0)?.map(options::clamp),
            rope_theta: options::number(&call, "ropeTheta")?.map(|t| t as f32),
        };
        let out = match self.device(&device).await? {
            Device::Gpu(g) => gpu::attention::attend(&g, &shape, &inputs, &options).await?,
            Device::Cpu { .. } => cpu::attention::attend(&shape, &inputs, &options)?,
        };
        Ok(Float32Array::from(out.as_slice()))
    }
}
