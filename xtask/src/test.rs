//! `cargo xtask test`: every check, in the order in which a mistake is cheapest to find.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::package;
use crate::process::{self, cargo, root, run_lines};
use crate::setup::{self, Scope};
use crate::steps::{Done, Steps};
use crate::wasm::Toolchain;

/// Which Vulkan driver the tests run on (Linux; elsewhere they take what the system has).
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adapter {
    /// Mesa's software driver, the same on every machine.
    Lavapipe,
    /// Whatever this machine has.
    System,
}

/// Options of `cargo xtask test`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    setup: setup::Options,
    /// Leave out everything that concerns the browser.
    #[arg(long)]
    no_web: bool,
    /// Run only the steps whose names contain this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Vulkan driver for the tests.
    #[arg(long, value_enum, default_value = "lavapipe")]
    adapter: Adapter,
}

/// Tests that also run on SwiftShader, a driver with other limits and without f16: the kernels' goldens, matrix
/// products and the sampler.
const SWIFTSHADER: [&str; 3] =
    ["goldens_hold_on_every_engine", "products_in_f32", "same_seed_same_tokens_on_cpu_and_gpu"];

/// Runs everything; whether nothing failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let web = !options.no_web;
    let mut steps = Steps::new(10, options.only.clone());
    let totals = Totals::default();

    steps.step("system packages", || {
        let scope = if web { Scope::all() } else { Scope { browsers: false } };
        let missing = setup::run(&options.setup, scope)?;
        let names = |required: bool| {
            let some = missing.iter().filter(|n| n.required == required);
            some.map(|n| n.what).collect::<Vec<_>>().join("; ")
        };
        if missing.iter().any(|n| n.required) {
            bail!("missing: {}", names(true));
        }
        let note = if missing.is_empty() { String::new() } else { format!("goes without: {}", names(false)) };
        Ok(Done::Passed(note))
    });
    steps.step("format", || {
        process::run(cargo().args(["fmt", "--all", "--check"]))?;
        Ok(Done::Passed(String::new()))
    });
    steps.step("lints, native", || {
        // The release profile, so that procedural macros and build scripts are shared with the tests.
        process::run(cargo().args([
            "clippy",
            "--release",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]))?;
        Ok(Done::Passed(String::new()))
    });
    steps.step("lints, wasm32", || {
        if !web {
            return Ok(Done::Skipped("--no-web".into()));
        }
        let toolchain = Toolchain::get(!options.setup.no_setup)?;
        let Some(mut command) = toolchain.clippy() else {
            return Ok(Done::Skipped("this toolchain has no clippy (Debian: rust-web-clippy)".into()));
        };
        command.args(["--release", "--locked", "-p", "deltanet", "-p", "deltanet-web"]);
        // With clippy as a compiler wrapper its arguments come by the environment.
        command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
        process::run(&mut command)?;
        Ok(Done::Passed(toolchain.name().into()))
    });
    steps.step("tests", || {
        let (mut command, driver) = test_command(options.adapter)?;
        command.args(["--workspace"]);
        totals.run(&mut command)?;
        Ok(Done::Passed(format!("{}, on {driver}", totals.words())))
    });
    steps.step("tests on SwiftShader", || {
        let Some(icd) = setup::swiftshader() else {
            return Ok(Done::Skipped("SwiftShader comes with Chromium, which is not installed".into()));
        };
        let subset = Totals::default();
        let mut command = cargo();
        with_driver(&mut command, &icd);
        // The whole workspace, so that features unify as above and nothing is compiled again.
        command.args(["test", "--release", "--locked", "--workspace", "--tests", "--"]);
        command.args(SWIFTSHADER);
        subset.run(&mut command)?;
        anyhow::ensure!(
            subset.passed.get() >= SWIFTSHADER.len() as u64,
            "expected at least {} tests, ran {}: one has another name now",
            SWIFTSHADER.len(),
            subset.passed.get()
        );
        Ok(Done::Passed(subset.words()))
    });
    steps.step("web site", || {
        if !web {
            return Ok(Done::Skipped("--no-web".into()));
        }
        crate::web::build(&crate::web::Options { no_setup: options.setup.no_setup, no_opt: false })?;
        Ok(Done::Passed(String::new()))
    });
    steps.step("JavaScript package in Node", || {
        if !web {
            return Ok(Done::Skipped("--no-web".into()));
        }
        anyhow::ensure!(crate::web::npm_packages(!options.setup.no_setup)?, "Node.js and npm are not installed");
        let totals = Totals::default();
        let mut command = Command::new("node");
        command.arg(crate::web::npm_folder().join("run.mjs")).arg("node");
        totals.run(&mut command)?;
        Ok(Done::Passed(totals.words()))
    });
    steps.step("browsers", || {
        if !web {
            return Ok(Done::Skipped("--no-web".into()));
        }
        anyhow::ensure!(crate::web::npm_packages(!options.setup.no_setup)?, "Node.js and npm are not installed");
        let totals = Totals::default();
        let mut command = Command::new("node");
        // Named, a browser that is not there is a failure.
        command.arg(crate::web::npm_folder().join("run.mjs")).args(["chromium", "firefox"]);
        totals.run(&mut command)?;
        Ok(Done::Passed(format!("{}; screenshots: tests/artefacts/web", totals.words())))
    });
    steps.step("packages for crates.io", package::check);

    Ok(steps.summary())
}

fn with_driver(command: &mut Command, icd: &Path) {
    // The second name is for Vulkan loaders before 1.3.207.
    command.env("VK_DRIVER_FILES", icd).env("VK_ICD_FILENAMES", icd);
}

fn test_command(adapter: Adapter) -> Result<(Command, String)> {
    let mut command = cargo();
    command.args(["test", "--release", "--locked", "--no-fail-fast"]);
    let driver = match (cfg!(target_os = "linux"), adapter) {
        (true, Adapter::Lavapipe) => {
            let Some(icd) = setup::lavapipe() else {
                bail!("lavapipe is not installed (see the first step), or pass --adapter system")
            };
            with_driver(&mut command, &icd);
            "lavapipe"
        }
        _ => "this machine's adapter",
    };
    Ok((command, driver.into()))
}

/// Counts over all test binaries of a run.
#[derive(Default)]
struct Totals {
    passed: Cell<u64>,
    failed: Cell<u64>,
    ignored: Cell<u64>,
    skipped: Cell<usize>,
}

impl Totals {
    /// Runs tests, counts, and prints what the tests noted as skipped.
    fn run(&self, command: &mut Command) -> Result<()> {
        let notes = Notes::new()?;
        command.env("DELTANET_SKIP_FILE", &notes.path);
        let status = run_lines(command, |line| self.read(line))?;
        let skipped = notes.read();
        self.skipped.set(skipped.len());
        for note in &skipped {
            println!("skipped inside a test: {note}");
        }
        if !status.success() {
            bail!("{} ({status})", self.words());
        }
        if self.passed.get() == 0 {
            bail!("no test ran");
        }
        Ok(())
    }

    /// `test result: ok. 3 passed; 0 failed; 1 ignored; …`
    fn read(&self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(word)) = (words.next().and_then(|n| n.parse::<u64>().ok()), words.next()) else {
                continue;
            };
            let cell = match word {
                "passed" => &self.passed,
                "failed" => &self.failed,
                "ignored" => &self.ignored,
                _ => continue,
            };
            cell.set(cell.get() + number);
        }
    }

    fn words(&self) -> String {
        let mut words = format!("{} tests passed, {} failed", self.passed.get(), self.failed.get());
        if self.ignored.get() > 0 {
            words += &format!(", {} ignored", self.ignored.get());
        }
        if self.skipped.get() > 0 {
            words += &format!(", {} parts skipped (listed above)", self.skipped.get());
        }
        words
    }
}

/// The file in which tests note what they had to leave out, one line each: cargo hides what a passing test prints.
struct Notes {
    path: PathBuf,
}

impl Notes {
    fn new() -> Result<Self> {
        let path = root().join("target").join("skipped-in-tests.txt");
        fs::write(&path, "")?;
        Ok(Self { path })
    }

    fn read(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.sort();
        lines.dedup();
        lines
    }
}
