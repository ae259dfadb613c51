//! Rounds on a simulated server, without other programs and without real time.
//!
//! Each client has a separate machine, whose clock may be a little fast or slow and which may be stopped for longer than its
//! leases last. A round is a few episodes. In each, the tasks run random operations while the seed injects faults; then the
//! faults end, guards and clients have to agree, everything is released, and every remaining waiter has to acquire its free lock.
//! Nothing is left at the end of an episode, and every client can end.
//!
//! One round runs in one thread and depends only on the seed: a seed that has found an error always finds it again.

mod episode;
mod faults;
mod network;

use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use leasehold::Client;
use leasehold::test::Schedule;
use tokio::time::timeout;

use self::episode::Episode;
pub(super) use self::network::SimulatedNetwork;
use super::environment::Environment;
use super::history::{History, Who};
use super::invariant::Invariant;
use super::round::{CLIENTS, Round};
use super::{found, watch};
use crate::dice::Dice;

/// The result of a round.
#[derive(Debug)]
pub struct Played {
    seed: u64,
    /// How many operations and faults there were.
    pub steps: u64,
    /// The violations: the name of the invariant first, then how it was violated.
    pub violations: Vec<String>,
    history: Arc<History>,
}

impl Played {
    /// All events, a line each.
    #[must_use]
    pub fn trace(&self) -> String {
        self.history.text()
    }
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, steps, violations, history } = self;
        write!(f, "simulated seed {seed}: {steps} steps, ")?;
        if violations.is_empty() {
            return f.write_str("nothing found");
        }
        writeln!(f, "FOUND {}", violations.len())?;
        found(f, violations)?;
        write!(f, "the end of its history:\n{}again: cargo xtask search --sim --seed {seed}", history.end())
    }
}

/// No round takes nearly as long by its own clock.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// How long clients tolerate an outage at most.
const OUTAGE_LIMIT: Duration = Duration::from_secs(60);
/// How many episodes a round has.
const EPISODES: usize = 4;

/// Plays the round of a seed in a separate thread.
///
/// Another thread watches it. After a stall that thread is left running, so the process should end soon.
///
/// # Panics
///
/// When the system cannot start a thread.
#[must_use]
pub fn run(seed: u64) -> Played {
    let (done, is_done) = mpsc::channel();
    let history = Arc::new(History::new());
    let copy = Arc::clone(&history);
    thread::spawn(move || {
        let round = async |schedule: Schedule| {
            copy.begin_now();
            timeout(LONGEST, play(seed, &schedule, copy)).await
        };
        let violations = Schedule::run(seed, round);
        let endless = |_| vec![format!("{}: the round has no end", Invariant::Ends)];
        // After a stall the receiver may be gone.
        let _ = done.send(violations.unwrap_or_else(endless));
    });
    let violations = watch(&is_done, &history);
    Played { seed, steps: history.steps(), violations, history }
}

async fn play(seed: u64, schedule: &Schedule, history: Arc<History>) -> Vec<String> {
    let mut dice = Dice::new(seed);
    let network = Arc::new(SimulatedNetwork::new(schedule));
    let watchdog = dice.between(Duration::from_secs(5), Duration::from_secs(30));
    history.note(format!("seed {seed}, watchdog {watchdog:?}"));
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        // A seed fixes everything but the number of the process, which errors would name.
        let connect = Client::connect(network.url())
            .anonymous()
            .watchdog(watchdog)
            .outage_limit(dice.between(Duration::from_secs(1), OUTAGE_LIMIT));
        clients.push(network.run(client, connect.into_future()).await.expect("there are no faults yet"));
    }
    let observer = Client::connect(network.url()).await.expect("there are no faults yet");
    let environment = Environment::Simulated(Arc::clone(&network));
    let round =
        Arc::new(Round::new((clients, observer), [watchdog, LONGEST, OUTAGE_LIMIT], history, environment));
    round.create().await;
    for number in 0..EPISODES {
        let is_last = number + 1 == EPISODES;
        Episode::new(&mut dice, watchdog, is_last).play(&round, &network).await;
        if !round.checker.violations().is_empty() {
            return round.checker.violations();
        }
        round.checker.forget();
        network.forget();
    }
    end(&round, &network).await;
    round.checker.violations()
}

/// Every client can end, and the server has no state left.
async fn end(round: &Arc<Round>, network: &SimulatedNetwork) {
    for client in 0..CLIENTS {
        let (of, who) = (Arc::clone(round), Who { client, task: usize::MAX });
        let left = network.run(client, async move { of.shut_down(who, Duration::ZERO).await }).await;
        if let Some(left @ 1..) = left {
            let what = format!("client {client} keeps {left} holds without a guard");
            round.checker.violation(Invariant::Left, &what);
        }
    }
    round.remove().await;
    let left = network.names();
    if left > 0 {
        round.checker.violation(Invariant::Left, &format!("{left} names at the end of the round"));
    }
}
