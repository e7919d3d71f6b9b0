//! A program: dispatches compiled once (pipelines, bind groups, uniforms) and replayed without any further work.

use std::sync::{Arc, PoisonError};

use deltanet_shaders::{Access, Variant};

use super::buffer::{Binding, GpuBuffer};
use super::clock::{Clock, PASSES};
use super::device::Gpu;
use crate::error::{Error, Result};

/// One kernel call: *how* an op runs on an adapter.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// Which kernel, specialised.
    pub variant: Variant,
    /// Bytes of its uniform `Params`, if it has one (binding 0).
    pub params: Vec<u8>,
    /// What it binds besides, in binding order, as indices into the program's buffer table.
    pub buffers: Vec<usize>,
    /// Workgroups.
    pub groups: [u32; 3],
}

/// A compiled kernel.
#[derive(Debug)]
pub(crate) struct Pipeline {
    raw: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
    bindings: Vec<Access>,
}

/// Dispatches bound to buffers, ready to be encoded any number of times.
#[derive(Debug)]
pub struct Program {
    steps: Vec<Step>,
    _uniforms: Option<GpuBuffer>,
    /// The bind groups keep the wgpu buffers alive, but a [`GpuBuffer`] destroys its buffer when its last clone goes.
    _buffers: Vec<Binding>,
}

#[derive(Debug)]
struct Step {
    label: String,
    pipeline: Arc<Pipeline>,
    group: wgpu::BindGroup,
    groups: [u32; 3],
}

/// GPU time of one dispatch.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The variant's label.
    pub label: String,
    /// Nanoseconds between the start and the end of its pass.
    pub nanoseconds: f64,
}

fn binding_type(access: Access) -> wgpu::BindingType {
    let ty = match access {
        Access::Uniform | Access::UniformArray => wgpu::BufferBindingType::Uniform,
        Access::Read => wgpu::BufferBindingType::Storage { read_only: true },
        Access::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
        Access::Texture => {
            return wgpu::BindingType::Texture {
                sample_type: wgpu::TextureSampleType::Uint,
                view_dimension: wgpu::TextureViewDimension::D2,
                multisampled: false,
            };
        }
    };
    wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None }
}

fn pipeline(gpu: &Gpu, variant: &Variant) -> Result<Arc<Pipeline>> {
    let lock = || gpu.pipelines().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(p) = lock().get(variant) {
        return Ok(p.clone());
    }
    let label = variant.label();
    let source = variant.source().map_err(|e| Error::Gpu(e.to_string()))?;
    let device = gpu.device();
    let entries: Vec<_> = source
        .bindings
        .iter()
        .enumerate()
        .map(|(i, access)| wgpu::BindGroupLayoutEntry {
            binding: i as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: binding_type(*access),
            count: None,
        })
        .collect();
    let layout =
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(&label), entries: &entries });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(&label),
        bind_group_layouts: &[Some(&layout)],
        ..Default::default()
    });
    let descriptor =
        wgpu::ShaderModuleDescriptor { label: Some(&label), source: wgpu::ShaderSource::Wgsl(source.wgsl.into()) };
    // The counters that bound every loop keep drivers from unrolling, which costs some kernels a factor of ten.
    let mut checks = wgpu::ShaderRuntimeChecks::checked();
    checks.force_loop_bounding = gpu.compiles_as_browsers();
    // Kernels with cooperative matrices are for drivers that check storage buffers themselves, and their indices into
    // workgroup memory are consts and thread numbers.
    checks.bounds_checks = !variant.features.cooperative_matrix;
    // SAFETY: every loop of this crate's kernels counts up or down to a const, a plan's parameter or a length that the
    // host wrote, so all of them end. All other checks stay.
    let module = unsafe { device.create_shader_module_trusted(descriptor, checks) };
    let raw = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(&label),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions {
            constants: &[],
            // Every kernel writes workgroup memory before it reads it.
            zero_initialize_workgroup_memory: gpu.compiles_as_browsers(),
        },
        cache: gpu.pipeline_cache(),
    });
    let made = Arc::new(Pipeline { raw, layout, bindings: source.bindings });
    Ok(lock().entry(variant.clone()).or_insert(made).clone())
}

/// Compiles what `dispatches` run, each kernel once; in parallel where threads exist.
pub(super) fn pipelines<'a>(gpu: &Gpu, dispatches: impl IntoIterator<Item = &'a Dispatch>) -> Result<()> {
    let mut distinct: Vec<&Variant> = dispatches.into_iter().map(|d| &d.variant).collect();
    distinct.sort();
    distinct.dedup();
    let make = |v: &&Variant| pipeline(gpu, v).map(drop);
    // A browser's device stays on its thread.
    #[cfg(target_family = "wasm")]
    return distinct.iter().try_for_each(make);
    #[cfg(not(target_family = "wasm"))]
    crate::cpu::parallel::map(&distinct, make).into_iter().collect()
}

impl Gpu {
    /// The kernels compiled so far, one a line, in an order that does not depend on when: for [`Gpu::prepare`].
    pub fn kernels(&self) -> String {
        let compiled = self.pipelines().lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines: Vec<String> = compiled.keys().map(Variant::line).collect();
        lines.sort();
        lines.join("\n")
    }

    /// Compiles kernels ahead of need, such as those that [`Gpu::kernels`] named on an earlier start, with the same
    /// version and the same [`Caps`](super::Caps): while the weights of a model are still on their way. Lines that
    /// name none are left out. Returns how many there are now.
    ///
    /// # Errors
    /// [`Error::Gpu`] for what the driver refuses.
    pub fn prepare(&self, kernels: &str) -> Result<usize> {
        kernels.lines().filter_map(Variant::from_line).try_for_each(|v| pipeline(self, &v).map(drop))?;
        Ok(self.pipelines().lock().unwrap_or_else(PoisonError::into_inner).len())
    }
}

impl Program {
    /// Compiles `dispatches` over the table `buffers`. Pipelines are made in parallel where threads exist, and kept
    /// by the device for the next program.
    ///
    /// # Errors
    /// [`Error::Limit`] for more workgroups than the device takes; [`Error::Gpu`] for what the driver refuses.
    pub fn compile<B: Clone + Into<Binding>>(gpu: &Gpu, dispatches: &[Dispatch], buffers: &[B]) -> Result<Self> {
        gpu.caps().check_base(&gpu.info().name)?;
        let buffers: Vec<Binding> = buffers.iter().cloned().map(Into::into).collect();
        Self::build(gpu, dispatches, buffers)
    }

    fn build(gpu: &Gpu, dispatches: &[Dispatch], buffers: Vec<Binding>) -> Result<Self> {
        pipelines(gpu, dispatches)?;
        let align = gpu.device().limits().min_uniform_buffer_offset_alignment as usize;
        let mut bytes = Vec::new();
        let mut offsets = Vec::with_capacity(dispatches.len());
        for d in dispatches {
            bytes.resize(bytes.len().next_multiple_of(align), 0);
            offsets.push(bytes.len() as u64);
            bytes.extend_from_slice(&d.params);
        }
        let uniforms = if bytes.is_empty() { None } else { Some(gpu.uniforms(&bytes)?) };

        let mut steps = Vec::with_capacity(dispatches.len());
        for (d, offset) in dispatches.iter().zip(offsets) {
            let label = d.variant.label();
            let most = gpu.caps().max_groups;
            if d.groups.iter().any(|g| *g > most) {
                return Err(Error::Limit {
                    device: gpu.info().name.clone(),
                    what: label,
                    need: format!("{:?} workgroups", d.groups),
                    have: format!("at most {most} a dimension"),
                });
            }
            let pipeline = pipeline(gpu, &d.variant)?;
            let mut entries = Vec::with_capacity(pipeline.bindings.len());
            let mut storage = d.buffers.iter();
            for (i, access) in pipeline.bindings.iter().enumerate() {
                let resource = if *access == Access::Uniform {
                    let raw = uniforms.as_ref().ok_or_else(|| Error::Gpu(format!("{label}: no params")))?.raw();
                    let size = std::num::NonZeroU64::new(d.params.len() as u64);
                    wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer: raw, offset, size })
                } else {
                    let buffer = storage.next().and_then(|b| buffers.get(*b));
                    let buffer = buffer.ok_or_else(|| Error::Gpu(format!("{label}: binding {i} has no buffer")))?;
                    buffer.resource()
                };
                entries.push(wgpu::BindGroupEntry { binding: i as u32, resource });
            }
            if storage.next().is_some() {
                return Err(Error::Gpu(format!("{label}: more buffers than bindings")));
            }
            let group = gpu.device().create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(&label),
                layout: &pipeline.layout,
                entries: &entries,
            });
            steps.push(Step { label, pipeline, group, groups: d.groups });
        }
        gpu.check()?;
        // What is bound, and no more: the rest of the table may be replaced and freed while this program lives.
        let mut bound: Vec<usize> = dispatches.iter().flat_map(|d| d.buffers.iter().copied()).collect();
        bound.sort_unstable();
        bound.dedup();
        let buffers = bound.into_iter().filter_map(|i| buffers.get(i).cloned()).collect();
        Ok(Self { steps, _uniforms: uniforms, _buffers: buffers })
    }

    /// Number of dispatches.
    pub fn len(&self) -> usize {
        self.steps.len()
    }
    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Encodes all dispatches into one pass. wgpu orders dispatches that touch the same buffers.
    pub fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        self.encode_into(&mut pass);
    }

    /// Encodes a range of the dispatches into one pass; what the range lacks is left out.
    pub fn encode_range(&self, encoder: &mut wgpu::CommandEncoder, range: std::ops::Range<usize>) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        Self::steps_into(self.steps.get(range).unwrap_or_default(), &mut pass);
    }

    /// Encodes all dispatches into a pass that the caller has begun.
    pub fn encode_into(&self, pass: &mut wgpu::ComputePass<'_>) {
        Self::steps_into(&self.steps, pass);
    }

    fn steps_into(steps: &[Step], pass: &mut wgpu::ComputePass<'_>) {
        for s in steps {
            if s.groups.contains(&0) {
                continue;
            }
            pass.set_pipeline(&s.pipeline.raw);
            pass.set_bind_group(0, &s.group, &[]);
            pass.dispatch_workgroups(s.groups[0], s.groups[1], s.groups[2]);
        }
    }

    /// Runs the program once, as it always runs; resolves to the seconds on the GPU from the first dispatch's beginning to
    /// the last one's end.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the device has no timestamps.
    pub async fn time(&self, gpu: &Gpu) -> Result<f64> {
        let mut clock = Clock::new(gpu)?;
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let timestamp_writes = clock.next();
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        self.encode_into(&mut pass);
        drop(pass);
        gpu.queue().submit([encoder.finish()]);
        Ok(clock.read().await?.iter().sum())
    }

    /// Runs the program once with a timestamp pair around every dispatch: what each takes. The sum is more than
    /// [`Program::time`], since each pair takes some microseconds itself.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the device has no timestamps.
    pub async fn profile(&self, gpu: &Gpu) -> Result<Vec<Timing>> {
        let mut out = Vec::with_capacity(self.steps.len());
        for steps in self.steps.chunks(PASSES as usize) {
            let mut clock = Clock::new(gpu)?;
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            for step in steps {
                let timestamp_writes = clock.next();
                let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
                Self::steps_into(std::slice::from_ref(step), &mut encoder.begin_compute_pass(&descriptor));
            }
            gpu.queue().submit([encoder.finish()]);
            let seconds = clock.read().await?;
            let timing = |(s, t): (&Step, f64)| Timing { label: s.label.clone(), nanoseconds: 1e9 * t };
            out.extend(steps.iter().zip(seconds).map(timing));
        }
        Ok(out)
    }
}

impl Gpu {
    fn uniforms(&self, bytes: &[u8]) -> Result<GpuBuffer> {
        let raw = self.device().create_buffer(&wgpu::BufferDescriptor {
            label: Some("params"),
            size: (bytes.len() as u64).next_multiple_of(16),
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let buffer = self.count(raw);
        self.write(&buffer, 0, bytes);
        Ok(buffer)
    }
}
