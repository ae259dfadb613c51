//! The `leasehold` command: the options in, the exit code out. The rest is the library beside it.

use std::process::ExitCode;

use clap::Parser as _;
use leasehold_cli::{Cli, run};

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold: {}", error.with_sources());
            error.exit_code()
        }
    }
}
