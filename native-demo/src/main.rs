//! `deltanet`: run, inspect and time delta-rule language models.

mod args;
mod bench;
mod check;
mod check_ops;
mod check_products;
mod check_variants;
mod device;
mod find;
mod info;
mod interrupt;
mod load;
mod measure;
mod output;
mod prompt;
mod run;
mod score;

use args::{Cli, Command};

/// How a command ended when nothing was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    Done,
    /// By Ctrl-C.
    Interrupted,
    /// A check found a difference; it has been said.
    Different,
}

/// Mesa's device-selection layer asks the desktop which GPU it uses, and complains on standard error where there is no
/// desktop. It has nothing to say there.
#[cfg(target_os = "linux")]
fn quiet_device_selection() {
    let set = |name| std::env::var_os(name).is_some();
    if !set("XDG_RUNTIME_DIR") && !set("NODEVICE_SELECT") {
        // SAFETY: called first in `main`, while this is the only thread.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}

fn main() {
    #[cfg(target_os = "linux")]
    quiet_device_selection();
    let result = args::read().map_err(anyhow::Error::msg).and_then(dispatch);
    match result {
        Ok(Exit::Done) => {}
        Ok(Exit::Interrupted) => std::process::exit(130),
        Ok(Exit::Different) => std::process::exit(1),
        // Nobody reads standard output any more (`deltanet … | head`): not an error of ours.
        Err(error) if output::is_broken_pipe(&error) => {}
        Err(error) => {
            crate::output::tell(format_args!("error: {}", one_line(&error)));
            std::process::exit(2);
        }
    }
}

/// An error and its causes on one line, without causes that the line before already ends with.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.ends_with(&cause) {
            line += &format!(": {cause}");
        }
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn dispatch(cli: Cli) -> anyhow::Result<Exit> {
    match cli.command {
        None => run::run(&cli.run),
        Some(Command::Run(args)) => run::run(&args),
        Some(Command::Info(args)) => info::run(&args),
        Some(Command::Score(args)) => score::run(&args),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Bench(args)) => bench::run(&args),
    }
}
