//! The state on a canvas.

use deltanet::Error;
use deltanet::picture::{Look, Picture, Scope};
use js_sys::Object;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;
use web_sys::OffscreenCanvas;

use crate::error::Result;
use crate::options::{self, set};

/// What one session's state looks like. It may be used while the session generates.
#[wasm_bindgen]
pub struct Painter {
    picture: Picture,
}

impl Painter {
    pub(crate) fn new(picture: Picture) -> Self {
        Self { picture }
    }
}

/// `{layer, head, dark, gain, gap}`: without layer and head, all heads of all layers; one of the two says nothing alone.
fn look(options: &JsValue) -> Result<Look> {
    let place = |name: &str| -> Result<Option<usize>> { Ok(options::whole(options, name, 0.0)?.map(options::clamp)) };
    let scope = match (place("layer")?, place("head")?) {
        (Some(layer), Some(head)) => Scope::Head { layer, head },
        (None, None) => Scope::All,
        (None, Some(_)) => return Err(Error::argument("layer", "a number beside head", "nothing").into()),
        (Some(_), None) => return Err(Error::argument("head", "a number beside layer", "nothing").into()),
    };
    let gain = options::number(options, "gain")?.unwrap_or(1.0) as f32;
    let gap = options::whole(options, "gap", 0.0)?.map_or(4, |g| u32::try_from(g).unwrap_or(u32::MAX));
    let dark = options::boolean(options, "dark")?.unwrap_or(false);
    Ok(Look { scope, colours: if dark { Look::DARK } else { Look::LIGHT }, gain, gap })
}

#[wasm_bindgen]
impl Painter {
    /// `{layers, heads, keyDim, valueDim}`: layers with a state, most heads of one, and the size of a head's state.
    #[must_use]
    pub fn grid(&self) -> Object {
        let grid = self.picture.grid();
        let object = Object::new();
        set(&object, "layers", grid.layers as u32);
        set(&object, "heads", grid.heads as u32);
        set(&object, "keyDim", grid.key_dim as u32);
        set(&object, "valueDim", grid.value_dim as u32);
        object
    }

    /// The picture as RGBA bytes, `[height, width, 4]`.
    pub async fn pixels(&self, width: u32, height: u32, options: JsValue) -> Result<Vec<u8>> {
        let look = look(&options)?;
        Ok(self.picture.pixels(width, height, &look).await?)
    }
}

/// A canvas that the GPU draws on.
#[wasm_bindgen]
pub struct Easel {
    canvas: OffscreenCanvas,
    bgra: bool,
    ready: Option<deltanet::gpu::Canvas>,
}

#[wasm_bindgen]
impl Easel {
    /// Takes a canvas. `bgra`: `getPreferredCanvasFormat` says `bgra8unorm`.
    #[wasm_bindgen(constructor)]
    #[must_use]
    pub fn new(canvas: OffscreenCanvas, bgra: bool) -> Self {
        Self { canvas, bgra, ready: None }
    }

    /// Draws a session's state. The canvas must have this size.
    ///
    /// # Errors
    /// The model does not run on a GPU; the browser refuses the canvas; the device was lost.
    pub fn draw(&mut self, painter: &Painter, width: u32, height: u32, options: JsValue) -> Result<()> {
        let look = look(&options)?;
        let gpu = painter.picture.gpu();
        let gpu = gpu.ok_or_else(|| Error::Unsupported("drawing without a GPU".into()))?;
        // After a lost device the same canvas serves the new one.
        let canvas = match self.ready.take().filter(|c| c.is_on(&gpu)) {
            Some(canvas) => canvas,
            None => deltanet::gpu::Canvas::new(&gpu, self.canvas.clone(), self.bgra)?,
        };
        Ok(self.ready.insert(canvas).draw(&painter.picture, width, height, &look)?)
    }

    /// Lets go of what the last drawing holds on the GPU.
    pub fn clear(&mut self) {
        self.ready = None;
    }
}
