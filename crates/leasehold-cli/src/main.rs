//! The `leasehold` command: the options in, the exit code out. The rest is the library beside it.

use std::process::ExitCode;

use clap::Parser as _;
use leasehold_cli::{Cli, complain, refuse, run};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    run(&cli).unwrap_or_else(|error| {
        complain(&cli, &error);
        ExitCode::from(error.exit_code())
    })
}
