//! A browser's canvas, drawn on by the device that holds the state.

use super::Painting;
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::picture::{Look, Picture};

/// An `OffscreenCanvas` of a Worker.
pub struct Canvas {
    gpu: Gpu,
    surface: wgpu::Surface<'static>,
    format: wgpu::TextureFormat,
    shown: Option<Shown>,
}

/// What was drawn last: drawn again, nothing has to be prepared.
struct Shown {
    slot: usize,
    size: (u32, u32),
    look: Look,
    painting: Painting,
    pipeline: wgpu::RenderPipeline,
    group: wgpu::BindGroup,
}

impl Canvas {
    /// Takes over a canvas. `bgra`: the browser prefers `bgra8unorm` to `rgba8unorm`.
    ///
    /// # Errors
    /// [`Error::Gpu`] when the browser refuses.
    pub fn new(gpu: &Gpu, canvas: wgpu::web_sys::OffscreenCanvas, bgra: bool) -> Result<Self> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let surface = instance.create_surface(wgpu::SurfaceTarget::OffscreenCanvas(canvas));
        let surface = surface.map_err(|e| Error::Gpu(format!("canvas: {e}")))?;
        let format = if bgra { wgpu::TextureFormat::Bgra8Unorm } else { wgpu::TextureFormat::Rgba8Unorm };
        Ok(Self { gpu: gpu.clone(), surface, format, shown: None })
    }

    /// Whether it belongs to this device.
    pub fn is_on(&self, gpu: &Gpu) -> bool {
        self.gpu.device() == gpu.device()
    }

    /// Draws `picture` in `width × height` pixels, the size that the canvas has.
    ///
    /// # Errors
    /// As [`Picture::pixels`]; [`Error::Gpu`] when the canvas cannot be drawn on.
    pub fn draw(&mut self, picture: &Picture, width: u32, height: u32, look: &Look) -> Result<()> {
        let same = |s: &&Shown| s.slot == picture.slot && s.size == (width, height) && s.look == *look;
        let shown = match self.shown.take().filter(|s| same(&s)) {
            Some(shown) => shown,
            None => self.prepare(picture, width, height, look)?,
        };
        let texture = match self.surface.get_current_texture() {
            wgpu::CurrentSurfaceTexture::Success(t) | wgpu::CurrentSurfaceTexture::Suboptimal(t) => t,
            _ => return Err(Error::Gpu("the canvas cannot be drawn on".into())),
        };
        let view = texture.texture.create_view(&wgpu::TextureViewDescriptor::default());
        let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        shown.painting.encode(&mut encoder);
        {
            let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
                label: Some("picture"),
                color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                    view: &view,
                    depth_slice: None,
                    resolve_target: None,
                    ops: wgpu::Operations {
                        load: wgpu::LoadOp::Clear(wgpu::Color::TRANSPARENT),
                        store: wgpu::StoreOp::Store,
                    },
                })],
                ..Default::default()
            });
            pass.set_pipeline(&shown.pipeline);
            pass.set_bind_group(0, &shown.group, &[]);
            pass.draw(0..3, 0..1);
        }
        self.gpu.queue().submit([encoder.finish()]);
        self.gpu.queue().present(texture);
        self.shown = Some(shown);
        self.gpu.check()
    }

    fn prepare(&self, picture: &Picture, width: u32, height: u32, look: &Look) -> Result<Shown> {
        let tiles = picture.tiles(width, height, look)?;
        let painting = Painting::new(picture, &tiles, width, height, look)?;
        let device = self.gpu.device();
        self.surface.configure(
            device,
            &wgpu::SurfaceConfiguration {
                usage: wgpu::TextureUsages::RENDER_ATTACHMENT,
                format: self.format,
                color_space: wgpu::SurfaceColorSpace::Auto,
                width,
                height,
                present_mode: wgpu::PresentMode::Fifo,
                desired_maximum_frame_latency: 2,
                alpha_mode: wgpu::CompositeAlphaMode::PreMultiplied,
                view_formats: Vec::new(),
            },
        );
        let label = Some("picture");
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label,
            source: wgpu::ShaderSource::Wgsl(deltanet_shaders::picture::SHOW.into()),
        });
        let constants = [("width", f64::from(width))];
        let options = wgpu::PipelineCompilationOptions { constants: &constants, ..Default::default() };
        let pipeline = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
            label,
            layout: None,
            vertex: wgpu::VertexState {
                module: &module,
                entry_point: Some("corner"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                buffers: &[],
            },
            primitive: wgpu::PrimitiveState::default(),
            depth_stencil: None,
            multisample: wgpu::MultisampleState::default(),
            fragment: Some(wgpu::FragmentState {
                module: &module,
                entry_point: Some("pixel"),
                compilation_options: options,
                targets: &[Some(self.format.into())],
            }),
            multiview_mask: None,
            cache: None,
        });
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: painting.pixels.raw().as_entire_binding() }],
        });
        Ok(Shown { slot: picture.slot, size: (width, height), look: *look, painting, pipeline, group })
    }
}
