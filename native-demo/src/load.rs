//! Opening the device and loading a model, with progress on a terminal.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use deltanet::checkpoint::Checkpoint;
use deltanet::{Device, LoadOptions, Model, Progress, Stage};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::ModelArgs;
use crate::output::{bytes, count, tell, time};
use crate::{device, find};

/// A loaded model, and what is worth telling about it.
pub(crate) struct Loaded {
    pub(crate) model: Model,
    /// The folder's name.
    pub(crate) name: String,
    /// From nothing to ready.
    pub(crate) time: Duration,
}

/// Opens the device and loads the model.
pub(crate) fn load(args: &ModelArgs, options: LoadOptions) -> Result<Loaded> {
    let start = Instant::now();
    // The folder first: a wrong name should not cost the time to open a device.
    let folder = find::model(args.model.as_deref())?;
    let checkpoint = Checkpoint::open(&folder)?;
    let bar = Bar::new();
    // Opening a device takes the driver about as long as reading a small model takes.
    let (read, device) = std::thread::scope(|scope| {
        let device = std::thread::Builder::new().spawn_scoped(scope, || device::open(args));
        let read = Model::read_checkpoint(&checkpoint, &mut |p| bar.show(p));
        (read, device.map(|thread| thread.join()))
    });
    let (spec, tokenizer) = read?;
    let device = match device {
        Ok(opened) => opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
        // The system has no room for a thread.
        Err(_) => device::open(args)?,
    };
    let model = Model::from_spec(Arc::new(spec), tokenizer, &device, options, &mut |p| bar.show(p))?;
    bar.0.finish_and_clear();
    let time = start.elapsed();
    let name = name(&folder);
    Ok(Loaded { model, name, time })
}

/// Loads a folder on a device.
pub(crate) fn load_on(folder: &Path, device: &Device, options: LoadOptions) -> Result<Model> {
    let bar = Bar::new();
    let checkpoint = Checkpoint::open(folder)?;
    let (spec, tokenizer) = Model::read_checkpoint(&checkpoint, &mut |p| bar.show(p))?;
    let model = Model::from_spec(Arc::new(spec), tokenizer, device, options, &mut |p| bar.show(p))?;
    bar.0.finish_and_clear();
    Ok(model)
}

/// A folder's own name, for listings.
pub(crate) fn name(folder: &Path) -> String {
    let full = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    full.file_name().map_or_else(|| folder.display().to_string(), |n| n.to_string_lossy().into_owned())
}

/// The device's line.
pub(crate) fn describe_device(device: &Device) -> String {
    match device.note() {
        Some(note) => format!("device   {} ({note})", device.describe()),
        None => format!("device   {}", device.describe()),
    }
}

impl Loaded {
    /// Compiles what a prompt of so many tokens needs: part of getting ready.
    pub(crate) fn prepare(&mut self, prompt: usize) -> Result<()> {
        let start = Instant::now();
        self.model.prepare(prompt)?;
        self.time += start.elapsed();
        Ok(())
    }

    /// Says what was loaded, and where it runs: after everything that can be wrong with the input was looked at, since
    /// then an error is one line.
    pub(crate) fn tell(&self) {
        tell(format_args!("{}", self.describe()));
        tell(format_args!("{}", describe_device(self.model.device())));
    }

    fn describe(&self) -> String {
        let spec = self.model.spec();
        format!(
            "model    {}: {}, {} parameters, {}, loaded in {}",
            self.name,
            spec.model_type,
            count(spec.parameters),
            bytes(spec.weight_bytes),
            time(self.time)
        )
    }
}

/// A bar that appears only on a terminal, and only if loading takes long enough to be noticed.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        // `stderr` draws nothing when standard error is not a terminal.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = "{msg:9} [{bar:32}] {bytes}/{total_bytes}, {bytes_per_sec}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    fn show(&self, p: Progress) {
        let word = match p.stage {
            Stage::Checking => "reading",
            Stage::Uploading => "uploading",
        };
        if self.0.message() != word {
            self.0.reset();
            self.0.set_message(word);
        }
        self.0.set_length(p.total);
        self.0.set_position(p.done);
    }
}
