//! The `leasehold` command: the options in, the exit code out. The rest is the library beside it.

use std::process::ExitCode;

use clap::Parser as _;
use leasehold_cli::{Cli, complain, run};

fn main() -> ExitCode {
    run(&Cli::parse()).unwrap_or_else(|error| {
        complain(error.with_sources());
        error.exit_code()
    })
}
