//! A whole model: reading prompts and writing tokens, one session and many together.

use std::time::Instant;

use anyhow::{Result, bail};
use deltanet::sampler::Sampling;
use deltanet::session::{Batch, GenerateOptions, Session};
use deltanet::{Device, LoadOptions, Model};

use super::report::{Bar, Report, Row};
use super::sizes;
use crate::args::BenchArgs;
use crate::find;
use crate::interrupt::Interrupt;
use crate::load::{load_on, name};
use crate::measure::{Effort, Random, Times, error, seconds};

/// Largest difference of logits between the engine and the CPU's token-by-token form, relative to the largest logit.
const TOLERANCE: f64 = 1e-3;
/// Tokens of the check: several chunks, and a ragged end.
const CHECKED: usize = 100;
/// Tokens in a session before decoding is timed.
const CONTEXT: usize = 16;

/// What is measured of a model.
pub(crate) struct Plan<'a> {
    /// The model's name in the rows.
    pub(crate) of: &'a str,
    pub(crate) sessions: &'a [u32],
    pub(crate) prefill: &'a [u32],
    pub(crate) decode: &'a [u32],
    pub(crate) goals: Goals,
}

/// Tokens a second that are hoped for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Goals {
    pub(crate) prefill: Option<f64>,
    pub(crate) decode: Option<f64>,
}

pub(crate) fn run(
    args: &BenchArgs,
    device: &Device,
    effort: Effort,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    let sessions = args.sessions.iter().copied().max().unwrap_or(1).max(1) as usize;
    let Some((model, of, off)) = checked(args, device, sessions, report)? else { return Ok(()) };
    let tokens = args.prefill.iter().chain(&args.decode).copied().max().unwrap_or(0);
    sizes::check_sessions(model.spec(), device, sessions, tokens)?;
    let plan = Plan {
        of: &of,
        sessions: &args.sessions,
        prefill: &args.prefill,
        decode: &args.decode,
        goals: Goals::default(),
    };
    measure(&model, &plan, off, effort, interrupt, report)
}

/// The model that was named, or the demo model, with its name and how far it is off the CPU engine; `None`, and a line in
/// the report, without one. Begins its part of the table.
fn checked(
    args: &BenchArgs,
    device: &Device,
    sessions: usize,
    report: &mut Report,
) -> Result<Option<(Model, String, f64)>> {
    let Some(folder) = find::named_or_demo(args.model.model.as_deref())? else {
        report.skip("model: models/stories-17m was not found; pass --model".into());
        return Ok(None);
    };
    let model = load_on(&folder, device, LoadOptions { sessions, ..Default::default() })?;
    let reference = load_on(&folder, &Device::CPU, LoadOptions { sessions: 1, ..Default::default() })?;
    let of = name(&folder);
    report.head(&format!("model {of} ({})", model.spec().model_type))?;
    let off = check(&reference, &model, TOLERANCE)?;
    Ok(Some((model, of, off)))
}

/// The demo model, decoding alone. `bars`: tokens a second, and per cent of the time that the GPU is busy.
pub(crate) fn demo(
    args: &BenchArgs,
    device: &Device,
    decode: u32,
    bars: Option<(f64, f64)>,
    effort: Effort,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    let Some((model, of, off)) = checked(args, device, 1, report)? else { return Ok(()) };
    let goals = Goals { prefill: None, decode: bars.map(|b| b.0) };
    let plan = Plan { of: &of, sessions: &[1], prefill: &[], decode: &[decode], goals };
    measure(&model, &plan, off, effort, interrupt, report)?;
    if interrupt.pressed() {
        return Ok(());
    }
    busy(&model, &of, decode, off, bars.map(|b| b.1), effort, report)
}

/// Adds the rows of a model that has been checked.
pub(crate) fn measure(
    model: &Model,
    plan: &Plan<'_>,
    off: f64,
    effort: Effort,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    let vocab = model.spec().vocab;
    let mut random = Random::new(3);
    for &n in plan.sessions {
        let n = n as usize;
        let mut readers = (0..n).map(|_| model.session()).collect::<deltanet::Result<Vec<_>>>()?;
        for &tokens in plan.prefill {
            if interrupt.pressed() {
                return Ok(());
            }
            let prompt = random.tokens(tokens as usize, vocab);
            let wall = effort.measure(|| {
                readers.iter_mut().try_for_each(Session::reset)?;
                seconds(|| {
                    for session in &mut readers {
                        session.feed(&prompt)?;
                    }
                    // The last session's work is the last that was submitted.
                    readers.last().map_or(Ok(()), Session::synchronize)?;
                    Ok(())
                })
            })?;
            let work = ((n * prompt.len()) as f64, "tokens/s");
            let name = format!("{}: prefill of {tokens}, {n} session{}", plan.of, if n == 1 { "" } else { "s" });
            report.add(Row::new("model", name, (wall, None), work, off).against(plan.goals.prefill.map(Bar::Rate)))?;
        }
        for &tokens in plan.decode {
            if interrupt.pressed() {
                return Ok(());
            }
            let prompt = random.tokens(CONTEXT, vocab);
            let wall = effort.measure(|| {
                for session in &mut readers {
                    session.reset()?;
                    session.feed(&prompt)?;
                }
                readers.last().map_or(Ok(()), Session::synchronize)?;
                decode(&mut readers, tokens as usize)
            })?;
            let work = ((n * tokens as usize) as f64, "tokens/s");
            let name = format!("{}: decode of {tokens}, {n} session{}", plan.of, if n == 1 { "" } else { "s" });
            report.add(Row::new("model", name, (wall, None), work, off).against(plan.goals.decode.map(Bar::Rate)))?;
        }
    }
    Ok(())
}

/// How much of the time the GPU works while one session decodes `tokens` tokens.
pub(crate) fn busy(
    model: &Model,
    of: &str,
    tokens: u32,
    off: f64,
    bar: Option<f64>,
    effort: Effort,
    report: &mut Report,
) -> Result<()> {
    let Device::Gpu(gpu) = model.device() else { return Ok(()) };
    if !gpu.caps().timestamps {
        report.skip(format!("{of}: GPU busy while decoding: the device has no timestamps"));
        return Ok(());
    }
    let prompt = Random::new(3).tokens(CONTEXT, model.spec().vocab);
    let mut session = [model.session()?];
    let (mut all, mut shares) = (Vec::new(), Vec::new());
    let wall = effort.measure(|| {
        for session in &mut session {
            session.reset()?;
            session.feed(&prompt)?;
            session.synchronize()?;
        }
        model.start_clock()?;
        let wall = decode(&mut session, tokens as usize)?;
        let busy = model.stop_clock()?;
        all.push(busy);
        shares.push(100.0 * busy / wall.max(1e-12));
        Ok(wall)
    })?;
    // Without the runs that only warmed up.
    let (all, shares) = (last(all, wall.runs), last(shares, wall.runs));
    let name = format!("{of}: GPU busy, decode of {tokens}, 1 session");
    let mut row = Row::new("busy", name, (wall, Times::of(all)), (0.0, "%"), off);
    // Of the very runs: the median of times is another run's than that of shares.
    row.rate = Times::of(shares).map_or(0.0, |t| t.median);
    report.add(row.against(bar.map(Bar::Rate)))
}

/// The last `n` of a list.
fn last(mut list: Vec<f64>, n: usize) -> Vec<f64> {
    list.split_off(list.len().saturating_sub(n))
}

/// Seconds for `tokens` tokens of every session.
fn decode(sessions: &mut [Session], tokens: usize) -> Result<f64> {
    let n = sessions.len();
    let options = |seed| GenerateOptions {
        sampling: Sampling { seed, ..Sampling::default() },
        max_tokens: tokens,
        stop_at_eos: false,
        ..GenerateOptions::default()
    };
    let start = Instant::now();
    let mut batch = Batch::new(sessions.iter_mut().collect(), (0..n as u64).map(options).collect())?;
    let mut drawn = 0;
    while batch.next_blocking()?.is_some() {
        drawn += 1;
    }
    let elapsed = start.elapsed().as_secs_f64();
    if drawn != n * tokens {
        bail!("decode: expected {} tokens, got {drawn}", n * tokens);
    }
    Ok(elapsed)
}

/// The engine's logits after a prompt read at once, against the CPU engine's after the same read token by token.
pub(crate) fn check(reference: &Model, model: &Model, tolerance: f64) -> Result<f64> {
    let tokens = Random::new(2).tokens(CHECKED, model.spec().vocab);
    let mut slow = reference.session()?;
    for token in &tokens {
        slow.feed(&[*token])?;
    }
    let mut fast = model.session()?;
    fast.feed(&tokens)?;
    let off = error(&fast.logits()?, &slow.logits()?);
    if off > tolerance {
        bail!("model: expected logits within {tolerance:e} of the CPU's step by step, got {off:.1e}");
    }
    Ok(off)
}
