//! Outages that exceed the time that a client tolerates.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::ask::Ask;
use super::faults::Fault;
use super::history::Who;
use super::manner::Manner;
use super::servers::Servers;
use super::thing::{Kind, Thing};
use super::world::World;
use crate::dice::Dice;
use crate::proxy::Which;

/// No round lasts as long as this, so a hold that is left of it is a leak.
const LONG: Duration = Duration::from_secs(600);

fn begin(world: &World, servers: &Servers, fault: Fault) {
    world.history.fault(format!("fault of client 0: {fault:?}"));
    fault.begin(&servers.proxies[0]);
    world.history.note("it has begun".to_owned());
}

fn heal(world: &World, servers: &Servers) {
    servers.proxies[0].heal();
    world.history.note("client 0 is healed".to_owned());
}

/// A fair waiter is granted the lock when no reply reaches it any more, and times out long before it can release it.
pub(super) async fn fair(world: Arc<World>, servers: &Servers, mut dice: Dice) {
    let thing = Thing::new(Kind::Fair, 0);
    let holder = Who { client: 1, task: 0 };
    let ask = Ask { lease: Some(Duration::from_secs(5)), ..Ask::new(thing, Duration::from_secs(1)) };
    let Ok(held) = world.acquire(holder, &ask, None, Manner::Whole).await else { return };
    let mut waiters = JoinSet::new();
    let number = 1 + dice.index(2);
    for task in 0..number {
        let wait = dice.between(Duration::from_millis(700), Duration::from_secs(1));
        let ask = Ask { lease: Some(LONG), ..Ask::new(thing, wait) };
        let world = Arc::clone(&world);
        waiters.spawn(async move {
            drop(world.acquire(Who { client: 0, task }, &ask, None, Manner::Whole).await);
        });
    }
    let queue = world.observer.fair_lock(thing.name());
    let begun = Instant::now();
    while queue.queue().await.map_or(0, |queue| queue.len()) < number
        && begun.elapsed() < Duration::from_secs(1)
    {
        sleep(Duration::from_millis(2)).await;
    }
    // It has subscribed by then, and tried once more.
    sleep(Duration::from_millis(100)).await;
    begin(
        &world,
        servers,
        dice.one_of(&[Fault::Swallow(Which::Command), Fault::Swallow(Which::Command), Fault::LoseReply]),
    );
    world.release(holder, &held, Manner::Whole).await;
    // The request of the next waiter gets through within this time, and its reply does not.
    sleep(Duration::from_millis(100)).await;
    begin(&world, servers, Fault::Refuse);
    waiters.join_all().await;
    sleep(dice.between(Duration::from_millis(3100), Duration::from_millis(3500))).await;
    heal(&world, servers);
}

/// A guard with an extended lease is dropped in an outage that is longer than the first lease.
pub(super) async fn extended(world: Arc<World>, servers: &Servers, mut dice: Dice) {
    let kinds = [Kind::Plain, Kind::Fair, Kind::SetNx, Kind::Group, Kind::Write, Kind::Leased];
    let who = Who { client: 0, task: 0 };
    let lease = dice.between(Duration::from_millis(300), Duration::from_millis(500));
    let mut held = Vec::new();
    for kind in kinds {
        let ask = Ask { lease: Some(lease), ..Ask::new(Thing::new(kind, 1), Duration::ZERO) };
        let Ok(grant) = world.acquire(who, &ask, None, Manner::Whole).await else { continue };
        world.extend(who, &grant, LONG, Manner::Whole).await;
        held.push(grant);
    }
    begin(
        &world,
        servers,
        dice.one_of(&[Fault::Refuse, Fault::Freeze(Which::All), Fault::Freeze(Which::Command)]),
    );
    for grant in &held {
        if dice.one_in(3) {
            world.release(who, grant, Manner::DropAfter(Duration::from_millis(1))).await;
        } else {
            world.let_go(who, grant);
        }
    }
    sleep(lease + dice.between(Duration::from_millis(300), Duration::from_millis(600))).await;
    heal(&world, servers);
}

/// Requests on a connection that is half-open reach the server after they were undone on another one.
pub(super) async fn ghosts(world: Arc<World>, servers: &Servers, mut dice: Dice) {
    let kinds = [Kind::Plain, Kind::SetNx, Kind::Group, Kind::Write, Kind::Fair, Kind::Leased];
    for kind in kinds {
        // The script is loaded first: a server without it would not carry out the late request.
        let (who, ask) = (Who { client: 0, task: 0 }, Ask::new(Thing::new(kind, 2), Duration::ZERO));
        if let Ok(grant) = world.acquire(who, &ask, None, Manner::Whole).await {
            world.release(who, &grant, Manner::Whole).await;
        }
    }
    begin(&world, servers, Fault::HalfOpen(Which::Command));
    let mut tasks = JoinSet::new();
    for (task, kind) in kinds.into_iter().enumerate() {
        let ask = Ask { lease: Some(LONG), ..Ask::new(Thing::new(kind, 2), Duration::ZERO) };
        let world = Arc::clone(&world);
        tasks.spawn(
            async move { drop(world.acquire(Who { client: 0, task }, &ask, None, Manner::Whole).await) },
        );
    }
    tasks.join_all().await;
    sleep(dice.between(Duration::from_millis(600), Duration::from_millis(1500))).await;
    heal(&world, servers);
}
