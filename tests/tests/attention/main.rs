//! Softmax attention: the op alone on the GPU, and hybrid models on every engine.

mod layer;
mod operator;
mod sessions;
