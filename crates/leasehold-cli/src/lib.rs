//! The `leasehold` command as a library, so that tests can drive its parts. The binary only calls [`run`].

pub mod demo;

mod error;
mod options;
mod output;
mod url;

pub use crate::error::Error;
pub use crate::options::{Cli, Command, DemoOptions, EngineOptions, WorkerOptions};
pub use crate::url::Url;

/// Runs the subcommand that the options ask for.
///
/// # Errors
///
/// Whatever the subcommand could not do. [`Error::exit_code`] is what the process should end with then.
pub async fn run(cli: &Cli) -> Result<(), Error> {
    match &cli.command {
        Command::Demo(options) => demo::run(options).await,
        Command::DemoWorker(options) => demo::worker::run(options).await,
    }
}
