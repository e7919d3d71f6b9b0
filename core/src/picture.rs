//! Pictures of a session's state: every S of every layer and head as a tile, keys down, values across.
//!
//! On the GPU the library paints on the device that it owns, and in a browser shows the result on a canvas
//! (`gpu/picture`); [`Picture::pixels`] gives the same picture as bytes on every engine. Each head is drawn relative to
//! its own root mean square r: an element x becomes `t / (1 + |t|)` with `t = gain · x / r`, from the colour of −1
//! through that of 0 to that of 1.

use crate::error::{Error, Result};
use crate::lm::{Model, Runner};
use crate::ops::{Mixer, Op};
use crate::plan::PlanKind;
use crate::session::Session;

/// Which heads a picture can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Layers that have a state.
    pub layers: usize,
    /// Most value heads of a layer, HV.
    pub heads: usize,
    /// K.
    pub key_dim: usize,
    /// V.
    pub value_dim: usize,
}

/// What a picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every head of every layer: layers from left to right, their heads downwards.
    All,
    /// One head.
    Head {
        /// The layer, counting those that have a state.
        layer: usize,
        /// Value head.
        head: usize,
    },
}

/// Three colours, `[red, green, blue]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colours {
    /// Of −1.
    pub negative: [u8; 3],
    /// Of 0.
    pub zero: [u8; 3],
    /// Of 1.
    pub positive: [u8; 3],
}

/// How a picture looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// What it shows.
    pub scope: Scope,
    /// Its colours.
    pub colours: Colours,
    /// Contrast: an element of `1 / gain` times its head's root mean square is half way to the full colour.
    pub gain: f32,
    /// Transparent pixels between tiles.
    pub gap: u32,
}

impl Look {
    /// On light paper: blue, paper, red.
    pub const LIGHT: Colours =
        Colours { negative: [0x1d, 0x5c, 0xa8], zero: [0xf1, 0xee, 0xe6], positive: [0xc2, 0x3b, 0x22] };
    /// On dark ground: light blue, ground, amber.
    pub const DARK: Colours =
        Colours { negative: [0x52, 0xb6, 0xf0], zero: [0x1b, 0x1e, 0x24], positive: [0xff, 0xb3, 0x52] };
}

/// Where the heads of one layer lie in memory and on the picture. Sizes in elements and pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    /// Layer of the model.
    pub(crate) layer: usize,
    /// First S in a slot of the layer.
    pub(crate) at: usize,
    pub(crate) key_dim: usize,
    pub(crate) value_dim: usize,
    /// First head shown.
    pub(crate) head: usize,
    /// Heads shown.
    pub(crate) heads: usize,
    /// Left edge of the tiles.
    pub(crate) x: u32,
    /// Upper edge of the first tile.
    pub(crate) y: u32,
    /// Down from tile to tile.
    pub(crate) pitch: u32,
    /// Width of a tile.
    pub(crate) width: u32,
    /// Height of a tile.
    pub(crate) height: u32,
}

/// Pictures of one session's state, whatever the session is doing meanwhile.
#[derive(Clone, Debug)]
pub struct Picture {
    pub(crate) model: Model,
    pub(crate) slot: usize,
    mixers: Vec<Mixer>,
    grid: Grid,
}

impl Picture {
    /// The picture of a session's memory. It holds on to the model, not to the session: after the session is dropped
    /// it shows whatever its slot of the state pool holds.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a model without a recurrent state.
    pub fn of(session: &Session) -> Result<Self> {
        let model = session.model().clone();
        let ops = model.spec().plan(PlanKind::Decode, 1)?.ops;
        let mixer = |op| if let Op::Mixer(m) = op { Some(m) } else { None };
        let mixers: Vec<Mixer> = ops.into_iter().filter_map(mixer).collect();
        let most = |f: fn(&Mixer) -> usize| mixers.iter().map(f).max().unwrap_or(0);
        let grid = Grid {
            layers: mixers.len(),
            heads: most(|m| m.value_heads),
            key_dim: most(|m| m.key_dim),
            value_dim: most(|m| m.value_dim),
        };
        if grid.layers == 0 {
            return Err(Error::Unsupported("this model has no recurrent state to show".into()));
        }
        Ok(Self { slot: session.slot(), model, mixers, grid })
    }

    /// The GPU that the state is on, if it is on one.
    pub fn gpu(&self) -> Option<crate::gpu::Gpu> {
        match self.model.device() {
            crate::Device::Gpu(gpu) => Some(gpu.clone()),
            crate::Device::Cpu { .. } => None,
        }
    }

    /// What there is to show.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// The picture as RGBA bytes, `[height, width, 4]`; gaps are transparent.
    ///
    /// # Errors
    /// [`Error::Argument`] for a size without room for every tile, or a head that does not exist.
    pub async fn pixels(&self, width: u32, height: u32, look: &Look) -> Result<Vec<u8>> {
        let tiles = self.tiles(width, height, look)?;
        if matches!(&*self.model.runner(), Runner::Gpu(_)) {
            return crate::gpu::picture::pixels(self, &tiles, width, height, look).await;
        }
        let state = self.model.export(self.slot).await?;
        let mut out = vec![0; 4 * width as usize * height as usize];
        for t in &tiles {
            let layer = state.layers.get(t.layer).map(Vec::as_slice).unwrap_or_default();
            paint(layer, t, look, width as usize, &mut out);
        }
        Ok(out)
    }

    /// Places every head that `look` shows.
    pub(crate) fn tiles(&self, width: u32, height: u32, look: &Look) -> Result<Vec<Tiles>> {
        let Grid { layers, heads, .. } = self.grid;
        let size = || format!("{width}×{height}");
        if width > 8192 || height > 8192 {
            return Err(Error::argument("picture", "at most 8192×8192 pixels", size()));
        }
        let tile = |m: &Mixer| Tiles {
            layer: m.layer,
            at: m.state.s,
            key_dim: m.key_dim,
            value_dim: m.value_dim,
            head: 0,
            heads: m.value_heads,
            x: 0,
            y: 0,
            pitch: height,
            width,
            height,
        };
        let tiles: Vec<Tiles> = match look.scope {
            Scope::Head { layer, head } => {
                let mixer = self.mixers.get(layer).filter(|m| head < m.value_heads);
                let limit = || format!("a layer below {layers} and one of its heads");
                let got = || format!("layer {layer}, head {head}");
                let mixer = mixer.ok_or_else(|| Error::argument("head", limit(), got()))?;
                vec![Tiles { head, heads: 1, ..tile(mixer) }]
            }
            Scope::All => {
                let across = width.saturating_add(look.gap) / layers as u32;
                let pitch = height.saturating_add(look.gap) / heads as u32;
                let place = |(i, m): (usize, &Mixer)| Tiles {
                    x: i as u32 * across,
                    pitch,
                    width: across.saturating_sub(look.gap),
                    height: pitch.saturating_sub(look.gap),
                    ..tile(m)
                };
                self.mixers.iter().enumerate().map(place).collect()
            }
        };
        if tiles.iter().any(|t| t.width == 0 || t.height == 0) {
            return Err(Error::argument("picture", format!("room for {layers}×{heads} tiles"), size()));
        }
        Ok(tiles)
    }
}

/// `wgsl/picture/paint.wgsl`, one layer: `state` is its slot.
fn paint(state: &[f32], t: &Tiles, look: &Look, stride: usize, out: &mut [u8]) {
    let size = t.key_dim * t.value_dim;
    for i in 0..t.heads {
        let start = t.at + (t.head + i) * size;
        let s = state.get(start..start + size).unwrap_or_default();
        let square: f32 = s.iter().map(|x| x * x).sum();
        let rms = (square / size as f32).sqrt();
        let scale = if rms > 1e-20 { look.gain / rms } else { 0.0 };
        for y in 0..t.height as usize {
            let k = y * t.key_dim / t.height as usize;
            for x in 0..t.width as usize {
                let v = x * t.value_dim / t.width as usize;
                let level = s.get(k * t.value_dim + v).copied().unwrap_or_default() * scale;
                let at = (t.y as usize + i * t.pitch as usize + y) * stride + t.x as usize + x;
                if let Some(pixel) = out.get_mut(4 * at..4 * at + 4) {
                    pixel.copy_from_slice(&colour(level, &look.colours));
                }
            }
        }
    }
}

fn colour(level: f32, colours: &Colours) -> [u8; 4] {
    let s = level / (1.0 + level.abs());
    let end = if s > 0.0 { colours.positive } else { colours.negative };
    let mut out = [255; 4];
    for (o, (zero, end)) in out.iter_mut().zip(colours.zero.iter().zip(end)) {
        let (zero, end) = (f32::from(*zero), f32::from(end));
        *o = (zero + (end - zero) * s.abs() + 0.5) as u8;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_run_from_one_end_through_zero_to_the_other() {
        let c = Look::DARK;
        assert_eq!(colour(0.0, &c)[..3], c.zero);
        assert_eq!(colour(1e9, &c)[..3], c.positive);
        assert_eq!(colour(-1e9, &c)[..3], c.negative);
        assert_eq!(colour(f32::NAN, &c)[3], 255);
        let half = colour(1.0, &c)[0];
        assert_eq!(i32::from(half), (i32::from(c.zero[0]) + i32::from(c.positive[0]) + 1) / 2);
    }

    #[test]
    fn a_head_is_painted_relative_to_its_own_size() {
        let t = Tiles {
            layer: 0,
            at: 1,
            key_dim: 2,
            value_dim: 2,
            head: 1,
            heads: 1,
            x: 1,
            y: 0,
            pitch: 2,
            width: 2,
            height: 2,
        };
        let look = Look { scope: Scope::All, colours: Look::LIGHT, gain: 1.0, gap: 0 };
        // One element before S, then head 0, then head 1.
        let state = |scale: f32| [9.0, 7.0, 7.0, 7.0, 7.0, scale, -scale, 0.0, scale];
        let draw = |scale: f32| {
            let mut out = vec![0; 4 * 3 * 2];
            paint(&state(scale), &t, &look, 3, &mut out);
            out
        };
        assert_eq!(draw(1e-6), draw(1e6));
        let out = draw(1.0);
        assert_eq!(out[..4], [0; 4], "left of the tile");
        assert_eq!(out[4..8], out[20..24], "equal elements, equal colours");
        assert_eq!(out[16..19], Look::LIGHT.zero);
        assert_eq!(draw(0.0)[4..7], Look::LIGHT.zero);
    }
}
