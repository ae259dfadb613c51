//! Every primitive, every operation and every fault at once.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{AcquireError, Invalid};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::ask::Ask;
use super::checker::Grant;
use super::faults;
use super::held::Held;
use super::history::Who;
use super::manner::Manner;
use super::thing::{Kind, NAMES, PERMITS, Thing};
use super::world::{CLIENTS, Former, World};
use crate::dice::Dice;

const TASKS: usize = 4;
const LENGTH: Duration = Duration::from_millis(2500);
/// For so long there are faults.
const FAULTS: Duration = Duration::from_millis(2200);
/// No round lasts as long as this, so what is left of it is a leak.
const LONG: Duration = Duration::from_secs(60);
/// With more, every task would wait for every other one.
const MOST_HELD: usize = 2;

pub(super) async fn play(world: Arc<World>, mut dice: Dice) {
    let end = Instant::now() + LENGTH;
    let mut players = Vec::new();
    for client in 0..CLIENTS {
        let acts = faults::script(&mut dice, FAULTS);
        let (proxy, history) = (Arc::clone(&world.proxies[client]), Arc::clone(&world.history));
        players.push(faults::play(client, proxy, acts, history));
    }
    let mut tasks = JoinSet::new();
    for who in (0..CLIENTS).flat_map(|client| (0..TASKS).map(move |task| Who { client, task })) {
        let task =
            Task { world: Arc::clone(&world), who, dice: dice.fork(), held: Vec::new(), former: Vec::new() };
        tasks.spawn(task.run(end));
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
    assert!(tokio::task::spawn_blocking(all).await.unwrap_or(false), "the proxies do what they are told");
}

/// One task of a client.
struct Task {
    world: Arc<World>,
    who: Who,
    dice: Dice,
    held: Vec<Arc<Grant>>,
    former: Vec<(Thing, Former)>,
}

impl Task {
    async fn run(mut self, end: Instant) {
        while Instant::now() < end {
            let more = self.held.len() < MOST_HELD;
            match self.dice.roll(20) {
                0..8 if more => {
                    let ask = self.any();
                    if self.acquire(ask).await.is_err() {
                        return;
                    }
                }
                8 if more => self.acquire_as_former().await,
                9 => self.release_as_former().await,
                10 => {
                    let thing = self.thing(Kind::LOCKS);
                    let manner = Manner::any(&mut self.dice);
                    self.world.force(self.who, thing, manner).await;
                }
                11 if more => self.reenter().await,
                12 => self.extend().await,
                13 => self.latch().await,
                14 => {
                    let time = self.dice.between(Duration::ZERO, Duration::from_millis(60));
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

    fn thing(&mut self, kinds: &[Kind]) -> Thing {
        let kind = self.dice.one_of(kinds);
        let some = u8::try_from(1 + self.dice.roll((1 << NAMES) - 1)).expect("some bits");
        match kind {
            Kind::Group | Kind::Multi => Thing::of_parts(kind, some),
            kind => {
                let number = u32::from(some) % NAMES;
                let permits = if kind.counts() { 1 + u32::from(some) % PERMITS } else { 1 };
                Thing { permits, ..Thing::new(kind, number) }
            }
        }
    }

    fn any(&mut self) -> Ask {
        let thing = self.thing(Kind::ALL);
        let dice = &mut self.dice;
        let wait = match dice.roll(4) {
            0 => Duration::ZERO,
            _ => dice.between(Duration::from_millis(20), Duration::from_millis(400)),
        };
        let lease = match dice.roll(6) {
            0 => Some(LONG),
            1 | 2 => Some(dice.between(Duration::from_millis(50), Duration::from_millis(800))),
            _ => None,
        };
        let max_hold =
            dice.one_in(8).then(|| dice.between(Duration::from_millis(50), Duration::from_millis(500)));
        Ask { lease, max_hold, steal: dice.one_in(12), ..Ask::new(thing, wait) }
    }

    /// An error if the client is shut down.
    async fn acquire(&mut self, mut ask: Ask) -> Result<(), ()> {
        let mut manner = Manner::any(&mut self.dice);
        if matches!(manner, Manner::DropAfter(_)) {
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
        let manner = Manner::any(&mut self.dice);
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
        let manner = Manner::any(&mut self.dice);
        if let Some(inner) = self.world.reenter(self.who, &grant, manner).await {
            self.held.push(inner);
        }
    }

    async fn extend(&mut self) {
        let Some(grant) = self.held.last().map(Arc::clone) else { return };
        let length = if self.dice.one_in(3) { LONG } else { Duration::from_millis(300) };
        let manner = Manner::any(&mut self.dice);
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
        let owner = grant.look(Held::owner).flatten();
        let manner = Manner::any(&mut self.dice);
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
