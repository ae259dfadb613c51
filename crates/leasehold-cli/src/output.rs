//! The standard output, for requested results, and the standard error, for everything else.

use std::fmt::Display;
use std::io::{self, Write as _};

use serde::Serialize;

use crate::error::Error;

/// Writes a text as a line of its own, at once.
///
/// Unlike `println!` it does not panic when the reading end is closed.
pub(crate) fn print(text: impl Display) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// Writes a line of our own to the standard error.
///
/// At once and in one piece, because other processes may write there too. Unlike `eprintln!` it does not panic when the
/// reading end is closed: then the exit code has to be enough.
pub fn complain(text: impl Display) {
    let _ = io::stderr().write_all(format!("leasehold: {text}\n").as_bytes());
}

/// Writes a value as one line of JSON, at once.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let json = serde_json::to_string(value).map_err(|error| Error::Output(error.into()))?;
    print(json)
}
