//! Keys and messages that other programs change.

use std::time::Duration;

use leasehold::{AcquireError, Client, Guard, Loss, QueryError, ReleaseError, ServerError};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::{
    REDISSON, SECOND, connect, free_as_redisson, granted, keys, soon, take_as_redisson, until, waiting,
};

const CHANNEL: &str = "redisson_lock__channel:{n}";
const LEASE: Duration = Duration::from_secs(3);

/// A lock that is renewed, and one with an explicit lease.
async fn held(server: &Server) -> [(Client, Guard); 2] {
    let [kept, given] = [connect_with_lease(server).await, connect_with_lease(server).await];
    let guard = kept.lock("n").acquire().await.expect("a free lock");
    let limited = given.lock("m").acquire().lease(LEASE).await.expect("a free lock");
    [(kept, guard), (given, limited)]
}

async fn connect_with_lease(server: &Server) -> Client {
    Client::connect(server.url()).watchdog(LEASE).await.expect("the server is there")
}

/// The loss of the lock: within a third of its lease, and a bit.
async fn loss(guard: &Guard) -> Loss {
    let begun = Instant::now();
    let loss = soon("the loss", guard.lost()).await;
    let limit = LEASE / 3 + LEASE / 4;
    assert!(begun.elapsed() < limit, "{:?} for {}", begun.elapsed(), guard.name());
    loss
}

#[tokio::test]
async fn a_deleted_key_is_reported_as_a_lock_that_is_gone() {
    let server = Server::start(Flavour::Redis);
    for (_client, guard) in held(&server).await {
        server.cli(&["DEL", guard.name()]);
        assert_eq!(loss(&guard).await, Loss::Gone);
        assert!(!guard.is_held());
        assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })));
    }
    assert_eq!(keys(&server), [""; 0]);
}

#[tokio::test]
async fn qd_24_a_key_with_another_owner_is_reported_as_a_lock_taken_over() {
    let server = Server::start(Flavour::Redis);
    for (_client, guard) in held(&server).await {
        let name = guard.name().to_owned();
        take_as_redisson(&server, &name, SECOND * 60);
        assert_eq!(loss(&guard).await, Loss::TakenOver);
        assert!(matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::TakenOver, .. })));
        assert_eq!(server.cli(&["HGETALL", &name]).elements(), [REDISSON, "1"]);
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_reported_as_not_a_lock() {
    let server = Server::start(Flavour::Redis);
    let [(client, kept), (_other, given)] = held(&server).await;
    for guard in [&kept, &given] {
        server.cli(&["SET", guard.name(), "mine"]);
    }
    let (kept_lost, given_lost) = tokio::join!(loss(&kept), loss(&given));
    assert_eq!((kept_lost, given_lost), (Loss::TakenOver, Loss::TakenOver));
    let lock = client.lock("n");
    let not_a_lock = |error: AcquireError| {
        assert!(matches!(error, AcquireError::Server { cause: ServerError::NotALock, .. }));
    };
    not_a_lock(lock.acquire().await.unwrap_err());
    not_a_lock(lock.try_acquire().await.unwrap_err());
    not_a_lock(lock.acquire().steal().await.unwrap_err());
    assert!(matches!(lock.holder().await, Err(QueryError::Server { cause: ServerError::NotALock, .. })));
    assert!(matches!(kept.release().await, Err(ReleaseError::NotHeld { .. })));
    drop(given);
    sleep(Duration::from_millis(100)).await;
    for key in ["n", "m"] {
        assert_eq!(server.cli(&["GET", key]), "mine");
    }
}

#[tokio::test]
async fn a_release_after_the_key_was_replaced_reports_not_held() {
    let server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    for command in [vec!["SET", "n", "mine"], vec!["DEL", "n"], vec!["HSET", "n", REDISSON, "1"]] {
        server.cli(&["DEL", "n"]);
        let guard = client.lock("n").acquire().await.unwrap();
        server.cli(&["DEL", "n"]);
        server.cli(&command);
        assert!(
            matches!(guard.release().await, Err(ReleaseError::NotHeld { loss: Loss::Gone, .. })),
            "{command:?}"
        );
    }
}

#[tokio::test]
async fn invalid_messages_do_not_disturb_a_waiter() {
    let server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    let lock = client.lock("n");
    take_as_redisson(&server, "n", SECOND * 60);
    let waiter = waiting(&server, &lock, CHANNEL).await;
    let huge = vec![b'0'; 4 * 1024 * 1024];
    let binary: Vec<u8> = (0..=255).collect();
    for payload in [
        b"nonsense".as_slice(),
        b"",
        b"1",
        b"-5",
        b"0 ",
        b"00",
        b"+0",
        b"9223372036854775808",
        b"\r\n",
        &binary,
        &huge,
        b"0",
    ] {
        let published = server.cli(&[b"PUBLISH".as_slice(), CHANNEL.as_bytes(), payload]);
        assert_eq!(published, 1, "the waiter is still subscribed");
    }
    sleep(SECOND / 2).await;
    assert!(!waiter.is_finished());
    // Freed too early for a message, and then published twice.
    free_as_redisson(&server, "n", CHANNEL);
    server.cli(&["PUBLISH", CHANNEL, "0"]);
    granted(waiter).await.release().await.unwrap();
    until("no client is subscribed", || server.cli(&["PUBLISH", CHANNEL, "0"]) == 0).await;
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_redisson_lock_that_shares_the_channel_does_not_disturb_a_waiter() {
    let server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    for name in ["n", "{n}"] {
        take_as_redisson(&server, name, SECOND * 60);
    }
    let waiter = waiting(&server, &client.lock("n"), CHANNEL).await;
    // We refuse this name; Redisson does not, and publishes on the channel of the other name.
    free_as_redisson(&server, "{n}", CHANNEL);
    sleep(SECOND / 5).await;
    assert!(!waiter.is_finished());
    free_as_redisson(&server, "n", CHANNEL);
    let begun = Instant::now();
    drop(granted(waiter).await);
    assert!(begun.elapsed() < SECOND * 5);
}
