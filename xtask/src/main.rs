//! Set-up, tests and web builds: what one command must do on a fresh machine.

mod package;
mod process;
mod setup;
mod steps;
mod test;
mod wasm;

use clap::{Parser, Subcommand};

/// Set-up, tests and web builds of deltanet.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check or install what the tests need, then run every check that continuous integration runs.
    Test(test::Options),
    /// Check or install what the tests need, and nothing more.
    Setup(setup::Options),
}

fn main() {
    let result = match Args::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Setup(options) => setup::run(&options, setup::Scope { web: true }).map(|missing| missing.is_empty()),
    };
    match result {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::exit(2);
        }
    }
}
