//! What crates.io would get.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{cargo, root, run};
use crate::steps::Done;

/// The published libraries, a dependency before what needs it.
const LIBRARIES: [&str; 2] = ["deltanet-shaders", "deltanet"];

/// Packs the libraries, and compiles each from its package alone.
///
/// `cargo publish --dry-run` would compile them as well, but everything they depend on anew and in the development
/// profile (minutes on two cores). Here the unpacked packages are members of a workspace with the same lock file and
/// profile, so that what the lints have compiled is used again.
pub(crate) fn check() -> Result<Done> {
    let packages: Vec<&str> = LIBRARIES.iter().flat_map(|name| ["-p", name]).collect();
    let flags = ["--allow-dirty", "--locked", "--no-verify"];
    // The first checks what a registry asks of a manifest; the second leaves the packages where they can be read.
    run(cargo().args(["publish", "--dry-run"]).args(flags).args(&packages))?;
    run(cargo().args(["package", "--quiet"]).args(flags).args(&packages))?;

    let target = root().join("target");
    let folder = target.join("package-check");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let version = env!("CARGO_PKG_VERSION");
    let mut patches = String::new();
    for name in LIBRARIES {
        let file = target.join("package").join(format!("{name}-{version}.crate"));
        run(Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(&folder))
            .with_context(|| format!("unpacking {}", file.display()))?;
        patches += &format!("{name} = {{ path = \"{name}-{version}\" }}\n");
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml"))?;
    // The profiles, from the first one on: equal settings, equal build products.
    let profiles = workspace.find("[profile.").and_then(|at| workspace.get(at..)).unwrap_or_default();
    fs::write(
        folder.join("Cargo.toml"),
        format!("[workspace]\nresolver = \"3\"\nmembers = [\"deltanet*\"]\n\n[patch.crates-io]\n{patches}\n{profiles}"),
    )?;
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    run(cargo().current_dir(&folder).args(["check", "--release", "--workspace", "--target-dir"]).arg(&target))?;
    Ok(Done::Passed(format!("{}: packed and compiled from the packages; not uploaded", LIBRARIES.join(", "))))
}
