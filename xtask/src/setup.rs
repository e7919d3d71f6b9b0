//! System packages: what is missing, and how to get it.
//!
//! On Debian and Ubuntu they are installed when this runs as root, or in continuous integration with password-less
//! `sudo`. Everywhere else the one command to type is printed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::process::{self, find_program, succeeds_within};

/// Options of the set-up.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Only check; install nothing.
    #[arg(long)]
    pub(crate) no_setup: bool,
}

/// What to set up for.
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    /// What the web build and tests in browsers need, too.
    pub(crate) browsers: bool,
}

impl Scope {
    /// Everything, as far as it exists.
    pub(crate) fn all() -> Self {
        Self { browsers: process::root().join("web").join("page").is_dir() }
    }
}

/// One thing that the tests need from the system.
#[derive(Clone)]
pub(crate) struct Need {
    /// What it is, in words.
    pub(crate) what: &'static str,
    packages: Packages,
    present: bool,
    /// Without it nothing can be said; else the tests that want it are skipped, counted and printed.
    pub(crate) required: bool,
}

/// What package managers call it; empty where it has no such package or is not needed.
#[derive(Clone, Copy)]
struct Packages {
    apt: &'static [&'static str],
    dnf: &'static [&'static str],
    pacman: &'static [&'static str],
    zypper: &'static [&'static str],
    apk: &'static [&'static str],
    brew: &'static [&'static str],
    winget: &'static [&'static str],
}

const VULKAN: Packages = Packages {
    apt: &["mesa-vulkan-drivers", "libvulkan1"],
    dnf: &["mesa-vulkan-drivers", "vulkan-loader"],
    pacman: &["vulkan-swrast", "vulkan-icd-loader"],
    zypper: &["libvulkan_lvp", "libvulkan1"],
    apk: &["mesa-vulkan-swrast", "vulkan-loader"],
    brew: &[],
    winget: &[],
};
const CHROMIUM: Packages = Packages {
    apt: &["chromium"],
    dnf: &["chromium"],
    pacman: &["chromium"],
    zypper: &["chromium"],
    apk: &["chromium"],
    brew: &["google-chrome"],
    winget: &["Google.Chrome"],
};
const FIREFOX: Packages = Packages {
    apt: &["firefox-esr"],
    dnf: &["firefox"],
    pacman: &["firefox"],
    zypper: &["MozillaFirefox"],
    apk: &["firefox"],
    brew: &["firefox"],
    winget: &["Mozilla.Firefox"],
};
const NODE: Packages = Packages {
    apt: &["nodejs", "npm"],
    dnf: &["nodejs", "nodejs-npm"],
    pacman: &["nodejs", "npm"],
    zypper: &["nodejs", "npm"],
    apk: &["nodejs", "npm"],
    brew: &["node"],
    winget: &["OpenJS.NodeJS.LTS"],
};

/// Folders where Vulkan looks for drivers on Linux.
const ICD_FOLDERS: [&str; 3] = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"];

/// lavapipe's driver file (Mesa's software Vulkan).
pub(crate) fn lavapipe() -> Option<PathBuf> {
    let files = ICD_FOLDERS.iter().filter_map(|f| std::fs::read_dir(f).ok()).flatten().flatten().map(|e| e.path());
    files
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .find(|p| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("lvp_icd")))
}

/// SwiftShader's driver file: Chromium's software Vulkan, a second and stricter driver.
pub(crate) fn swiftshader() -> Option<PathBuf> {
    ["/usr/lib/chromium", "/usr/lib/chromium-browser", "/opt/google/chrome"]
        .iter()
        .map(|f| Path::new(f).join("vk_swiftshader_icd.json"))
        .find(|p| p.is_file())
}

fn has_vulkan_loader() -> bool {
    // The dynamic linker's own list, then the usual folders.
    let listed = process::output(Command::new("/sbin/ldconfig").arg("-p"));
    listed.is_some_and(|l| l.contains("libvulkan.so.1"))
        || ["/usr/lib", "/usr/lib64", "/usr/local/lib"].iter().any(|f| Path::new(f).join("libvulkan.so.1").exists())
}

fn needs(scope: Scope) -> Vec<Need> {
    let mut list = Vec::new();
    let linux = cfg!(target_os = "linux");
    if linux {
        list.push(Need {
            what: "a software Vulkan driver (lavapipe) and Vulkan's loader",
            packages: VULKAN,
            present: lavapipe().is_some() && has_vulkan_loader(),
            required: true,
        });
    }
    if linux || scope.browsers {
        list.push(Need {
            what: "Chromium (with it comes SwiftShader, a second Vulkan driver)",
            packages: CHROMIUM,
            present: find_program(&["chromium", "chromium-browser", "google-chrome", "chrome"]).is_some()
                || Path::new("/Applications/Google Chrome.app").exists(),
            required: scope.browsers,
        });
    }
    if scope.browsers {
        list.push(Need {
            what: "Firefox",
            packages: FIREFOX,
            present: find_program(&["firefox-esr", "firefox"]).is_some()
                || Path::new("/Applications/Firefox.app").exists(),
            required: true,
        });
        list.push(Need {
            what: "Node.js and npm",
            packages: NODE,
            present: find_program(&["node"]).is_some() && find_program(&["npm"]).is_some(),
            required: true,
        });
    }
    list
}

/// Whether packages may be installed from here, and the words before `apt-get`.
fn apt() -> Option<Vec<&'static str>> {
    find_program(&["apt-get"])?;
    if process::output(Command::new("id").arg("-u")).as_deref() == Some("0") {
        return Some(Vec::new());
    }
    let ci = std::env::var_os("CI").is_some_and(|v| !v.is_empty() && v != "false" && v != "0");
    let sudo = ci && succeeds_within(Command::new("sudo").args(["-n", "true"]), Duration::from_secs(10));
    sudo.then(|| vec!["sudo", "-n"])
}

/// Installs Debian packages if that is allowed here. Whether it was tried and worked.
pub(crate) fn install(packages: &[&str]) -> Result<bool> {
    let Some(prefix) = apt() else { return Ok(false) };
    println!("installing {}", packages.join(" "));
    let apt_get = |words: &[&str]| {
        let line: Vec<&str> =
            prefix.iter().copied().chain(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]).collect();
        let mut command = Command::new(line.first().copied().unwrap_or("env"));
        command.args(line.iter().skip(1)).args(words);
        process::run(&mut command)
    };
    // A list that is out of date makes the installation fail with "404"; a list that cannot be fetched may still do.
    let _ = apt_get(&["update", "-qq"]);
    let mut words = vec!["install", "-y", "-qq", "--no-install-recommends"];
    words.extend(packages);
    apt_get(&words)?;
    Ok(true)
}

/// The one command that brings what is missing.
fn advice(missing: &[Need]) -> String {
    type Names = fn(&Packages) -> &'static [&'static str];
    let managers: [(&str, &str, Names); 7] = [
        ("apt-get", "sudo apt-get install -y --no-install-recommends", |p| p.apt),
        ("dnf", "sudo dnf install -y", |p| p.dnf),
        ("pacman", "sudo pacman -S --needed", |p| p.pacman),
        ("zypper", "sudo zypper install -y", |p| p.zypper),
        ("apk", "sudo apk add", |p| p.apk),
        ("brew", "brew install", |p| p.brew),
        ("winget", "winget install -e", |p| p.winget),
    ];
    let names = |of: Names| missing.iter().flat_map(|n| of(&n.packages)).copied().collect::<Vec<_>>().join(" ");
    for (program, command, of) in managers {
        if find_program(&[program]).is_some() {
            return format!("{command} {}", names(of));
        }
    }
    format!("(install, with whatever this system has, what Debian calls {})", names(|p| p.apt))
}

/// Checks, installs where it may, and returns what is still missing after printing the command that brings it.
pub(crate) fn run(options: &Options, scope: Scope) -> Result<Vec<Need>> {
    let all = needs(scope);
    for need in &all {
        println!("  {}  {}", if need.present { "found  " } else { "missing" }, need.what);
    }
    let missing = |all: Vec<Need>| all.into_iter().filter(|n| !n.present).collect::<Vec<_>>();
    let lacking = missing(all);
    if lacking.is_empty() {
        return Ok(lacking);
    }
    let packages: Vec<&str> = lacking.iter().flat_map(|n| n.packages.apt).copied().collect();
    if !options.no_setup && install(&packages)? {
        let still = missing(needs(scope));
        if !still.is_empty() {
            bail!("installed, but still not found: {}", still.iter().map(|n| n.what).collect::<Vec<_>>().join(", "));
        }
        return Ok(still);
    }
    println!("to install what is missing, run:\n  {}", advice(&lacking));
    Ok(lacking)
}
