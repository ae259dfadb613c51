//! The `leasehold` command as a library, so that tests can drive its parts. The binary only calls [`run()`].

pub mod demo;
#[cfg(unix)]
pub mod doctor;
#[cfg(unix)]
pub mod look;
#[cfg(unix)]
pub mod run;

#[cfg(unix)]
mod config;
#[cfg(unix)]
mod duration;
mod error;
mod manual;
mod options;
mod output;
mod url;
mod version;

use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};

#[cfg(unix)]
pub use crate::config::SettingsError;
pub use crate::error::Error;
pub use crate::options::{Cli, Command, DemoOptions, WorkerOptions};
#[cfg(unix)]
pub use crate::options::{
    DoctorOptions, ExecOptions, IfBusy, InspectOptions, LsOptions, RunOptions, TargetOptions, UnlockOptions,
    WaitOptions, WatchOptions,
};
pub use crate::output::{complain, refuse};
pub use crate::url::{EmptyUrl, Url};

/// Runs the subcommand that the options select, and returns the exit code of the process.
///
/// # Errors
///
/// When the subcommand fails. [`Error::exit_code`] is the exit code of the process then.
pub fn run(cli: &Cli) -> Result<ExitCode, Error> {
    match &cli.command {
        Command::Demo(options) => runtime()?.block_on(demo::run(options))?,
        Command::Completions { shell } => manual::completions(*shell)?,
        Command::Man { page } => manual::page(page.as_deref())?,
        Command::DemoWorker(options) => runtime()?.block_on(demo::worker::run(options))?,
        #[cfg(unix)]
        Command::Doctor(options) => return runtime()?.block_on(doctor::run(options)),
        #[cfg(unix)]
        Command::Ls(options) => return runtime()?.block_on(look::ls::run(options)),
        #[cfg(unix)]
        Command::Inspect(options) => return runtime()?.block_on(look::inspect::run(options)),
        #[cfg(unix)]
        Command::Watch(options) => return runtime()?.block_on(look::watch::run(options)),
        #[cfg(unix)]
        Command::Wait(options) => return runtime()?.block_on(look::wait::run(options)),
        #[cfg(unix)]
        Command::Unlock(options) => return runtime()?.block_on(look::unlock::run(options)),
        #[cfg(unix)]
        Command::Run(options) => return run::run(options),
        #[cfg(unix)]
        Command::Exec(options) => run::exec::run(options)?,
        #[cfg(unix)]
        Command::Warden => run::warden::run()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> Result<Runtime, Error> {
    Builder::new_multi_thread().enable_all().build().map_err(Error::Runtime)
}
