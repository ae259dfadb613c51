//! Connections that are slow, but not dead.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::{LONG, SECOND, alone, pttl};

/// No caller waits for the replies to the undos of dropped guards, so their delay is reported to no caller.
#[tokio::test]
async fn late_replies_to_undos_neither_prevent_renewals_nor_replace_the_connection() {
    /// Between two undos.
    const PAUSE: Duration = Duration::from_millis(50);
    let _alone = alone().await;
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let response_timeout = SECOND * 2;
    let client =
        Client::connect(proxy.url()).watchdog(SECOND * 12).response_timeout(response_timeout).await.unwrap();
    let kept = client.lock("kept").acquire().await.unwrap();
    let mut guards = Vec::new();
    for number in 0..600 {
        guards.push(client.lock(format!("dropped {number}")).acquire().lease(SECOND * 60).await.unwrap());
    }
    let before = proxy.counts().connections;
    // On a thread of its own, so that there are replies whatever the test does.
    let (over, is_over) = mpsc::channel::<()>();
    let dropping = thread::spawn(move || {
        for guard in guards {
            drop(guard);
            if is_over.recv_timeout(PAUSE) == Err(mpsc::RecvTimeoutError::Disconnected) {
                return;
            }
        }
    });
    // Replies take longer and longer, but keep arriving.
    let mut delay = Duration::ZERO;
    while delay < response_timeout * 3 / 2 {
        delay += PAUSE;
        proxy.delay(Which::Command, delay);
        sleep(PAUSE * 3 / 2).await;
    }
    let (begun, mut renewals, mut last) = (Instant::now(), 0, pttl(&server, "kept"));
    while renewals < 2 {
        sleep(PAUSE).await;
        let left = pttl(&server, "kept");
        renewals += usize::from(std::mem::replace(&mut last, left) < left);
        let replaced = proxy.counts().connections - before;
        assert_eq!(replaced, 0, "a connection with arriving replies was replaced, after {renewals} renewals");
        assert!(begun.elapsed() < LONG, "{renewals} renewals in {LONG:?}, while replies were late");
    }
    assert!(!dropping.is_finished(), "the replies were not late all the time");
    assert!(kept.is_held());
    drop(over);
}
