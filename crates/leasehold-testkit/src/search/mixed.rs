//! Every primitive, every operation and every fault at once.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{AcquireError, Invalid};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::ask::Ask;
use super::checker::Grant;
use super::faults;
use super::history::Who;
use super::manner::Manner;
use super::servers::Servers;
use super::thing::{Kind, NAMES, PERMITS, Thing};
use super::world::{CLIENTS, Former, World};
use crate::dice::Dice;

const TASKS: usize = 4;
/// Times that suit a round on real servers.
const PACE: Pace = Pace {
    kinds: Kind::ALL,
    locks: Kind::LOCKS,
    names: NAMES,
    apart: 0,
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

pub(super) async fn play(world: Arc<World>, servers: &Servers, mut dice: Dice) {
    let end = Instant::now() + LENGTH;
    let mut players = Vec::new();
    for client in 0..CLIENTS {
        let acts = faults::script(&mut dice, FAULTS);
        let (proxy, history) = (Arc::clone(&servers.proxies[client]), Arc::clone(&world.history));
        players.push(faults::play(client, proxy, acts, history));
    }
    let mut tasks = JoinSet::new();
    for who in (0..CLIENTS).flat_map(|client| (0..TASKS).map(move |task| Who { client, task })) {
        tasks.spawn(Task::new(Arc::clone(&world), who, PACE, dice.fork()).run(end));
    }
    if dice.one_in(3) {
        let (world, who) = (Arc::clone(&world), Who { client: dice.index(CLIENTS), task: TASKS });
        let at = dice.between(LENGTH / 2, LENGTH);
        let grace = dice.between(Duration::ZERO, Duration::from_millis(300));
        tasks.spawn(async move {
            sleep(at).await;
            world.shut_down(who, grace).await;
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
    pub(super) apart: u8,
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
    world: Arc<World>,
    who: Who,
    pace: Pace,
    dice: Dice,
    held: Vec<Arc<Grant>>,
    former: Vec<(Thing, Former)>,
}

impl Task {
    pub(super) fn new(world: Arc<World>, who: Who, pace: Pace, dice: Dice) -> Self {
        Self { world, who, pace, dice, held: Vec::new(), former: Vec::new() }
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
                    let ask = self.any();
                    if self.acquire(ask).await.is_err() {
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
                10 if !self.pace.locks.is_empty() => {
                    let thing = self.thing(self.pace.locks);
                    let manner = self.manner();
                    self.world.force(self.who, thing, manner).await;
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
                        self.world.let_go(self.who, &grant);
                    }
                }
                _ => self.release().await,
            }
        }
    }

    fn manner(&mut self) -> Manner {
        Manner::within(&mut self.dice, self.pace.moment)
    }

    fn thing(&mut self, kinds: &[Kind]) -> Thing {
        let kind = self.dice.one_of(kinds);
        let names = self.pace.names;
        let some = u8::try_from(1 + self.dice.roll((1 << names) - 1)).expect("some bits");
        match kind {
            Kind::Multi if some & !self.pace.apart != 0 => Thing::of_parts(kind, some & !self.pace.apart),
            Kind::Group | Kind::Multi => Thing::of_parts(kind, some),
            kind => {
                let number = u32::from(some) % names;
                let permits = if kind.counts() { 1 + u32::from(some) % PERMITS } else { 1 };
                Thing { permits, ..Thing::new(kind, number) }
            }
        }
    }

    fn any(&mut self) -> Ask {
        let thing = self.thing(self.pace.kinds);
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
        Ask { lease, max_hold, steal: dice.one_in(12), ..Ask::new(thing, wait) }
    }

    /// An error if the client is shut down.
    async fn acquire(&mut self, mut ask: Ask) -> Result<(), ()> {
        let mut manner = self.manner();
        let is_endless = self.pace.is_endless && self.held.is_empty() && self.dice.one_in(3);
        if matches!(manner, Manner::DropAfter(_)) || is_endless {
            ask.wait = None;
        }
        if ask.steal && !Kind::LOCKS.contains(&ask.thing.kind) {
            ask.steal = false;
        }
        if let Manner::DropAfter(time) = &mut manner {
            *time *= 10;
        }
        match self.world.acquire(self.who, &ask, None, manner).await {
            Ok(grant) => {
                self.held.push(grant);
                Ok(())
            }
            Err(Some(AcquireError::Invalid(Invalid::ShutDown))) => Err(()),
            Err(_) => Ok(()),
        }
    }

    async fn acquire_as_former(&mut self) {
        let Some((thing, former)) = self.former.pop() else { return };
        let ask = Ask { owner: Some(former.owner), ..Ask::new(thing, Duration::from_millis(20)) };
        let manner = self.manner();
        if let Ok(grant) = self.world.acquire(self.who, &ask, Some(former.identity), manner).await {
            self.held.push(grant);
        }
    }

    async fn release_as_former(&mut self) {
        let Some((thing, former)) = self.former.pop() else { return };
        self.world.release_as_former(self.who, thing, &former).await;
    }

    async fn reenter(&mut self) {
        let Some(grant) = self.held.last().map(Arc::clone) else { return };
        let manner = self.manner();
        if let Some(inner) = self.world.reenter(self.who, &grant, manner).await {
            self.held.push(inner);
        }
    }

    async fn extend(&mut self) {
        let Some(grant) = self.held.last().map(Arc::clone) else { return };
        let length = if self.dice.one_in(3) { LONG } else { self.pace.extend };
        let manner = self.manner();
        self.world.extend(self.who, &grant, length, manner).await;
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
        let owner = grant.look(|held| self.world.owner_of(held)).flatten();
        let manner = self.manner();
        let is_settled = self.world.release(self.who, &grant, manner).await;
        let is_last = self.held.iter().all(|other| other.identity != grant.identity);
        if let Some(owner) =
            owner.filter(|_| is_settled && is_last && Kind::LOCKS.contains(&grant.thing.kind))
        {
            self.former.push((grant.thing, Former { owner, identity: grant.identity, is_settled }));
        }
    }

    async fn latch(&mut self) {
        let latch = self.world.clients[self.who.client].latch("lock:latch");
        let limit = self.dice.between(Duration::ZERO, Duration::from_millis(100));
        match self.dice.roll(3) {
            0 => self.world.count(self.who, "try_set_count", latch.try_set_count(2)).await,
            1 => self.world.count(self.who, "count_down", latch.count_down()).await,
            _ => {
                self.world
                    .count(self.who, "wait for the latch", latch.wait().within(limit).into_future())
                    .await;
            }
        }
    }
}
