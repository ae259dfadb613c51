//! A lock on three servers is lost if it lacked a majority at some moment, no matter when that is detected.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::time::Duration;

use leasehold::{Client, Loss, QuorumGuard, QuorumLock, ReleaseError};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::{SECOND, keys, soon, until};

/// Renewed every 0.2 s.
const SHORT: Duration = Duration::from_millis(600);
/// Renewed every second.
const LONG: Duration = Duration::from_secs(3);

struct Stage {
    servers: Vec<Server>,
    /// In front of the first server.
    proxy: Proxy,
    clients: Vec<Client>,
    lock: QuorumLock,
}

impl Stage {
    /// The hold on the first server is renewed more often than the others. So its loss is detected, and its vote may be
    /// acquired again, before the loss of another vote is detected.
    async fn new() -> Self {
        Self::with_first(SHORT).await
    }

    async fn with_first(watchdog: Duration) -> Self {
        let servers: Vec<_> = (0..3).map(|_| Server::start(Flavour::Redis)).collect();
        let proxy = Proxy::start(servers[0].port());
        let mut clients = vec![Client::connect(proxy.url()).watchdog(watchdog).await.unwrap()];
        for server in &servers[1..] {
            clients.push(Client::connect(server.url()).watchdog(LONG).await.unwrap());
        }
        let lock = QuorumLock::new(&clients, "n").server_timeout(SECOND * 2);
        Self { servers, proxy, clients, lock }
    }

    async fn guard(&self) -> QuorumGuard {
        let guard = self.lock.acquire().await.unwrap();
        until("all have voted", || guard.votes() == 3).await;
        guard
    }

    /// Deletes the keys on the first two servers.
    fn delete(&self) {
        for server in &self.servers[..2] {
            assert_eq!(server.cli(&["DEL", "n"]), 1);
        }
    }

    fn held_on(&self) -> usize {
        self.servers.iter().filter(|server| !keys(server).is_empty()).count()
    }
}

async fn is_lost(guard: &QuorumGuard, cause: Loss) {
    assert!(!guard.is_held());
    assert_eq!((guard.remaining(), guard.votes()), (Duration::ZERO, 0));
    assert_eq!(soon("the cause", guard.lost()).await, cause);
    assert_eq!(guard.extend(SECOND).await.map_err(|error| error.loss()), Err(Some(cause)));
    assert_eq!(guard.run(async {}).await.map_err(|lost| lost.loss), Err(cause));
}

/// Two votes are deleted, another client holds the lock in between, and both votes can be acquired again, one after the
/// other: at every check two of three are held, and yet the guard protected nothing for a while.
#[tokio::test]
async fn a_gap_in_the_majority_between_two_checks_is_a_loss() {
    let stage = Stage::new().await;
    let mut others = Vec::new();
    for server in &stage.servers {
        others.push(Client::connect(server.url()).await.unwrap());
    }
    let guard = stage.guard().await;
    let listener = tokio::spawn(guard.lost());
    stage.delete();
    let other = QuorumLock::new(&others, "n").acquire().await.unwrap();
    other.release().await.unwrap();
    assert_eq!(soon("the loss", listener).await.unwrap(), Loss::Gone);
    is_lost(&guard, Loss::Gone).await;
    until("all is given back", || stage.held_on() == 0).await;
    sleep(SHORT * 2).await;
    is_lost(&guard, Loss::Gone).await;
    assert_eq!(stage.held_on(), 0, "nothing is taken for a guard that is lost");
    assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })));
}

/// The same if the guard is first queried when all missing votes could have been acquired again.
#[tokio::test]
async fn a_guard_first_queried_long_after_a_gap_reports_the_loss() {
    let stage = Stage::new().await;
    let guard = stage.guard().await;
    stage.delete();
    sleep(LONG / 3 + SHORT * 2).await;
    is_lost(&guard, Loss::Gone).await;
}

/// The reply to a request that was sent before the loss arrives after it.
#[tokio::test]
async fn a_vote_that_arrives_after_the_loss_does_not_revive_the_guard() {
    // The reply arrives after everything else in this test, and before the lease that it reports expires.
    let stage = Stage::with_first(LONG).await;
    let delay = LONG / 2;
    let guard = stage.guard().await;
    let listener = tokio::spawn(guard.lost());
    assert!(stage.clients[0].lock("n").force_unlock().await.unwrap());
    assert!(guard.is_held() && guard.votes() == 2);
    stage.proxy.delay(Which::Command, delay);
    until("the server has granted it again", || !keys(&stage.servers[0]).is_empty()).await;
    assert!(guard.is_held());
    assert!(stage.clients[1].lock("n").force_unlock().await.unwrap());
    assert!(!guard.is_held());
    let lost = Instant::now();
    while lost.elapsed() < delay + SECOND / 2 {
        assert!(!guard.is_held(), "held again {:?} after the loss", lost.elapsed());
        sleep(Duration::from_millis(5)).await;
    }
    stage.proxy.heal();
    assert_eq!(soon("the loss", listener).await.unwrap(), Loss::ForceUnlocked);
    is_lost(&guard, Loss::ForceUnlocked).await;
    until("a late grant is released", || stage.held_on() == 0).await;
}

/// One server cannot be queried for its vote when another vote is acquired again. Its vote is gone, as it reports when it is
/// back.
#[tokio::test]
async fn a_gap_that_a_server_reports_after_its_return_is_a_loss() {
    let stage = Stage::new().await;
    let lock = stage.lock.clone().server_timeout(SECOND / 10);
    let guard = lock.acquire().await.unwrap();
    until("all have voted", || guard.votes() == 3).await;
    stage.delete();
    stage.servers[1].pause();
    until("the vote is taken again", || guard.votes() == 3 && !keys(&stage.servers[0]).is_empty()).await;
    assert!(guard.is_held(), "by the clock: the lease of the server that hangs is not over");
    stage.servers[1].resume();
    assert_eq!(soon("the loss", guard.lost()).await, Loss::Gone);
    is_lost(&guard, Loss::Gone).await;
    until("all is given back", || stage.held_on() == 0).await;
}

/// A vote of the first server is lost and acquired again. Then another may be lost, because it was held meanwhile.
#[tokio::test]
async fn a_vote_acquired_again_makes_up_for_a_vote_lost_later() {
    let stage = Stage::with_first(LONG).await;
    let guard = stage.guard().await;
    for number in [0, 1, 0, 2] {
        assert_eq!(stage.servers[number].cli(&["DEL", "n"]), 1);
        let is_back = || guard.votes() == 3 && !keys(&stage.servers[number]).is_empty();
        until("the vote is taken again", || is_back() || !guard.is_held()).await;
        assert!(guard.is_held(), "{:?}", guard.lost().await);
    }
    guard.release().await.unwrap();
    until("all is given back", || stage.held_on() == 0).await;
}

/// A guard that detects its loss by its release reports it.
#[tokio::test]
async fn the_release_of_a_lost_quorum_lock_reports_the_cause() {
    let stage = Stage::new().await;
    let guard = stage.guard().await;
    stage.delete();
    assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })));
    until("all is given back", || stage.held_on() == 0).await;
}
