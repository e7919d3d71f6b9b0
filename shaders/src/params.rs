//! Uniform structs, one for each kernel that has one. Field for field the WGSL `Params`; the tests compare offsets.
//! All fields are `u32` or `f32`, so that Rust's layout is WGSL's.
