//! The engines that model tests run on.

use deltanet::Device;

use crate::devices;

/// The CPU engine, the GPU at default limits, and the GPU with all it offers; with a name for messages.
pub fn all() -> Vec<(&'static str, Device)> {
    vec![
        ("cpu", Device::CPU),
        ("gpu, default limits", Device::Gpu(devices::default_limits().clone())),
        ("gpu, best", Device::Gpu(devices::best().clone())),
    ]
}

/// The CPU engine and the GPU with all it offers: for tests that are slow on software adapters.
pub fn two() -> Vec<(&'static str, Device)> {
    vec![("cpu", Device::CPU), ("gpu, best", Device::Gpu(devices::best().clone()))]
}
