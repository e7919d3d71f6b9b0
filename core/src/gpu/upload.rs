//! Weights to the device: matrices with padded rows, in parts no larger than a binding; small tensors as f32.

use std::collections::HashMap;

use super::attention::PackKey;
use super::buffer::Binding;
use super::device::Gpu;
use crate::error::{Error, Result};
use crate::model::{DType, Matrix, Weight};
use crate::ops::WeightId;

/// A matrix on the device: rows padded with zeros to a multiple of eight elements, so that a kernel reads eight at a
/// time whatever the type.
#[derive(Clone, Debug)]
pub(super) struct GpuMatrix {
    pub(super) dtype: DType,
    /// Rows of all parts.
    pub(super) rows: u32,
    /// Columns, without padding.
    pub(super) cols: u32,
    /// Eights a row.
    pub(super) groups: u32,
    /// Whether the parts are textures.
    pub(super) texture: bool,
    /// Row ranges, in order; one, unless the matrix is larger than a binding may be.
    pub(super) parts: Vec<Part>,
}

/// Rows of a matrix in a buffer of their own.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Index into the buffer table.
    pub(super) buffer: usize,
    /// First row.
    pub(super) first: u32,
    /// Number of rows.
    pub(super) rows: u32,
}

/// A weight on the device.
#[derive(Clone, Debug)]
pub(super) enum GpuWeight {
    Matrix(GpuMatrix),
    /// Index of a buffer of f32, padded with zeros to a multiple of 8; and the numbers, for packs.
    Vector(usize, Vec<f32>),
}

/// A model's weights on the device.
#[derive(Debug)]
pub(super) struct Uploaded {
    weights: Vec<GpuWeight>,
    /// Small weights of mixers, packed: by the weights and in their order.
    packs: HashMap<Vec<WeightId>, Pack>,
    /// Small weights of attention layers: indices into the buffer table.
    pub(super) attention: HashMap<PackKey, usize>,
}

/// Small weights one after the other in one buffer.
#[derive(Clone, Debug)]
pub(super) struct Pack {
    /// Index into the buffer table.
    pub(super) buffer: usize,
    /// Where each begins, in elements.
    pub(super) at: Vec<u32>,
}

/// Bytes that are handed to the queue before it is told to move them on.
const FLUSH: u64 = 32 << 20;

impl Uploaded {
    pub(super) fn weight(&self, id: WeightId) -> Option<&GpuWeight> {
        self.weights.get(id.0)
    }

    /// Uploads everything. `progress` gets (bytes done, bytes in all).
    pub(super) fn new(
        gpu: &Gpu,
        all: &[Weight],
        table: &mut Vec<Binding>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let bytes = |w: &Weight| match w {
            Weight::Matrix(m) => (m.rows * m.cols * m.dtype.bytes()) as u64,
            Weight::Vector(v) => 4 * v.len() as u64,
        };
        let total = all.iter().map(bytes).sum();
        let mut done = 0;
        let mut pending = 0;
        let mut weights = Vec::with_capacity(all.len());
        for weight in all {
            let mut report = |bytes: u64| {
                done += bytes;
                pending += bytes;
                if pending >= FLUSH {
                    pending = 0;
                    gpu.queue().submit([]);
                }
                progress(done, total);
            };
            weights.push(match weight {
                Weight::Matrix(m) => GpuWeight::Matrix(matrix(gpu, m, table, &mut report)?),
                Weight::Vector(v) => {
                    report(4 * v.len() as u64);
                    GpuWeight::Vector(vector(gpu, "vector", v, table)?, v.clone())
                }
            });
        }
        gpu.queue().submit([]);
        gpu.check()?;
        Ok(Self { weights, packs: HashMap::new(), attention: HashMap::new() })
    }

    /// The pack of `ids`, made when first asked for.
    pub(super) fn pack(&mut self, gpu: &Gpu, ids: &[WeightId], table: &mut Vec<Binding>) -> Result<Pack> {
        if let Some(p) = self.packs.get(ids) {
            return Ok(p.clone());
        }
        let mut all = Vec::new();
        let mut at = Vec::with_capacity(ids.len());
        for id in ids {
            at.push(all.len() as u32);
            match self.weights.get(id.0) {
                Some(GpuWeight::Vector(_, v)) => all.extend_from_slice(v),
                _ => return Err(Error::Gpu(format!("weight {} is not a vector", id.0))),
            }
            all.resize(all.len().next_multiple_of(4), 0.0);
        }
        let pack = Pack { buffer: vector(gpu, "pack", &all, table)?, at };
        self.packs.insert(ids.to_vec(), pack.clone());
        Ok(pack)
    }
}

fn vector(gpu: &Gpu, name: &str, values: &[f32], table: &mut Vec<Binding>) -> Result<usize> {
    let buffer = gpu.buffer(name, 4 * (values.len().next_multiple_of(8) as u64))?;
    gpu.write(&buffer, 0, values);
    table.push(buffer.into());
    Ok(table.len() - 1)
}

fn matrix(gpu: &Gpu, m: &Matrix, table: &mut Vec<Binding>, report: &mut dyn FnMut(u64)) -> Result<GpuMatrix> {
    let groups = m.cols.div_ceil(8);
    let row_bytes = m.cols * m.dtype.bytes();
    let padded = groups * 8 * m.dtype.bytes();
    let texels = padded / 16;
    let texture = gpu.caps().texture_weights && texels <= gpu.caps().max_texture as usize;
    let most = if texture {
        gpu.caps().max_texture as usize
    } else {
        gpu.caps().max_binding.min(gpu.caps().max_buffer) as usize / padded.max(1)
    };
    if most == 0 || m.rows > u32::MAX as usize || m.cols > u32::MAX as usize {
        return Err(Error::Limit {
            device: gpu.info().name.clone(),
            what: format!("tensor {}", m.name),
            need: format!("{padded} bytes a row"),
            have: format!("at most {} bytes a binding", gpu.caps().max_binding),
        });
    }
    let mut parts = Vec::new();
    // Rows left in the part at hand, and the row at which it stands.
    let mut source = m.parts.iter().flat_map(|p| p.data().chunks_exact(row_bytes.max(1)));
    let mut first = 0;
    while first < m.rows {
        let rows = most.min(m.rows - first);
        let storage = if texture {
            Binding::Texture(gpu.texture(&m.name, texels as u32, rows as u32)?)
        } else {
            Binding::Buffer(gpu.buffer(&m.name, (rows * padded) as u64)?)
        };
        // A few MiB at a time, so that no second copy of a large matrix is made.
        let batch = ((4 << 20) / padded).max(1);
        let mut bytes = Vec::with_capacity(batch.min(rows) * padded);
        let mut at = 0;
        while at < rows {
            let n = batch.min(rows - at);
            bytes.clear();
            for _ in 0..n {
                let row = source
                    .next()
                    .ok_or_else(|| Error::tensor(&m.name, format!("{} rows of {row_bytes} bytes", m.rows), "fewer"))?;
                bytes.extend_from_slice(row);
                bytes.resize(bytes.len().next_multiple_of(padded), 0);
            }
            match &storage {
                Binding::Texture(t) => write_rows(gpu, t.raw(), at as u32, &bytes, texels as u32, n as u32),
                Binding::Buffer(b) | Binding::Window(b, ..) => gpu.write(b, (at * padded) as u64, &bytes),
            }
            report((n * row_bytes) as u64);
            at += n;
        }
        table.push(storage);
        parts.push(Part { buffer: table.len() - 1, first: first as u32, rows: rows as u32 });
        first += rows;
    }
    Ok(GpuMatrix { dtype: m.dtype, rows: m.rows as u32, cols: m.cols as u32, groups: groups as u32, texture, parts })
}

/// Writes `rows` rows of `texels` texels, from row `first` on.
fn write_rows(gpu: &Gpu, texture: &wgpu::Texture, first: u32, bytes: &[u8], texels: u32, rows: u32) {
    gpu.queue().write_texture(
        wgpu::TexelCopyTextureInfo {
            texture,
            mip_level: 0,
            origin: wgpu::Origin3d { x: 0, y: first, z: 0 },
            aspect: wgpu::TextureAspect::All,
        },
        bytes,
        wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(16 * texels), rows_per_image: Some(rows) },
        wgpu::Extent3d { width: texels, height: rows, depth_or_array_layers: 1 },
    );
}
