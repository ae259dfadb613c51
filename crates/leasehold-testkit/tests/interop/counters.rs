//! Semaphores, permits with a lease and latches between the languages.

use std::time::Duration;

use leasehold_testkit::peer::Answer;

use crate::setup::setup;

#[tokio::test]
async fn own_230_permits_released_by_one_language_wake_all_waiters_of_both_languages() {
    let setup = setup().await;
    for (giver, _) in setup.pairs() {
        let name = format!("counters-many-{}", giver.name()).replace(' ', "-");
        assert_eq!(giver.ask(&name, &format!("set semaphore {name} 1")).await, "true");
        assert_eq!(giver.ask(&name, &format!("drain semaphore {name}")).await, "1");
        let mut waiting = Vec::new();
        for (n, peer) in setup.peers().into_iter().enumerate() {
            for permits in 1..=3 {
                let thread = format!("{name}-{n}-{permits}");
                waiting.push(peer.tell(&thread, &format!("wait semaphore {name} {permits} 90000")));
            }
        }
        let channel = format!("redisson_sc:{{{name}}}");
        crate::setup::until("all four processes wait", || {
            setup.server.cli(&["PUBSUB", "NUMSUB", &channel]).elements()[1] == 4
        })
        .await;
        // In portions that are too small for some waiters at first; 24 in the end.
        for permits in [1, 2, 5, 16] {
            assert_eq!(giver.ask(&name, &format!("release semaphore {name} {permits}")).await, "released");
        }
        for waiting in waiting {
            assert_eq!(waiting.ok().await, "true");
        }
        assert_eq!(giver.ask(&name, &format!("available semaphore {name}")).await, "0");
    }
    setup.no_complaints();
}

#[tokio::test]
async fn own_231_changes_of_a_semaphore_by_rust_break_no_java_waiter() {
    let setup = setup().await;
    let (java, rust) = (&setup.java[0], &setup.rust[0]);
    let name = "counters-negative";
    assert_eq!(rust.ask(name, &format!("set semaphore {name} 1")).await, "true");
    assert_eq!(rust.ask(name, &format!("acquire semaphore {name} 1")).await, "held");
    let waiter = java.tell(name, &format!("wait semaphore {name} 2 90000"));
    setup.subscribed(&format!("redisson_sc:{{{name}}}")).await;
    for change in ["add semaphore NAME -5", "release semaphore NAME 1", "add semaphore NAME 2147483000"] {
        rust.ask(name, &change.replace("NAME", name)).await;
    }
    assert_eq!(waiter.ok().await, "true");
    let seen = java.ask(name, &format!("available semaphore {name}")).await;
    assert_eq!(seen, (2_147_483_000 - 4 - 2).to_string());
    assert_eq!(rust.ask(name, &format!("available semaphore {name}")).await, seen);
    setup.no_complaints();
}

#[tokio::test]
async fn expired_permits_go_to_waiters_of_the_other_language() {
    let setup = setup().await;
    for (holder, waiter) in setup.pairs() {
        let name = format!("counters-expiry-{}", holder.name()).replace(' ', "-");
        assert_eq!(holder.ask(&name, &format!("set permits {name} 3")).await, "true");
        let ids = holder.ask(&name, &format!("acquire permits {name} 2 8000")).await;
        let kept = holder.ask(&name, &format!("acquire permits {name} 1 -1")).await;
        assert_eq!(waiter.ask(&name, &format!("wait permits {name} 1 100 5000")).await, "none");
        assert_eq!(waiter.ask(&name, &format!("acquired permits {name}")).await, "3");
        let taken = waiter.ask(&name, &format!("wait permits {name} 2 60000 60000")).await;
        assert_eq!(taken.split(',').count(), 2, "{taken}");
        // Too late for the expired ones, and in time for the one that has no lease.
        holder.tell(&name, &format!("release permits {name} {ids}")).refused().await;
        let lease = waiter.tell(&name, &format!("lease permits {name} {kept}")).ok().await;
        assert_eq!(lease, "-1");

        // Ids of one language are valid in the other.
        assert_eq!(waiter.ask(&name, &format!("release permits {name} {kept}")).await, "released");
        assert_eq!(holder.ask(&name, &format!("available permits {name}")).await, "1");
        let first = taken.split(',').next().expect("two ids");
        let left: i64 = holder.ask(&name, &format!("lease permits {name} {first}")).await.parse().unwrap();
        assert!((20_000..=60_000).contains(&left), "{left}");
        assert_eq!(holder.ask(&name, &format!("update permits {name} {first} 160000")).await, "true");
        let left: i64 = waiter.ask(&name, &format!("lease permits {name} {first}")).await.parse().unwrap();
        assert!((61_000..=160_000).contains(&left), "{left}");
        assert_eq!(holder.ask(&name, &format!("release permits {name} {taken}")).await, "released");
        for peer in [holder, waiter] {
            for (question, answer) in [("available", "3"), ("acquired", "0"), ("permits", "3")] {
                assert_eq!(peer.ask(&name, &format!("{question} permits {name}")).await, answer);
            }
        }
    }
    setup.no_complaints();
}

#[tokio::test]
async fn permits_added_or_released_one_by_one_wake_waiters_of_the_other_language() {
    let setup = setup().await;
    for (giver, waiter) in setup.pairs() {
        let name = format!("counters-added-{}", giver.name()).replace(' ', "-");
        assert_eq!(giver.ask(&name, &format!("set permits {name} 1")).await, "true");
        let id = giver.ask(&name, &format!("acquire permits {name} 1 60000")).await;
        for give in ["add permits NAME 1", "resize permits NAME 3", "release-one permits NAME ID"] {
            let waiting = waiter.tell(&name, &format!("acquire permits {name} 1 60000"));
            setup.subscribed(&format!("redisson_sc:{{{name}}}")).await;
            giver.ask("counters-added", &give.replace("NAME", &name).replace("ID", &id)).await;
            waiting.within(Duration::from_secs(30)).ok().await;
        }
    }
    setup.no_complaints();
}

#[tokio::test]
async fn own_232_a_latch_is_opened_by_either_language_for_both() {
    let setup = setup().await;
    for (opener, other) in setup.pairs() {
        let name = format!("counters-latch-{}", opener.name()).replace(' ', "-");
        assert_eq!(opener.ask(&name, &format!("set latch {name} 3")).await, "true");
        assert_eq!(other.ask(&name, &format!("set latch {name} 5")).await, "false");
        let waiting = setup.peers().map(|peer| {
            [
                peer.tell(&format!("{name}-a"), &format!("await latch {name}")),
                peer.tell(&format!("{name}-b"), &format!("wait latch {name} 90000")),
            ]
        });
        assert_eq!(other.ask(&name, &format!("wait latch {name} 100")).await, "false");
        assert_eq!(opener.ask(&name, &format!("down latch {name}")).await, "counted");
        assert_eq!(other.ask(&name, &format!("down latch {name}")).await, "counted");
        assert_eq!(other.ask(&name, &format!("count latch {name}")).await, "1");
        assert!(waiting.iter().flatten().all(|waiting| !waiting.is_answered()));
        assert_eq!(opener.ask(&name, &format!("down latch {name}")).await, "counted");
        for [untimed, timed] in waiting {
            assert_eq!((untimed.ok().await.as_str(), timed.ok().await.as_str()), ("open", "true"));
        }
        // It can be set again, by the other language.
        assert_eq!(other.ask(&name, &format!("set latch {name} 1")).await, "true");
        let waiting = opener.tell(&name, &format!("await latch {name}"));
        setup.subscribed(&format!("redisson_countdownlatch__channel__{{{name}}}")).await;
        assert_eq!(other.ask(&name, &format!("down latch {name}")).await, "counted");
        assert_eq!(waiting.answer().await, Answer::Ok("open".into()));
        assert_eq!(opener.ask(&name, &format!("count latch {name}")).await, "0");
    }
    setup.no_complaints();
}
