//! `deltanet bench`: checks, then times. A result that is wrong is not timed, and fails the command.

mod attention;
mod copy;
mod matmul;
mod million;
mod model;
mod operator;
mod operator_gpu;
mod report;
mod sizes;
mod suite;
mod synthetic;

use std::io::stdout;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use deltanet::{Device, Rule};

use crate::Exit;
use crate::args::{BenchArgs, Part, Suite};
use crate::interrupt::Interrupt;
use crate::load::describe_device;
use crate::measure::Effort;
use report::Report;

pub(crate) fn run(args: &BenchArgs) -> Result<Exit> {
    let interrupt = Interrupt::watch_briefly();
    let rules = rules(&args.rule)?;
    if args.suite.is_none() {
        sizes::check(args, &rules)?;
    }
    let device = crate::device::open(&args.model)?;
    crate::output::tell(format_args!("{}", describe_device(&device)));
    let mut report = Report::new(device.describe(), !args.json);
    let limit = Duration::from_secs(args.seconds.into());
    let hardware = matches!(&device, Device::Gpu(gpu) if !gpu.caps().software);
    let warm = if hardware { limit.min(Duration::from_millis(300)) } else { Duration::ZERO };
    let effort = Effort { runs: args.runs as usize, limit, warm };
    if let Some(Suite::H200) = args.suite {
        suite::h200(args, &device, effort, &interrupt, &mut report)?;
        if args.json {
            crate::output::json(&mut stdout(), &report)?;
        }
        return Ok(if interrupt.pressed() { Exit::Interrupted } else { Exit::Done });
    }
    for part in Part::value_variants().iter().copied().filter(|part| runs(args, *part)) {
        if interrupt.pressed() {
            return Ok(Exit::Interrupted);
        }
        match part {
            Part::Copy => {
                report.head("copy bandwidth (read + write)")?;
                match &device {
                    Device::Gpu(gpu) => copy::gpu(gpu, effort, &mut report)?,
                    Device::Cpu { threads, .. } => copy::cpu(threads_of(*threads), effort, &mut report)?,
                }
            }
            Part::Matmul => match &device {
                Device::Gpu(gpu) => matmul::gpu(gpu, effort, &interrupt, &mut report)?,
                Device::Cpu { .. } => report.skip("matmul: the CPU engine's products come from a library".into()),
            },
            Part::Operator => operator::run(args, &rules, &device, effort, &interrupt, &mut report)?,
            Part::Attention => attention::run(args, &device, effort, &interrupt, &mut report)?,
            Part::Million => million::run(args, &device, &interrupt, &mut report)?,
            Part::Model => model::run(args, &device, effort, &interrupt, &mut report)?,
            Part::Synthetic => {
                synthetic::run(&synthetic::SMALL, &device, effort, &interrupt, &mut report)?;
                synthetic::run(&synthetic::LARGE, &device, effort, &interrupt, &mut report)?;
            }
        }
    }
    if args.json {
        crate::output::json(&mut stdout(), &report)?;
    }
    Ok(if interrupt.pressed() { Exit::Interrupted } else { Exit::Done })
}

/// Whether a part was asked for. Large models and long prompts are measured only when they are named.
fn runs(args: &BenchArgs, part: Part) -> bool {
    let usual = !matches!(part, Part::Million | Part::Synthetic);
    args.only.contains(&part) || (args.only.is_empty() && usual)
}

fn threads_of(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// The rules that were named; `all` is all of them.
fn rules(names: &[String]) -> Result<Vec<(&'static str, Rule)>> {
    let known: Vec<&str> = Rule::NAMED.iter().map(|(n, _)| *n).collect();
    let mut rules = Vec::new();
    for name in names {
        if name == "all" {
            return Ok(Rule::NAMED.to_vec());
        }
        match Rule::NAMED.iter().find(|(n, _)| n == name) {
            Some(rule) => rules.push(*rule),
            None => bail!("--rule: expected all or one of {}, got {name}", known.join(", ")),
        }
    }
    Ok(rules)
}
