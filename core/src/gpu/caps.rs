//! What an adapter can do, as far as kernel choice is concerned.

use crate::error::{Error, Result};

/// Limits and features that decide which kernel variants run. Read once per device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caps {
    /// A software adapter (lavapipe, SwiftShader): barriers are dear, register tiles cheap.
    pub software: bool,
    /// `SHADER_F16` was requested and granted.
    pub f16: bool,
    /// Subgroup operations usable, with the one size that every kernel gets; 0 when absent or of varying size.
    pub subgroup_size: u32,
    /// Timestamp queries usable.
    pub timestamps: bool,
    /// A 16×16×16 cooperative matrix with f16 operands and f32 accumulation is usable, and belongs to 32 threads.
    pub coop16: bool,
    /// Kernels with cooperative matrices run in plain WGSL, and those of `delta/apart` without shuffles: for tests on
    /// devices that lack these, where whoever sets it sets `coop16` too. Never set otherwise.
    #[doc(hidden)]
    pub emulate: bool,
    /// Products of many rows with f16 and bf16 weights, and the chunk stages of delta rules, may round what they
    /// multiply to f16: set by whoever may trade accuracy for speed.
    pub half_products: bool,
    /// Largest product of workgroup dimensions (256 by default).
    pub max_invocations: u32,
    /// Bytes of workgroup memory a kernel may use (16,384 by default).
    pub workgroup_bytes: u32,
    /// Storage buffers a kernel may bind (8 by default).
    pub storage_buffers: u32,
    /// Matrices are read faster as textures than as buffers (some software adapters).
    pub texture_weights: bool,
    /// Largest uniform binding in bytes (64 KiB by default).
    pub max_uniform: u64,
    /// Largest width and height of a texture (8,192 by default).
    pub max_texture: u32,
    /// Largest storage binding in bytes (128 MiB by default).
    pub max_binding: u64,
    /// Largest buffer in bytes (256 MiB by default).
    pub max_buffer: u64,
    /// Largest workgroup count in one dimension (65,535 by default).
    pub max_groups: u32,
}

impl Caps {
    /// What WebGPU promises on every device: the base variants run within these.
    pub const WEBGPU_DEFAULT: Self = Self {
        software: false,
        f16: false,
        subgroup_size: 0,
        timestamps: false,
        coop16: false,
        emulate: false,
        half_products: false,
        max_invocations: 256,
        workgroup_bytes: 16_384,
        storage_buffers: 8,
        texture_weights: false,
        max_uniform: 64 << 10,
        max_texture: 8192,
        max_binding: 128 << 20,
        max_buffer: 256 << 20,
        max_groups: 65_535,
    };

    /// Of a device with these features and limits. `coop16`: its adapter has such matrices.
    pub(super) fn new(info: &wgpu::AdapterInfo, features: wgpu::Features, limits: &wgpu::Limits, coop16: bool) -> Self {
        let one_size = info.subgroup_min_size == info.subgroup_max_size;
        // The kernels with subgroups are no part of a page (`deltanet_shaders`): wgpu takes none from browsers yet.
        let native = cfg!(not(target_family = "wasm"));
        let subgroups = native && features.contains(wgpu::Features::SUBGROUP) && one_size;
        let subgroup_size = if subgroups { info.subgroup_min_size } else { 0 };
        let software = info.device_type == wgpu::DeviceType::Cpu;
        Self {
            software,
            f16: features.contains(wgpu::Features::SHADER_F16),
            subgroup_size,
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            half_products: false,
            emulate: false,
            // A subgroup holds a matrix, and kernels take every 32 threads for one: subgroups of 64, which some drivers
            // may choose, would make wrong numbers of it.
            coop16: coop16 && subgroup_size == 32 && features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
            max_invocations: limits.max_compute_invocations_per_workgroup,
            workgroup_bytes: limits.max_compute_workgroup_storage_size,
            storage_buffers: limits.max_storage_buffers_per_shader_stage,
            texture_weights: software,
            max_uniform: limits.max_uniform_buffer_binding_size,
            max_texture: limits.max_texture_dimension_2d,
            max_binding: limits.max_storage_buffer_binding_size,
            max_buffer: limits.max_buffer_size,
            max_groups: limits.max_compute_workgroups_per_dimension,
        }
    }

    /// Whether every base variant runs: none of the limits is below what WebGPU promises. (A binding may be smaller:
    /// what does not fit says so by itself.)
    ///
    /// # Errors
    /// [`Error::Limit`] for the first limit that is.
    pub(super) fn check_base(&self, device: &str) -> Result<()> {
        let base = Self::WEBGPU_DEFAULT;
        for (what, have, need) in [
            ("invocations a workgroup", self.max_invocations, base.max_invocations),
            ("bytes of workgroup memory", self.workgroup_bytes, base.workgroup_bytes),
            ("storage buffers a kernel", self.storage_buffers, base.storage_buffers),
            ("workgroups a dimension", self.max_groups, base.max_groups),
        ] {
            if have < need {
                let (device, need, have) = (device.into(), format!("{need} {what}"), have.to_string());
                return Err(Error::Limit { device, what: "deltanet".into(), need, have });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_and_shuffles_need_subgroups_of_one_size() {
        let features = wgpu::Features::SUBGROUP | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        let caps = |sizes: (u32, u32), features| {
            let mut info = wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, wgpu::Backend::Vulkan);
            (info.subgroup_min_size, info.subgroup_max_size) = sizes;
            let caps = Caps::new(&info, features, &wgpu::Limits::default(), true);
            (caps.subgroup_size, caps.coop16)
        };
        assert_eq!(caps((32, 32), features), (32, true));
        assert_eq!(caps((64, 64), features), (64, false));
        assert_eq!(caps((32, 64), features), (0, false));
        assert_eq!(caps((32, 32), wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX), (0, false));
        assert_eq!(caps((32, 32), wgpu::Features::SUBGROUP), (32, false));
    }
}
