//! Options that come as plain JavaScript objects.

use deltanet::sampler::Sampling;
use deltanet::session::GenerateOptions;
use deltanet::{DeviceRequest, Error};
use js_sys::Reflect;
use wasm_bindgen::{JsCast, JsValue};

use crate::error::Result;

/// A field of an options object; `None` when it is absent, undefined or null, or the object is. `name` is what errors call
/// it: the last part of `precond.g` is its name in the object itself.
pub(crate) fn field(options: &JsValue, name: &str) -> Option<JsValue> {
    let name = name.rsplit('.').next()?;
    let value = Reflect::get(options, &name.into()).ok()?;
    (!value.is_undefined() && !value.is_null()).then_some(value)
}

pub(crate) fn number(options: &JsValue, name: &str) -> Result<Option<f64>> {
    let Some(value) = field(options, name) else { return Ok(None) };
    match value.as_f64() {
        Some(n) => Ok(Some(n)),
        None => Err(Error::argument(name, "a number", kind(&value)).into()),
    }
}

/// A whole number of at least `least` that JavaScript's numbers hold exactly.
pub(crate) fn whole(options: &JsValue, name: &str, least: f64) -> Result<Option<u64>> {
    match number(options, name)? {
        None => Ok(None),
        Some(n) if n >= least && n.fract() == 0.0 && n <= 9_007_199_254_740_991.0 => Ok(Some(n as u64)),
        Some(n) => Err(Error::argument(name, format!("a whole number of at least {least}"), n).into()),
    }
}

pub(crate) fn boolean(options: &JsValue, name: &str) -> Result<Option<bool>> {
    let Some(value) = field(options, name) else { return Ok(None) };
    match value.as_bool() {
        Some(b) => Ok(Some(b)),
        None => Err(Error::argument(name, "true or false", kind(&value)).into()),
    }
}

fn strings(options: &JsValue, name: &str) -> Result<Vec<String>> {
    let Some(value) = field(options, name) else { return Ok(Vec::new()) };
    if let Some(one) = value.as_string() {
        return Ok(vec![one]);
    }
    let wrong = |got: &JsValue| Error::argument(name, "a string or an array of strings", kind(got));
    let list = value.dyn_ref::<js_sys::Array>().ok_or_else(|| wrong(&value))?;
    list.iter().map(|item| item.as_string().ok_or_else(|| wrong(&item).into())).collect()
}

pub(crate) fn kind(value: &JsValue) -> String {
    value.js_typeof().as_string().unwrap_or_default()
}

/// `{temperature, topK, topP, minP, repetitionPenalty, seed, maxTokens, stop, stopAtEndOfText, stepsAhead}`; what is
/// absent is the library's default.
pub(crate) fn generation(options: &JsValue) -> Result<GenerateOptions> {
    let d = GenerateOptions::default();
    let s = d.sampling;
    let float = |name: &str, default: f32| -> Result<f32> { Ok(number(options, name)?.map_or(default, |n| n as f32)) };
    let top_k = whole(options, "topK", 0.0)?.map_or(s.top_k, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let sampling = Sampling {
        temperature: float("temperature", s.temperature)?,
        top_k,
        top_p: float("topP", s.top_p)?,
        min_p: float("minP", s.min_p)?,
        repetition_penalty: float("repetitionPenalty", s.repetition_penalty)?,
        seed: whole(options, "seed", 0.0)?.unwrap_or(s.seed),
    };
    sampling.check()?;
    Ok(GenerateOptions {
        sampling,
        max_tokens: whole(options, "maxTokens", 0.0)?.map_or(d.max_tokens, clamp),
        stop: strings(options, "stop")?,
        stop_at_eos: boolean(options, "stopAtEndOfText")?.unwrap_or(d.stop_at_eos),
        steps_ahead: whole(options, "stepsAhead", 1.0)?.map_or(d.steps_ahead, clamp),
    })
}

pub(crate) fn clamp(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// `auto`, `gpu` or `cpu`.
pub(crate) fn device(name: Option<&str>) -> Result<DeviceRequest> {
    match name.unwrap_or("auto") {
        "auto" => Ok(DeviceRequest::Auto),
        "gpu" => Ok(DeviceRequest::Gpu),
        "cpu" => Ok(DeviceRequest::Cpu),
        other => Err(Error::argument("device", "auto, gpu or cpu", other).into()),
    }
}

/// Sets a property of an object that was just made, which cannot fail.
pub(crate) fn set(object: &js_sys::Object, name: &str, value: impl Into<JsValue>) {
    let _ = Reflect::set(object, &name.into(), &value.into());
}
