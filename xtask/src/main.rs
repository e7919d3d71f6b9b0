//! Set-up, tests and web builds: what one command must do on a fresh machine.

mod package;
mod process;
mod serve;
mod setup;
mod steps;
mod test;
mod wasm;
mod web;

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
    /// Build the static site into web/dist.
    Web(web::Options),
    /// Build the site and serve it on this machine.
    Serve(ServeOptions),
}

#[derive(clap::Args)]
struct ServeOptions {
    #[command(flatten)]
    build: web::Options,
    /// Port on 127.0.0.1.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Serve what was built last.
    #[arg(long)]
    no_build: bool,
}

fn serve(options: &ServeOptions) -> anyhow::Result<bool> {
    let site = if options.no_build { process::root().join("web").join("dist") } else { web::build(&options.build)? };
    anyhow::ensure!(site.is_dir(), "web/dist: expected a built site, got nothing (run without --no-build)");
    serve::serve(&site, options.port)?;
    Ok(true)
}

fn main() {
    let result = match Args::parse().command {
        Command::Test(options) => test::run(&options),
        Command::Setup(options) => setup::run(&options, setup::Scope::all()).map(|missing| missing.is_empty()),
        Command::Web(options) => web::build(&options).map(|_| true),
        Command::Serve(options) => serve(&options),
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
