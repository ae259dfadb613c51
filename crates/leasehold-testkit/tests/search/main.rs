//! The search of `leasehold_testkit::search`: a fixed list of seeds in about a minute, or as many as the environment sets.
//!
//! Each seed has a process of its own, so that one that hangs keeps neither the cores nor the others busy.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::env;
use std::ops::Range;
use std::process::{self, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use leasehold_testkit::search;
use tokio::time::Instant;

/// The seed, for a process that plays one.
const ONE: &str = "LEASEHOLD_SEARCH_ONE";
/// The only seed to be played, repeatedly if there is time.
const SEED: &str = "LEASEHOLD_SEARCH_SEED";
/// For how many minutes to play.
const MINUTES: &str = "LEASEHOLD_SEARCH_MINUTES";
/// The first seed, if it is not the first of all.
const FROM: &str = "LEASEHOLD_SEARCH_FROM";

/// The seeds of the gate: each kind of round some times, on both servers, in less than a minute.
///
/// Among them are the seeds that have found errors, each in most of its rounds:
///
/// | Seeds | Error |
/// |---|---|
/// | 0, 10, 20, 30 | a `force_unlock` beside tasks that hand a lock over to each other hangs the runtime |
/// | 1, 11, 21, 31 | a grant whose future is polled late wins over a later steal or `force_unlock` |
/// | 2, 12, 22, 32 | the owner of a released guard acts for the next task's guard |
/// | 3, 13, 23, 33 | a fair waiter that gives up in an outage leaves its hold |
/// | 4, 14, 24, 34 | an extended lease is not given back after an outage |
/// | 5, 15, 25, 35 | what a dead connection does after its undo is not undone |
const SEEDS: Range<u64> = 0..40;

/// The seeds of the gate on files: every second one replaces files.
const SEEDS_ON_FILES: Range<u64> = 0..6;

/// Marks a process that plays its seed on files.
const ON_FILES: &str = "LEASEHOLD_SEARCH_ON_FILES";

/// How many are played at once. They are idle most of the time.
const AT_ONCE: usize = 2;

/// No seed takes nearly as long.
const LONGEST: Duration = Duration::from_secs(120);

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// The seeds of this run, and until when new ones are started.
fn chosen(usual: Range<u64>) -> (Box<dyn Iterator<Item = u64> + Send>, Option<Instant>) {
    let until = number(MINUTES).map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let seeds: Box<dyn Iterator<Item = u64> + Send> = match (number(SEED), until) {
        (Some(seed), None) => Box::new(std::iter::once(seed)),
        (Some(seed), Some(_)) => Box::new(std::iter::repeat(seed)),
        (None, None) => Box::new(usual),
        (None, Some(_)) => Box::new(number(FROM).unwrap_or(0)..),
    };
    (seeds, until)
}

#[test]
fn no_seed_finds_a_violation() {
    play_all(SEEDS, &[]);
}

/// The same workload on files, as far as the engine has it.
#[test]
fn no_seed_on_files_finds_a_violation() {
    play_all(SEEDS_ON_FILES, &[(ON_FILES, "1")]);
}

fn play_all(usual: Range<u64>, settings: &'static [(&str, &str)]) {
    let (seeds, until) = chosen(usual);
    let (seeds, found) = (Arc::new(Mutex::new(seeds)), Arc::new(Mutex::new(Vec::new())));
    let players: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (seeds, found) = (Arc::clone(&seeds), Arc::clone(&found));
            thread::spawn(move || {
                while until.is_none_or(|until| Instant::now() < until) {
                    let Some(seed) = seeds.lock().unwrap().next() else { return };
                    if !play(seed, settings) {
                        found.lock().unwrap().push(seed);
                    }
                }
            })
        })
        .collect();
    for player in players {
        player.join().unwrap();
    }
    let mut found = found.lock().unwrap().clone();
    found.sort_unstable();
    assert!(found.is_empty(), "seeds with a violation: {found:?}");
}

/// Plays a seed in a process of its own; false if it found an error.
fn play(seed: u64, settings: &[(&str, &str)]) -> bool {
    let mut command = Command::new(env::current_exe().expect("this process knows its program"));
    command.args(["child_process_that_plays_one_seed", "--exact", "--nocapture", "--test-threads=1"]);
    let played = command
        .env(ONE, seed.to_string())
        .envs(settings.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("it can be started");
    let said = String::from_utf8_lossy(&played.stdout);
    for line in said.lines().filter(|line| !is_of_the_harness(line)) {
        println!("{line}");
    }
    if !played.status.success() && !said.contains("FOUND") {
        println!(
            "seed {seed}: FOUND an end by {}\n{}",
            played.status,
            String::from_utf8_lossy(&played.stderr)
        );
    }
    played.status.success()
}

/// Whether every test run prints this line.
fn is_of_the_harness(line: &str) -> bool {
    line.is_empty()
        || ["running ", "test ", "failures:", "    child_process_that_plays_one_seed"]
            .iter()
            .any(|start| line.starts_with(start))
}

/// The part of a process that plays one seed; nothing in the others.
#[test]
fn child_process_that_plays_one_seed() {
    let Some(seed) = number(ONE) else { return };
    thread::spawn(move || {
        thread::sleep(LONGEST);
        println!("\nsearch: seed {seed}: FOUND no end after {LONGEST:?}");
        process::exit(1);
    });
    let begun = Instant::now();
    let on_files = env::var(ON_FILES).is_ok();
    let report = if on_files { search::run_on_files(seed) } else { search::run(seed) };
    println!("\nsearch: {report}, {:.1?}", begun.elapsed());
    assert!(report.violations.is_empty());
}
