//! A loaded model.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use deltanet::{Device, DeviceRequest, LoadOptions, Model};
use js_sys::{Array, Object};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::engine::{Engine, describe};
use crate::error::{Result, cpu_may_help};
use crate::options::set;
use crate::session::WebSession;

/// A model on a device, and what it takes to put it on another one.
#[wasm_bindgen]
pub struct LoadedModel {
    pub(crate) cell: Rc<ModelCell>,
}

pub(crate) struct ModelCell {
    engine: Engine,
    model: RefCell<Model>,
    request: DeviceRequest,
    load: LoadOptions,
}

impl ModelCell {
    pub(crate) fn model(&self) -> Model {
        self.model.borrow().clone()
    }
}

impl LoadedModel {
    pub(crate) fn new(engine: Engine, model: Model, request: DeviceRequest, load: LoadOptions) -> Self {
        Self { cell: Rc::new(ModelCell { engine, model: RefCell::new(model), request, load }) }
    }
}

#[wasm_bindgen]
impl LoadedModel {
    /// A new, empty session.
    ///
    /// # Errors
    /// As many sessions as the model was loaded for are alive.
    pub fn session(&self) -> Result<WebSession> {
        WebSession::new(self.cell.clone())
    }

    /// Shape, sizes and device, as `ModelInfo` of `js/index.d.ts`.
    #[must_use]
    pub fn info(&self) -> Object {
        let model = self.cell.model();
        let spec = model.spec();
        let info = Object::new();
        set(&info, "modelType", spec.model_type.as_str());
        set(&info, "parameters", spec.parameters as f64);
        set(&info, "weightBytes", spec.weight_bytes as f64);
        set(&info, "layers", spec.layers.len() as u32);
        set(&info, "hidden", spec.hidden as u32);
        set(&info, "vocab", spec.vocab as u32);
        set(&info, "stateBytes", 4.0 * spec.layers.iter().map(|l| l.words as f64).sum::<f64>());
        let cache = spec.layers.iter().map(|l| l.cache_per_token as f64).sum::<f64>();
        set(&info, "cacheBytesPerToken", 4.0 * cache);
        set(&info, "fingerprint", spec.fingerprint.iter().map(|b| format!("{b:02x}")).collect::<String>());
        set(&info, "hasTokenizer", model.tokenizer().is_some());
        set(&info, "bos", spec.bos.map_or(JsValue::NULL, JsValue::from));
        set(&info, "eos", spec.eos.iter().map(|t| JsValue::from(*t)).collect::<Array>());
        set(&info, "engine", if matches!(model.device(), Device::Gpu(_)) { "gpu" } else { "cpu" });
        set(&info, "device", describe(model.device()));
        set(&info, "note", model.device().note().map_or(JsValue::NULL, JsValue::from));
        info
    }

    /// Whether a GPU runs it.
    #[wasm_bindgen(js_name = onGpu)]
    #[must_use]
    pub fn on_gpu(&self) -> bool {
        matches!(self.cell.model().device(), Device::Gpu(_))
    }

    /// Whether that GPU was lost: [`LoadedModel::reopen`] is what helps.
    #[wasm_bindgen(js_name = isLost)]
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.cell.model().device(), Device::Gpu(gpu) if gpu.is_lost())
    }

    /// Whether that is a program that imitates one: pictures cost much there.
    #[wasm_bindgen(js_name = onSoftware)]
    #[must_use]
    pub fn on_software(&self) -> bool {
        matches!(self.cell.model().device(), Device::Gpu(gpu) if gpu.caps().software)
    }

    /// Token ids of a text, without the token that begins a text.
    ///
    /// # Errors
    /// No tokenizer.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.cell.model().require_tokenizer()?.encode(text, false)?)
    }

    /// Text of token ids.
    ///
    /// # Errors
    /// No tokenizer.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        Ok(self.cell.model().require_tokenizer()?.decode(tokens, false)?)
    }

    /// The text that each token completes; together they are the text.
    ///
    /// # Errors
    /// No tokenizer.
    pub fn pieces(&self, tokens: &[u32]) -> Result<Vec<String>> {
        let model = self.cell.model();
        let mut stream = model.require_tokenizer()?.stream(false);
        let mut pieces = tokens.iter().map(|t| stream.push(*t)).collect::<deltanet::Result<Vec<String>>>()?;
        let rest = stream.finish()?;
        if let Some(last) = pieces.last_mut() {
            last.push_str(&rest);
        }
        Ok(pieces)
    }

    /// Puts the model on a device that is opened anew, after the first one was lost; on the CPU when there is none
    /// any more. Sessions follow with [`WebSession::refeed`].
    pub async fn reopen(&self) -> Result<()> {
        let old = self.cell.model();
        // The weights are shared with the old model, not copied.
        let spec = Arc::new(old.spec().clone());
        let on = |device: &Device| {
            Model::from_spec(spec.clone(), old.tokenizer().cloned(), device, self.cell.load, &mut |_| ())
        };
        let model = match self.cell.engine.device(&self.cell.request).await {
            Ok(device) => on(&device),
            Err(e) => Err(e.0),
        };
        let model = match model {
            Err(e) if cpu_may_help(&e) => on(&Device::Cpu { threads: None, note: Some(e.to_string()) })?,
            other => other?,
        };
        *self.cell.model.borrow_mut() = model;
        Ok(())
    }
}
