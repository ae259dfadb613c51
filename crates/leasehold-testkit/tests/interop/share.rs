//! Waiters beside many of the other language get their turns.

use std::time::Duration;

use leasehold_testkit::peer::Peer;
use tokio::time::Instant;

use crate::setup::{Setup, alone, number};

/// Makes many workers of one process take turns without end, and one of another process take some turns beside them.
async fn share(setup: &Setup, kind: &str, crowd: (&Peer, u32), one: &Peer) {
    let (crowd, many) = crowd;
    let topic = format!("share-{kind}-{}", one.name()).replace(' ', "-");
    let name = format!("{topic}:lock");
    let turns = number("LEASEHOLD_TURNS", 300).min(1000) / 10;
    let log = || setup.list(&format!("{topic}:log"));
    let running = crowd.tell(&topic, &format!("loop {kind} {name} {topic} {many} -1"));
    crate::setup::until("the crowd goes round", || log().len() > 50).await;
    let (before, begun) = (log().len(), Instant::now());
    let limit = Duration::from_secs(30) + Duration::from_secs(2) * turns;
    one.tell(&topic, &format!("loop {kind} {name} {topic} 1 {turns}")).within(limit).ok().await;
    let (all, took) = (log().len() - before, begun.elapsed());
    setup.server.cli(&["SET", &format!("{topic}:stop"), "1"]);
    running.within(Duration::from_secs(60)).ok().await;
    assert_eq!(setup.list(&format!("{topic}:violations")), [""; 0]);
    println!(
        "share, {kind} lock: one of {} beside {many} of {} had {turns} of {all} turns in {took:.1?}, {:.2} of an equal share",
        one.name(),
        crowd.name(),
        f64::from(turns) * f64::from(many + 1) / f64::from(u32::try_from(all).unwrap()),
    );
}

#[tokio::test]
async fn own_235_one_java_thread_gets_its_turns_beside_64_rust_tasks() {
    let setup = alone().await;
    for kind in ["plain", "fair"] {
        share(&setup, kind, (&setup.rust[0], 64), &setup.java[0]).await;
    }
    setup.no_complaints();
}

#[tokio::test]
async fn one_rust_task_gets_its_turns_beside_16_java_threads() {
    let setup = alone().await;
    for kind in ["plain", "fair"] {
        share(&setup, kind, (&setup.java[0], 16), &setup.rust[0]).await;
    }
    setup.no_complaints();
}
