//! Finding the demo model.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The model that ships with the repository.
const DEMO: &str = "models/stories-17m";

/// The folder that was named, or the demo model's.
pub(crate) fn model(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(folder) = named {
        if !folder.is_dir() {
            let what = if folder.exists() { "a file" } else { "nothing" };
            bail!("--model {}: expected a folder with config.json, got {what}", folder.display());
        }
        return Ok(folder.to_path_buf());
    }
    match demo_model() {
        Some(folder) => Ok(folder),
        None => bail!("--model: expected a folder, got nothing, and there is no {DEMO} here or near the program"),
    }
}

/// The folder that was named, or the demo model's if it is there.
pub(crate) fn named_or_demo(named: Option<&Path>) -> Result<Option<PathBuf>> {
    if named.is_some() { model(named).map(Some) } else { Ok(demo_model()) }
}

/// The demo model, looked for upwards from the current folder, from the program, and from the package that
/// `cargo run` runs.
pub(crate) fn demo_model() -> Option<PathBuf> {
    let program = std::env::current_exe().ok();
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let starts = [std::env::current_dir().ok(), program, package];
    starts.iter().flatten().flat_map(|start| start.ancestors()).map(|f| f.join(DEMO)).find(|f| f.is_dir())
}
