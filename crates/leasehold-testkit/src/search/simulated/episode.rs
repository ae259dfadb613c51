//! One episode of a round: all operations and faults at once, then the faults end and everything is released.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::history::Who;
use super::super::invariant::Invariant;
use super::super::mixed::{Pace, Task};
use super::super::resource::{Kind, NAMES};
use super::super::round::{CLIENTS, Round};
use super::SimulatedNetwork;
use super::faults::{self, Messages};
use super::network::Conditions;
use crate::dice::Dice;

/// The contents of an episode.
#[derive(Debug)]
pub(super) struct Episode {
    watchdog: Duration,
    length: Duration,
    /// How many tasks each client has.
    tasks: usize,
    pace: Pace,
    conditions: Conditions,
    /// Whether there are faults.
    has_faults: bool,
    /// Whether a client is shut down.
    shuts_down: bool,
    /// Whether guards are queried for their owners.
    queries_owners: bool,
    dice: Dice,
}

/// The kinds of an episode, and those that can be forced. With fewer resources tasks compete more often.
const ABOUT: &[(&[Kind], &[Kind], u32)] = &[
    (Kind::ALL, Kind::LOCKS, NAMES),
    (Kind::ALL, Kind::LOCKS, 1),
    (&[Kind::Plain], &[Kind::Plain], 1),
    (&[Kind::Plain, Kind::Spin, Kind::Fenced, Kind::Multi], &[Kind::Plain], 2),
    (&[Kind::Fair], &[Kind::Fair], 1),
    (&[Kind::SetNx], &[Kind::SetNx], 1),
    (&[Kind::Group], &[Kind::Group], NAMES),
    (&[Kind::Read, Kind::Write], &[Kind::Read, Kind::Write], 1),
    (&[Kind::Semaphore, Kind::Leased], &[], 1),
    (&[Kind::Multi, Kind::Fenced], &[], NAMES),
];

/// How long after the last fault no request is in flight any more: those of broken connections have been carried out.
const SETTLED: Duration = Duration::from_secs(6);
/// Requests of broken connections are carried out within this.
const LATEST: Duration = Duration::from_secs(3);
/// Within this time a waiter acquires a free lock: a dead waiter leaves a fair queue after three seconds.
const SOON: Duration = Duration::from_secs(8);
/// The same if a message was lost: every 30 s all waiters poll.
const BY_ITSELF: Duration = Duration::from_secs(45);

impl Episode {
    pub(super) fn new(dice: &mut Dice, watchdog: Duration, is_last: bool) -> Self {
        let (kinds, locks, names) = dice.one_of(ABOUT);
        let think = dice.one_of(&[5, 50, 500, 1500]);
        let think = Duration::from_millis(think);
        let has_faults = !dice.one_in(3);
        let tasks = 1 + dice.index(5);
        let length = dice.between(Duration::from_secs(1), Duration::from_secs(4)) + think * 60;
        let latency = match dice.roll(6) {
            0 => Duration::ZERO,
            // A connection carries one request after the other.
            1 => dice.between(Duration::from_millis(20), Duration::from_millis(80)),
            _ => dice.between(Duration::from_micros(100), Duration::from_millis(20)),
        };
        // A lease has to be longer than the time until its grant is known, behind the requests of other tasks.
        let short = Duration::from_millis(100) + latency * 30;
        let long = short + length / 2;
        let pace = Pace {
            kinds,
            // Too many would excuse every loss.
            locks: if dice.one_in(2) { &[] } else { locks },
            names,
            other_shard: 0b10,
            think,
            wait: [Duration::from_millis(20), length / 3],
            is_endless: true,
            lease: [short, long],
            max_hold: [short, long],
            extend: short + length / 4,
            pause: think * 2,
            // A grant is not renewed before its future is polled.
            moment: dice.one_of(&[think / 5, think, think * 4]).min(watchdog / 6),
        };
        let acts_late = dice.one_in(4).then(|| dice.between(Duration::from_millis(1), LATEST));
        let conditions = Conditions { latency, is_doubled: dice.one_in(4), acts_late };
        let (shuts_down, queries_owners) = (is_last && dice.one_in(2), dice.one_in(2));
        Self {
            watchdog,
            length,
            tasks,
            pace,
            conditions,
            has_faults,
            shuts_down,
            queries_owners,
            dice: dice.fork(),
        }
    }

    /// Runs it, up to the end where nothing is left.
    pub(super) async fn play(mut self, round: &Arc<Round>, network: &Arc<SimulatedNetwork>) {
        let begun = Instant::now();
        let end = begun + self.length;
        round.history.note(format!("episode: {self:?}"));
        network.begin(self.conditions);
        round.query_owners(self.queries_owners);
        let running = Arc::new(Running::default());
        for who in (0..CLIENTS).flat_map(|client| (0..self.tasks).map(move |task| Who { client, task })) {
            let task = Task::new(Arc::clone(round), who, self.pace, self.dice.fork());
            running.spawn(round, who.client, task.run(end));
        }
        if self.shuts_down {
            let (client, at) = (self.dice.index(CLIENTS), self.dice.between(self.length / 2, self.length));
            let grace = self.dice.between(Duration::ZERO, Duration::from_secs(5));
            let (of, network) = (Arc::clone(round), Arc::clone(network));
            running.spawn(round, client, async move {
                sleep(at).await;
                network.shut_down(client);
                of.shut_down(Who { client, task: usize::MAX }, grace).await;
            });
        }
        let mut messages = Messages::Whole;
        if self.has_faults {
            let dice = [self.dice.fork(), self.dice.fork()];
            messages = faults::play(round, network, self.watchdog, end, dice).await;
        }
        sleep_until(end).await;
        network.heal();
        round.history.note("no faults any more".to_owned());
        sleep(SETTLED).await;
        round.checker.quiet(&round.observer).await;
        round.history.note("what is left in the hands of tasks is dropped".to_owned());
        round.let_all_go();
        running.drain(round, if messages == Messages::Lost { BY_ITSELF } else { SOON }).await;
        if round.checker.violations().is_empty() {
            round.end().await;
        }
    }
}

/// Tasks that have not ended.
#[derive(Debug, Default)]
struct Running {
    number: AtomicUsize,
    ended: Notify,
}

impl Running {
    fn spawn(
        self: &Arc<Self>,
        round: &Round,
        client: usize,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.number.fetch_add(1, Ordering::Relaxed);
        let running = Arc::clone(self);
        round.environment.spawn(client, async move {
            work.await;
            running.number.fetch_sub(1, Ordering::Relaxed);
            running.ended.notify_one();
        });
    }

    /// Waits for all tasks. The locks that they wait for are free, or are handed over: there is always progress.
    async fn drain(&self, round: &Round, most: Duration) {
        loop {
            let left = self.number.load(Ordering::Relaxed);
            if left == 0 {
                return;
            }
            let length = round.history.length();
            if timeout(most, self.ended.notified()).await.is_err() && round.history.length() == length {
                let what = format!("{left} tasks wait for what is free, and have got nothing for {most:?}");
                return round.checker.violation(Invariant::Stranded, &what);
            }
        }
    }
}
