//! The project's own commands, run as `cargo xtask`.

mod api;
mod bench;
mod blocks;
mod check;
mod command;
mod engines;
mod features;
mod html;
mod instructions;
mod interop;
mod leaks;
mod lines;
mod links;
mod metadata;
mod msrv;
mod mutants;
mod package;
mod search;
mod servers;
mod setup;
mod soak;
mod step;
mod stolen;
mod test;
mod tools;
mod topologies;
mod watch;
mod words;

use std::{env, process::ExitCode};

use clap::Parser;

/// The project's own commands.
#[derive(Parser)]
enum Xtask {
    /// Format, lints, documentation, minimum Rust version and dependency rules.
    Check(Args),
    /// Every test of the workspace, or some of them, after the set-up the tests need.
    Test(test::Args),
    /// Redis 8, Valkey 8 and etcd 3.5 as Debian 13 has them, in the user's cache directory: `test --all-servers` and `engines` need
    /// them.
    Servers,
    /// The engine on etcd with one and three members of each version: some minutes for each.
    Engines(Args),
    /// Every server behind Sentinel, with TLS and behind one address: some minutes for each.
    Topologies(Args),
    /// Redisson's own locks and ours on one server, each in processes of its own; and those of Go and `etcdctl` on etcd.
    Interop(interop::Args),
    /// Whether a great many names, cancelled acquires and dropped guards leave anything behind.
    Leaks(leaks::Args),
    /// The tests for rare events, with as many repetitions as find them: some minutes.
    Soak,
    /// Whether the tests detect deliberate errors in the library.
    Mutants(mutants::Args),
    /// A search for errors by seeded rounds of everything at once, under faults.
    Search(search::Args),
    /// How many instructions a lock costs in memory, against the committed number.
    Instructions(instructions::Args),
    /// The public items of the library, against the committed list.
    Api(api::Args),
    /// The packages as they would be published, and a new project that uses them.
    Package,
    /// How many lines of code the library has, without tests, comments and blank lines.
    Lines(lines::Args),
    /// The comparison with other lock libraries: builds all of them, and says which targets hold.
    Bench(bench::Args),
}

/// What a command takes that has no options of its own.
#[derive(clap::Args)]
struct Args {
    /// Install missing programs without asking.
    #[arg(long)]
    yes: bool,
}

fn main() -> ExitCode {
    let xtask = Xtask::parse();
    // Every command line below is relative to the root, from any directory in the workspace.
    let done = env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .map_err(|error| format!("cannot enter the workspace: {error}"))
        .and_then(|()| match xtask {
            Xtask::Check(Args { yes }) => check::run(yes),
            Xtask::Test(args) => test::run(args),
            Xtask::Servers => servers::run(),
            Xtask::Engines(Args { yes }) => engines::run(yes),
            Xtask::Topologies(Args { yes }) => topologies::run(yes),
            Xtask::Interop(args) => interop::run(&args),
            Xtask::Leaks(args) => leaks::run(&args),
            Xtask::Soak => soak::run(),
            Xtask::Mutants(args) => mutants::run(&args),
            Xtask::Search(args) => search::run(&args),
            Xtask::Instructions(args) => instructions::run(&args),
            Xtask::Api(args) => api::run(&args),
            Xtask::Package => package::run(),
            Xtask::Lines(args) => lines::run(&args),
            Xtask::Bench(args) => bench::run(&args),
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
