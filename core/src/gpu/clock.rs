//! GPU time of passes, by a pair of timestamps around each.

use super::device::Gpu;
use crate::error::{Error, Result};

/// Most passes of one clock: a query set holds at most 4,096 queries.
pub(super) const PASSES: u32 = 2048;

/// Timestamps around passes, from when it is made until it is read.
#[derive(Debug)]
pub(super) struct Clock {
    gpu: Gpu,
    set: wgpu::QuerySet,
    /// Passes begun, those that found no room included.
    passes: u32,
}

impl Clock {
    /// # Errors
    /// [`Error::Unsupported`] when the device has no timestamps.
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        if !gpu.caps().timestamps {
            return Err(Error::Unsupported(format!("{} has no timestamp queries", gpu.info().name)));
        }
        let descriptor =
            wgpu::QuerySetDescriptor { label: Some("clock"), ty: wgpu::QueryType::Timestamp, count: 2 * PASSES };
        Ok(Self { gpu: gpu.clone(), set: gpu.device().create_query_set(&descriptor), passes: 0 })
    }

    /// The timestamps of the next pass.
    pub(super) fn next(&mut self) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let first = 2 * self.passes;
        self.passes += 1;
        (self.passes <= PASSES).then(|| wgpu::ComputePassTimestampWrites {
            query_set: &self.set,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        })
    }

    /// Seconds that each pass took, in order. Resolves when they are done.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when there were too many passes.
    pub(super) fn read(self) -> impl Future<Output = Result<Vec<f64>>> + use<> {
        let Self { gpu, set, passes } = self;
        let count = 2 * passes.min(PASSES);
        let bytes = u64::from(count) * 8;
        let buffer = |usage| {
            let size = bytes.max(16);
            let descriptor = wgpu::BufferDescriptor { label: Some("clock"), size, usage, mapped_at_creation: false };
            gpu.device().create_buffer(&descriptor)
        };
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let staging = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        if count > 0 {
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.resolve_query_set(&set, 0..count, &resolved, 0);
            encoder.copy_buffer_to_buffer(&resolved, 0, &staging, 0, bytes);
            gpu.queue().submit([encoder.finish()]);
        }
        async move {
            match passes {
                0 => return Ok(Vec::new()),
                1..=PASSES => {}
                _ => return Err(Error::Unsupported(format!("timing of {passes} passes, more than {PASSES}"))),
            }
            let read = gpu.map(staging, bytes).await?;
            let ticks: Vec<u64> = read.chunks_exact(8).map(|b| b.try_into().map_or(0, u64::from_le_bytes)).collect();
            let second = 1e-9 * f64::from(gpu.queue().get_timestamp_period());
            Ok(ticks.chunks_exact(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64 * second).collect())
        }
    }
}
