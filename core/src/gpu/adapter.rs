//! The adapters of this machine.

use super::caps::Caps;

/// One adapter, as `deltanet info` lists it.
#[derive(Clone, Debug)]
pub struct AdapterSummary {
    /// Name, driver, back end and kind.
    pub info: wgpu::AdapterInfo,
    /// What a device opened with [`super::LimitsChoice::Best`] would have.
    pub limits: wgpu::Limits,
    /// Features that matter here and that it has.
    pub features: Vec<&'static str>,
    /// What decides which kernels would run on that device.
    pub caps: Caps,
}

/// Features to ask for.
pub(super) fn wanted(adapter: &wgpu::Adapter) -> wgpu::Features {
    let all = wgpu::Features::SHADER_F16
        | wgpu::Features::SUBGROUP
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::PIPELINE_CACHE
        | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    adapter.features() & all
}

/// Whether it multiplies 16×16×16 matrices of f16 with sums in f32.
pub(super) fn has_coop16(adapter: &wgpu::Adapter) -> bool {
    adapter.cooperative_matrix_properties().iter().any(|p| {
        p.m_size == 16
            && p.n_size == 16
            && p.k_size == 16
            && p.ab_type == wgpu::CooperativeScalarType::F16
            && p.cr_type == wgpu::CooperativeScalarType::F32
    })
}

fn rank(info: &wgpu::AdapterInfo) -> u32 {
    match info.device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// Every adapter of this machine, best first. In a browser: the one that it offers, if any.
pub(super) async fn enumerate() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    #[cfg(not(target_family = "wasm"))]
    let mut found: Vec<wgpu::Adapter> = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
    #[cfg(target_family = "wasm")]
    let mut found: Vec<wgpu::Adapter> =
        instance.request_adapter(&wgpu::RequestAdapterOptions::default()).await.into_iter().collect();
    found.sort_by_key(|a| rank(&a.get_info()));
    found
}

/// Lists this machine's adapters, best first.
pub async fn adapters() -> Vec<AdapterSummary> {
    let mut list = Vec::new();
    for adapter in enumerate().await {
        let (info, limits, f, coop16) = (adapter.get_info(), adapter.limits(), wanted(&adapter), has_coop16(&adapter));
        let mut features = Vec::new();
        for (feature, name) in [
            (wgpu::Features::SHADER_F16, "f16"),
            (wgpu::Features::SUBGROUP, "subgroups"),
            (wgpu::Features::TIMESTAMP_QUERY, "timestamps"),
        ] {
            if f.contains(feature) {
                features.push(name);
            }
        }
        let caps = Caps::new(&info, f, &limits, coop16);
        if caps.coop16 {
            features.push("cooperative matrices 16×16");
        }
        list.push(AdapterSummary { info, limits, features, caps });
    }
    list
}
