//! The `leasehold` command: the options in, the exit code out. The rest is the library beside it.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use leasehold_cli::{Cli, run};

fn main() -> ExitCode {
    run(&Cli::parse()).unwrap_or_else(|error| {
        // Not `eprintln!`, which panics when nobody reads any more, and so would hide the exit code.
        let _ = writeln!(io::stderr(), "leasehold: {}", error.with_sources());
        error.exit_code()
    })
}
