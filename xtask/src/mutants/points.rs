//! Mutations that are marked in the code: `mutation!("lost-undo")`.
//!
//! The tests are built once with all of them. The environment selects the one for a run.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use super::{Ended, LIMIT, ended, start};
use crate::command;

/// Where the tests are built.
const TARGET: &str = "target/mutations";
const BUILD: &str =
    "cargo test -p leasehold -p leasehold-testkit --all-features --target-dir target/mutations";
const SOURCES: &str = "crates/leasehold/src";

/// The mutations of the gate.
const GATE: [&str; 6] = [
    "lost-undo",
    "lost-wake-up",
    "wrong-deadline",
    "double-hand-over",
    "released-hold-renewed",
    "bad-member-fails-batch",
];

/// The tests that search for an error, one after the other until one finds it: the random search, the unit tests, and the
/// tests of the whole client on the simulated server, which take long to build and are for the mutations outside of the
/// gate.
const FINDERS: [&str; 3] = [
    "--release --test simulated_search -- no_seed_finds_a_violation --nocapture",
    "--release --lib -- --skip engine::model --skip engine::redis",
    "--test suite -- sim:: --skip cancellation",
];

/// Builds once, then makes each mutation in turn, and prints which tests found it and after how long.
///
/// # Errors
///
/// When a mutation is not found, when there is none of that name, or when the tests do not build.
pub(super) fn run(filters: &[String], all: bool) -> Result<(), String> {
    let marked = marked()?;
    let is_chosen = |name: &String| match filters {
        [] => all || GATE.contains(&name.as_str()),
        filters => filters.iter().any(|filter| name.contains(filter.as_str())),
    };
    if let Some(missing) = GATE.iter().find(|name| !marked.contains(**name)) {
        return Err(format!("no place in {SOURCES} is marked with {missing}"));
    }
    let chosen: Vec<_> = marked.into_iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        return Err(format!("no place in {SOURCES} is marked like this"));
    }
    fs::create_dir_all(TARGET).map_err(|error| format!("{TARGET}: {error}"))?;
    println!("building with {} mutations …", chosen.len());
    let is_gate = chosen.iter().all(|name| GATE.contains(&name.as_str()));
    // Separately, so that no build is taken for a test that hangs.
    let builds = ["--release --lib --test simulated_search --no-run", "--test suite --no-run"];
    for build in &builds[..if is_gate { 1 } else { 2 }] {
        if let Some(why) = found("none", build, Duration::MAX)? {
            return Err(format!("no build, see {TARGET}/none.txt: {why}"));
        }
    }
    let mut not_found = Vec::new();
    for name in chosen {
        let begun = now();
        let mut by = None;
        let finders = if GATE.contains(&name.as_str()) { &FINDERS[..2] } else { &FINDERS };
        for finder in finders {
            by = found(&name, finder, LIMIT)?;
            if by.is_some() {
                break;
            }
        }
        let took = begun.elapsed().as_secs_f64();
        println!("{name:<28} {took:>6.1} s  {}", by.as_deref().unwrap_or("NOT FOUND"));
        if by.is_none() {
            not_found.push(name);
        }
    }
    if not_found.is_empty() { Ok(()) } else { Err(format!("not found: {}", not_found.join(", "))) }
}

/// The mutations that are marked in the library.
fn marked() -> Result<BTreeSet<String>, String> {
    let (mut names, mut folders) = (BTreeSet::new(), vec![Path::new(SOURCES).to_owned()]);
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let marks = text.split("mutation!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(marks.map(Into::into));
        }
    }
    Ok(names)
}

/// The finding of some tests with a mutation, if any.
fn found(mutation: &str, tests: &str, limit: Duration) -> Result<Option<String>, String> {
    let file = format!("{TARGET}/{mutation}.txt");
    let mut cargo = command::parse(&format!("{BUILD} {tests}"));
    cargo.env("RUSTFLAGS", "--cfg leasehold_mutations").env("LEASEHOLD_MUTATION", mutation);
    let ended = ended(start(cargo, &file)?, limit)?;
    let output = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    Ok(match ended {
        Ended::Well => None,
        Ended::Badly => Some(first_failure(&output)),
        Ended::Late => Some(format!("no end within {limit:?}")),
    })
}

/// The first violation of the search, or the first test that has failed.
fn first_failure(output: &str) -> String {
    let violation = output.lines().find_map(|line| line.strip_prefix("  ! "));
    let test = output.lines().find_map(|line| line.strip_suffix(" ... FAILED"));
    let found = violation.or(test).or_else(|| output.lines().find(|line| line.contains("panicked at")));
    found.unwrap_or("it failed without a message").chars().take(120).collect()
}

#[expect(clippy::disallowed_methods, reason = "no test clock runs here")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_is_reported_before_a_failed_test() {
        let search = "FOUND 2\n  ! exclusion: two hold it\n  ! end: 1 left\ntest no_seed ... FAILED\n";
        assert_eq!(first_failure(search), "exclusion: two hold it");
        assert_eq!(first_failure("test a ... ok\ntest sim::b ... FAILED\n"), "test sim::b");
    }
}
