//! Every variant that ships, with what it needs: the list that the tests validate without a GPU.
//!
//! Head dims and chunk lengths are consts of a variant, so the true list has no end; here each kernel appears with
//! every combination of its flags and with the dims that change its shape (smallest, odd, largest).

mod attention;
mod delta;
mod model;

use crate::params::{Field, PaintParams, Uniform};
use crate::picture::paint;
use crate::variant::Variant;

/// Limits that a variant stays within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Invocations a workgroup.
    pub invocations: u32,
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u32,
    /// Storage buffers.
    pub storage_buffers: u32,
}

impl Needs {
    /// WebGPU's default limits.
    pub const WEBGPU_DEFAULT: Self = Self { invocations: 256, workgroup_bytes: 16_384, storage_buffers: 8 };
}

/// One entry of the list.
#[derive(Clone, Debug)]
pub struct Shipped {
    /// The variant; its features say what the device must have.
    pub variant: Variant,
    /// Limits that it stays within.
    pub needs: Needs,
    /// Fields of its `Params`; empty: it has none.
    pub fields: &'static [Field],
}

impl Shipped {
    /// A variant within WebGPU's default limits.
    pub fn base(variant: Variant) -> Self {
        Self { variant, needs: Needs::WEBGPU_DEFAULT, fields: &[] }
    }
    /// States the limits.
    #[must_use]
    pub fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }
    /// States the `Params`.
    #[must_use]
    pub fn params<P: Uniform>(mut self) -> Self {
        self.fields = P::FIELDS;
        self
    }
}

/// The list.
pub fn shipped() -> Vec<Shipped> {
    let mut all = Vec::new();
    delta::list(&mut all);
    model::list(&mut all);
    all.push(Shipped::base(paint(16)).params::<PaintParams>());
    attention::list(&mut all);
    all
}
