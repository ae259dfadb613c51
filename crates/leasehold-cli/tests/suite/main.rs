//! The `leasehold` command, run as its users run it.

mod children;
mod command;
#[cfg(unix)]
mod config;
#[cfg(unix)]
mod demo_file;
#[cfg(unix)]
mod doctor;
#[cfg(unix)]
mod etcd;
mod json;
#[cfg(unix)]
mod look;
#[cfg(unix)]
mod messages;
mod patience;
#[cfg(unix)]
mod run;
#[cfg(unix)]
mod run_busy;
#[cfg(unix)]
mod run_file;
#[cfg(unix)]
mod run_kinds;
#[cfg(unix)]
mod run_loss;
#[cfg(unix)]
mod run_messages;
#[cfg(unix)]
mod run_signals;
#[cfg(unix)]
mod run_terminal;
#[cfg(unix)]
mod run_tls;
#[cfg(unix)]
mod runner;
#[cfg(unix)]
mod summary;
mod terminal;
mod usage;
