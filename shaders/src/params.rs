//! Uniform structs, one for each kernel that has one. Field for field the WGSL `Params`; the tests compare names and
//! offsets through [`Uniform::FIELDS`]. All fields are `u32` or `f32`, so that Rust's layout is WGSL's.

/// A field of a uniform struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, the same in WGSL.
    pub name: &'static str,
    /// Bytes from the start.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Fields of a nested struct; empty for a number.
    pub nested: &'static [Field],
}

impl Field {
    /// `(name, bytes from the start, bytes)` of every number among `fields`, nested structs flattened in place.
    pub fn flatten(fields: &[Self]) -> Vec<(&'static str, usize, usize)> {
        let mut all = Vec::new();
        for f in fields {
            if f.nested.is_empty() {
                all.push((f.name, f.offset, f.size));
            }
            all.extend(Self::flatten(f.nested).into_iter().map(|(n, at, size)| (n, f.offset + at, size)));
        }
        all
    }
}

/// A uniform struct that lists its fields, for the comparison with the shader's; or a number, which has none.
pub trait Uniform: bytemuck::Pod {
    /// Fields in order.
    const FIELDS: &'static [Field];
}

impl Uniform for u32 {
    const FIELDS: &'static [Field] = &[];
}
impl Uniform for f32 {
    const FIELDS: &'static [Field] = &[];
}

/// Declares `#[repr(C)]` uniform structs together with their [`Uniform::FIELDS`].
macro_rules! uniforms {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $ty,)* }

        impl $crate::params::Uniform for $name {
            const FIELDS: &'static [$crate::params::Field] = &[$($crate::params::Field {
                name: stringify!($field),
                offset: std::mem::offset_of!($name, $field),
                size: size_of::<$ty>(),
                nested: <$ty as $crate::params::Uniform>::FIELDS,
            },)*];
        }
    )*};
}
pub(crate) use uniforms;

mod attention;
mod delta;
mod model;
mod picture;

pub use attention::*;
pub use delta::DeltaParams;
pub use model::*;
pub use picture::PaintParams;

uniforms! {
    /// `sample/draw`.
    DrawParams {
        /// Vocabulary.
        vocab: u32,
        /// Words a slot in `heads`: [`crate::head::HeadLayout::stride`].
        stride: u32,
        /// Start of the seen mask in a slot.
        seen: u32,
        /// Start of the logits in a slot.
        logits: u32,
        /// Emits a row.
        max_steps: u32,
    }
}
