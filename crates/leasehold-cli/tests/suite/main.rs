//! The `leasehold` command, run as its users run it.

mod children;
mod command;
mod json;
mod summary;
mod terminal;
mod usage;
