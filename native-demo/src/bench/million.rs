//! A very long prompt through a model: memory must not grow with what came before, and the time of a token
//! should not.

use std::time::Instant;

use anyhow::{Result, bail};
use deltanet::{Device, LoadOptions};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::report::{Report, Row};
use crate::args::BenchArgs;
use crate::find;
use crate::interrupt::Interrupt;
use crate::load::{load_on, name};
use crate::measure::{Random, Times};
use crate::output::{bytes, thousands};

/// Tokens fed at a time.
const PIECE: usize = 4096;
/// What the process may grow by besides 4 bytes a token, which a session keeps: allocators do not return everything.
const SLACK: u64 = 32 << 20;

pub(crate) fn run(args: &BenchArgs, device: &Device, interrupt: &Interrupt, report: &mut Report) -> Result<()> {
    let Some(folder) = find::named_or_demo(args.model.model.as_deref())? else {
        report.skip("million: models/stories-17m was not found; pass --model".into());
        return Ok(());
    };
    let model = load_on(&folder, device, LoadOptions { sessions: 1, ..Default::default() })?;
    let spec = model.spec();
    if spec.layers.iter().any(|l| l.cache_per_token > 0) {
        report.skip("million: this model has full attention, whose cache grows with the text".into());
        return Ok(());
    }
    let total = args.length as usize;
    report.head(&format!("a prompt of {} tokens through {}", thousands(total as u64), name(&folder)))?;
    let mut session = model.session()?;
    let mut random = Random::new(3);
    let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("[{bar:40}] {pos}/{len} tokens, {per_sec}, {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    // Kernels are made, and memory is taken, by the first piece.
    session.feed(&random.tokens(PIECE, spec.vocab))?;
    session.synchronize()?;
    session.reset()?;
    let before = memory(device);
    let piece = PIECE.min(total.div_ceil(2)).max(1);
    let mut seconds = Vec::with_capacity(total.div_ceil(piece));
    let mut left = total;
    while left > 0 {
        if interrupt.pressed() {
            bar.finish_and_clear();
            return Ok(());
        }
        let tokens = random.tokens(piece.min(left), spec.vocab);
        let start = Instant::now();
        session.feed(&tokens)?;
        session.synchronize()?;
        // A ragged end has no time of its own to compare.
        if tokens.len() == piece {
            seconds.push(start.elapsed().as_secs_f64() / piece as f64);
        }
        left -= tokens.len();
        bar.inc(tokens.len() as u64);
    }
    bar.finish_and_clear();
    let after = memory(device);
    let state = session.state()?;
    if state.position != total as u64 {
        bail!("million: expected position {total}, got {}", state.position);
    }
    if let Some(n) = state.layers.iter().position(|l| !l.iter().all(|x| x.is_finite())) {
        bail!("million: expected a finite state, got one of layer {n} that is not");
    }
    if !state.logits.iter().all(|x| x.is_finite()) {
        bail!("million: expected finite logits");
    }
    let grown = after.saturating_sub(before);
    if grown > 4 * total as u64 + SLACK {
        bail!("million: expected memory to stay at {}, got {} more", bytes(before), bytes(grown));
    }
    // Medians of the first and the last tenth: other work on the machine should not count.
    let part = seconds.len().div_ceil(10);
    let median = |x: &[f64]| Times::of(x.to_vec()).map_or(0.0, |t| t.median);
    let first = median(seconds.get(..part).unwrap_or_default());
    let last = median(seconds.get(seconds.len().saturating_sub(part)..).unwrap_or_default());
    let drift = last / first.max(1e-12) - 1.0;
    let Some(times) = Times::of(seconds) else { bail!("million: nothing was measured") };
    let name = format!("a token; the last tenth {:+.1} % against the first", 100.0 * drift);
    report.add(Row::new("million", name, (times, None), (1.0, "tokens/s"), drift.abs()))?;
    report.note(&format!("memory {}, at the end {} more; state finite", bytes(before), bytes(grown)))?;
    Ok(())
}

/// Bytes on the device, or of the process where the system tells.
fn memory(device: &Device) -> u64 {
    if let Device::Gpu(gpu) = device {
        return gpu.live_bytes();
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib: Option<u64> = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok());
    kib.unwrap_or(0) * 1024
}
