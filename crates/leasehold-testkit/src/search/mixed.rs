//! Every primitive, every operation and every fault at once.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{AcquireError, InvalidRequestError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::checker::Grant;
use super::faults;
use super::history::Who;
use super::polling::Polling;
use super::request::Request;
use super::resource::{Kind, NAMES, PERMITS, Resource};
use super::round::{CLIENTS, Former, Round};
use super::servers::Servers;
use crate::dice::Dice;

const TASKS: usize = 4;
/// Times that suit a round on real servers.
pub(super) const PACE: Pace = Pace {
    kinds: Kind::ALL,
    locks: Kind::LOCKS,
    names: NAMES,
    other_shard: 0,
    think: Duration::ZERO,
    wait: [Duration::from_millis(20), Duration::from_millis(400)],
    is_endless: false,
    lease: [Duration::from_millis(50), Duration::from_millis(800)],
    max_hold: [Duration::from_millis(50), Duration::from_millis(500)],
    extend: Duration::from_millis(300),
    pause: Duration::from_millis(60),
    moment: Duration::from_millis(30),
};
const LENGTH: Duration = Duration::from_millis(2500);
/// How long there are faults.
const FAULTS: Duration = Duration::from_millis(2200);
/// No round lasts as long as this, so a hold that is left of it is a leak.
const LONG: Duration = Duration::from_secs(600);
/// With more, every task would wait for every other one.
const MOST_HELD: usize = 2;

pub(super) async fn play(round: Arc<Round>, servers: &Servers, mut dice: Dice) {
    let end = Instant::now() + LENGTH;
    let mut players = Vec::new();
    for client in 0..CLIENTS {
        let acts = faults::script(&mut dice, FAULTS);
        let (proxy, history) = (Arc::clone(&servers.proxies[client]), Arc::clone(&round.history));
        players.push(faults::play(client, proxy, acts, history));
    }
    let mut tasks = JoinSet::new();
    for who in (0..CLIENTS).flat_map(|client| (0..TASKS).map(move |task| Who { client, task })) {
        tasks.spawn(Task::new(Arc::clone(&round), who, PACE, dice.fork()).run(end));
    }
    if dice.one_in(3) {
        let (round, who) = (Arc::clone(&round), Who { client: dice.index(CLIENTS), task: TASKS });
        let at = dice.between(LENGTH / 2, LENGTH);
        let grace = dice.between(Duration::ZERO, Duration::from_millis(300));
        tasks.spawn(async move {
            sleep(at).await;
            round.shut_down(who, grace).await;
        });
    }
    tasks.join_all().await;
    let all = move || players.into_iter().all(|player| player.join().is_ok());
    assert!(tokio::task::spawn_blocking(all).await.unwrap_or(false), "the proxies follow their commands");
}

/// The operations of tasks, and their times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The kinds that they acquire.
    pub(super) kinds: &'static [Kind],
    /// The kinds that they unlock by force.
    pub(super) locks: &'static [Kind],
    /// How many names of each kind there are.
    pub(super) names: u32,
    /// The names, as bits, that are on another part of the server than the others: no multi lock has both.
    pub(super) other_shard: u8,
    /// How long they pause between two operations.
    pub(super) think: Duration,
    /// How long they wait, from and to.
    pub(super) wait: [Duration; 2],
    /// Whether they also wait without a limit, if they hold nothing.
    pub(super) is_endless: bool,
    /// How long a fixed lease is.
    pub(super) lease: [Duration; 2],
    /// How long they hold a lock at most.
    pub(super) max_hold: [Duration; 2],
    /// To what they extend a lease.
    pub(super) extend: Duration,
    /// How long they pause now and then.
    pub(super) pause: Duration,
    /// After how long a future is dropped or polled again; one that waits for a lock is dropped after ten times this.
    pub(super) moment: Duration,
}

/// One task of a client.
pub(super) struct Task {
    round: Arc<Round>,
    who: Who,
    pace: Pace,
    /// The kinds of its pace that the engine has.
    kinds: Vec<Kind>,
    dice: Dice,
    held: Vec<Arc<Grant>>,
    former: Vec<(Resource, Former)>,
}

impl Task {
    pub(super) fn new(round: Arc<Round>, who: Who, pace: Pace, dice: Dice) -> Self {
        let kinds = pace.kinds.iter().copied().filter(|kind| round.environment.has_kind(*kind)).collect();
        Self { round, who, pace, kinds, dice, held: Vec::new(), former: Vec::new() }
    }

    /// Runs until then. The task keeps the guards that it has.
    pub(super) async fn run(mut self, end: Instant) {
        loop {
            if !self.pace.think.is_zero() {
                let think = self.dice.between(Duration::ZERO, self.pace.think);
                sleep(think).await;
            }
            if Instant::now() >= end {
                return;
            }
            let more = self.held.len() < MOST_HELD;
            match self.dice.roll(20) {
                0..8 if more => {
                    let request = self.any();
                    if self.acquire(request).await.is_err() {
                        return;
                    }
                    if self.pace.is_endless && Instant::now() >= end {
                        // Other tasks wait for it, and nothing else releases it.
                        while !self.held.is_empty() {
                            self.release().await;
                        }
                        return;
                    }
                }
                8 if more => self.acquire_as_former().await,
                9 => self.release_as_former().await,
                10 if !self.pace.locks.is_empty() && self.round.environment.has("`force_unlock`") => {
                    let kind = self.dice.one_of(self.pace.locks);
                    let resource = self.resource(kind);
                    let polling = self.polling();
                    self.round.force(self.who, resource, polling).await;
                }
                11 if more => self.reenter().await,
                12 => self.extend().await,
                13 => self.latch().await,
                14 => {
                    let time = self.dice.between(Duration::ZERO, self.pace.pause);
                    sleep(time).await;
                }
                15 => {
                    if let Some(grant) = self.pop() {
                        self.round.let_go(self.who, &grant);
                    }
                }
                _ => self.release().await,
            }
        }
    }

    fn polling(&mut self) -> Polling {
        Polling::within(&mut self.dice, self.pace.moment)
    }

    fn resource(&mut self, kind: Kind) -> Resource {
        let names = self.pace.names;
        let some = u8::try_from(1 + self.dice.roll((1 << names) - 1)).expect("some bits");
        match kind {
            Kind::Multi if some & !self.pace.other_shard != 0 => {
                Resource::of_parts(kind, some & !self.pace.other_shard)
            }
            Kind::Group | Kind::Multi => Resource::of_parts(kind, some),
            kind => {
                let number = u32::from(some) % names;
                let permits = if kind.counts() { 1 + u32::from(some) % PERMITS } else { 1 };
                Resource { permits, ..Resource::new(kind, number) }
            }
        }
    }

    fn any(&mut self) -> Request {
        let kind = self.dice.one_of(&self.kinds);
        let resource = self.resource(kind);
        let Pace { wait: [shortest, longest], lease: [short, long], max_hold: [least, most], .. } = self.pace;
        let dice = &mut self.dice;
        let wait = match dice.roll(4) {
            0 => Duration::ZERO,
            _ => dice.between(shortest, longest),
        };
        let lease = match dice.roll(6) {
            0 => Some(LONG),
            1 | 2 => Some(dice.between(short, long)),
            _ => None,
        };
        let max_hold = dice.one_in(8).then(|| dice.between(least, most));
        Request { lease, max_hold, steal: dice.one_in(12), ..Request::new(resource, wait) }
    }

    /// An error if the client is shut down.
    async fn acquire(&mut self, mut request: Request) -> Result<(), ()> {
        let mut polling = self.polling();
        let is_endless = self.pace.is_endless && self.held.is_empty() && self.dice.one_in(3);
        if matches!(polling, Polling::DropAfter(_)) || is_endless {
            request.wait = None;
        }
        let can_steal = self.round.environment.has("takeover (`steal`)");
        if request.steal && !(can_steal && Kind::LOCKS.contains(&request.resource.kind)) {
            request.steal = false;
        }
        if let Polling::DropAfter(time) = &mut polling {
            *time *= 10;
        }
        match self.round.acquire(self.who, &request, None, polling).await {
            Ok(grant) => {
                self.held.push(grant);
                Ok(())
            }
            Err(Some(AcquireError::Invalid { cause: InvalidRequestError::ShutDown, .. })) => Err(()),
            Err(_) => Ok(()),
        }
    }

    async fn acquire_as_former(&mut self) {
        let Some((resource, former)) = self.former.pop() else { return };
        let request =
            Request { owner: Some(former.owner), ..Request::new(resource, Duration::from_millis(20)) };
        let polling = self.polling();
        if let Ok(grant) = self.round.acquire(self.who, &request, Some(former.identity), polling).await {
            self.held.push(grant);
        }
    }

    async fn release_as_former(&mut self) {
        let Some((resource, former)) = self.former.pop() else { return };
        self.round.release_as_former(self.who, resource, &former).await;
    }

    async fn reenter(&mut self) {
        let Some(grant) = self.held.last().map(Arc::clone) else { return };
        let polling = self.polling();
        if let Some(inner) = self.round.reenter(self.who, &grant, polling).await {
            self.held.push(inner);
        }
    }

    async fn extend(&mut self) {
        let Some(grant) = self.held.last().map(Arc::clone) else { return };
        let length = if self.dice.one_in(3) { LONG } else { self.pace.extend };
        let polling = self.polling();
        self.round.extend(self.who, &grant, length, polling).await;
    }

    fn pop(&mut self) -> Option<Arc<Grant>> {
        if self.held.is_empty() {
            None
        } else {
            Some(self.held.swap_remove(self.dice.index(self.held.len())))
        }
    }

    async fn release(&mut self) {
        let Some(grant) = self.pop() else { return };
        let owner = grant.with_guard(|held| self.round.owner_of(held)).flatten();
        let polling = self.polling();
        let is_settled = self.round.release(self.who, &grant, polling).await;
        let is_last = self.held.iter().all(|other| other.identity != grant.identity);
        if let Some(owner) =
            owner.filter(|_| is_settled && is_last && Kind::LOCKS.contains(&grant.resource.kind))
        {
            self.former.push((grant.resource, Former { owner, identity: grant.identity, is_settled }));
        }
    }

    async fn latch(&mut self) {
        let latch = self.round.clients[self.who.client].latch("lock:latch");
        let limit = self.dice.between(Duration::ZERO, Duration::from_millis(100));
        match self.dice.roll(3) {
            0 => self.round.count(self.who, "try_set_count", latch.try_set_count(2)).await,
            1 => self.round.count(self.who, "count_down", latch.count_down()).await,
            _ => {
                self.round
                    .count(self.who, "wait for the latch", latch.opened().wait(limit).into_future())
                    .await;
            }
        }
    }
}
