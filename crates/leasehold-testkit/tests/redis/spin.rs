//! The keys that a spin lock writes and the requests that it sends.

use std::time::Duration;

use leasehold::BackOff;
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::{SECOND, channels, connect, granted, keys, pttl, soon, until};

#[tokio::test]
async fn own_52_a_spin_lock_subscribes_to_nothing_and_publishes_nothing() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let mut monitor = server.monitor();
        let (client, other) = (connect(server.url()).await, connect(server.url()).await);
        let (lock, elsewhere) = (client.spin_lock("n"), other.spin_lock("n"));

        let outer = lock.acquire().await.unwrap();
        assert_eq!(server.cli(&["HGETALL", "n"]).elements(), [outer.owner().to_string().as_str(), "1"]);
        assert!((29_000..=30_000).contains(&pttl(&server, "n")));
        let waiter = tokio::spawn(elsewhere.acquire().into_future());
        sleep(SECOND / 5).await;
        assert!(!waiter.is_finished() && channels(&server).is_empty());
        outer.reenter().await.unwrap().release().await.unwrap();
        outer.release().await.unwrap();
        drop(granted(waiter).await);
        until("the dropped guard is given back", || keys(&server).is_empty()).await;
        let _held = lock.acquire().await.unwrap();
        assert!(elsewhere.force_unlock().await.unwrap());
        assert_eq!(keys(&server), [""; 0]);

        // The output includes the commands that scripts called.
        let lines = monitor.take();
        assert!(lines.iter().any(|line| line.contains("lua") && line.to_lowercase().contains("\"del\"")));
        let said: Vec<_> = lines.iter().filter(|line| line.to_lowercase().contains("\"publish\"")).collect();
        assert!(said.is_empty(), "{said:?}");
        let heard: Vec<_> =
            lines.iter().filter(|line| line.to_lowercase().contains("\"subscribe\"")).collect();
        assert!(heard.is_empty(), "{heard:?}");
    }
}

/// A waiter retries as often as its back-off specifies, and no more.
#[tokio::test]
async fn a_spinning_waiter_retries_as_often_as_its_back_off_specifies() {
    let server = Server::start(Flavour::Redis);
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let _held = client.lock("n").acquire().await.unwrap();
    let wait = SECOND;
    for (back_off, most) in [
        // One try, then after 1, 2, 4, …, 128, 128 … ms, and one more if a script has to be sent by its text.
        (BackOff::default(), 1 + 8 + 6 + 1),
        (BackOff::constant(Duration::from_millis(100)), 10 + 1),
    ] {
        let lock = other.spin_lock("n").back_off(back_off);
        let mut monitor = server.monitor();
        assert!(lock.acquire().wait(wait).await.unwrap_err().is_contended());
        let tries = monitor.take_sent().len();
        // When the wait is over, it queries the holder and its client.
        let most = most + 3;
        assert!((3..=most).contains(&tries), "{tries} tries with {back_off:?}");
    }
}

/// The release of a spin lock is not published: queued waiters retry when the lease they saw has expired.
#[tokio::test]
async fn a_queued_waiter_acquires_a_released_spin_lock_when_the_lease_would_have_ended() {
    let server = Server::start(Flavour::Redis);
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let held = client.spin_lock("n").acquire().lease(SECOND).await.unwrap();
    let begun = Instant::now();
    let waiter = crate::waiting(&server, &other.lock("n"), "redisson_lock__channel:{n}").await;
    sleep(SECOND / 10).await;
    held.release().await.unwrap();
    let guard = soon("the lock", granted(waiter)).await;
    assert!(guard.is_held() && begun.elapsed() < SECOND * 10);
}
