//! Whether there is memory for what was asked for, before any of it is taken.

use anyhow::{Result, bail};

use crate::output::bytes;

/// Refuses what needs more memory than this program can have.
pub(crate) fn room(what: &str, need: u64) -> Result<()> {
    if let Some(free) = free().filter(|free| need > *free) {
        bail!("{what}: expected sizes for which the {} of free memory are enough, got {}", bytes(free), bytes(need));
    }
    // Systems that do not say, and limits of the process.
    let reserved = usize::try_from(need).is_ok_and(|n| Vec::<u8>::new().try_reserve_exact(n).is_ok());
    if !reserved {
        bail!("{what}: expected sizes that this process has memory for, got {}", bytes(need));
    }
    Ok(())
}

/// Bytes that the system can give without swapping.
#[cfg(target_os = "linux")]
fn free() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(not(target_os = "linux"))]
fn free() -> Option<u64> {
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn little_fits_and_too_much_does_not() {
        room("a test", 1 << 20).unwrap();
        // More than an address space has.
        for need in [1 << 60, u64::MAX] {
            let error = room("a test", need).unwrap_err().to_string();
            assert!(error.starts_with("a test: expected sizes ") && error.contains("iB"), "{error}");
        }
    }
}
