//! The devices that tests run on: opened once a test binary, and never skipped in silence.

use std::sync::OnceLock;

use deltanet::gpu::{DeviceChoice, Gpu, LimitsChoice};

/// The place in [`deltanet::gpu::adapters`] of the adapter that tests run on.
pub fn index() -> usize {
    // DELTANET_TEST_ADAPTER: part of an adapter's name, for machines with several.
    let wanted = std::env::var("DELTANET_TEST_ADAPTER").unwrap_or_default().to_lowercase();
    let list = wait(deltanet::gpu::adapters());
    let index = list
        .iter()
        .position(|a| a.info.name.to_lowercase().contains(&wanted) || a.info.driver.to_lowercase().contains(&wanted));
    let names: Vec<&str> = list.iter().map(|a| a.info.name.as_str()).collect();
    let Some(index) = index else {
        panic!(
            "no adapter{}: found {names:?}. The tests need one; on Debian or Ubuntu `apt-get install \
             mesa-vulkan-drivers` brings a software adapter",
            if wanted.is_empty() { String::new() } else { format!(" with \"{wanted}\" in its name") }
        );
    };
    index
}

fn open(limits: LimitsChoice) -> Gpu {
    let gpu = wait(Gpu::request(&DeviceChoice::Index(index()), limits)).expect("the adapter opens");
    eprintln!("tests run on {} ({:?}), limits: {limits:?}", gpu.info().name, gpu.info().backend);
    gpu
}

/// Runs a future to its end without a device.
pub fn wait<F: std::future::Future>(f: F) -> F::Output {
    let mut f = std::pin::pin!(f);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(out) = f.as_mut().poll(&mut context) {
            return out;
        }
        std::thread::yield_now();
    }
}

/// A device with WebGPU's default limits and no optional feature.
pub fn default_limits() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(|| open(LimitsChoice::WebGpuDefault))
}

/// A device with all that the adapter offers.
pub fn best() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(|| open(LimitsChoice::Best))
}

/// A device of its own, with all that the adapter offers: for tests that count its memory.
pub fn own() -> Gpu {
    open(LimitsChoice::Best)
}

/// Both devices.
pub fn both() -> [&'static Gpu; 2] {
    [default_limits(), best()]
}
