//! Opening the device, and where its compiled pipelines are kept.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use deltanet::Device;
use deltanet::gpu::OpenOptions;

use crate::args::ModelArgs;

/// Switches the file of compiled pipelines off, whatever its value.
const NO_CACHE: &str = "DELTANET_NO_CACHE";

/// Opens the device that was asked for.
pub(crate) fn open(args: &ModelArgs) -> Result<Device> {
    let off = args.no_cache || std::env::var_os(NO_CACHE).is_some_and(|v| !v.is_empty());
    let pipeline_cache = if off { None } else { cache_folder(&|name| std::env::var_os(name)) };
    Ok(Device::open_with(&args.device.0, &OpenOptions { pipeline_cache, ..OpenOptions::default() })?)
}

/// This program's folder among the user's caches, by the platform's custom; `None` where the environment names none.
fn cache_folder(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // A relative path would be another folder wherever the program is started.
    let folder = |name| variable(name).map(PathBuf::from).filter(|f| f.is_absolute());
    let caches = if cfg!(target_os = "windows") {
        folder("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        folder("HOME").map(|home| home.join("Library/Caches"))
    } else {
        folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")))
    };
    caches.map(|folder| folder.join("deltanet"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_where_caches_belong() {
        let with = |variables: &'static [(&str, &str)]| {
            cache_folder(&move |name| variables.iter().find(|v| v.0 == name).map(|v| v.1.into()))
        };
        assert_eq!(with(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]), Some("/c/deltanet".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", ""), ("HOME", "/h")]), Some("/h/.cache/deltanet".into()));
        assert_eq!(with(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")]), Some("/h/.cache/deltanet".into()));
        assert_eq!(with(&[]), None);
    }
}
