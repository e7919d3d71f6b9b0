//! Checkpoints: bytes to named tensors. Only this module reads files.

use std::ops::Range;
use std::sync::Arc;

use crate::model::DType;

/// Shared bytes: a mapped file, or a buffer that the caller gave.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

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
}

impl std::fmt::Debug for TensorView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}{:?}", self.name, self.dtype, self.shape)
    }
}
