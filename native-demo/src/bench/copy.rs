//! Copy bandwidth: the ceiling for everything that is bound by memory.

use anyhow::{Result, ensure};
use deltanet::gpu::{Gpu, wgpu};

use super::report::{Report, Row};
use crate::measure::{Effort, error, seconds};

/// Most bytes of each of the two buffers: many times any cache, and long enough for launching to count little.
const BYTES: usize = 512 << 20;
/// Bytes of each buffer on a software adapter.
const SMALL: usize = 32 << 20;
/// Bytes of each slice on the CPU engine.
const SLICE: usize = 128 << 20;
/// Copies in one submission, so that submitting and waiting do not count.
const REPEAT: usize = 32;
/// Likewise on a software adapter.
const SMALL_REPEAT: usize = 4;

/// On a GPU: from buffer to buffer.
pub(crate) fn gpu(gpu: &Gpu, effort: Effort, report: &mut Report) -> Result<()> {
    let software = gpu.caps().software;
    let most = gpu.caps().max_binding.min(gpu.caps().max_buffer) as usize / 16 * 16;
    let (bytes, repeat) = if software { (SMALL, SMALL_REPEAT) } else { (BYTES, REPEAT) };
    let bytes = bytes.min(most);
    let data: Vec<u32> = (0..(bytes / 4) as u32).collect();
    let from = gpu.upload("copy from", &data)?;
    let to = gpu.buffer("copy to", bytes as u64)?;
    let pipeline = pipeline(gpu);
    let group = gpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("copy"),
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[
            wgpu::BindGroupEntry { binding: 0, resource: from.raw().as_entire_binding() },
            wgpu::BindGroupEntry { binding: 1, resource: to.raw().as_entire_binding() },
        ],
    });
    let by_command = |encoder: &mut wgpu::CommandEncoder| {
        encoder.copy_buffer_to_buffer(from.raw(), 0, to.raw(), 0, bytes as u64);
    };
    let by_kernel = |encoder: &mut wgpu::CommandEncoder| {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups((bytes as u32 / 16).div_ceil(256).min(16384), 1, 1);
    };
    let by: [&dyn Fn(&mut wgpu::CommandEncoder); 2] = [&by_command, &by_kernel];
    for (how, copy) in ["by a copy command", "by a kernel"].into_iter().zip(by) {
        let run = || {
            seconds(|| {
                let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                for _ in 0..repeat {
                    copy(&mut encoder);
                }
                gpu.queue().submit([encoder.finish()]);
                gpu.wait(gpu.read(&[(&to, 0, 4)]))?;
                Ok(())
            })
        };
        gpu.write(&to, bytes as u64 - 4, &[0u32]);
        run()?;
        // The last words are the ones that a copy cut short would lack.
        let end = gpu.wait(gpu.read(&[(&to, bytes as u64 - 4, 4)]))?;
        let last = end.first().and_then(|b| b.as_slice().try_into().ok()).map(u32::from_le_bytes);
        ensure!(last == data.last().copied(), "copy: the copied buffer is not equal to its source");
        let wall = effort.measure(run)?.per(repeat);
        let name = format!("buffer to buffer, {} MiB, {how}, ×{repeat} a submission", bytes >> 20);
        report.add(Row::new("copy", name, (wall, None), (2.0 * bytes as f64 / 1e9, "GB/s"), 0.0))?;
    }
    Ok(())
}

/// A kernel that copies in sixteens of bytes.
fn pipeline(gpu: &Gpu) -> wgpu::ComputePipeline {
    let wgsl = "
        @group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
        @group(0) @binding(1) var<storage, read_write> target_: array<vec4<u32>>;
        @compute @workgroup_size(256)
        fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
            for (var i = id.x; i < arrayLength(&source); i += groups.x * 256u) {
                target_[i] = source[i];
            }
        }";
    let source = wgpu::ShaderSource::Wgsl(wgsl.into());
    let module = gpu.device().create_shader_module(wgpu::ShaderModuleDescriptor { label: Some("copy"), source });
    gpu.device().create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("copy"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}

/// On the CPU: slice to slice, on all threads.
pub(crate) fn cpu(threads: usize, effort: Effort, report: &mut Report) -> Result<()> {
    let n = SLICE / 4;
    let from: Vec<f32> = (0..n).map(|i| (i % 1021) as f32).collect();
    let mut to = vec![0f32; n];
    let part = n.div_ceil(threads.max(1));
    let wall = effort.measure(|| {
        seconds(|| {
            std::thread::scope(|scope| {
                for (a, b) in from.chunks(part).zip(to.chunks_mut(part)) {
                    std::thread::Builder::new().spawn_scoped(scope, move || b.copy_from_slice(a))?;
                }
                Ok(())
            })
        })
    })?;
    let error = error(&to, &from);
    ensure!(error == 0.0, "copy: the copied slice is not equal to its source");
    let name = format!("slice to slice, {} MiB, {threads} threads", SLICE >> 20);
    report.add(Row::new("copy", name, (wall, None), (2.0 * SLICE as f64 / 1e9, "GB/s"), error))
}
