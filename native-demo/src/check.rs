//! `deltanet check`: does this device compute what the CPU engine computes?

use std::io::{Write, stdout};

use anyhow::Result;
use deltanet::sampler::Sampling;
use deltanet::session::{GenerateOptions, Session};
use deltanet::{Device, LoadOptions};
use serde::Serialize;

use crate::Exit;
use crate::args::CheckArgs;
use crate::interrupt::Interrupt;
use crate::load::{describe_device, load_on};
use crate::measure::{Random, error};
use crate::output::json;
use crate::{check_ops, check_products, check_variants, device, find};

/// Prompt lengths: around the ends of chunks, where mistakes live.
const LENGTHS: [usize; 8] = [1, 2, 15, 63, 64, 65, 130, 257];
/// Tokens drawn greedily.
const DRAWN: usize = 48;

/// Tokens of the op-by-op comparison: three chunks of 32, the last one ragged.
const OPS_TOKENS: usize = 70;

/// One comparison.
#[derive(Debug, Serialize)]
struct Line {
    what: String,
    /// Largest difference, relative to the largest value.
    error: f64,
    ok: bool,
}

pub(crate) fn run(args: &CheckArgs) -> Result<Exit> {
    let folder = find::model(args.model.model.as_deref())?;
    let interrupt = Interrupt::watch();
    let device = device::open(&args.model)?;
    let options = LoadOptions { sessions: 2, ..Default::default() };
    let model = load_on(&folder, &device, options)?;
    let reference = load_on(&folder, &Device::CPU, options)?;
    crate::output::tell(format_args!("{}", describe_device(&device)));
    if let Device::Cpu { .. } = device {
        crate::output::tell(format_args!("note     this is the CPU engine, compared with itself in other pieces"));
    }
    let tokens = Random::new(3).tokens(LENGTHS.iter().copied().max().unwrap_or(1), model.spec().vocab);
    let (mut got, mut want) = (model.session()?, reference.session()?);

    let mut lines = Vec::new();
    if let (true, Device::Gpu(gpu)) = (args.all_variants, &device) {
        let mut done = |what: String, error: f64, tolerance: f64| -> Result<bool> {
            let line = Line { what, error, ok: error <= tolerance };
            if !args.json {
                show(&line)?;
            }
            lines.push(line);
            Ok(!interrupt.pressed())
        };
        check_products::run(gpu, &mut done)?;
        check_variants::run(gpu, &mut done)?;
    } else if args.all_variants {
        crate::output::tell(format_args!("skipped: variants are a GPU's, and this is the CPU engine"));
    }
    let mut record = |what: String, error: f64| -> Result<()> {
        let line = Line { what, error, ok: error <= args.tolerance };
        if !args.json {
            show(&line)?;
        }
        lines.push(line);
        Ok(())
    };
    // One pass token by token on the CPU gives the reference of every length.
    for (i, token) in tokens.iter().enumerate() {
        if interrupt.pressed() {
            return Ok(Exit::Interrupted);
        }
        want.feed(&[*token])?;
        let n = i + 1;
        if LENGTHS.contains(&n) {
            got.reset()?;
            got.feed(tokens.get(..n).unwrap_or_default())?;
            let noun = if n == 1 { "token" } else { "tokens" };
            record(format!("{n} {noun} at once"), off(&got, &want)?)?;
        }
    }
    got.reset()?;
    for piece in tokens.chunks(7) {
        got.feed(piece)?;
    }
    record(format!("{} tokens in pieces of 7", tokens.len()), off(&got, &want)?)?;

    let mut moved = model.session()?;
    moved.restore(&want.save()?)?;
    record("a session saved by the CPU engine".into(), off(&moved, &want)?)?;

    let (ours, theirs) = (greedy(&mut got)?, greedy(&mut want)?);
    let same = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
    record(format!("{same} of {DRAWN} greedy tokens equal, then the logits"), off(&got, &want)?)?;

    if let Device::Gpu(gpu) = &device {
        let spec = std::sync::Arc::new(model.spec().clone());
        let piece = tokens.get(..OPS_TOKENS).unwrap_or_default();
        check_ops::run(gpu, &spec, piece, &mut |compared| {
            record(format!("{OPS_TOKENS} tokens: {}", compared.label), compared.error)?;
            Ok(!interrupt.pressed())
        })?;
    }

    let wrong = lines.iter().filter(|l| !l.ok).count();
    if args.json {
        json(&mut stdout(), &lines)?;
    }
    if wrong > 0 {
        crate::output::tell(format_args!("{wrong} of {} comparisons are wrong", lines.len()));
        return Ok(Exit::Different);
    }
    crate::output::tell(format_args!("{} comparisons, none is wrong", lines.len()));
    Ok(Exit::Done)
}

fn show(line: &Line) -> Result<()> {
    let mut out = stdout().lock();
    writeln!(out, "{:<70} {:>9.1e}  {}", line.what, line.error, if line.ok { "ok" } else { "WRONG" })?;
    Ok(())
}

/// How far the logits of one session are from another's.
fn off(got: &Session, want: &Session) -> Result<f64> {
    Ok(error(&got.logits()?, &want.logits()?))
}

fn greedy(session: &mut Session) -> Result<Vec<u32>> {
    let options = GenerateOptions {
        sampling: Sampling { temperature: 0.0, ..Sampling::default() },
        max_tokens: DRAWN,
        stop_at_eos: false,
        ..GenerateOptions::default()
    };
    let pieces = session.generate(options)?.collect::<deltanet::Result<Vec<_>>>()?;
    Ok(pieces.iter().map(|p| p.token).collect())
}
