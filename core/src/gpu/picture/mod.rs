//! The picture of a session's state, painted on the GPU. See [`crate::picture`].

#[cfg(target_family = "wasm")]
mod canvas;

#[cfg(target_family = "wasm")]
pub use canvas::Canvas;

use bytemuck::bytes_of;
use deltanet_shaders::params::PaintParams;
use deltanet_shaders::picture::paint;

use super::buffer::GpuBuffer;
use super::device::Gpu;
use super::program::{Dispatch, Program};
use crate::error::{Error, Result};
use crate::lm::Runner;
use crate::picture::{Look, Picture, Tiles};

/// Rows of pixels a workgroup.
const STRIPE: u32 = 16;

/// Dispatches that paint one picture into a buffer of pixels.
#[derive(Debug)]
pub(crate) struct Painting {
    gpu: Gpu,
    program: Program,
    /// `[height, width]` RGBA.
    pixels: GpuBuffer,
}

impl Painting {
    /// Prepares a picture; painting it again and again shows the state as it changes.
    pub(crate) fn new(picture: &Picture, tiles: &[Tiles], width: u32, height: u32, look: &Look) -> Result<Self> {
        let runner = picture.model.runner();
        let Runner::Gpu(runner) = &*runner else {
            return Err(Error::Unsupported("painting on a GPU that the model does not run on".into()));
        };
        let gpu = runner.gpu().clone();
        let pixels = gpu.buffer("picture", 4 * u64::from(width) * u64::from(height))?;
        let mut buffers = vec![pixels.clone()];
        let mut dispatches = Vec::with_capacity(tiles.len());
        for t in tiles {
            let Some((state, words)) = runner.layer_state(t.layer) else { continue };
            buffers.push(state.clone());
            let params = PaintParams {
                base: (picture.slot * words + t.at) as u32,
                head: t.head as u32,
                key_dim: t.key_dim as u32,
                value_dim: t.value_dim as u32,
                stride: width,
                x: t.x,
                y: t.y,
                pitch: t.pitch,
                width: t.width,
                height: t.height,
                gain: look.gain,
                negative: packed(look.colours.negative),
                zero: packed(look.colours.zero),
                positive: packed(look.colours.positive),
            };
            dispatches.push(Dispatch {
                variant: paint(STRIPE),
                params: bytes_of(&params).to_vec(),
                buffers: vec![buffers.len() - 1, 0],
                groups: [t.heads as u32, t.height.div_ceil(STRIPE), 1],
            });
        }
        let program = Program::compile(&gpu, &dispatches, &buffers)?;
        Ok(Self { gpu, program, pixels })
    }

    pub(crate) fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        self.program.encode(encoder);
    }
}

fn packed([r, g, b]: [u8; 3]) -> u32 {
    u32::from_le_bytes([r, g, b, 0])
}

/// Paints once and reads the pixels back.
pub(crate) async fn pixels(
    picture: &Picture,
    tiles: &[Tiles],
    width: u32,
    height: u32,
    look: &Look,
) -> Result<Vec<u8>> {
    let painting = Painting::new(picture, tiles, width, height, look)?;
    let gpu = painting.gpu.clone();
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    painting.encode(&mut encoder);
    gpu.queue().submit([encoder.finish()]);
    let bytes = 4 * u64::from(width) * u64::from(height);
    let read = gpu.read(&[(&painting.pixels, 0, bytes)]).await?;
    read.into_iter().next().ok_or_else(|| Error::Gpu("short read of a picture".into()))
}
