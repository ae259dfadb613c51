//! The queue of a fair lock with waiters of both languages.

use std::time::Duration;

use leasehold_testkit::peer::{Peer, Pending};
use leasehold_testkit::{jvm, resp::Value};
use tokio::time::{Instant, sleep};

use crate::driver;
use crate::setup::{LONG, Setup, setup, until};

/// A waiter and its pending grant.
struct Waiter<'a> {
    peer: &'a Peer,
    thread: String,
    granted: Pending,
}

/// The length of the queue.
fn queued(setup: &Setup, name: &str) -> Value {
    setup.server.cli(&["LLEN", &format!("redisson_lock_queue:{{{name}}}")])
}

/// Adds a waiter to the queue, and waits until it is queued.
async fn join<'a>(setup: &Setup, name: &str, peer: &'a Peer, thread: &str, command: &str) -> Waiter<'a> {
    let Value::Int(before) = queued(setup, name) else { panic!("a list has a length") };
    let granted = peer.tell(thread, command);
    until(&format!("{} waits for {name}", peer.name()), || queued(setup, name) == before + 1).await;
    Waiter { peer, thread: thread.into(), granted }
}

#[tokio::test]
async fn own_223_a_fair_lock_serves_waiters_of_both_languages_in_fifo_order() {
    let setup = setup().await;
    for (round, (holder, _)) in setup.pairs().into_iter().enumerate() {
        let name = format!("fair-order-{round}");
        assert_eq!(holder.ask(&name, &format!("lock fair {name}")).await, "held");
        let mut waiters = Vec::new();
        for n in 0..8 {
            let peer = setup.peers()[[0, 2, 1, 3, 2, 0, 3, 1][n]];
            let thread = format!("{name}-{n}");
            waiters.push(join(&setup, &name, peer, &thread, &format!("lock fair {name}")).await);
        }
        assert_eq!(holder.ask(&name, &format!("unlock fair {name}")).await, "released");
        let mut waiters = waiters.into_iter();
        while let Some(Waiter { peer, thread, granted }) = waiters.next() {
            assert_eq!(granted.ok().await, "held");
            assert!(waiters.as_slice().iter().all(|later| !later.granted.is_answered()), "{thread} has it");
            assert_eq!(peer.ask(&thread, &format!("unlock fair {name}")).await, "released");
        }
        assert_eq!(queued(&setup, &name), 0);
    }
    setup.no_complaints();
}

#[tokio::test]
async fn own_224_live_waiters_of_the_other_language_stay_in_the_queue() {
    let setup = setup().await;
    let name = "fair-alive";
    let [java, other_java, rust, other_rust] = setup.peers();
    assert_eq!(java.ask("fair-alive-holder", &format!("lock fair {name}")).await, "held");
    let mut waiters = Vec::new();
    for (n, peer) in [rust, java, other_rust, other_java].into_iter().enumerate() {
        let thread = format!("{name}-{n}");
        waiters.push(join(&setup, name, peer, &thread, &format!("wait fair {name} 90000 -1")).await);
    }
    // Longer than a waiter of ours may go without a heartbeat. Meanwhile other waiters arrive and give up, and each of their
    // requests checks the queue.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        for peer in [other_java, other_rust] {
            assert_eq!(peer.ask("fair-alive-guest", &format!("wait fair {name} 300 -1")).await, "false");
            assert_eq!(peer.ask("fair-alive-guest", &format!("try fair {name}")).await, "false");
        }
        assert_eq!(queued(&setup, name), 4);
    }
    assert_eq!(java.ask("fair-alive-holder", &format!("unlock fair {name}")).await, "released");
    for Waiter { peer, thread, granted } in waiters {
        assert_eq!(granted.ok().await, "true");
        assert_eq!(peer.ask(&thread, &format!("unlock fair {name}")).await, "released");
    }
    setup.no_complaints();
}

#[tokio::test]
async fn own_225_a_dead_rust_waiter_is_skipped_by_java_when_a_live_rust_waiter_is_queued() {
    let setup = setup().await;
    let name = "fair-dead";
    let [java, _, rust, _] = setup.peers();
    let mortal = driver::start("rust, mortal", &setup.server);
    assert_eq!(java.ask("fair-dead-holder", &format!("lock fair {name}")).await, "held");
    // Without a limit: by Redisson's rule the queue would wait for it for minutes.
    let dead = join(&setup, name, &mortal, "a", &format!("lock fair {name}")).await;
    let next = join(&setup, name, java, "fair-dead-a", &format!("lock fair {name}")).await;
    let last = join(&setup, name, rust, "fair-dead-b", &format!("lock fair {name}")).await;
    mortal.kill();
    drop(dead);
    java.ask("fair-dead-holder", &format!("unlock fair {name}")).await;
    let begun = Instant::now();
    assert_eq!(next.granted.within(LONG).ok().await, "held");
    println!("fair: a dead waiter of ours kept a Java waiter for {:.1?}", begun.elapsed());
    java.ask("fair-dead-a", &format!("unlock fair {name}")).await;
    assert_eq!(last.granted.ok().await, "held");
    rust.ask("fair-dead-b", &format!("unlock fair {name}")).await;
    setup.no_complaints();
}

/// By Redisson's own rule: when the lease of the lock it waited for and its own wait are over.
#[tokio::test]
async fn a_dead_waiter_is_skipped_by_the_other_language_when_its_time_is_over() {
    let setup = setup().await;
    let java = jvm::start("java, mortal", &setup.version, &setup.server);
    let rust = driver::start("rust, mortal", &setup.server);
    for (mortal, survivor) in [(java, &setup.rust[0]), (rust, &setup.java[0])] {
        let name = format!("fair-late-{}", survivor.name()).replace(' ', "-");
        // First calls are slow.
        assert_eq!(mortal.ask("a", &format!("wait fair {name}-first 1000 10000")).await, "true");
        let lease = format!("lease fair {name} 5000");
        assert_eq!(survivor.ask(&format!("{name}-holder"), &lease).await, "held");
        let dead = join(&setup, &name, &mortal, "a", &format!("wait fair {name} 3000 -1")).await;
        let next = join(&setup, &name, survivor, &name, &format!("lock fair {name}")).await;
        mortal.kill();
        drop(dead);
        let begun = Instant::now();
        sleep(Duration::from_millis(500)).await;
        assert!(!next.granted.is_answered());
        assert_eq!(next.granted.ok().await, "held");
        println!("fair: {} passed a dead {} after {:.1?}", survivor.name(), mortal.name(), begun.elapsed());
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
        assert_eq!(survivor.ask(&name, &format!("unlock fair {name}")).await, "released");
    }
    setup.no_complaints();
}
