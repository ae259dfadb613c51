//! Waits that begin while the server cannot be reached.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::future::IntoFuture;
use std::time::Duration;

use leasehold::{AcquireError, Client, Error, QuorumLock, ServerError};
use leasehold_testkit::healthy::Stopwatch;
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use leasehold_testkit::waits::{Wait, on_a_thread};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::{SECOND, acquired, alone, connect, keys, soon, until};

on_both! {
    own_310_waits_that_begin_in_an_outage_succeed_when_the_server_is_back
    own_311_waits_that_begin_in_an_outage_end_as_unavailable_at_their_limits
    own_312_a_single_try_fails_at_once_in_an_outage
    a_wait_continues_while_the_server_does_not_reply
    own_313_a_refused_password_ends_waits_at_once
    own_314_waiters_that_begin_in_an_outage_exclude_each_other
    own_315_a_quorum_lock_waits_for_a_majority
}

/// A server, a proxy in front of it, and a client that has been connected through it.
struct Stage {
    server: Server,
    proxy: Proxy,
    client: Client,
}

impl Stage {
    async fn new(flavour: Flavour, outage_limit: Duration) -> Self {
        let server = Server::start(flavour);
        let proxy = Proxy::start(server.port());
        let client = Client::connect(proxy.url()).outage_limit(outage_limit).await.unwrap();
        for of in Wait::ALL {
            of.create(&client).await;
        }
        until("the notes of the changes are gone", || keys(&server) == ["Leased", "Semaphore"]).await;
        Self { server, proxy, client }
    }

    /// Begins an outage, and waits until the client has noticed it.
    async fn outage(&self) {
        self.proxy.refuse();
        until("the client has noticed the outage", || !self.client.status().connected).await;
    }

    /// All waits, in tasks and in threads.
    fn begin(&self, limit: Option<Duration>) -> Vec<(Wait, JoinHandle<Result<(), Error>>)> {
        let of_each = |of: &Wait| [false, true].map(|blocks| (*of, of.begin(&self.client, limit, blocks)));
        let waits = Wait::ALL.iter().flat_map(of_each);
        waits.map(|(of, waiting)| (of, tokio::spawn(waiting))).collect()
    }
}

async fn own_310_waits_that_begin_in_an_outage_succeed_when_the_server_is_back(flavour: Flavour) {
    for limit in [None, Some(SECOND * 20)] {
        let stage = Stage::new(flavour, SECOND * 20).await;
        stage.outage().await;
        let waits = stage.begin(limit);
        // Longer than the first pauses.
        sleep(SECOND / 2).await;
        for (of, waiter) in &waits {
            assert!(!waiter.is_finished(), "{of:?} {limit:?}");
        }
        stage.proxy.heal();
        for (of, waiter) in waits {
            let done = soon("the wait", waiter).await.unwrap();
            done.unwrap_or_else(|error| panic!("{of:?} {limit:?}: {error}"));
        }
        let is_counter =
            |key: &String| ["Semaphore", "Leased", "redisson_lock_token:{Fenced}"].contains(&&**key);
        until("everything is given back", || keys(&stage.server).iter().all(is_counter)).await;
    }
}

async fn own_311_waits_that_begin_in_an_outage_end_as_unavailable_at_their_limits(flavour: Flavour) {
    let _alone = alone().await;
    let (wait, outage_limit) = (SECOND * 2, SECOND * 3);
    let stage = Stage::new(flavour, outage_limit).await;
    stage.outage().await;
    for (limit, end) in [(Some(wait), wait), (None, outage_limit)] {
        let (begun, healthy) = (Instant::now(), Stopwatch::start());
        for (of, waiter) in stage.begin(limit) {
            let ended = soon("the wait", waiter).await.unwrap();
            let (took, in_health) = (begun.elapsed(), healthy.elapsed());
            let status = stage.client.status();
            let error = ended.expect_err(&format!("{of:?} {limit:?} after {took:?}: {status:?}"));
            assert!(error.is_unavailable(), "{of:?} {limit:?}: {error}");
            assert!(error.to_string().contains("this outage"), "{of:?} {limit:?}: {error}");
            assert!(took >= end && in_health < end + SECOND, "{of:?} {limit:?}: {took:?}, {in_health:?}");
        }
    }
    stage.proxy.heal();
    acquired(&stage.client.lock("Plain")).await.release().await.unwrap();
}

async fn own_312_a_single_try_fails_at_once_in_an_outage(flavour: Flavour) {
    let stage = Stage::new(flavour, SECOND * 20).await;
    stage.outage().await;
    let begun = Stopwatch::start();
    for (of, waiter) in stage.begin(Some(Duration::ZERO)) {
        let error = soon("the try", waiter).await.unwrap().unwrap_err();
        assert!(error.is_unavailable(), "{of:?}: {error}");
    }
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
}

/// The connection is there, and replaced in vain again and again.
async fn a_wait_continues_while_the_server_does_not_reply(flavour: Flavour) {
    let server = Server::start(flavour);
    // Long enough for a busy machine to connect in it once the server replies.
    let timeout = SECOND;
    let connect = Client::connect(server.url()).response_timeout(timeout).connect_timeout(timeout);
    let client = connect.await.unwrap();
    server.pause();
    let waiters = [(); 3].map(|()| tokio::spawn(client.lock("n").acquire().into_future()));
    let limited = client.lock("n").acquire().wait(SECOND * 4).into_future();
    let error = soon("the limited wait", limited).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    server.resume();
    for waiter in waiters {
        soon("the waiter", waiter).await.unwrap().unwrap().release().await.unwrap();
    }
    until("everything is given back", || keys(&server).is_empty()).await;
}

async fn own_313_a_refused_password_ends_waits_at_once(flavour: Flavour) {
    let server = Server::builder(flavour).password("old").start();
    let proxy = Proxy::start(server.port());
    let client = connect(proxy.url().replace("redis://", "redis://:old@")).await;
    proxy.refuse();
    until("the client has noticed the outage", || !client.status().connected).await;
    let waiting = tokio::spawn(client.lock("n").acquire().wait(SECOND * 60).into_future());
    sleep(SECOND / 10).await;
    assert!(!waiting.is_finished(), "the reason may pass");
    assert_eq!(server.cli(&["CONFIG", "SET", "requirepass", "new"]), "OK");
    proxy.heal();
    let is_told = |error: &AcquireError| matches!(error, AcquireError::Server { cause: ServerError::Denied(text), .. } if text.contains("WRONGPASS"));
    let error = soon("the waiter is told", waiting).await.unwrap().unwrap_err();
    assert!(is_told(&error), "{error:?}");
    let begun = Stopwatch::start();
    let waiting = client.lock("n").acquire().wait(SECOND * 60).into_future();
    let error = soon("a later waiter is told", waiting).await.unwrap_err();
    assert!(is_told(&error) && begun.elapsed() < SECOND, "{error:?}");
}

/// The value is on the server, and read and written by two requests: two holders at once would lose an update.
async fn own_314_waiters_that_begin_in_an_outage_exclude_each_other(flavour: Flavour) {
    const TASKS: usize = 30;
    let mut server = Server::start(flavour);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(connect(server.url()).await);
    }
    server.kill();
    for client in &clients {
        until("the client has noticed the outage", || !client.status().connected).await;
    }
    let port = server.port();
    let mut tasks = JoinSet::new();
    for client in clients.iter().cycle().take(TASKS) {
        let acquire = client.lock("n").acquire().wait(SECOND * 14);
        tasks.spawn(async move {
            let guard = acquire.await.unwrap();
            let mut other = leasehold_testkit::resp::Connection::open(port).unwrap();
            let seen = other.call(&["GET", "value"]).unwrap().as_str().unwrap_or("0").to_owned();
            sleep(Duration::from_millis(2)).await;
            assert!(guard.is_held());
            let next = seen.parse::<usize>().unwrap() + 1;
            other.call(&["SET", "value", &next.to_string()]).unwrap();
            guard.release().await.unwrap();
        });
    }
    sleep(SECOND / 2).await;
    server.restart();
    soon("all of them", tasks.join_all()).await;
    assert_eq!(server.cli(&["GET", "value"]), &*TASKS.to_string());
    until("everything is given back", || keys(&server) == ["value"]).await;
}

async fn own_315_a_quorum_lock_waits_for_a_majority(flavour: Flavour) {
    let servers: Vec<_> = (0..3).map(|_| Server::start(flavour)).collect();
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::start(server.port())).collect();
    let mut clients = Vec::new();
    for proxy in &proxies {
        clients.push(connect(proxy.url()).await);
    }
    let lock = QuorumLock::new(&clients, "n");
    proxies[0].refuse();
    let minority = lock.acquire().wait(SECOND * 20);
    soon("a minority is not waited for", minority.into_future()).await.unwrap().release().await.unwrap();
    proxies[1].refuse();
    until("no server is connected but one", || proxies[1].open(Which::All) == 0).await;
    // Each releases at once, whichever is the first.
    let (acquire, blocks) = (lock.acquire().wait(SECOND * 20), lock.acquire());
    let waiters = [
        tokio::spawn(async { acquire.await.map(drop) }),
        tokio::spawn(on_a_thread(|| blocks.block().map(drop))),
    ];
    sleep(SECOND / 2).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    proxies[1].heal();
    for waiter in waiters {
        soon("the majority", waiter).await.unwrap().unwrap();
    }
    until("everything is given back", || servers.iter().all(|server| keys(server).is_empty())).await;
}
