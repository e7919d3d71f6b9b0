//! Variants of `delta/segments/**`: what a scan over segments of sequences needs besides.

use crate::kernels::Kernel;
use crate::variant::Variant;

/// Columns of V a workgroup of [`segments_carry`].
pub const SEGMENTS_COLUMNS: u32 = 8;
/// Elements a workgroup of [`segments_begin`].
pub const SEGMENTS_WORKGROUP: u32 = 256;

/// `delta/segments/begin`: groups (elements of the largest of its buffers / [`SEGMENTS_WORKGROUP`]).
pub fn segments_begin(chunk: u32, segments: u32) -> Variant {
    Variant::new(Kernel::SegmentsBegin).with("C", chunk).with("SEGMENTS", segments)
}

/// `delta/segments/carry`: groups (⌈V/8⌉, HV, sequences). K is a multiple of 4.
pub fn segments_carry(key_dim: u32, segments: u32) -> Variant {
    Variant::new(Kernel::SegmentsCarry).with("K", key_dim).with("SEGMENTS", segments).with("FOUR", 4)
}
