//! `leasehold demo-worker`: one child process of the demo. The other side is [`children`](super::children).
//!
//! It connects and prints [`READY`], waits for [`START`] on the standard input, starts its users, and prints its
//! [`Tally`](super::Tally) as one line of JSON.

use std::{io, panic};

use leasehold::Client;

use super::phase::Rush;
use super::progress::Progress;
use super::seats::Seats;
use crate::error::Error;
use crate::options::WorkerOptions;
use crate::output;

/// A child prints this when it has connected and is ready to start.
pub const READY: &str = "ready";

/// The parent sends this to each child when all are ready.
pub const START: &str = "start\n";

/// Runs a child's share of one phase.
///
/// # Errors
///
/// When the engine fails, or the parent ends before the start.
pub async fn run(options: &WorkerOptions) -> Result<(), Error> {
    let &WorkerOptions { phase, kind, users, seats: limit, ref url, .. } = options;
    let client = Client::connect(url.secret()).await?;
    let seats = Seats::open(url, &options.gathering).await?;
    output::print(READY)?;
    tokio::task::spawn_blocking(wait_for_start)
        .await
        .unwrap_or_else(|error| panic::resume_unwind(error.into_panic()))?;
    let lock = kind.lock(&client, options.gathering.lock());
    let outcome = Rush { phase, lock, seats, users, limit }.run(&Progress::hidden()).await?;
    output::print_json(&outcome.tally)
}

fn wait_for_start() -> Result<(), Error> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(Error::Input)?;
    // The end of the input has no line break: the parent has ended.
    if line == START { Ok(()) } else { Err(Error::NoStartSignal) }
}
