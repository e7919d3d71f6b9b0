//! From files to a model.

use std::sync::Arc;

use deltanet::checkpoint::{Checkpoint, SharedBytes};
use deltanet::model::Spec;
use deltanet::{Device, DeviceRequest, Error, LoadOptions, Model, Progress, Stage};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};

use crate::engine::Engine;
use crate::error::{Result, cpu_may_help};
use crate::model::LoadedModel;
use crate::options;

/// Most bytes of a config.json, as the library has it.
const MOST_CONFIG: usize = 4 << 20;

/// Takes the files of a checkpoint piece by piece, straight into the memory in which the model reads them.
#[wasm_bindgen]
pub struct Loader {
    engine: Engine,
    files: Vec<File>,
}

struct File {
    name: String,
    size: usize,
    bytes: Vec<u8>,
}

impl Loader {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, files: Vec::new() }
    }

    fn file_mut(&mut self, index: usize) -> Result<&mut File> {
        let n = self.files.len();
        self.files.get_mut(index).ok_or_else(|| Error::argument("file", format!("an index below {n}"), index).into())
    }
}

#[wasm_bindgen]
impl Loader {
    /// Announces a file of `size` bytes; returns its index.
    ///
    /// # Errors
    /// Out of memory; a config.json of a size that none has.
    pub fn file(&mut self, name: String, size: f64) -> Result<usize> {
        let size = size as usize;
        if name == "config.json" && size > MOST_CONFIG {
            return Err(Error::format(name, format!("expected at most {MOST_CONFIG} bytes, got {size}")).into());
        }
        let mut bytes = Vec::new();
        // wasm32 ends at 4 GiB, and a browser may refuse long before.
        if bytes.try_reserve_exact(size).is_err() {
            let mib = size >> 20;
            return Err(Error::OutOfMemory(format!("{name} needs {mib} MiB, which this browser does not give")).into());
        }
        self.files.push(File { name, size, bytes });
        Ok(self.files.len() - 1)
    }

    /// Appends bytes to a file.
    ///
    /// # Errors
    /// More bytes than were announced; a config.json, once it is whole, of a model that cannot be run.
    pub fn push(&mut self, index: usize, bytes: &js_sys::Uint8Array) -> Result<()> {
        let file = self.file_mut(index)?;
        let (at, n) = (file.bytes.len(), bytes.length() as usize);
        if n > file.size - at {
            let reason = format!("expected {} bytes, got more", file.size);
            return Err(Error::Format { file: file.name.clone(), reason }.into());
        }
        file.bytes.resize(at + n, 0);
        if let Some(to) = file.bytes.get_mut(at..) {
            bytes.copy_to(to);
        }
        // The weights of what cannot be run need not come.
        if file.name == "config.json" && file.bytes.len() == file.size {
            let utf8 = |e| Error::format(&file.name, format!("expected UTF-8, got other bytes: {e}"));
            Spec::check_config(std::str::from_utf8(&file.bytes).map_err(utf8)?)?;
        }
        Ok(())
    }

    /// Starts a file again: a server may answer a request for the rest of a file with the whole.
    ///
    /// # Errors
    /// An index that does not exist.
    pub fn restart(&mut self, index: usize) -> Result<()> {
        self.file_mut(index)?.bytes.clear();
        Ok(())
    }

    /// Reads the checkpoint and puts it on a device. Consumes the loader. Options: `device` (`auto`, `gpu`, `cpu`) and
    /// `sessions`, how many sessions may be alive at once; `on_progress(stage, done, total)` is told bytes.
    pub async fn finish(self, options: JsValue, on_progress: Option<js_sys::Function>) -> Result<LoadedModel> {
        let request = options::device(options::field(&options, "device").and_then(|d| d.as_string()).as_deref())?;
        let sessions = options::whole(&options, "sessions", 1.0)?;
        let mut load = LoadOptions::default();
        load.sessions = sessions.map_or(load.sessions, options::clamp);
        let tell = |stage: &str, done: u64, total: u64| {
            if let Some(f) = &on_progress {
                // Whoever watches may fail; loading goes on.
                let _ = f.call3(&JsValue::NULL, &stage.into(), &(done as f64).into(), &(total as f64).into());
            }
        };
        let mut progress = |p: Progress| {
            let stage = match p.stage {
                Stage::Checking => "checking",
                Stage::Uploading => "uploading",
            };
            tell(stage, p.done, p.total);
        };
        for file in &self.files {
            if file.bytes.len() != file.size {
                let reason = format!("expected {} bytes, got {}", file.size, file.bytes.len());
                return Err(Error::Format { file: file.name.clone(), reason }.into());
            }
        }
        let files = self.files.into_iter().map(|f| (f.name, Arc::new(f.bytes) as SharedBytes)).collect();
        let checkpoint = Checkpoint::from_files(files)?;
        let device = self.engine.device(&request).await?;
        let model = match Model::load(&checkpoint, &device, load, &mut progress) {
            Ok(model) if matches!(device, Device::Gpu(_)) => {
                tell("compiling", 0, 1);
                model.prepare_async().await.map(|()| model)
            }
            other => other,
        };
        let model = match model {
            Err(e) if request == DeviceRequest::Auto && cpu_may_help(&e) => {
                let cpu = Device::Cpu { threads: None, note: Some(e.to_string()) };
                Model::load(&checkpoint, &cpu, load, &mut progress)?
            }
            other => other?,
        };
        Ok(LoadedModel::new(self.engine, model, request, load))
    }
}

/// Checks that a value is a function, for options that hold callbacks.
pub(crate) fn function(value: &JsValue, name: &str) -> Result<js_sys::Function> {
    let wrong = || Error::argument(name, "a function", "something else");
    Ok(value.dyn_ref::<js_sys::Function>().ok_or_else(wrong)?.clone())
}
