//! `leasehold ls`: the locks that are held.

use std::process::ExitCode;

use console::Term;
use leasehold::Listing;
use serde_json::{Value, json};

use super::failure::LookError;
use super::{Target, text};
use crate::error::Error;
use crate::options::LsOptions;
use crate::output::{line, print, print_json, write};

/// Why a list may lack locks.
pub(super) const INCOMPLETE: &str = "the list is not complete: there are too many keys for the time, or some that may not be \
                                     read; give a narrower pattern";

/// Prints the locks that are held.
///
/// # Errors
///
/// A URL that is malformed, and a server that cannot be reached or refuses.
pub async fn run(options: &LsOptions) -> Result<ExitCode, Error> {
    let Target { client, url } = Target::connect(&options.target).await?;
    let list = client.list(&options.pattern);
    let list = if options.setnx { list.setnx() } else { list };
    let Listing { locks, is_complete, .. } = list.await.map_err(LookError::from)?;
    if options.json {
        let locks: Vec<_> = locks.iter().map(|lock| Value::Object(text::object(lock))).collect();
        print_json(&json!({ "server": url, "complete": is_complete, "locks": locks }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if locks.is_empty() {
        print("no lock is held")?;
    } else {
        print(text::table(&locks, columns()).join("\n"))?;
    }
    if !is_complete {
        write(&line(INCOMPLETE));
    }
    Ok(ExitCode::SUCCESS)
}

/// The width of the terminal, if the output is one.
fn columns() -> Option<usize> {
    let terminal = Term::stdout();
    terminal.is_term().then(|| terminal.size().1.into())
}
