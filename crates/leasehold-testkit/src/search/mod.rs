//! A search for errors that no test covers: a workload determined by a seed, the history of events, and a checker that is
//! independent of servers.
//!
//! Three clients, each behind a [proxy](crate::proxy) with faults, run every operation of every primitive. At each grant all
//! other guards are queried; with no request in flight, guards and clients have to agree; at the end nothing is left. A [`Plan`]
//! defines what a seed means. It does not determine the order in which tasks run and replies arrive, so a seed that has found an
//! error finds it again often, not always: `cargo xtask search --seed 7 --minutes 1` repeats it.

mod causes;
mod checker;
mod environment;
mod faults;
mod files;
mod held;
mod history;
mod invariant;
mod late;
mod mixed;
mod outages;
mod owners;
mod plan;
mod polling;
mod quorum;
mod request;
mod resource;
mod round;
mod servers;
pub mod simulated;
mod storm;
mod tokens;

use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use environment::Environment;
pub use files::run_on_files;
use history::History;
pub use plan::{Plan, Scenario};
use round::Round;
use servers::Servers;

/// After so long without an event the round is stalled.
const STALLED: Duration = Duration::from_secs(10);

/// The result of a round.
#[derive(Debug)]
pub struct Report {
    /// Which round.
    about: String,
    /// How to play it again.
    again: String,
    /// The violated invariants.
    pub violations: Vec<String>,
    end: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.about)?;
        if self.violations.is_empty() {
            return f.write_str("nothing found");
        }
        writeln!(f, "FOUND {}", self.violations.len())?;
        found(f, &self.violations)?;
        write!(f, "the end of its history:\n{}\nagain: {}", self.end, self.again)
    }
}

/// Writes the first violations, a line each.
fn found(f: &mut fmt::Formatter<'_>, violations: &[String]) -> fmt::Result {
    violations.iter().take(10).try_for_each(|violation| writeln!(f, "  ! {violation}"))
}

/// Plays the round of a seed on a runtime of its own with two workers.
///
/// A thread outside of that runtime watches it. After a stall the runtime is left running, so the process should end soon.
///
/// # Panics
///
/// When the system cannot start a thread.
#[must_use]
pub fn run(seed: u64) -> Report {
    let plan = Plan::new(seed);
    let Plan { scenario, setting, .. } = &plan;
    let about = format!("seed {seed}, {scenario:?} on {:?}, {setting:?}", setting.flavour);
    begin(about, format!("cargo xtask search --seed {seed}"), |history| play(plan, history))
}

/// Plays a round.
fn begin<F>(about: String, again: String, play: impl FnOnce(Arc<History>) -> F + Send + 'static) -> Report
where
    F: Future<Output = Vec<String>> + Send + 'static,
{
    let history = Arc::new(History::new());
    let (done, is_done) = mpsc::channel();
    let round = {
        let history = Arc::clone(&history);
        move || {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime can be built");
            let violations = runtime.block_on(async { tokio::spawn(play(history)).await });
            // After a stall the receiver may be gone.
            let _ =
                done.send(violations.unwrap_or_else(|error| vec![format!("the round has failed: {error}")]));
            runtime.shutdown_background();
        }
    };
    thread::spawn(round);
    let violations = watch(&is_done, &history);
    Report { about, again, violations, end: history.end() }
}

/// Waits for the violations of a round, but not if it stalls.
fn watch(is_done: &mpsc::Receiver<Vec<String>>, history: &History) -> Vec<String> {
    let (mut length, mut since) = (0, Instant::now());
    loop {
        match is_done.recv_timeout(Duration::from_millis(50)) {
            Ok(violations) => return violations,
            Err(mpsc::RecvTimeoutError::Disconnected) => return vec!["the round has failed".to_owned()],
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if history.length() != length {
            (length, since) = (history.length(), Instant::now());
        } else if since.elapsed() > STALLED {
            return vec![format!("nothing has happened for {STALLED:?}: the runtime hangs")];
        }
    }
}

async fn play(plan: Plan, history: Arc<History>) -> Vec<String> {
    let Plan { scenario, setting, dice, .. } = plan;
    let (servers, clients, observer) = Servers::start(setting).await;
    let environment = Environment::Servers(Arc::clone(&servers));
    let times = [setting.watchdog, Duration::ZERO, round::OUTAGE_LIMIT];
    let round = Round::new((clients, observer), times, history, environment);
    round.create().await;
    let (round, servers) = (Arc::new(round), &*servers);
    let copy = Arc::clone(&round);
    match scenario {
        Scenario::ForceStorm => storm::play(copy, dice).await,
        Scenario::LatePolls => late::play(copy, servers, dice).await,
        Scenario::FormerOwners => owners::play(copy, dice).await,
        Scenario::FairOutage => outages::fair(copy, servers, dice).await,
        Scenario::ExtendedOutage => outages::extended(copy, servers, dice).await,
        Scenario::StaleConnections => outages::stale_connections(copy, servers, dice).await,
        Scenario::Quorum => quorum::play(copy, servers, setting, dice).await,
        Scenario::Mixed => mixed::play(copy, servers, dice).await,
    }
    round.end().await;
    round.checker.violations()
}
