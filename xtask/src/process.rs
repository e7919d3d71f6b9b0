//! Child processes: run, watch, find.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The workspace's folder.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The cargo that runs this program, started in the workspace's folder.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// A command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = command.get_args().map(|a| a.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}

/// Runs a command with its output on the terminal; a failure is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| shown(command))?;
    if !status.success() {
        bail!("{}: {status}", shown(command));
    }
    Ok(())
}

/// Runs a command and hands every line of its standard output to `line` after echoing it.
pub(crate) fn run_lines(command: &mut Command, mut line: impl FnMut(&str)) -> Result<ExitStatus> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().with_context(|| shown(command))?;
    if let Some(out) = child.stdout.take() {
        // Bytes, not `lines()`: a test may print what is not UTF-8.
        let mut reader = BufReader::new(out);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes)? > 0 {
            std::io::stdout().write_all(&bytes)?;
            line(String::from_utf8_lossy(&bytes).trim_end());
            bytes.clear();
        }
    }
    Ok(child.wait()?)
}

/// Standard output of a command, or nothing if it fails or does not exist.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let out = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
}

/// Runs a command quietly and ends it after `limit`. Whether it succeeded.
pub(crate) fn succeeds_within(command: &mut Command, limit: Duration) -> bool {
    let Ok(mut child) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        return false;
    };
    let start = Instant::now();
    while start.elapsed() < limit {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => std::thread::sleep(Duration::from_millis(100)),
            Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// The first of these programs on PATH.
pub(crate) fn find_program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let suffix = std::env::consts::EXE_SUFFIX;
    names.iter().find_map(|name| folders.iter().map(|f| f.join(format!("{name}{suffix}"))).find(|p| p.is_file()))
}
