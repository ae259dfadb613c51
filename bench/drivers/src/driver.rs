//! The protocol between driver and harness.

use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;

use crate::args::{Args, Error};
use crate::contender::Contender;
use crate::jobs;
use crate::outcome::Outcome;

/// The messages to the harness and from it.
#[derive(Debug)]
pub struct Conversation;

impl Conversation {
    /// Sends a word and waits for a line from the harness.
    ///
    /// # Errors
    ///
    /// When the harness has ended.
    pub fn say(word: &str) -> Result<(), Error> {
        println!("{word}");
        stdout().flush()?;
        let mut line = String::new();
        if stdin().lock().read_line(&mut line)? == 0 {
            return Err("the harness has ended".into());
        }
        Ok(())
    }

    /// Sends the outcome, and stays until the harness has read the process' figures.
    ///
    /// # Errors
    ///
    /// When the harness has ended.
    pub fn end(outcome: &Outcome) -> Result<(), Error> {
        println!("{}", serde_json::to_string(outcome)?);
        stdout().flush()?;
        let mut line = String::new();
        stdin().lock().read_line(&mut line)?;
        Ok(())
    }
}

/// Connects a contender, and runs the job of the command line with it.
pub fn drive<C: Contender>(connect: impl AsyncFnOnce(&Args) -> Result<C, Error>) -> ExitCode {
    let done = Args::of_process().and_then(|args| {
        let mut runtime = match args.text("runtime") {
            Some("current_thread") => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        runtime.enable_all().build()?.block_on(async {
            let contender = Arc::new(connect(&args).await?);
            jobs::run(&contender, &args).await
        })
    });
    ended(done)
}

/// The exit code of a driver. A failure is written to the standard error.
pub(crate) fn ended(done: Result<(), Error>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
