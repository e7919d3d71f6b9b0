//! Where a checkpoint's files come from: a directory, or named bytes.

use std::collections::BTreeMap;

use super::SharedBytes;
use crate::error::{Error, Result};

/// A directory or a list of named bytes.
pub(super) enum Files {
    /// A directory on disk.
    #[cfg(not(target_family = "wasm"))]
    Dir(std::path::PathBuf),
    /// Bytes by file name.
    List(BTreeMap<String, SharedBytes>),
}

impl Files {
    /// A directory that exists.
    #[cfg(not(target_family = "wasm"))]
    pub(super) fn dir(dir: &std::path::Path) -> Result<Self> {
        let meta = std::fs::metadata(dir).map_err(|source| Error::Io { path: dir.display().to_string(), source })?;
        if !meta.is_dir() {
            return Err(Error::argument("model", "a directory with config.json and model.safetensors", dir.display()));
        }
        Ok(Self::Dir(dir.to_path_buf()))
    }

    /// Named bytes; of a name like `model/config.json` the last component counts.
    pub(super) fn list(files: Vec<(String, SharedBytes)>) -> Result<Self> {
        let mut list = BTreeMap::new();
        for (path, bytes) in files {
            let name = path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
            if list.insert(name.clone(), bytes).is_some() {
                return Err(Error::format(name, "given twice; give the files of one model only"));
            }
        }
        Ok(Self::List(list))
    }

    /// The directory, as errors name it.
    pub(super) fn folder(&self) -> Option<String> {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Self::Dir(dir) => Some(dir.display().to_string()),
            Self::List(_) => None,
        }
    }

    /// How errors name a file: its whole path, or its bare name.
    pub(super) fn path(&self, name: &str) -> String {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Self::Dir(dir) => dir.join(name).display().to_string(),
            Self::List(_) => name.to_owned(),
        }
    }

    /// Whether a file is there.
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Self::Dir(dir) => dir.join(name).exists(),
            Self::List(list) => list.contains_key(name),
        }
    }

    /// A file of at most `most` bytes, read whole; `None` when it is not there.
    pub(super) fn small(&self, name: &str, most: u64) -> Result<Option<SharedBytes>> {
        let (bytes, size) = match self {
            #[cfg(not(target_family = "wasm"))]
            Self::Dir(dir) => {
                use std::io::Read;
                let Some((file, size)) = regular(&dir.join(name))? else { return Ok(None) };
                if size > most {
                    return Err(Error::format(self.path(name), format!("expected at most {most} bytes, got {size}")));
                }
                let mut bytes = Vec::new();
                // One byte more than allowed, so that a file that grew after its size was asked for is noticed too.
                file.take(most + 1)
                    .read_to_end(&mut bytes)
                    .map_err(|source| Error::Io { path: self.path(name), source })?;
                let size = size.max(bytes.len() as u64);
                (std::sync::Arc::new(bytes) as SharedBytes, size)
            }
            Self::List(list) => {
                let Some(bytes) = list.get(name) else { return Ok(None) };
                (bytes.clone(), (**bytes).as_ref().len() as u64)
            }
        };
        if size > most {
            return Err(Error::format(self.path(name), format!("expected at most {most} bytes, got {size}")));
        }
        Ok(Some(bytes))
    }

    /// A text file of at most `most` bytes.
    pub(super) fn text(&self, name: &str, most: u64) -> Result<Option<String>> {
        let Some(bytes) = self.small(name, most)? else { return Ok(None) };
        match std::str::from_utf8((*bytes).as_ref()) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(e) => Err(Error::format(self.path(name), format!("expected UTF-8, got other bytes: {e}"))),
        }
    }

    /// A file of any size: mapped from a directory.
    pub(super) fn large(&self, name: &str) -> Result<Option<SharedBytes>> {
        match self {
            #[cfg(not(target_family = "wasm"))]
            Self::Dir(dir) => {
                let Some((file, size)) = regular(&dir.join(name))? else { return Ok(None) };
                if size == 0 {
                    return Err(Error::format(self.path(name), "expected tensors, got an empty file"));
                }
                // SAFETY: the map is read-only and lives as long as the views into it. If another process changes or
                // cuts the file meanwhile, reads see other bytes or fault, as with every mapped file; `Checkpoint::open`
                // says so.
                let map = unsafe { memmap2::Mmap::map(&file) };
                let map = map.map_err(|source| Error::Io { path: self.path(name), source })?;
                Ok(Some(std::sync::Arc::new(map)))
            }
            Self::List(list) => Ok(list.get(name).cloned()),
        }
    }
}

/// A file of a folder, as errors name it.
pub(super) fn join(folder: &str, name: &str) -> String {
    std::path::Path::new(folder).join(name).display().to_string()
}

/// Opens a regular file and tells its size; `None` when it does not exist. Pipes and devices are refused before they
/// are opened, since opening some of them waits forever.
#[cfg(not(target_family = "wasm"))]
fn regular(path: &std::path::Path) -> Result<Option<(std::fs::File, u64)>> {
    let io = |source| Error::Io { path: path.display().to_string(), source };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io(e)),
    };
    if !meta.is_file() {
        return Err(Error::format(path.display().to_string(), "expected a regular file, got something else"));
    }
    Ok(Some((std::fs::File::open(path).map_err(io)?, meta.len())))
}
