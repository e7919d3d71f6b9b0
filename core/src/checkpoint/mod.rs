//! Checkpoints: bytes to named tensors. Only this module reads files.
//!
//! A checkpoint is a Hugging Face directory: `config.json`, `model.safetensors` (or `model.safetensors.index.json`
//! and its shards), and optionally `tokenizer.json` and `generation_config.json`. Everything in it is untrusted:
//! sizes are checked before anything is allocated, and errors name the file and the tensor. Tensors are views into
//! the file's bytes (mapped natively), so opening costs the headers only.

mod files;
mod index;
mod safetensors;
pub(crate) mod scan;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::model::DType;
use files::Files;

/// Shared bytes: a mapped file, or a buffer that the caller gave.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Most bytes of config.json and generation_config.json.
const MAX_CONFIG: u64 = 4 << 20;
/// Most bytes of tokenizer.json.
const MAX_TOKENIZER: u64 = 256 << 20;

/// A tensor inside shared bytes. Cloning shares the bytes.
#[derive(Clone)]
pub struct TensorView {
    /// Name in the checkpoint.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape, row-major.
    pub shape: Vec<usize>,
    /// The file's bytes.
    pub bytes: SharedBytes,
    /// Where the tensor lies in them; within bounds by construction.
    pub range: Range<usize>,
}

impl TensorView {
    /// The raw little-endian elements, possibly unaligned.
    pub fn data(&self) -> &[u8] {
        (*self.bytes).as_ref().get(self.range.clone()).unwrap_or_default()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.range.len() / self.dtype.bytes()
    }

    /// The elements as f32, exactly.
    pub fn to_f32(&self) -> Vec<f32> {
        let data = self.data();
        match self.dtype {
            DType::F32 => data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
            DType::F16 => data.chunks_exact(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            DType::Bf16 => data.chunks_exact(2).map(|b| half::bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        }
    }

    /// Rows `first .. first + rows` of a matrix, as a view of the same bytes; `None` out of bounds.
    pub fn rows(&self, first: usize, rows: usize) -> Option<Self> {
        let (&all, rest) = self.shape.split_first()?;
        let row = rest.iter().product::<usize>() * self.dtype.bytes();
        if first.checked_add(rows)? > all {
            return None;
        }
        let start = self.range.start + first * row;
        let shape = std::iter::once(rows).chain(rest.iter().copied()).collect();
        Some(Self { shape, range: start..start + rows * row, ..self.clone() })
    }
}

impl std::fmt::Debug for TensorView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}{:?}", self.name, self.dtype, self.shape)
    }
}

/// An opened checkpoint.
#[derive(Clone)]
pub struct Checkpoint {
    /// Where the configs lie: the folder, if there is one.
    folder: Option<String>,
    config: String,
    generation_config: Option<String>,
    tokenizer: Option<SharedBytes>,
    tensors: BTreeMap<String, TensorView>,
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Checkpoint with {} tensors", self.tensors.len())
    }
}

impl Checkpoint {
    /// Opens a directory; weight files are memory-mapped.
    ///
    /// The files must not change while the checkpoint or anything made from it is alive.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Format`] naming the file, [`Error::Tensor`] naming the tensor.
    #[cfg(not(target_family = "wasm"))]
    pub fn open(dir: impl AsRef<std::path::Path>) -> Result<Self> {
        Self::read(&Files::dir(dir.as_ref())?)
    }

    /// Opens a checkpoint from named bytes: a browser's files, or a test's. Names may carry folders (`model/config.json`);
    /// the last component counts.
    ///
    /// # Errors
    /// As for a directory; also when two files have the same name.
    pub fn from_files(files: Vec<(String, SharedBytes)>) -> Result<Self> {
        Self::read(&Files::list(files)?)
    }

    fn read(files: &Files) -> Result<Self> {
        let config = files
            .text("config.json", MAX_CONFIG)?
            .ok_or_else(|| Error::missing(files.path("config.json"), "not found; a checkpoint needs one"))?;
        let generation_config = files.text("generation_config.json", MAX_CONFIG)?;
        let tokenizer = files.small("tokenizer.json", MAX_TOKENIZER)?;
        let tensors = match files.large("model.safetensors")? {
            Some(bytes) => safetensors::read(&files.path("model.safetensors"), &bytes)?
                .into_iter()
                .map(|t| (t.name.clone(), t))
                .collect(),
            None => index::read(files)?,
        };
        Ok(Self { folder: files.folder(), config, generation_config, tokenizer, tensors })
    }

    /// An error about what this checkpoint holds that was found elsewhere, with the file's whole path or the folder.
    pub(crate) fn locate(&self, mut error: Error) -> Error {
        let Some(folder) = &self.folder else { return error };
        match &mut error {
            Error::Config { file, .. } | Error::Format { file, .. } | Error::Tokenizer { file, .. }
                if ["config.json", "generation_config.json", "tokenizer.json"].contains(&file.as_str()) =>
            {
                *file = files::join(folder, file);
            }
            Error::Tensor { folder: place, .. } => *place = Some(folder.clone()),
            _ => {}
        }
        error
    }

    /// The text of config.json.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// The text of generation_config.json, if there is one.
    pub fn generation_config(&self) -> Option<&str> {
        self.generation_config.as_deref()
    }

    /// The bytes of tokenizer.json, if there is one.
    pub fn tokenizer(&self) -> Option<&[u8]> {
        self.tokenizer.as_ref().map(|t| (**t).as_ref())
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Option<&TensorView> {
        self.tensors.get(name)
    }

    /// All tensors, by name in order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &TensorView> {
        self.tensors.values()
    }
}
