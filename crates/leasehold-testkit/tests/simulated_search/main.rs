//! Simulated rounds of `leasehold_testkit::search`: the seeds of the gate, or as many as the environment sets.
//!
//! An optimised build plays a million steps in about a minute, a debug build the first of the same seeds.

use std::env;
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use leasehold_testkit::search::simulated;
use tokio::time::Instant;

/// The only seed to be played.
const SEED: &str = "LEASEHOLD_SEARCH_SEED";
/// For how many minutes to play, with any number of steps.
const MINUTES: &str = "LEASEHOLD_SEARCH_MINUTES";
/// The first seed, if it is not the first of all.
const FROM: &str = "LEASEHOLD_SEARCH_FROM";
/// The seed whose history a process prints.
const TRACED: &str = "LEASEHOLD_SEARCH_TRACED";

/// How many operations and faults are played in the gate.
const STEPS: u64 = if cfg!(debug_assertions) { 30_000 } else { 1_000_000 };
/// One round runs in one thread.
const THREADS: usize = 2;
/// After this many seeds with a violation no more are played.
const ENOUGH: usize = 3;

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// The shared state of all threads.
struct Run {
    next: AtomicU64,
    steps: AtomicU64,
    found: Mutex<Vec<u64>>,
    until: Option<Instant>,
}

impl Run {
    fn play_next(&self) -> ControlFlow<()> {
        let is_over = match self.until {
            Some(until) => Instant::now() >= until,
            None => self.steps.load(Ordering::SeqCst) >= STEPS,
        };
        if is_over || self.found.lock().expect("no panic").len() >= ENOUGH {
            return ControlFlow::Break(());
        }
        self.play(self.next.fetch_add(1, Ordering::SeqCst));
        ControlFlow::Continue(())
    }

    fn play(&self, seed: u64) {
        let played = simulated::run(seed);
        self.steps.fetch_add(played.steps, Ordering::SeqCst);
        if !played.violations.is_empty() {
            println!("{played}");
            self.found.lock().expect("no panic").push(seed);
        }
    }
}

#[test]
fn no_seed_finds_a_violation() {
    let (begun, first) = (Instant::now(), number(FROM).unwrap_or(0));
    let until = number(MINUTES).map(|minutes| begun + Duration::from_secs(60 * minutes));
    let run = Run { next: AtomicU64::new(first), steps: AtomicU64::new(0), found: Mutex::default(), until };
    let run = Arc::new(run);
    if let Some(seed) = number(SEED) {
        run.next.store(seed + 1, Ordering::SeqCst);
        run.play(seed);
    } else {
        let threads = [(); THREADS].map(|()| {
            let run = Arc::clone(&run);
            thread::spawn(move || while run.play_next().is_continue() {})
        });
        for thread in threads {
            thread.join().unwrap();
        }
    }
    let (steps, next, took) =
        (run.steps.load(Ordering::SeqCst), run.next.load(Ordering::SeqCst), begun.elapsed());
    let each_second = u128::from(steps) * 1000 / took.as_millis().max(1);
    println!(
        "seeds {} to {}: {steps} steps in {took:.1?}, {each_second} a second",
        number(SEED).unwrap_or(first),
        next - 1
    );
    let mut found = run.found.lock().unwrap().clone();
    found.sort_unstable();
    assert!(found.is_empty(), "seeds with a violation: {found:?}");
}

/// The output of a process that plays this seed.
fn trace_of(seed: u64) -> String {
    let mut command = Command::new(env::current_exe().expect("this process knows its program"));
    command.args(["child_process_that_prints_one_trace", "--exact", "--nocapture", "--test-threads=1"]);
    let played =
        command.env(TRACED, seed.to_string()).stdin(Stdio::null()).output().expect("it can be started");
    assert!(played.status.success(), "{}", played.status);
    let said = String::from_utf8(played.stdout).expect("a text");
    let (_, trace) = said.split_once(BEGIN).expect("the beginning");
    trace.split_once(END).expect("the end").0.to_owned()
}

const BEGIN: &str = "--- the trace begins\n";
const END: &str = "--- the trace ends\n";

#[test]
fn a_seed_gives_the_same_trace_in_two_processes_and_another_seed_another_trace() {
    let traces = [1, 2, 3].map(|seed| (trace_of(seed), trace_of(seed)));
    for (one, other) in &traces {
        assert!(one.lines().count() > 100, "{one}");
        let different = one.lines().zip(other.lines()).find(|(one, other)| one != other);
        assert!(one == other, "{different:?}");
    }
    assert!(traces[0].0 != traces[1].0 && traces[1].0 != traces[2].0);
}

/// The part of a process that prints the trace of one seed; nothing in the others.
#[test]
fn child_process_that_prints_one_trace() {
    let Some(seed) = number(TRACED) else { return };
    let played = simulated::run(seed);
    println!("{BEGIN}{}{END}", played.trace());
}
