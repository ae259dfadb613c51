//! A primary that crashes, and comes back empty.

use leasehold_testkit::healthy::Stopwatch;
use leasehold_testkit::server::Flavour;
use leasehold_testkit::watched::Watched;
use tokio::time::{Instant, sleep};

use crate::load::Load;
use crate::{SECOND, alone, connections, until};

async fn holds_outlive_a_crash_of_the_primary_and_the_empty_one_is_never_used(flavour: Flavour) {
    let _alone = alone().await;
    let mut watched = Watched::start(flavour);
    let load = Load::begin(&watched).await;
    load.more_turns(50).await;
    let old = watched.primary();
    watched.servers[old].kill();
    let new = watched.failed_over_from(old);
    let named = Stopwatch::start();
    // It grants from here on.
    until("the new primary takes writes", || watched.servers[new].cli(&["SET", "probe", "1"]) == "OK").await;
    let grants = Stopwatch::start();
    load.more_turns(1).await;
    let waited = grants.elapsed();
    assert!(waited < SECOND, "waiters go on {waited:?} after the new primary grants");

    // Empty, and a primary by its own account, until the sentinels demote it ten seconds later.
    watched.servers[old].restart();
    let restarted = Instant::now();
    while restarted.elapsed() < SECOND * 3 {
        assert_eq!(connections(&watched.servers[old]), 0, "the restarted primary is used");
        load.more_turns(1).await;
        sleep(SECOND / 20).await;
    }
    assert_eq!(load.held.iter().filter(|guard| !guard.is_held()).count(), 0, "no hold is lost");
    let lost = load.end().await;
    println!(
        "{flavour:?}: {waited:?} after the new primary, {:?} after its name; {lost} turns lost",
        named.elapsed()
    );
}

on_both! {
    holds_outlive_a_crash_of_the_primary_and_the_empty_one_is_never_used
}
