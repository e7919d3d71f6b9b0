//! A Rust toolchain that compiles for `wasm32-unknown-unknown`.
//!
//! Usually rustup's target does. Where rustup's server is out of reach, Debian's own packages do: its compiler, and
//! the sources of the standard library, which are compiled once into a small sysroot under `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process::{cargo, find_program, output, root, run, succeeds_within};
use crate::setup;

const TARGET: &str = "wasm32-unknown-unknown";
/// Debian's packages for the second way.
const DEBIAN: [&str; 5] = ["rustc-web", "cargo-web", "rust-web-src", "rust-web-clippy", "lld"];
/// Where Debian's compiler lies; PATH may put rustup's first.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
/// How long rustup may try to download the target.
const RUSTUP_LIMIT: Duration = Duration::from_secs(180);

/// A toolchain that works.
#[derive(Clone, Debug)]
pub(crate) enum Toolchain {
    /// rustup's, with its target.
    Rustup,
    /// Debian's, with the sysroot built here.
    Debian { sysroot: PathBuf },
}

impl Toolchain {
    /// Finds one; sets one up if `set_up`. The error says how to get one.
    pub(crate) fn get(set_up: bool) -> Result<Self> {
        if has_rustup_target() {
            return Ok(Self::Rustup);
        }
        if find_program(&["rustup"]).is_some() && set_up && !debian_is_installed() {
            println!("adding rustup's target {TARGET}");
            if succeeds_within(Command::new("rustup").args(["target", "add", TARGET]), RUSTUP_LIMIT)
                && has_rustup_target()
            {
                return Ok(Self::Rustup);
            }
            println!("rustup could not add it; trying the system's packages");
        }
        if !debian_is_installed() && set_up && find_program(&["apt-get"]).is_some() {
            setup::install(&DEBIAN)?;
        }
        if debian_is_installed() {
            return Ok(Self::Debian { sysroot: debian_sysroot()? });
        }
        bail!(
            "no compiler for {TARGET}: run `rustup target add {TARGET}`, or on Debian 12 or later \
             `sudo apt-get install -y --no-install-recommends {}`",
            DEBIAN.join(" ")
        )
    }

    /// In a few words.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Rustup => "rustup's target",
            Self::Debian { .. } => "Debian's compiler",
        }
    }

    /// `cargo <subcommand>` for the target, with a target directory of its own: two compilers would otherwise
    /// rebuild each other's work.
    pub(crate) fn cargo(&self, subcommand: &str) -> Command {
        let mut command = match self {
            Self::Rustup => cargo(),
            Self::Debian { sysroot } => {
                let mut command = Command::new(DEBIAN_CARGO);
                command
                    .current_dir(root())
                    .env("CARGO", DEBIAN_CARGO)
                    .env("RUSTC", DEBIAN_RUSTC)
                    .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld")
                    .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", self.rustflags(Some(sysroot)));
                command
            }
        };
        if matches!(self, Self::Rustup) {
            command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", self.rustflags(None));
        }
        // Flags of the surroundings are meant for the native build.
        command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").env_remove("CARGO_BUILD_TARGET");
        command.arg(subcommand).args(["--target", TARGET, "--target-dir"]).arg(self.target_dir());
        command
    }

    /// `cargo clippy` likewise, if this toolchain has it.
    pub(crate) fn clippy(&self) -> Option<Command> {
        if matches!(self, Self::Debian { .. }) {
            // `cargo clippy` would find rustup's on PATH, which cannot read Debian's libraries.
            let driver = Path::new("/usr/bin/clippy-driver");
            if !driver.is_file() {
                return None;
            }
            let mut command = self.cargo("check");
            command.env("RUSTC_WORKSPACE_WRAPPER", driver);
            return Some(command);
        }
        Some(self.cargo("clippy"))
    }

    /// Where builds for the target go.
    pub(crate) fn target_dir(&self) -> PathBuf {
        root().join("target").join("wasm")
    }

    fn rustflags(&self, sysroot: Option<&Path>) -> String {
        // Every browser that has WebGPU has SIMD.
        let simd = "-Ctarget-feature=+simd128";
        sysroot.map_or_else(|| simd.to_string(), |s| format!("{simd} --sysroot={}", s.display()))
    }
}

fn has_rustup_target() -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let folder = output(Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]));
    folder.is_some_and(|f| fs::read_dir(f).is_ok_and(|mut d| d.next().is_some()))
}

/// The vendored sources of Debian's standard library, if the packages are there.
fn debian_sources() -> Option<PathBuf> {
    let version = output(Command::new(DEBIAN_RUSTC).arg("--version"))?;
    // "rustc 1.96.0 (…)"
    let number = version.split_whitespace().nth(1)?;
    let library = PathBuf::from(format!("/usr/src/rustc-{number}/library"));
    library.join("vendor").is_dir().then_some(library)
}

fn debian_is_installed() -> bool {
    Path::new(DEBIAN_CARGO).is_file() && debian_sources().is_some() && find_program(&["wasm-ld"]).is_some()
}

/// Compiles the standard library from Debian's sources, once a compiler version.
fn debian_sysroot() -> Result<PathBuf> {
    let base = root().join("target").join("wasm-sysroot");
    let sysroot = base.join("root");
    let stamp = base.join("stamp");
    let version = output(Command::new(DEBIAN_RUSTC).arg("-Vv")).context("/usr/bin/rustc does not run")?;
    if fs::read_to_string(&stamp).is_ok_and(|s| s == version) {
        return Ok(sysroot);
    }
    println!("compiling the standard library for {TARGET} (once, about a minute)");
    let library = debian_sources().context("rust-web-src is not installed")?;
    let stub = base.join("stub");
    fs::create_dir_all(stub.join("src"))?;
    fs::write(
        stub.join("Cargo.toml"),
        "[package]\nname = \"stub\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[profile.release]\n\
         panic = \"abort\"\nlto = \"off\"\ncodegen-units = 1\n",
    )?;
    fs::write(stub.join("src").join("lib.rs"), "")?;
    // The compiler has the unstable flag only for building its own library; the project never sees it.
    run(Command::new(DEBIAN_CARGO)
        .current_dir(&stub)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTC", DEBIAN_RUSTC)
        .env("RUSTFLAGS", "-Cembed-bitcode=yes")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .args(["build", "--release", "--offline", "--target", TARGET, "-Z", "build-std=std,panic_abort"])
        .args(["--target-dir", "target"])
        .args(["--config", "source.crates-io.replace-with=\"vendored\""])
        .arg("--config")
        .arg(format!("source.vendored.directory=\"{}\"", library.join("vendor").display())))?;
    let lib = sysroot.join("lib").join("rustlib").join(TARGET).join("lib");
    let _ = fs::remove_dir_all(&sysroot);
    fs::create_dir_all(&lib)?;
    for entry in fs::read_dir(stub.join("target").join(TARGET).join("release").join("deps"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".rlib") && !name.starts_with("libstub-") {
            fs::copy(&path, lib.join(&name))?;
        }
    }
    // Procedural macros and build scripts need the host's library under the same root.
    let host = version.lines().find_map(|l| l.strip_prefix("host: ")).context("rustc -Vv names no host")?;
    #[cfg(unix)]
    std::os::unix::fs::symlink(Path::new("/usr/lib/rustlib").join(host), sysroot.join("lib/rustlib").join(host))?;
    #[cfg(not(unix))]
    let _ = host;
    fs::write(&stamp, &version)?;
    Ok(sysroot)
}
