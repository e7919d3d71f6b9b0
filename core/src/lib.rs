//! Delta-rule sequence models (DeltaNet, Gated DeltaNet, Kimi Delta Attention and relatives) on any GPU through WGSL,
//! and on the CPU.
//!
//! *A checkpoint becomes named weights; a model turns weights into a plan (a list of ops); an engine runs the plan;
//! logits become tokens.*
//!
//! # A model
//!
//! ```
//! use deltanet::session::GenerateOptions;
//! use deltanet::{Device, DeviceRequest, Model};
//!
//! # fn main() -> deltanet::Result<()> {
//! # let request = DeviceRequest::Cpu;
//! # #[cfg(any())]
//! let request = DeviceRequest::Auto; // a GPU if there is one, else the CPU engine
//! let device = Device::open(&request)?;
//! let model = Model::open("../models/stories-17m", &device)?;
//! let mut session = model.session()?;
//! session.feed_text("Once upon a time")?;
//! let mut story = String::new();
//! for piece in session.generate(GenerateOptions { max_tokens: 20, ..Default::default() })? {
//!     story += &piece?.text;
//! }
//! assert!(!story.is_empty());
//!
//! // The whole memory is small and of fixed size: fork it, save it, load it on another engine.
//! let mut branch = session.fork()?;
//! branch.feed_text(" But the fox")?;
//! let bytes = session.save()?;
//! branch.restore(&bytes)?;
//! assert_eq!(branch.tokens(), session.tokens());
//! # Ok(())
//! # }
//! ```
//!
//! An application that already has a wgpu device hands it over with [`gpu::Gpu::from_wgpu`]. Many sessions share a
//! [`Model`], and [`session::Batch`] steps them together, in one submission. Everything that waits has an `_async`
//! form that does not block, for browsers.
//!
//! # The operators
//!
//! One level down, every [`Rule`] of the family is callable on an application's own tensors, token by token
//! (`recurrent`) or chunkwise (`chunk`), on the CPU ([`cpu::delta`]) and on the GPU ([`gpu::delta`]), over the types of
//! [`delta`]:
//!
//! ```
//! use deltanet::delta::{Inputs, Options, Shape};
//! use deltanet::{Rule, cpu};
//!
//! # fn main() -> deltanet::Result<()> {
//! let shape = Shape { batch: 1, tokens: 2, heads: 1, value_heads: 1, key_dim: 4, value_dim: 4 };
//! let q = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
//! let v = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
//! let inputs = Inputs {
//!     q: &q,
//!     k: &q,
//!     v: &v,
//!     beta: Some(&[1.0, 1.0]),
//!     g: Some(&[0.0, 0.0]),
//!     initial_state: None,
//!     precond: None,
//!     cu_seqlens: None,
//! };
//! let options = Options { scale: Some(1.0), ..Options::default() };
//! let out = cpu::delta::chunk(&Rule::GATED_DELTANET, &shape, &inputs, &options)?;
//! // With β = 1 and a unit key, the newest value replaces what that key held before.
//! assert_eq!(out.o[4..], v[4..]);
//! # Ok(())
//! # }
//! ```

// In a browser wgpu's objects live on one thread; natively the very same `Arc`s cross threads.
#![cfg_attr(target_family = "wasm", allow(clippy::arc_with_non_send_sync))]
// A test that cannot go on should panic.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod attention;
pub mod checkpoint;
pub mod config;
pub mod cpu;
pub mod delta;
mod device;
pub mod engine;
mod error;
pub mod gpu;
mod lm;
pub mod model;
pub mod ops;
pub mod picture;
pub mod plan;
pub mod rule;
pub mod sampler;
pub mod session;
pub mod tokenizer;

pub use device::{Device, DeviceRequest};
pub use error::{Error, Result};
pub use lm::{LoadOptions, Model, Progress, Stage};
pub use rule::Rule;
pub use sampler::Sampling;
pub use session::Session;
