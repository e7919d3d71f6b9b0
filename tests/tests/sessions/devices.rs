//! Devices that an application hands over, that are too small, and that are lost.

use deltanet::gpu::Gpu;
use deltanet::{Device, Error, Model};
use deltanet_tests::expected;

use super::{drawn, greedy, load};

/// A device of the application's own, with these limits.
fn open(limits: wgpu::Limits) -> Gpu {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = wait(instance.request_adapter(&wgpu::RequestAdapterOptions::default())).unwrap();
    let descriptor = wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() };
    let (device, queue) = wait(adapter.request_device(&descriptor)).unwrap();
    Gpu::from_wgpu(device, queue)
}

#[test]
fn an_application_hands_over_its_device() {
    let gpu = open(wgpu::Limits::default());
    let before = gpu.live_bytes();
    let model = load(&Device::Gpu(gpu.clone()));
    let case = &expected::demo().prompts[3];
    let mut session = model.session().unwrap();
    session.feed(&case.ids[..case.prompt_len]).unwrap();
    assert_eq!(drawn(&mut session, greedy(10)), case.ids[case.prompt_len..case.prompt_len + 10]);
    assert!(gpu.live_bytes() > before);
    drop((session, model));
    assert_eq!(gpu.live_bytes(), before, "every buffer is given back");
}

/// Runs a future that is ready when polled (native wgpu's requests are).
pub(super) fn wait<F: Future>(f: F) -> F::Output {
    let mut f = std::pin::pin!(f);
    loop {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(out) = f.as_mut().poll(&mut context) {
            return out;
        }
    }
}

#[test]
fn a_lost_device_is_an_error_and_the_saved_session_goes_on() {
    let case = &expected::demo().prompts[1];
    let gpu = open(wgpu::Limits::default());
    let model = load(&Device::Gpu(gpu.clone()));
    let mut session = model.session().unwrap();
    session.feed(&case.ids[..case.prompt_len]).unwrap();
    let file = session.save().unwrap();
    // What a driver reset looks like from here.
    gpu.device().destroy();
    let error = session.generate(greedy(4)).unwrap().map(|p| p.map(drop)).find_map(Result::err).expect("an error");
    assert!(!error.to_string().contains('\n'), "{error}");
    assert!(matches!(error, Error::DeviceLost(_)), "{error:?}");
    drop((session, model));
    let mut session = load(&Device::Gpu(open(wgpu::Limits::default()))).session().unwrap();
    session.restore(&file).unwrap();
    assert_eq!(drawn(&mut session, greedy(6)), case.ids[case.prompt_len..case.prompt_len + 6]);
}

#[test]
fn limits_that_are_too_small_are_named() {
    let base = wgpu::Limits::default;
    for (limits, expected) in [
        (
            wgpu::Limits { max_storage_buffers_per_shader_stage: 4, ..base() },
            "deltanet needs 8 storage buffers a kernel, the device has 4",
        ),
        (
            wgpu::Limits {
                max_compute_invocations_per_workgroup: 128,
                max_compute_workgroup_size_x: 128,
                max_compute_workgroup_size_y: 128,
                ..base()
            },
            "deltanet needs 256 invocations a workgroup, the device has 128",
        ),
        (
            wgpu::Limits { max_compute_workgroup_storage_size: 8192, ..base() },
            "deltanet needs 16384 bytes of workgroup memory, the device has 8192",
        ),
        // The recurrent state of a layer does not fit a binding.
        (wgpu::Limits { max_storage_buffer_binding_size: 32 << 10, ..base() }, "bytes"),
    ] {
        let gpu = open(limits);
        let before = gpu.live_bytes();
        let loaded = Model::open(expected::demo_directory(), &Device::Gpu(gpu.clone()));
        let error = loaded.map(drop).expect_err(expected);
        assert!(matches!(error, Error::Limit { .. }), "{error:?}");
        let error = error.to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        assert_eq!(gpu.live_bytes(), before, "nothing is left on the device");
    }
}
