//! Copy bandwidth: the ceiling for everything that is bound by memory.

use anyhow::{Result, ensure};
use deltanet::gpu::{Gpu, wgpu};

use super::report::{Report, Row};
use crate::measure::{Effort, error, seconds};

/// Bytes of each of the two buffers: larger than any cache that matters, and within WebGPU's default limits.
const BYTES: usize = 128 << 20;
/// Copies in one submission, so that submitting does not count.
const REPEAT: usize = 8;

/// On a GPU: from buffer to buffer.
pub(crate) fn gpu(gpu: &Gpu, effort: Effort, report: &mut Report) -> Result<()> {
    let bytes = if gpu.caps().software { BYTES / 4 } else { BYTES };
    let data: Vec<u32> = (0..(bytes / 4) as u32).collect();
    let from = gpu.upload("copy from", &data)?;
    let to = gpu.buffer("copy to", bytes as u64)?;
    let run = || {
        seconds(|| {
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            for _ in 0..REPEAT {
                encoder.copy_buffer_to_buffer(from.raw(), 0, to.raw(), 0, bytes as u64);
            }
            gpu.queue().submit([encoder.finish()]);
            gpu.wait(gpu.read(&[(&to, 0, 4)]))?;
            Ok(())
        })
    };
    run()?;
    // The last words are the ones that a copy cut short would lack.
    let end = gpu.wait(gpu.read(&[(&to, bytes as u64 - 4, 4)]))?;
    let last = end.first().and_then(|b| b.as_slice().try_into().ok()).map(u32::from_le_bytes);
    ensure!(last == data.last().copied(), "copy: the copied buffer is not equal to its source");
    let wall = effort.measure(run)?.per(REPEAT);
    let name = format!("buffer to buffer, {} MiB, ×{REPEAT} a submission", bytes >> 20);
    report.add(Row::new("copy", name, (wall, None), (2.0 * bytes as f64 / 1e9, "GB/s"), 0.0))
}

/// On the CPU: slice to slice, on all threads.
pub(crate) fn cpu(threads: usize, effort: Effort, report: &mut Report) -> Result<()> {
    let n = BYTES / 4;
    let from: Vec<f32> = (0..n).map(|i| (i % 1021) as f32).collect();
    let mut to = vec![0f32; n];
    let part = n.div_ceil(threads.max(1));
    let wall = effort.measure(|| {
        seconds(|| {
            std::thread::scope(|scope| {
                for (a, b) in from.chunks(part).zip(to.chunks_mut(part)) {
                    scope.spawn(move || b.copy_from_slice(a));
                }
            });
            Ok(())
        })
    })?;
    let error = error(&to, &from);
    ensure!(error == 0.0, "copy: the copied slice is not equal to its source");
    let name = format!("slice to slice, {} MiB, {threads} threads", BYTES >> 20);
    report.add(Row::new("copy", name, (wall, None), (2.0 * BYTES as f64 / 1e9, "GB/s"), error))
}
