//! A model test: the memory engine is the model of every engine on a server.
//!
//! Cases are lists of random steps of several owners, of which some die, while time passes; each is run on both engines,
//! which have to agree after every step: in the caller's result, the state, and the wake-ups. A case that fails is shrunk,
//! and the seed that reproduces it first is printed: `LEASEHOLD_MODEL_SEED=… cargo test both_engines`.
//!
//! The same cases run on Redis and on the simulated server. On Redis time is moved on the server alone; in the simulation it
//! passes for the clients, too, so that they renew their kept holds and detect expired ones by themselves.
//!
//! It is about the engines alone. Guards are not used.

mod case_state;
mod engine_pair;
mod observed;
#[cfg(feature = "redis")]
mod on_redis;
#[cfg(feature = "test-util")]
mod on_sim;
mod op;

use std::cell::RefCell;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use self::case_state::{CaseState, Stats};
use self::engine_pair::{EnginePair, ServerEngine};
use self::op::Case;

/// How many cases are run at once, each with a server of its own.
const WORKERS: usize = 2;

/// Compares the memory engine with one that `start` makes, for so many steps or the number in the environment.
fn compare(operations: u64, start: impl Fn() -> Box<dyn ServerEngine> + Sync) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = match std::env::var("LEASEHOLD_MODEL_SEED").as_deref() {
        Ok("random") => crate::env::random_below(u64::MAX),
        Ok(seed) => seed.parse().expect("a number, or `random`"),
        // A change is tested with cases that its predecessor has passed.
        Err(_) => 1,
    };
    let wanted = number("LEASEHOLD_MODEL_OPERATIONS").unwrap_or(operations);
    let begun = tokio::time::Instant::now();
    let work = Work { wanted, next: AtomicU64::new(seed), stats: Mutex::default(), failed: Mutex::default() };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| work.run(EnginePair::new(start())));
        }
    });
    let stats = work.stats.into_inner().expect("no thread panicked");
    println!("{stats:?} in {:.1?}, from seed {seed}", begun.elapsed());
    if let Some(failure) = work.failed.into_inner().expect("no thread panicked") {
        panic!("{failure}");
    }
    assert!(stats.operations >= wanted);
}

/// The work to do, and the work done so far.
struct Work {
    wanted: u64,
    /// The seed of the next case.
    next: AtomicU64,
    stats: Mutex<Stats>,
    failed: Mutex<Option<String>>,
}

impl Work {
    /// Runs one case after the other until there were enough of them, or one has failed.
    fn run(&self, engines: EnginePair) {
        let engines = RefCell::new(engines);
        let cases = op::case();
        while self.goes_on() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            let config = Config {
                failure_persistence: None,
                max_shrink_iters: 2_000,
                max_shrink_time: u32::try_from(SHRINKING.as_millis()).expect("not long"),
                ..Config::default()
            };
            let mut runner = TestRunner::new_with_rng(config, random(seed));
            let case = cases.new_tree(&mut runner).expect("nothing is refused");
            let outcome = runner.run_one(case, |case| {
                let (stats, outcome) = run(&mut engines.borrow_mut(), &case);
                self.stats().add(&stats);
                outcome.map_err(TestCaseError::fail)
            });
            if let Err(TestError::Fail(reason, case)) = outcome {
                let name = engines.borrow().server_name();
                let failure =
                    format!("memory and {name}: {reason}\n{}LEASEHOLD_MODEL_SEED={seed}", show(&case));
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
            }
        }
    }

    fn goes_on(&self) -> bool {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_none()
            && self.stats().operations < self.wanted
    }

    fn stats(&self) -> std::sync::MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fast random generator, independent of that of the next seed.
fn random(seed: u64) -> TestRng {
    let mut bytes = [0; 16];
    for (place, part) in bytes.chunks_exact_mut(8).enumerate() {
        let mut hasher = DefaultHasher::new();
        (seed, place).hash(&mut hasher);
        part.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    TestRng::from_seed(RngAlgorithm::XorShift, &bytes)
}

/// How long a failed case is shrunk.
const SHRINKING: Duration = Duration::from_secs(40);

fn show(Case { families, ops }: &Case) -> String {
    ops.iter().fold(format!("the shortest case, on {families:?}:\n"), |mut shown, op| {
        writeln!(shown, "  {op:?}").expect("there is room");
        shown
    })
}

fn run(engines: &mut EnginePair, case: &Case) -> (Stats, Result<(), String>) {
    let mut state = CaseState::new(engines, case.families);
    for (number, op) in case.ops.iter().enumerate() {
        let outcome = state.step(op);
        if state.is_late() {
            // The results came too near to the end of a lease to be compared.
            return (state.end(true), Ok(()));
        }
        if let Err(difference) = outcome {
            let difference = format!("step {} of {}, {op:?}: {difference}", number + 1, case.ops.len());
            return (state.end(false), Err(difference));
        }
    }
    (state.end(false), Ok(()))
}
