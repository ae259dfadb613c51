//! Connections that are slow, and not dead.

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::sleep;

use crate::{SECOND, alone, renewed};

/// Nobody waits for the replies to the undos of dropped guards, so nobody has to be told that they are late.
#[tokio::test]
async fn late_replies_that_nobody_waits_for_keep_the_client_from_nothing_else() {
    /// Between two undos.
    const PAUSE: Duration = Duration::from_millis(50);
    let _alone = alone().await;
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let response_timeout = SECOND;
    let client =
        Client::connect(proxy.url()).watchdog(SECOND * 6).response_timeout(response_timeout).await.unwrap();
    let kept = client.lock("kept").acquire().await.unwrap();
    let mut guards = Vec::new();
    for number in 0..400 {
        guards.push(client.lock(format!("dropped {number}")).acquire().lease(SECOND * 60).await.unwrap());
    }
    let before = proxy.counts().connections;
    let dropping = tokio::spawn(async move {
        for guard in guards {
            drop(guard);
            sleep(PAUSE).await;
        }
    });
    // Replies take longer and longer, but come all the time.
    let mut delay = Duration::ZERO;
    while delay < response_timeout * 2 {
        delay += PAUSE;
        proxy.delay(Which::Command, delay);
        sleep(PAUSE * 2).await;
    }
    for _ in 0..2 {
        renewed(&server, "kept").await;
    }
    assert!(!dropping.is_finished(), "it was not renewed while replies were late");
    assert!(kept.is_held());
    assert_eq!(proxy.counts().connections, before, "a connection that is in use was replaced");
    dropping.abort();
}
