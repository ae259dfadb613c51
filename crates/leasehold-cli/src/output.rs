//! The standard output, for requested results, and the standard error, for everything else.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;

use crate::error::Error;
use crate::options::Cli;

/// Writes a text as a line of its own, at once.
///
/// Unlike `println!` it does not panic when the reading end is closed.
pub(crate) fn print(text: impl Display) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// Writes an error to the standard error, in the form that the options ask for.
///
/// At once and in one piece, because other processes may write there too. Unlike `eprintln!` it does not panic when the
/// reading end is closed: then the exit code has to be enough.
pub fn complain(cli: &Cli, error: &Error) {
    let text = error.with_sources();
    if !cli.wants_json() {
        return write(&line(text));
    }
    let object = json!({ "event": "error", "exit_code": error.exit_code(), "text": text });
    write(&format!("{object}\n"));
}

/// Writes what the command line ended with before anything was done: help that was asked for, or a usage error, which begins
/// as all our errors do. Returns the exit code.
#[must_use]
pub fn refuse(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    match text.strip_prefix("error: ") {
        Some(text) => write(&line(text.trim_end())),
        // Help and version, with colours on a terminal. If the reading end is closed, the exit code has to be enough.
        None => drop(error.print()),
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// A text as a line of our own.
pub(crate) fn line(text: impl Display) -> String {
    format!("leasehold: {text}\n")
}

/// Writes a line to the standard error, as [`complain`] does.
pub(crate) fn write(line: &str) {
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes a value as one line of JSON, at once.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let json = serde_json::to_string(value).map_err(|error| Error::Output(error.into()))?;
    print(json)
}
