//! Compiled pipelines in a file: taken over when they are good, replaced when they are not, and never an error.

use std::path::{Path, PathBuf};

use deltanet::Device;
use deltanet::gpu::{DeviceChoice, Gpu, OpenOptions};
use deltanet_tests::{devices as shared, expected};

use super::devices::wait;
use super::{drawn, greedy, load};

/// A device that keeps its pipelines in `folder`.
fn open(folder: &Path) -> Gpu {
    let options = OpenOptions { pipeline_cache: Some(folder.to_path_buf()), ..OpenOptions::default() };
    wait(Gpu::request_with(&DeviceChoice::Index(shared::index()), &options)).unwrap()
}

/// Whether a device keeps pipelines at all; if not, that is noted.
fn keeps(gpu: &Gpu) -> bool {
    let vulkan = gpu.info().backend == wgpu::Backend::Vulkan;
    if !vulkan {
        deltanet_tests::skip::skip("compiled pipelines in a file", "only Vulkan offers them");
    }
    vulkan
}

/// The files of a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect()
}

/// Compiles a model's kernels and runs them; drops the model and all but one clone of the device.
fn use_it(gpu: &Gpu) {
    let model = load(&Device::Gpu(gpu.clone()));
    model.prepare(5).unwrap();
    let case = &expected::demo().prompts[3];
    let mut session = model.session().unwrap();
    session.feed(&case.ids[..case.prompt_len]).unwrap();
    assert_eq!(drawn(&mut session, greedy(4)), case.ids[case.prompt_len..case.prompt_len + 4]);
}

#[test]
fn a_second_start_takes_over_what_the_first_compiled() {
    let folder = tempfile::tempdir().unwrap();
    // Folders that do not exist are made.
    let inner = folder.path().join("a/b");
    let gpu = open(&inner);
    assert!(!gpu.has_cached_pipelines());
    if !keeps(&gpu) {
        return;
    }
    use_it(&gpu);
    assert_eq!(files(&inner).len(), 1, "written when the model was ready");
    let first = std::fs::read(&files(&inner)[0]).unwrap();
    drop(gpu);
    let gpu = open(&inner);
    assert!(gpu.has_cached_pipelines());
    use_it(&gpu);
    drop(gpu);
    let [file] = files(&inner).try_into().unwrap();
    // The file is replaced when there is something new, and left alone otherwise.
    let written = std::fs::metadata(&file).unwrap().modified().unwrap();
    let again = open(&inner);
    use_it(&again);
    drop(again);
    if std::fs::read(&file).unwrap() == first {
        assert_eq!(std::fs::metadata(&file).unwrap().modified().unwrap(), written);
    }
    assert_eq!(files(&inner), [file], "no temporary file is left");
}

#[test]
fn a_device_that_is_dropped_writes_its_pipelines() {
    let folder = tempfile::tempdir().unwrap();
    let gpu = open(folder.path());
    if !keeps(&gpu) {
        return;
    }
    assert!(files(folder.path()).is_empty(), "nothing was compiled yet");
    gpu.save_pipelines();
    assert!(files(folder.path()).is_empty(), "nothing was compiled yet");
    let model = load(&Device::Gpu(gpu));
    model.session().unwrap().feed(&[1, 2, 3]).unwrap();
    assert!(files(folder.path()).is_empty(), "nobody asked for it");
    drop(model);
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn a_file_that_is_damaged_or_foreign_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let gpu = open(folder.path());
    if !keeps(&gpu) {
        return;
    }
    use_it(&gpu);
    let kernels = gpu.kernels();
    drop(gpu);
    let [file] = files(folder.path()).try_into().unwrap();
    let good = std::fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let mut bad = vec![
        ("empty", Vec::new()),
        ("the header alone", good[..40].to_vec()),
        ("a part of the header", good[..17].to_vec()),
        ("the last byte lost", good[..good.len() - 1].to_vec()),
        ("a byte more", [&good[..], &[0]].concat()),
        ("another program's", b"once upon a time".repeat(10)),
    ];
    // The layout's version, the device's identity, the digest, the driver's bytes.
    bad.extend([7, 8, 23, 24, 39, 40, good.len() - 1].map(|at| ("a bit flipped", flipped(at))));
    for (what, bytes) in bad {
        std::fs::write(&file, &bytes).unwrap();
        let gpu = open(folder.path());
        assert!(!gpu.has_cached_pipelines(), "{what}");
        // One kernel is enough to have something to write.
        gpu.prepare(kernels.lines().next().unwrap()).unwrap();
        drop(gpu);
        assert_ne!(std::fs::read(&file).unwrap(), bytes, "{what}");
        assert!(open(folder.path()).has_cached_pipelines(), "{what}");
        assert_eq!(files(folder.path()), std::slice::from_ref(&file), "{what}");
    }
}

#[test]
fn what_a_process_left_that_was_ended_while_it_wrote_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let gpu = open(folder.path());
    if !keeps(&gpu) {
        return;
    }
    use_it(&gpu);
    drop(gpu);
    let [file] = files(folder.path()).try_into().unwrap();
    let left = |ending: &str, age: u64| {
        let name = format!("{}{ending}", file.display());
        let written = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
        std::fs::File::create(&name).unwrap().set_modified(written).unwrap();
        PathBuf::from(name)
    };
    // Half written two hours ago; a minute ago, so perhaps still under way; and what has only a similar name.
    let (old, new, other) = (left(".4711.0", 7200), left(".4712.0", 60), left("x", 7200));
    // What is there is not good, so that the next device writes.
    std::fs::write(&file, "bad").unwrap();
    let gpu = open(folder.path());
    use_it(&gpu);
    drop(gpu);
    assert!(!old.exists());
    assert!(new.exists() && other.exists() && file.exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file");
    std::fs::write(&file, "here").unwrap();
    // A folder inside of a file: nobody can make that, whatever their rights.
    for place in [file.join("cache"), file.clone()] {
        let gpu = open(&place);
        assert!(!gpu.has_cached_pipelines());
        use_it(&gpu);
        gpu.save_pipelines();
        drop(gpu);
    }
    assert_eq!(files(folder.path()), [file]);
}

#[test]
fn several_devices_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| use_it(&open(folder.path())));
        }
    });
    let left = files(folder.path());
    assert!(left.len() <= 1, "{left:?}");
    assert_eq!(open(folder.path()).has_cached_pipelines(), !left.is_empty());
}
