//! Compiled pipelines in a file, so that a driver compiles a kernel once a machine rather than once a start.
//!
//! Nothing is written unless a folder was given ([`super::OpenOptions::pipeline_cache`]). Whatever is wrong with the
//! folder or the file is no error: the kernels are then compiled as without it, and the file is replaced.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::checkpoint::scan::Digest;

/// What a file begins with; the last byte is the version of the layout: this, the digest of [`identity`], the digest
/// of the driver's bytes, then these bytes.
const MAGIC: [u8; 8] = *b"dltnpip\x01";
/// Bytes before the driver's.
const HEADER: usize = 8 + 16 + 16;
/// Most of the driver's bytes that are read or written. A pipeline takes some 10 to 100 KiB, and there are a few hundred.
const MOST: usize = 128 << 20;
/// Age from which a temporary file is nobody's.
const STALE: Duration = Duration::from_secs(3600);

/// A device's pipeline cache, and the file that it came from and goes to.
#[derive(Debug)]
pub(super) struct PipelineCache {
    raw: wgpu::PipelineCache,
    file: PathBuf,
    identity: [u8; 16],
    /// Whether a file's pipelines were taken over.
    loaded: bool,
    /// Whether a pipeline was made since the last save.
    used: AtomicBool,
    /// Digest of what the file holds.
    held: Mutex<Option<[u8; 16]>>,
}

impl PipelineCache {
    /// The cache of a device in `folder`, with the pipelines of its file if there is a good one; `None` where the
    /// device can have none.
    pub(super) fn open(device: &wgpu::Device, info: &wgpu::AdapterInfo, folder: &Path) -> Option<Self> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let file = folder.join(wgpu::util::pipeline_cache_key(info)?);
        let identity = identity(info);
        let bytes = read(&file, &identity);
        let held = bytes.as_ref().map(|b| digest(b));
        let taken = bytes.and_then(|b| create(device, Some(&b)));
        let loaded = taken.is_some();
        let raw = match taken {
            Some(raw) => raw,
            None => create(device, None)?,
        };
        // What was refused must be replaced.
        let held = Mutex::new(held.filter(|_| loaded));
        Some(Self { raw, file, identity, loaded, used: AtomicBool::new(false), held })
    }

    /// What pipelines are made with. They count as new until the next [`PipelineCache::save`].
    pub(super) fn raw(&self) -> &wgpu::PipelineCache {
        self.used.store(true, Ordering::Relaxed);
        &self.raw
    }

    pub(super) fn loaded(&self) -> bool {
        self.loaded
    }

    /// Writes the file if it would hold anything new.
    pub(super) fn save(&self) {
        if !self.used.swap(false, Ordering::Relaxed) {
            return;
        }
        let Some(bytes) = self.raw.get_data().filter(|b| b.len() <= MOST) else { return };
        let digest = digest(&bytes);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // A folder that cannot be written, a full disk: the next start compiles again.
        if *held != Some(digest) && write(&self.file, &[&MAGIC, &self.identity, &digest, &bytes]).is_ok() {
            *held = Some(digest);
        }
    }
}

/// A cache with a file's bytes, or an empty one; `None` if wgpu will not have it.
fn create(device: &wgpu::Device, data: Option<&[u8]>) -> Option<wgpu::PipelineCache> {
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let descriptor = wgpu::PipelineCacheDescriptor { label: Some("deltanet"), data, fallback: data.is_none() };
    // SAFETY: `data` is what `PipelineCache::get_data` once returned to `save` on the same adapter and driver: the
    // file's digests say so. wgpu compares adapter and driver again.
    let cache = unsafe { device.create_pipeline_cache(&descriptor) };
    pollster::block_on(scope.pop()).is_none().then_some(cache)
}

/// Adapter, driver and version of this crate, without whose kernels a file would only grow.
fn identity(info: &wgpu::AdapterInfo) -> [u8; 16] {
    let mut digest = Digest::new();
    let ids = format!("{:?} {} {}", info.backend, info.vendor, info.device);
    for part in [&ids, &info.name, &info.driver, &info.driver_info, env!("CARGO_PKG_VERSION")] {
        digest.add(part.as_bytes());
    }
    digest.finish()
}

fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut digest = Digest::new();
    digest.add(bytes);
    digest.finish()
}

/// The driver's bytes of a file that is whole and has this identity.
fn read(file: &Path, identity: &[u8; 16]) -> Option<Vec<u8>> {
    // Asked before it is opened: opening a pipe would wait for somebody to write.
    if !std::fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let most = (HEADER + MOST) as u64;
    File::open(file).ok()?.take(most + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > most {
        return None;
    }
    let (header, data) = bytes.split_at_checked(HEADER)?;
    let expected = [&MAGIC[..], identity, &digest(data)].concat();
    (header == expected).then(|| data.to_vec())
}

/// Writes a file as a whole or not at all, whoever else writes it at the same time.
fn write(file: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    sweep(file);
    let (temporary, mut out) = temporary(file)?;
    let written = parts.iter().try_for_each(|part| out.write_all(part));
    drop(out);
    let renamed = written.and_then(|()| std::fs::rename(&temporary, file));
    if renamed.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    renamed
}

/// Removes what processes that were ended while they wrote have left beside `file`: files of [`temporary`] that nobody
/// has touched for an hour.
fn sweep(file: &Path) {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return };
    let prefix = [name.as_encoded_bytes(), b"."].concat();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let old = entry.metadata().and_then(|m| m.modified()).is_ok_and(|t| t.elapsed().is_ok_and(|age| age > STALE));
        if old && entry.file_name().as_encoded_bytes().starts_with(&prefix) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// A new file beside `file`, of a name that nobody else has.
fn temporary(file: &Path) -> std::io::Result<(PathBuf, File)> {
    let mut n = 0;
    loop {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".{}.{n}", std::process::id()));
        match File::create_new(&name) {
            Ok(out) => return Ok((name.into(), out)),
            // Another device of this process, or what a process of the same number has left behind.
            Err(e) if e.kind() == ErrorKind::AlreadyExists && n < 9 => n += 1,
            Err(e) => return Err(e),
        }
    }
}
