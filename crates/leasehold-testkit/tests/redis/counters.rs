//! Counts that stay exact, and waiters that do not hang, whatever replies and messages are lost.

use std::future::IntoFuture;
use std::time::Duration;

use leasehold::{
    AcquireError, ChangeError, Client, LeasedSemaphore, Operation, PermitId, ReleaseError, ServerError,
};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep, timeout};

use crate::{SECOND, alone, channels, connect, keys, soon, subscribed, until};

/// Acquires permits while each reply is lost once, so that no attempt succeeds, and then while none is lost.
async fn taken<G>(proxy: &Proxy, acquire: impl Fn() -> Operation<Result<G, AcquireError>>) -> G {
    // Every attempt has another owner, and so is another command.
    let lost = soon("an attempt", acquire()).await.map(drop);
    assert!(lost.as_ref().is_err_and(AcquireError::is_unavailable), "{lost:?}");
    proxy.heal();
    let taken = loop {
        match soon("an attempt", acquire()).await {
            Ok(taken) => break taken,
            // Permits of the attempts before may not be back yet.
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        sleep(Duration::from_millis(3)).await;
    };
    proxy.lose_each_reply_once(Which::Command);
    taken
}

/// One attempt: a wait would make more of them until the server replies.
macro_rules! once {
    ($acquire:expr) => {
        $acquire.wait(Duration::ZERO).into_future()
    };
}

/// A release whose reply may be missing, and that continues then.
fn given_back(released: &Result<(), ReleaseError>) {
    assert!(matches!(released, Ok(()) | Err(ReleaseError::Unknown { .. })), "{released:?}");
}

#[tokio::test]
async fn own_88_counts_are_exact_when_each_reply_is_lost_once() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let proxy = Proxy::start(server.port());
        let client = connect(proxy.url()).await;
        let (semaphore, latch) = (client.semaphore("n"), client.latch("l"));
        proxy.lose_each_reply_once(Which::Command);
        assert!(semaphore.try_set_permits(10).await.unwrap());
        assert!(!semaphore.try_set_permits(10).await.unwrap());
        assert!(latch.try_set_count(25).await.unwrap());
        for round in 1..=20 {
            semaphore.release(2).await.unwrap();
            assert!(semaphore.release_if_exists(1).await.unwrap());
            assert_eq!(semaphore.add_permits(-3).await.unwrap(), 10, "each was counted once");
            assert_eq!(latch.count_down().await.unwrap(), 25 - round);
            given_back(&taken(&proxy, || once!(semaphore.acquire(3))).await.release().await);
            drop(taken(&proxy, || once!(semaphore.acquire(2))).await);
            until("all is given back", || server.cli(&["GET", "n"]) == "10").await;
        }
        assert_eq!(semaphore.drain().await.unwrap(), 10);
        assert_eq!(semaphore.add_permits(4).await.unwrap(), 4);
        assert!(proxy.counts().replies_lost > 100);
        proxy.heal();
        while semaphore.available().await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!((server.cli(&["GET", "n"]), server.cli(&["GET", "l"])), ("4".into(), "5".into()));
        assert!(semaphore.delete().await.unwrap() && latch.delete().await.unwrap());
        // Where replies are lost, the reply to the removal of a note may be lost, too.
        let left = keys(&server);
        assert!(left.iter().all(|key| key.starts_with("leasehold_latch:")), "{left:?}");
    }
}

#[tokio::test]
async fn leased_permits_are_exact_when_each_reply_is_lost_once() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = connect(proxy.url()).await;
    let semaphore = client.leased_semaphore("n");
    proxy.lose_each_reply_once(Which::Command);
    assert!(semaphore.try_set_permits(10).await.unwrap());
    for _ in 0..20 {
        given_back(&taken(&proxy, || once!(semaphore.acquire(3))).await.release().await);
        drop(taken(&proxy, || once!(semaphore.acquire(2).lease(SECOND * 60))).await);
        let ids: Vec<PermitId> = taken(&proxy, || once!(semaphore.acquire(4).permanent())).await;
        assert!(semaphore.update_lease(ids[0], SECOND * 60).await.unwrap());
        semaphore.release(ids.clone()).await.unwrap();
        assert!(matches!(semaphore.release(ids).await, Err(ChangeError::NotAcquired { .. })));
        assert!(semaphore.add_permits(1).await.unwrap() > semaphore.add_permits(-1).await.unwrap());
    }
    proxy.heal();
    until("all is given back", || server.cli(&["GET", "n"]) == "10").await;
    until("nothing is taken", || !keys(&server).contains(&"{n}:timeout".into())).await;
}

/// Longer than a waiter sleeps without a message, which is half a minute and more on a busy machine.
const AT_LAST: Duration = Duration::from_secs(100);

#[tokio::test]
async fn own_89_no_waiter_hangs_when_messages_are_lost() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let (client, other) = (connect(proxy.url()).await, connect(server.url()).await);
    assert!(other.latch("l").try_set_count(1).await.unwrap());
    assert!(other.leased_semaphore("m").try_set_permits(1).await.unwrap());
    let taken = other.leased_semaphore("m").acquire(1).permanent().await.unwrap();
    let waiters: Vec<_> =
        (0..3).map(|_| tokio::spawn(client.semaphore("n").acquire(1).into_future())).collect();
    let leased = tokio::spawn(client.leased_semaphore("m").acquire(1).into_future());
    let latch = tokio::spawn(client.latch("l").opened().into_future());
    subscribed(&server, "redisson_sc:{n}", 1).await;
    subscribed(&server, "redisson_sc:{m}", 1).await;
    subscribed(&server, "redisson_countdownlatch__channel__{l}", 1).await;
    sleep(SECOND / 5).await;
    proxy.drop_messages();
    other.semaphore("n").release(3).await.unwrap();
    other.leased_semaphore("m").release(taken).await.unwrap();
    other.latch("l").count_down().await.unwrap();
    let all = async {
        latch.await.unwrap().unwrap();
        drop(leased.await.unwrap().unwrap());
        for waiter in waiters {
            drop(waiter.await.unwrap().unwrap());
        }
    };
    timeout(AT_LAST, all).await.expect("all waiters poll");
    assert!(proxy.counts().messages_dropped >= 3);
    until("no client is subscribed", || channels(&server).is_empty()).await;
}

#[tokio::test]
async fn waiters_survive_the_loss_of_their_connections() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let (client, other) = (connect(proxy.url()).await, connect(server.url()).await);
    assert!(other.latch("l").try_set_count(1).await.unwrap());
    let waiters: Vec<_> =
        (0..3).map(|_| tokio::spawn(client.semaphore("n").acquire(1).into_future())).collect();
    let latches: Vec<_> = (0..3).map(|_| tokio::spawn(client.latch("l").opened().into_future())).collect();
    subscribed(&server, "redisson_sc:{n}", 1).await;
    subscribed(&server, "redisson_countdownlatch__channel__{l}", 1).await;
    proxy.refuse();
    other.semaphore("n").release(3).await.unwrap();
    other.latch("l").count_down().await.unwrap();
    sleep(SECOND / 2).await;
    proxy.heal();
    for latch in latches {
        soon("the latch", latch).await.unwrap().unwrap();
    }
    for waiter in waiters {
        soon("a permit", waiter).await.unwrap().unwrap().forget();
    }
}

#[tokio::test]
async fn own_93_a_counter_change_waits_for_the_server_up_to_the_outage_limit() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = Client::connect(proxy.url()).outage_limit(SECOND * 2).await.unwrap();
    let semaphore = client.semaphore("n");
    semaphore.release(1).await.unwrap();

    // The outage is short: a change whose caller was dropped is still made.
    proxy.refuse();
    until("the connection is gone", || proxy.open(Which::All) == 0).await;
    let (changing, leaving) = (tokio::spawn(semaphore.release(1)), tokio::spawn(semaphore.release(1)));
    sleep(SECOND / 2).await;
    assert!(!changing.is_finished());
    leaving.abort();
    proxy.heal();
    soon("the change", changing).await.unwrap().unwrap();
    until("both are carried out", || server.cli(&["GET", "n"]) == "3").await;

    // The outage is long: nothing was sent.
    proxy.refuse();
    sleep(SECOND / 10).await;
    let begun = Instant::now();
    let error = soon("the end", semaphore.release(1)).await.unwrap_err();
    assert!(matches!(error, ChangeError::Server { cause: ServerError::Unavailable(_), .. }), "{error:?}");
    assert!(error.is_unavailable() && begun.elapsed() >= SECOND * 2);
    proxy.heal();
    while semaphore.available().await.is_err() {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(semaphore.available().await.unwrap(), 3);

    // The request was sent, and its outcome is unknown.
    proxy.blackhole(Which::All);
    let error = soon("the end", semaphore.release(1)).await.unwrap_err();
    assert!(matches!(error, ChangeError::Unknown { cause: ServerError::Unavailable(_), .. }), "{error:?}");
    proxy.heal();
    sleep(SECOND / 2).await;
    let free = server.cli(&["GET", "n"]);
    assert!(free == "3" || free == "4", "once, or not at all: {free:?}");
}

#[tokio::test]
async fn permits_cost_one_request_to_acquire_and_one_to_release() {
    let server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    let (semaphore, leased) = (client.semaphore("n"), client.leased_semaphore("m"));
    assert!(semaphore.try_set_permits(5).await.unwrap() && leased.try_set_permits(5).await.unwrap());
    semaphore.acquire(1).await.unwrap().release().await.unwrap();
    leased.acquire(1).await.unwrap().release().await.unwrap();
    until("the notes are gone", || keys(&server) == ["m", "n"]).await;
    let mut monitor = server.monitor();
    let (counted, timed) = (semaphore.acquire(2).await.unwrap(), leased.acquire(3).await.unwrap());
    assert_eq!(monitor.take_sent().len(), 2);
    counted.release().await.unwrap();
    timed.release().await.unwrap();
    assert_eq!(monitor.take_sent().len(), 2);
    semaphore.release(1).await.unwrap();
    until("the note is gone", || keys(&server) == ["m", "n"]).await;
    let sent = monitor.take_sent();
    let sent: Vec<_> = sent.iter().filter(|line| !line.starts_with("\"KEYS\"")).collect();
    assert!(sent.len() == 2 && sent[1].starts_with("\"HDEL\""), "{sent:?}");
}

/// A permit with a lease is free again after its client is killed; one without a lease is not.
#[tokio::test]
async fn permits_of_a_dead_client_become_free_only_with_a_lease() {
    let _alone = alone().await;
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let dying = Client::connect(proxy.url()).watchdog(SECOND * 2).await.unwrap();
    let other = connect(server.url()).await;
    let elsewhere: LeasedSemaphore = other.leased_semaphore("m");
    assert!(elsewhere.try_set_permits(1).await.unwrap());
    assert!(other.semaphore("n").try_set_permits(1).await.unwrap());
    let _held = (
        dying.leased_semaphore("m").acquire(1).await.unwrap(),
        dying.semaphore("n").acquire(1).await.unwrap(),
    );
    proxy.refuse();
    let begun = Instant::now();
    drop(soon("the permit", elsewhere.acquire(1).into_future()).await.unwrap());
    assert!(begun.elapsed() >= SECOND);
    assert_eq!(other.semaphore("n").available().await.unwrap(), 0);
}
