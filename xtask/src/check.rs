//! `cargo xtask check`: the cheap gate in front of the tests.

use crate::{
    api, blocks, command, features, links, msrv,
    setup::{self, Source, Tool},
    step::Steps,
    words,
};

const TOOLS: &[Tool] = &[Tool {
    name: "cargo-deny",
    probe: "cargo deny --version",
    reason: "the rules of deny.toml for dependencies and their licences are checked with it",
    source: Source::Crate { name: "cargo-deny", version: "0.20.2" },
}];

/// Runs every step even after one failed, so that one run shows all errors.
///
/// # Errors
///
/// When a tool is missing or a step fails.
pub(crate) fn run(yes: bool) -> Result<(), String> {
    setup::ensure(TOOLS, yes)?;
    let mut steps = Steps::default();
    let mut run = |name, line| steps.run(name, || command::run(line));
    run("format", "cargo fmt --all --check");
    run("clippy", "cargo clippy --workspace --all-targets --all-features -- -D warnings");
    run(
        "clippy without features",
        "cargo clippy -p leasehold --no-default-features --all-targets -- -D warnings",
    );
    run("clippy with the default features", "cargo clippy -p leasehold -- -D warnings");
    run("format of the examples", "cargo fmt --manifest-path examples/Cargo.toml --all --check");
    run(
        "clippy of the examples",
        "cargo clippy --manifest-path examples/Cargo.toml --target-dir target/examples --locked --workspace --all-targets -- -D warnings",
    );
    let documented =
        run("documentation", "RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --all-features --no-deps");
    if documented {
        steps.run("rendered links", links::check_rendered);
        steps.run("public interface", api::check);
    }
    steps.run("links", links::check_documents);
    steps.run("blocks", blocks::check);
    steps.run("features", features::check);
    steps.run("words", words::check);
    steps.run("rust-version", msrv::check);
    steps.run("dependencies", || command::run("cargo deny check bans licenses sources"));
    steps.run("dependencies of the examples", || {
        command::run("cargo deny --manifest-path examples/Cargo.toml check licenses sources")
    });
    steps.finish()
}
