//! deltanet for browsers: what `wasm-bindgen` exports to the Worker of the JavaScript package (`web/js`).
//!
//! ```text
//! Engine ── Loader ── LoadedModel ── WebSession ── generate, fork, save, restore
//!    └── operators on typed arrays        └── Painter: the state on a canvas
//! ```
//!
//! One Worker owns one [`Engine`], and with it the GPU device. Nothing here names wgpu, and nothing blocks: what has
//! to wait for the GPU is a promise. On other targets the crate is empty.

#![cfg(target_family = "wasm")]

mod engine;
mod error;
mod generate;
mod loader;
mod model;
mod operators;
mod options;
mod painter;
mod read;
mod session;

pub use engine::Engine;
pub use error::{Failure, Result};
pub use loader::Loader;
pub use model::LoadedModel;
pub use painter::{Easel, Painter};
pub use session::WebSession;

use wasm_bindgen::prelude::wasm_bindgen;

/// Runs when the module is instantiated: a panic, which would be a bug, tells where it happened.
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
}
