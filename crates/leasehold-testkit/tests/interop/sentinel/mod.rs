//! Both languages behind the same sentinels, across failovers.
//!
//! A failover may undo a grant that had not reached the replica that is promoted, and after a planned one the old primary grants
//! locks until its clients have left: for that time two holders are possible, in every language, and are only counted. Before
//! and after it the turns must be exact.

mod behind;
mod holds;
mod turns;
mod undone;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::setup::{LONG, number, setup};
use behind::{Behind, Failover};
use holds::Holds;
use turns::{Language, Turns};
use undone::Undone;

/// The watchdog time of the clients that take turns. A lock whose release a failover undid stays for that long.
const TAKER: &str = "10000/turns";

/// How many turns each worker takes before the failover, and after it.
const SOME: usize = 20;

/// Each test has six servers, and measures pauses.
static ALONE: Mutex<()> = Mutex::const_new(());

async fn turns_go_on_across(how: Failover) {
    let (_alone, shared) = (ALONE.lock().await, setup().await);
    let mut behind = Behind::start(&shared);
    let topic = format!("sentinel-{how:?}").to_lowercase();
    let mut turns = Turns::new(behind.data, &topic);
    let running = behind.peers().map(|peer| peer.tell(TAKER, &format!("turns {topic}:lock {topic} 2")));
    turns.more(SOME).await;
    let rounds = number("LEASEHOLD_FAILOVERS", 1);
    for round in 0..rounds {
        let old = fail_over(&mut behind, &mut turns, how, &format!("{topic}:{round}")).await;
        if round + 1 < rounds {
            behind.repair(old);
        }
        turns.more(SOME).await;
    }
    shared.server.cli(&["SET", &format!("{topic}:stop"), "1"]);
    for (running, peer) in running.into_iter().zip(behind.peers()) {
        println!("sentinel, {how:?}: {} had {}", peer.name(), running.ok().await);
    }
    turns.are_exact("after the failover");
    assert_eq!(shared.list(&format!("{topic}:violations")), [""; 0]);
}

/// Fails over between turns that are exact, and checks the locks that are held meanwhile. Returns the index of the old primary.
async fn fail_over(behind: &mut Behind<'_>, turns: &mut Turns<'_>, how: Failover, topic: &str) -> usize {
    let mut holds = Vec::new();
    for pair in behind.pairs() {
        holds.push(Holds::begin(behind, pair, topic).await);
    }
    let undone = Undone::begin(behind, topic).await;
    behind.replicate();

    turns.are_exact("before the failover");
    let begun = turns.count();
    let old = behind.fail_over(how);
    leave(behind, turns, old).await;
    let unprotected = turns.begin_exact(begun);

    undone.lose(behind).await;
    let mut woken = Vec::new();
    for (holds, pair) in holds.into_iter().zip(behind.pairs()) {
        woken.push(holds.end(behind, pair).await);
    }
    let undone = undone.end(behind).await;
    turns.more(SOME).await;
    let [java, rust] = Language::ALL.map(|language| turns.longest_pause(language, begun));
    println!(
        "sentinel, {how:?}: the longest pause {java:.1?} in Java, {rust:.1?} in Rust; {unprotected} without exclusion meanwhile; \
         woken from Java to Rust in {:.1?}, from Rust to Java in {:.1?}; the holder whose lock was undone: {undone}",
        woken[0], woken[1],
    );
    old
}

/// Waits until no holder and no waiter uses the old primary.
async fn leave(behind: &Behind<'_>, turns: &mut Turns<'_>, old: usize) {
    let begun = Instant::now();
    // The first turn of each may have begun at the old primary, and the second one while the client was moving.
    turns.more(3).await;
    let mut before = behind.scripts(old);
    loop {
        turns.more(2).await;
        let now = behind.scripts(old);
        if now == before {
            return;
        }
        assert!(begun.elapsed() < LONG, "the old primary is used {LONG:?} after the failover");
        before = now;
    }
}

#[tokio::test]
async fn own_298_turns_of_both_languages_go_on_across_a_planned_failover() {
    turns_go_on_across(Failover::Planned).await;
}

#[tokio::test]
async fn own_299_turns_of_both_languages_go_on_across_a_crash_of_the_primary() {
    turns_go_on_across(Failover::Crash).await;
}
