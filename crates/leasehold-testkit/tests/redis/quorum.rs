//! One lock on five servers, some of which hang, die and restart.

#![expect(clippy::unwrap_used, reason = "a failing test names its line")]

use std::time::Duration;

use leasehold::{
    AcquireError, Client, ExtendError, InvalidRequestError, Loss, QuorumGuard, QuorumLock, ReleaseError,
};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep, timeout};

use crate::{SECOND, keys, number, soon, until};

const WATCHDOG: Duration = Duration::from_secs(3);

struct Stage {
    servers: Vec<Server>,
    clients: Vec<Client>,
}

impl Stage {
    async fn new(number: usize) -> Self {
        let servers: Vec<_> = (0..number).map(|_| Server::start(Flavour::Redis)).collect();
        let clients = Self::clients(servers.iter().map(Server::url)).await;
        Self { servers, clients }
    }

    async fn clients(urls: impl Iterator<Item = String>) -> Vec<Client> {
        let mut clients = Vec::new();
        for url in urls {
            clients.push(Client::connect(url).watchdog(WATCHDOG).await.unwrap());
        }
        clients
    }

    fn lock(&self) -> QuorumLock {
        QuorumLock::new(&self.clients, "n")
    }

    /// A contender for the same lock, by clients of its own.
    async fn other(&self) -> QuorumLock {
        QuorumLock::new(&Self::clients(self.servers.iter().map(Server::url)).await, "n")
    }

    fn held_on(&self) -> usize {
        self.servers.iter().filter(|server| !keys(server).is_empty()).count()
    }

    async fn all_free(&self) {
        until("all votes are given back", || self.held_on() == 0).await;
    }
}

async fn votes(guard: &QuorumGuard, number: usize) {
    until(&format!("{number} votes"), || guard.votes() == number).await;
}

#[tokio::test]
async fn qd_13_a_second_client_waits_until_the_quorum_lock_is_released() {
    let stage = Stage::new(5).await;
    let (lock, other) = (stage.lock(), stage.other().await);
    assert_eq!(lock.quorum(), 3);
    let guard = lock.acquire().await.unwrap();
    assert!(other.try_acquire().await.unwrap().is_none());
    let late = other.acquire().wait(SECOND / 2).await;
    assert!(matches!(late, Err(AcquireError::Timeout { .. })), "{late:?}");
    // A majority is enough for the grant; the other servers follow.
    votes(&guard, 5).await;
    assert!(guard.is_held());
    // Held past its watchdog time.
    sleep(WATCHDOG + SECOND).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    stage.all_free().await;
    drop(soon("the other gets it", other.acquire().into_future()).await.unwrap());
    stage.all_free().await;
}

#[tokio::test]
async fn a_hanging_minority_delays_no_acquire_and_votes_again_after_its_return() {
    let stage = Stage::new(5).await;
    stage.servers[0].pause();
    stage.servers[1].pause();
    let guard = soon("a majority", stage.lock().acquire().into_future()).await.unwrap();
    assert_eq!(guard.votes(), 3);
    stage.servers[0].resume();
    stage.servers[1].resume();
    // Requests from before the hang are rolled back, and sent again.
    votes(&guard, 5).await;
    assert_eq!(stage.held_on(), 5);
    guard.release().await.unwrap();
    stage.all_free().await;
}

#[tokio::test]
async fn qd_01_a_missing_majority_is_an_outage_and_leaves_no_votes_behind() {
    let mut stage = Stage::new(5).await;
    for server in &mut stage.servers[..3] {
        server.kill();
    }
    let begun = Instant::now();
    let failed = stage.lock().try_acquire().await.map(drop);
    assert!(failed.as_ref().is_err_and(AcquireError::is_unavailable), "{failed:?}");
    assert!(begun.elapsed() < SECOND, "a try does not wait: {:?}", begun.elapsed());
    let begun = Instant::now();
    let failed = stage.lock().acquire().wait(SECOND * 2).await;
    assert!(failed.as_ref().is_err_and(AcquireError::is_unavailable), "{failed:?}");
    assert!(begun.elapsed() >= SECOND * 2, "a wait goes on for as long as it may: {:?}", begun.elapsed());
    until("the others are given back", || stage.servers[3..].iter().all(|server| keys(server).is_empty()))
        .await;
}

#[tokio::test]
async fn qd_04_exactly_half_of_the_servers_is_no_majority() {
    let mut stage = Stage::new(2).await;
    assert_eq!(stage.lock().quorum(), 2);
    stage.servers[0].kill();
    let failed = stage.lock().try_acquire().await;
    assert!(failed.as_ref().is_err_and(AcquireError::is_unavailable), "{failed:?}");
    until("the other is given back", || keys(&stage.servers[1]).is_empty()).await;
}

#[tokio::test]
async fn votes_of_a_minority_restarted_without_data_are_acquired_again() {
    let mut stage = Stage::new(5).await;
    let guard = stage.lock().acquire().await.unwrap();
    for number in [0, 1] {
        stage.servers[number].kill();
    }
    sleep(WATCHDOG + SECOND).await;
    assert!(guard.is_held() && guard.votes() == 3, "{}", guard.votes());
    for number in [0, 1] {
        stage.servers[number].restart();
    }
    votes(&guard, 5).await;
    assert_eq!(stage.held_on(), 5);
    assert!(stage.other().await.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    stage.all_free().await;
}

#[tokio::test]
async fn a_stopped_majority_is_reported_as_a_loss_within_the_lease() {
    let mut stage = Stage::new(5).await;
    let guard = stage.lock().acquire().await.unwrap();
    let lost = tokio::spawn(guard.lost());
    for server in &mut stage.servers[..3] {
        server.kill();
    }
    let last = Instant::now();
    assert_eq!(soon("the loss is reported", lost).await.unwrap(), Loss::Unreachable);
    // No later than the leases that were renewed right before the end.
    assert!(last.elapsed() < WATCHDOG, "{:?}", last.elapsed());
    assert!(!guard.is_held() && guard.remaining().is_zero());
    drop(guard);
    until("the others are given back", || stage.servers[3..].iter().all(|server| keys(server).is_empty()))
        .await;
}

#[tokio::test]
async fn qd_02_a_late_reply_is_not_a_vote() {
    let servers: Vec<_> = (0..3).map(|_| Server::start(Flavour::Redis)).collect();
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::start(server.port())).collect();
    let clients = Stage::clients(proxies.iter().map(Proxy::url)).await;
    let lock = QuorumLock::new(&clients, "n").server_timeout(SECOND / 5);
    for proxy in &proxies[..2] {
        proxy.delay(Which::Command, SECOND / 2);
    }
    let failed = timeout(SECOND * 5, lock.try_acquire()).await.unwrap();
    assert!(failed.as_ref().is_err_and(AcquireError::is_unavailable), "{failed:?}");
    until("nothing is left", || servers.iter().all(|server| keys(server).is_empty())).await;
    for proxy in &proxies {
        proxy.heal();
    }
    // The late replies do no harm to the next round, which may have to wait for them.
    let guard = loop {
        match soon("a round", lock.acquire().into_future()).await {
            Ok(guard) => break guard,
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
    };
    assert!(guard.is_held());
    guard.release().await.unwrap();
    until("nothing is left", || servers.iter().all(|server| keys(server).is_empty())).await;
}

#[tokio::test]
async fn qd_06_a_dropped_round_leaves_no_votes_behind() {
    let stage = Stage::new(5).await;
    for server in &stage.servers[..3] {
        server.pause();
    }
    let begun = tokio::spawn(stage.lock().acquire().into_future());
    until("the other servers have granted it", || {
        stage.servers[3..].iter().all(|server| !keys(server).is_empty())
    })
    .await;
    begun.abort();
    for server in &stage.servers[..3] {
        server.resume();
    }
    stage.all_free().await;
    let guard = soon("a majority", stage.other().await.acquire().into_future()).await.unwrap();
    drop(guard);
    stage.all_free().await;
}

/// Each worker adds one to a value by a read and a write that a second holder would break.
#[tokio::test]
async fn qd_07_clients_exclude_each_other_while_a_minority_stops_and_restarts() {
    let mut stage = Stage::new(5).await;
    let store = Server::start(Flavour::Redis);
    let turns = 15;
    let mut contenders = Vec::new();
    for _ in 0..4 {
        let (lock, mut connection) = (stage.other().await, store.connect());
        contenders.push(tokio::spawn(async move {
            let mut done = 0;
            while done < turns {
                match lock.acquire().await {
                    Ok(guard) => {
                        let seen = connection.call(&["GET", "value"]).unwrap();
                        let seen: u32 = seen.as_str().unwrap_or("0").parse().unwrap();
                        sleep(Duration::from_millis(2)).await;
                        assert!(guard.is_held());
                        connection.call(&["SET", "value", &(seen + 1).to_string()]).unwrap();
                        guard.release().await.ok();
                        done += 1;
                    }
                    Err(error) => assert!(error.is_unavailable(), "{error}"),
                }
            }
        }));
    }
    // A server that restarts without its data within a lease is outside of the guarantee: it stays away for that long.
    for number in [0, 1] {
        stage.servers[number].kill();
    }
    sleep(WATCHDOG + SECOND / 2).await;
    for number in [0, 1] {
        stage.servers[number].restart();
    }
    for contender in contenders {
        timeout(SECOND * 60, contender).await.expect("all get their turns").unwrap();
    }
    assert_eq!(store.cli(&["GET", "value"]), (4 * turns).to_string().as_str());
    stage.all_free().await;
}

#[tokio::test]
async fn qd_03_a_release_without_replies_from_a_majority_is_an_error() {
    let mut stage = Stage::new(5).await;
    let guard = stage.lock().acquire().await.unwrap();
    votes(&guard, 5).await;
    for server in &mut stage.servers[..3] {
        server.kill();
    }
    let released = guard.release().await;
    assert!(matches!(released, Err(ReleaseError::Unknown { .. })), "{released:?}");
    assert!(stage.servers[3..].iter().all(|server| keys(server).is_empty()), "released where it could be");
}

#[tokio::test]
async fn qd_12_an_acquired_quorum_lock_is_held_for_less_than_its_lease() {
    let stage = Stage::new(3).await;
    let lease = SECOND * 2;
    let begun = Instant::now();
    let guard = stage.lock().acquire().lease(lease).await.unwrap();
    let left = guard.remaining();
    // Only the safety margin and the time since the request are deducted from it.
    assert!(left <= lease * 99 / 100, "{left:?}");
    assert!(left + begun.elapsed() >= lease * 98 / 100, "{left:?} after {:?}", begun.elapsed());
    assert_eq!(soon("the lease ends", guard.lost()).await, Loss::Expired);
    assert!(begun.elapsed() >= lease * 98 / 100, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn qd_16_an_extension_counts_from_now_and_not_from_the_end_of_the_lease() {
    let stage = Stage::new(3).await;
    let guard = stage.lock().acquire().lease(SECOND * 60).await.unwrap();
    votes(&guard, 3).await;
    for length in [SECOND * 80, SECOND * 100] {
        let left = guard.extend(length).await.unwrap();
        assert!(left <= length && left + SECOND * 10 > length, "{left:?}");
        let left = guard.remaining();
        assert!(left <= length && left + SECOND * 10 > length, "{left:?}");
        for server in &stage.servers {
            let left = Duration::from_millis(number(&server.cli(&["PTTL", "n"])).unsigned_abs());
            assert!(left <= length && left + SECOND * 10 > length, "{left:?}");
        }
    }
    let left = guard.extend(SECOND * 10).await.unwrap();
    assert!(left > SECOND * 80, "nothing is shortened: {left:?}");
}

/// Inside of a runtime, beside one, and after one has ended.
#[test]
fn qd_14_dropping_a_guard_releases_the_quorum_lock_on_every_runtime() {
    let servers: Vec<_> = (0..3).map(|_| Server::start(Flavour::Redis)).collect();
    let connect = || servers.iter().map(|server| Client::connect(server.url()).block().unwrap());
    let other = QuorumLock::new(&connect().collect::<Vec<_>>(), "n");
    let given_back = |runtime: &str| {
        let begun = Instant::now();
        while servers.iter().any(|server| !keys(server).is_empty()) {
            assert!(begun.elapsed() < SECOND * 10, "not given back: {runtime}");
            std::thread::sleep(Duration::from_millis(2));
        }
        let guard = other.try_acquire().block().unwrap();
        guard.expect("it is free").release().block().unwrap();
    };
    let acquire = || {
        let guard = QuorumLock::new(&connect().collect::<Vec<_>>(), "n").acquire().block().unwrap();
        assert!(other.try_acquire().block().unwrap().is_none());
        guard
    };
    let current = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let many = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();

    drop(acquire());
    given_back("none");
    for (name, runtime) in [("of one thread", current()), ("of several threads", many())] {
        let asked = async {
            let mut clients = Vec::new();
            for server in &servers {
                clients.push(Client::connect(server.url()).await.unwrap());
            }
            QuorumLock::new(&clients, "n").acquire().await.unwrap()
        };
        runtime.block_on(async { drop(asked.await) });
        given_back(name);
    }
    for (name, runtime) in [("of one thread, gone", current()), ("of several threads, gone", many())] {
        let guard = runtime.block_on(async {
            let mut clients = Vec::new();
            for server in &servers {
                clients.push(Client::connect(server.url()).await.unwrap());
            }
            QuorumLock::new(&clients, "n").acquire().await.unwrap()
        });
        drop(runtime);
        assert!(guard.is_held());
        drop(guard);
        given_back(name);
    }
    let guard = acquire();
    current().block_on(async { drop(guard) });
    given_back("another one");
}

#[tokio::test]
async fn qd_15_an_extension_holds_on_a_majority_and_never_revives_a_lost_lock() {
    let mut stage = Stage::new(3).await;
    let (lock, other) = (stage.lock(), stage.other().await);
    let guard = lock.acquire().lease(SECOND).await.unwrap();
    votes(&guard, 3).await;
    stage.servers[0].kill();
    let left = guard.extend(SECOND * 2).await.unwrap();
    assert!(left > SECOND, "{left:?}");
    sleep(SECOND * 6 / 5).await;
    assert!(guard.is_held());
    assert!(other.try_acquire().await.is_ok_and(|tried| tried.is_none()));
    assert_eq!(soon("the lease ends", guard.lost()).await, Loss::Expired);
    let late = guard.extend(SECOND).await;
    assert!(matches!(late, Err(ExtendError::NotHeld { loss: Loss::Expired, .. })), "{late:?}");
    drop(soon("the other gets it", other.acquire().into_future()).await.unwrap());
}

#[tokio::test]
async fn qd_20_a_deleted_vote_is_acquired_again_and_another_task_can_release_the_guard() {
    let stage = Stage::new(3).await;
    let guard = stage.lock().acquire().await.unwrap();
    votes(&guard, 3).await;
    stage.servers[0].cli(&["DEL", "n"]);
    until("it is noticed and taken again", || stage.held_on() == 3).await;
    votes(&guard, 3).await;
    assert!(guard.is_held());
    let task = tokio::spawn(async move { guard.release().await });
    task.await.unwrap().unwrap();
    stage.all_free().await;
}

#[tokio::test]
async fn qd_18_an_invalid_lease_or_an_empty_list_of_servers_is_refused_before_a_request() {
    let stage = Stage::new(3).await;
    let lock = stage.lock();
    for (lease, expected) in [(Duration::from_millis(1), "short"), (Duration::MAX, "long")] {
        let refused = lock.acquire().lease(lease).await.unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    let none = QuorumLock::new(&[], "n").acquire().await;
    assert!(
        matches!(none, Err(AcquireError::Invalid { cause: InvalidRequestError::NoMembers, .. })),
        "{none:?}"
    );
    assert_eq!(stage.held_on(), 0);
}

#[tokio::test]
async fn a_server_that_has_just_started_has_no_vote_within_the_rejoin_delay() {
    let mut stage = Stage::new(3).await;
    let lock = stage.lock().rejoin_delay(SECOND * 2);
    // All of them have just started.
    let early = lock.try_acquire().await;
    assert!(early.as_ref().is_err_and(AcquireError::is_unavailable), "{early:?}");
    assert!(early.unwrap_err().to_string().contains("may have forgotten its vote"));
    stage.all_free().await;
    sleep(SECOND * 3).await;
    let guard = soon("a majority", lock.acquire().into_future()).await.unwrap();
    votes(&guard, 3).await;
    stage.servers[0].restart();
    // It restarts at once, and counts only when it is old enough.
    let restarted = Instant::now();
    until("it is missed", || guard.votes() == 2).await;
    votes(&guard, 3).await;
    assert!(restarted.elapsed() > SECOND * 2, "{:?}", restarted.elapsed());
    guard.release().await.unwrap();
    stage.all_free().await;
}
