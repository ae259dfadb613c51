//! Outages that exceed the time that a client tolerates.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::faults::Fault;
use super::history::Who;
use super::polling::Polling;
use super::request::Request;
use super::resource::{Kind, Resource};
use super::round::Round;
use super::servers::Servers;
use crate::dice::Dice;
use crate::proxy::Which;

/// No round lasts as long as this, so a hold that is left of it is a leak.
const LONG: Duration = Duration::from_secs(600);

fn begin(round: &Round, servers: &Servers, fault: Fault) {
    round.history.fault(format!("fault of client 0: {fault:?}"));
    fault.begin(&servers.proxies[0]);
    round.history.note("it has begun".to_owned());
}

fn heal(round: &Round, servers: &Servers) {
    servers.proxies[0].heal();
    round.history.note("client 0 is healed".to_owned());
}

/// A fair waiter is granted the lock when no reply reaches it any more, and times out long before it can release it.
pub(super) async fn fair(round: Arc<Round>, servers: &Servers, mut dice: Dice) {
    let resource = Resource::new(Kind::Fair, 0);
    let holder = Who { client: 1, task: 0 };
    let request =
        Request { lease: Some(Duration::from_secs(5)), ..Request::new(resource, Duration::from_secs(1)) };
    let Ok(held) = round.acquire(holder, &request, None, Polling::Whole).await else { return };
    let mut waiters = JoinSet::new();
    let number = 1 + dice.index(2);
    for task in 0..number {
        let wait = dice.between(Duration::from_millis(700), Duration::from_secs(1));
        let request = Request { lease: Some(LONG), ..Request::new(resource, wait) };
        let round = Arc::clone(&round);
        waiters.spawn(async move {
            drop(round.acquire(Who { client: 0, task }, &request, None, Polling::Whole).await);
        });
    }
    let queue = round.observer.fair_lock(resource.name());
    let begun = Instant::now();
    while queue.queue().await.map_or(0, |queue| queue.len()) < number
        && begun.elapsed() < Duration::from_secs(1)
    {
        sleep(Duration::from_millis(2)).await;
    }
    // It has subscribed by then, and tried once more.
    sleep(Duration::from_millis(100)).await;
    begin(
        &round,
        servers,
        dice.one_of(&[Fault::Swallow(Which::Command), Fault::Swallow(Which::Command), Fault::LoseReply]),
    );
    round.release(holder, &held, Polling::Whole).await;
    // The request of the next waiter gets through within this time, and its reply does not.
    sleep(Duration::from_millis(100)).await;
    begin(&round, servers, Fault::Refuse);
    waiters.join_all().await;
    sleep(dice.between(Duration::from_millis(3100), Duration::from_millis(3500))).await;
    heal(&round, servers);
}

/// A guard with an extended lease is dropped in an outage that is longer than the first lease.
pub(super) async fn extended(round: Arc<Round>, servers: &Servers, mut dice: Dice) {
    let kinds = [Kind::Plain, Kind::Fair, Kind::SetNx, Kind::Group, Kind::Write, Kind::Leased];
    let who = Who { client: 0, task: 0 };
    let lease = dice.between(Duration::from_millis(300), Duration::from_millis(500));
    let mut held = Vec::new();
    for kind in kinds {
        let request = Request { lease: Some(lease), ..Request::new(Resource::new(kind, 1), Duration::ZERO) };
        let Ok(grant) = round.acquire(who, &request, None, Polling::Whole).await else { continue };
        round.extend(who, &grant, LONG, Polling::Whole).await;
        held.push(grant);
    }
    begin(
        &round,
        servers,
        dice.one_of(&[Fault::Refuse, Fault::Freeze(Which::All), Fault::Freeze(Which::Command)]),
    );
    for grant in &held {
        if dice.one_in(3) {
            round.release(who, grant, Polling::DropAfter(Duration::from_millis(1))).await;
        } else {
            round.let_go(who, grant);
        }
    }
    sleep(lease + dice.between(Duration::from_millis(300), Duration::from_millis(600))).await;
    heal(&round, servers);
}

/// Requests on a connection that is half-open reach the server after they were undone on another one.
pub(super) async fn stale_connections(round: Arc<Round>, servers: &Servers, mut dice: Dice) {
    let kinds = [Kind::Plain, Kind::SetNx, Kind::Group, Kind::Write, Kind::Fair, Kind::Leased];
    for kind in kinds {
        // The script is loaded first: a server without it would not carry out the late request.
        let (who, request) =
            (Who { client: 0, task: 0 }, Request::new(Resource::new(kind, 2), Duration::ZERO));
        if let Ok(grant) = round.acquire(who, &request, None, Polling::Whole).await {
            round.release(who, &grant, Polling::Whole).await;
        }
    }
    begin(&round, servers, Fault::HalfOpen(Which::Command));
    let mut tasks = JoinSet::new();
    for (task, kind) in kinds.into_iter().enumerate() {
        let request = Request { lease: Some(LONG), ..Request::new(Resource::new(kind, 2), Duration::ZERO) };
        let round = Arc::clone(&round);
        tasks.spawn(async move {
            drop(round.acquire(Who { client: 0, task }, &request, None, Polling::Whole).await);
        });
    }
    tasks.join_all().await;
    sleep(dice.between(Duration::from_millis(600), Duration::from_millis(1500))).await;
    heal(&round, servers);
}
