//! `cargo xtask web`: the library as WebAssembly, its JavaScript, and the page, as a static site in `web/dist`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{cargo, find_program, root, run};
use crate::wasm::Toolchain;

/// Options of the web build.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Use only what is installed; set nothing up.
    #[arg(long)]
    pub(crate) no_setup: bool,
    /// Leave wasm-opt out (faster builds, a larger module).
    #[arg(long)]
    pub(crate) no_opt: bool,
}

/// Features of WebAssembly that every browser with WebGPU has.
const WASM_OPT_FEATURES: [&str; 7] = [
    "--enable-simd",
    "--enable-bulk-memory",
    "--enable-sign-ext",
    "--enable-nontrapping-float-to-int",
    "--enable-mutable-globals",
    "--enable-reference-types",
    "--enable-multivalue",
];

/// Builds the site and prints what a browser transfers. Returns its folder.
pub(crate) fn build(options: &Options) -> Result<PathBuf> {
    let toolchain = Toolchain::get(!options.no_setup)?;
    println!("==> module ({})", toolchain.name());
    run(toolchain.cargo("build").args(["--profile", "web", "--locked", "-p", "deltanet-web"]))?;
    let module = toolchain.target_dir().join("wasm32-unknown-unknown").join("web").join("deltanet_web.wasm");

    let site = root().join("web").join("dist");
    let _ = fs::remove_dir_all(&site);
    // The folder `js` is the npm package, with the module inside.
    let package = site.join("js").join("pkg");
    fs::create_dir_all(&package)?;
    println!("==> JavaScript");
    run(helper().arg("bindgen").arg(&module).arg(&package))?;

    if options.no_opt {
        println!("==> wasm-opt: left out (--no-opt)");
    } else if let Some(mut wasm_opt) = wasm_opt(!options.no_setup)? {
        println!("==> wasm-opt");
        let built = package.join("deltanet_web_bg.wasm");
        let optimised = package.join("optimised.tmp");
        run(wasm_opt.args(["-O3"]).args(WASM_OPT_FEATURES).arg(&built).arg("-o").arg(&optimised))?;
        fs::rename(&optimised, &built)?;
    } else {
        println!(
            "==> wasm-opt: left out, because Node.js and npm are not installed; the module is larger than need be"
        );
    }

    let web = root().join("web");
    copy(&web.join("page"), &site)?;
    copy(&web.join("js"), &site.join("js"))?;
    // Comments stay at home: what developers read of the package is its types and its README.
    for folder in [&site, &site.join("js")] {
        run(helper().arg("bare").arg(folder))?;
    }
    println!("==> sizes");
    run(helper().arg("sizes").arg(&site))?;
    // After the sizes: a model is data.
    let models = root().join("models");
    if models.is_dir() {
        copy(&models, &site.join("models"))?;
        run(helper().arg("list").arg(site.join("models")))?;
    }
    println!("the site is in web/dist: any static file server will do");
    Ok(site)
}

/// The build's helper program, which has wasm-bindgen's generator in it: compiled once, outside the workspace.
fn helper() -> Command {
    let mut command = cargo();
    command
        .args(["run", "--quiet", "--release", "--locked", "--manifest-path"])
        .arg(root().join("web").join("build").join("Cargo.toml"))
        .arg("--target-dir")
        .arg(root().join("target").join("web-build"))
        .arg("--");
    command
}

/// Where the web tests' npm packages are declared.
pub(crate) fn npm_folder() -> PathBuf {
    root().join("web").join("tests")
}

/// Installs the npm packages in the versions of the lock file, if they are not there. Whether they are.
pub(crate) fn npm_packages(set_up: bool) -> Result<bool> {
    let folder = npm_folder();
    let lock = fs::read(folder.join("package-lock.json"))?;
    let stamp = folder.join("node_modules").join(".lock-installed");
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(true);
    }
    let (Some(npm), true) = (find_program(&[if cfg!(windows) { "npm.cmd" } else { "npm" }]), set_up) else {
        return Ok(false);
    };
    println!("installing npm packages (once)");
    run(Command::new(npm).current_dir(&folder).args(["ci", "--no-progress"]))?;
    fs::write(&stamp, lock)?;
    Ok(true)
}

/// wasm-opt as npm's `binaryen` brings it. Never the system's: Debian 12's exits with success and breaks the module.
fn wasm_opt(set_up: bool) -> Result<Option<Command>> {
    let Some(node) = find_program(&["node"]) else { return Ok(None) };
    if !npm_packages(set_up)? {
        return Ok(None);
    }
    let program = npm_folder().join("node_modules").join("binaryen").join("bin").join("wasm-opt");
    if !program.is_file() {
        bail!("{}: expected wasm-opt of the npm package binaryen, got nothing", program.display());
    }
    let mut command = Command::new(node);
    command.arg(program);
    Ok(Some(command))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| entry.path().display().to_string())?;
        }
    }
    Ok(())
}
