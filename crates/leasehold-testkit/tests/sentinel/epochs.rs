//! Sentinels that disagree.

use leasehold_testkit::server::Flavour;
use leasehold_testkit::watched::Watched;
use tokio::time::{Instant, sleep};

use crate::{LABEL, SECOND, alone, connections, soon, until};

async fn a_sentinel_that_has_not_heard_of_the_failover_is_not_believed(flavour: Flavour) {
    let _alone = alone().await;
    let mut watched = Watched::start(flavour);
    let client = leasehold::Client::connect(watched.url()).label(LABEL).await.unwrap();
    let held = client.lock("held").acquire().await.unwrap();
    crate::in_step(&watched).await;
    let old = watched.primary();
    watched.sentinels[2].kill();
    let new = tokio::task::block_in_place(|| watched.fail_over());
    until("the client is at the new primary", || connections(&watched.servers[new]) > 0).await;
    watched.sentinels[0].kill();
    watched.sentinels[1].kill();
    // It remembers what it knew when it was killed.
    watched.sentinels[2].restart();
    assert_eq!(watched.primary_by(2), old);

    let begun = Instant::now();
    while begun.elapsed() < SECOND * 2 {
        assert_eq!(connections(&watched.servers[old]), 0, "an old epoch is believed");
        sleep(SECOND / 50).await;
    }
    assert!(held.is_held(), "the connection to the new primary stays");
    soon("a lock", client.lock("other").acquire().into_future()).await.unwrap().release().await.unwrap();

    // Without a connection there is no word of a sentinel, and so no other one.
    watched.servers[new].cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let error = loop {
        match client.lock("other").try_acquire().await {
            Ok(guard) => drop(guard),
            Err(error) if error.to_string().contains("older epoch") => break error,
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
        assert!(begun.elapsed() < SECOND * 20, "it has found another way");
        sleep(SECOND / 50).await;
    };
    println!("{flavour:?}: {error}");
    assert_eq!(connections(&watched.servers[old]), 0);

    watched.sentinels[0].restart();
    let lock = client.lock("other");
    soon("a lock after a sentinel is back", async {
        while lock.try_acquire().await.is_err() {
            sleep(SECOND / 50).await;
        }
    })
    .await;
    assert!(held.is_held());
    assert_eq!(connections(&watched.servers[old]), 0);
}

on_both! {
    a_sentinel_that_has_not_heard_of_the_failover_is_not_believed
}
