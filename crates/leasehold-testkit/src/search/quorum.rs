//! A lock on three servers, whose connections fail independently.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, QuorumLock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::faults;
use super::held::{Boxed, Held};
use super::history::Who;
use super::invariant::Invariant;
use super::polling::Polling;
use super::resource::{Kind, Resource};
use super::round::{CLIENTS, Round, Setting, Terms};
use super::servers::Servers;
use crate::dice::Dice;
use crate::proxy::Proxy;
use crate::server::Server;

const TASKS: usize = 2;
const LENGTH: Duration = Duration::from_millis(2500);
const FAULTS: Duration = Duration::from_millis(2200);
/// How long after the end of the faults all votes are released.
const GIVEN_BACK: Duration = Duration::from_secs(6);

pub(super) async fn play(round: Arc<Round>, servers: &Servers, setting: Setting, mut dice: Dice) {
    let resource = Resource::new(Kind::Quorum, 0);
    let others = [Server::start(setting.flavour), Server::start(setting.flavour)];
    let end = Instant::now() + LENGTH;
    let (mut tasks, mut players) = (JoinSet::new(), Vec::new());
    // Kept to the end, as the clients need them.
    let mut kept = Vec::new();
    for client in 0..CLIENTS {
        let mut members = vec![round.clients[client].clone()];
        let mut proxies = vec![Arc::clone(&servers.proxies[client])];
        for server in &others {
            let proxy = Arc::new(Proxy::start(server.port()));
            members.push(setting.connect(proxy.url()).await);
            proxies.push(proxy);
        }
        for proxy in proxies {
            let acts = faults::script(&mut dice, FAULTS);
            players.push(faults::play(client, Arc::clone(&proxy), acts, Arc::clone(&round.history)));
            kept.push(proxy);
        }
        for task in 0..TASKS {
            let lock = QuorumLock::new(&members, resource.name()).server_timeout(Duration::from_millis(100));
            let who = Who { client, task };
            tasks.spawn(contend(Arc::clone(&round), who, lock, resource, end, dice.fork()));
        }
    }
    tasks.join_all().await;
    let all = move || players.into_iter().all(|player| player.join().is_ok());
    assert!(tokio::task::spawn_blocking(all).await.unwrap_or(false), "the proxies do what they are told");
    let mut observers = vec![round.observer.clone()];
    for server in &others {
        observers.push(Client::connect(server.url()).await.expect("the server is there"));
    }
    let begun = Instant::now();
    for (number, observer) in observers.iter().enumerate() {
        while observer.lock(resource.name()).is_locked().await != Ok(false) {
            if begun.elapsed() > GIVEN_BACK {
                let left = format!("the vote of server {number} is left {GIVEN_BACK:?} after the end");
                return round.checker.violation(Invariant::Left, &left);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn contend(
    round: Arc<Round>,
    who: Who,
    lock: QuorumLock,
    resource: Resource,
    end: Instant,
    mut dice: Dice,
) {
    while Instant::now() < end {
        let wait = dice.between(Duration::from_millis(50), Duration::from_millis(400));
        let lease =
            dice.one_in(2).then(|| dice.between(Duration::from_millis(200), Duration::from_millis(800)));
        let acquire = lock.acquire().wait(wait);
        let acquire = if let Some(lease) = lease { acquire.lease(lease) } else { acquire };
        let acquire = acquire.into_future();
        let work: Boxed<_> = Box::pin(async { acquire.await.map(Held::Quorum) });
        let polling = Polling::any(&mut dice);
        let terms = Terms { wait, lease, max_hold: None };
        let Ok(grant) = round.grant(who, resource, None, terms, polling, "acquire a quorum", work).await
        else {
            sleep(Duration::from_millis(1)).await;
            continue;
        };
        sleep(dice.between(Duration::ZERO, Duration::from_millis(60))).await;
        if dice.one_in(4) {
            round.extend(who, &grant, Duration::from_millis(500), Polling::any(&mut dice)).await;
            sleep(dice.between(Duration::ZERO, Duration::from_millis(300))).await;
        }
        if dice.one_in(3) {
            round.let_go(who, &grant);
        } else {
            round.release(who, &grant, Polling::any(&mut dice)).await;
        }
    }
}
