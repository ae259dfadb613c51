//! Each language reports the holds of the other correctly, and only the holder can release them.

use std::time::Duration;

use leasehold::{Client, Loss, Owner};
use leasehold_testkit::peer::{Answer, Peer};
use tokio::time::timeout;

use crate::setup::{LONG, number, setup};

fn time_left(text: &str) -> i64 {
    text.parse().expect("a number of milliseconds")
}

/// Every query about a lock that the other process holds.
async fn seen_rightly(kind: &str, holder: &Peer, onlooker: &Peer, version: &str) {
    let name = format!("leases-{kind}-{}", holder.name()).replace(' ', "-");
    let what = if kind == "group" { format!("group {name}/a,b") } else { format!("{kind} {name}") };
    let ask = async |peer: &Peer, verb: &str| peer.ask("leases", &format!("{verb} {what}")).await;
    match holder.tell("leases", &format!("lease {what} 60000")).answer().await {
        Answer::Ok(_) => {}
        Answer::Unsupported(missing) => {
            println!("leases: Redisson {version} has no {missing}");
            return;
        }
        other => panic!("{what}: {other:?}"),
    }
    if matches!(onlooker.tell("leases", &format!("held {what}")).answer().await, Answer::Unsupported(_)) {
        println!("leases: Redisson {version} has no {kind}");
        return;
    }
    let counts = !kind.starts_with("once");
    if counts {
        assert_eq!(holder.ask("leases", &format!("wait {what} 100 60000")).await, "true");
    } else {
        holder.tell("leases", &format!("wait {what} 100 60000")).refused().await;
    }
    // Redisson has no such queries about values of a group.
    if kind != "group" {
        for peer in [holder, onlooker] {
            assert_eq!(ask(peer, "locked").await, "true", "{what}");
            // Writing again adds the leases up in Redisson.
            let left = time_left(&ask(peer, "ttl").await);
            assert!((20_000..=120_000).contains(&left), "{what}: {left}");
        }
        assert_eq!(ask(holder, "count").await, if counts { "2" } else { "1" }, "{what}");
        assert_eq!(ask(onlooker, "count").await, "0", "{what}");
    }
    assert_eq!(ask(holder, "held").await, "true", "{what}");
    assert_eq!(ask(onlooker, "held").await, "false", "{what}");
    let other_side = if kind == "read" { format!("write {name}") } else { what.clone() };
    assert_eq!(onlooker.ask("leases", &format!("try {other_side}")).await, "false");
    assert_eq!(onlooker.ask("leases", &format!("wait {other_side} 100 -1")).await, "false");

    // The onlooker cannot release it, and it stays unchanged.
    onlooker.tell("leases", &format!("unlock {what}")).refused().await;
    assert_eq!(ask(holder, "held").await, "true", "{what}");
    if counts {
        assert_eq!(ask(holder, "unlock").await, "released");
        assert_eq!(ask(holder, "held").await, "true", "{what}");
    }

    // A forced unlock removes it, and its holder has nothing left to release.
    if kind == "group" {
        assert_eq!(ask(holder, "unlock").await, "released");
    } else {
        assert_eq!(ask(onlooker, "force").await, "true", "{what}");
        assert_eq!(ask(onlooker, "force").await, "false", "{what}");
    }
    for peer in [holder, onlooker] {
        if kind != "group" {
            assert_eq!(ask(peer, "locked").await, "false", "{what}");
            assert_eq!(ask(peer, "ttl").await, "-2", "{what}");
        }
        assert_eq!(ask(peer, "held").await, "false", "{what}");
    }
    let late = holder.tell("leases", &format!("unlock {what}")).answer().await;
    // Redisson allows any caller to unlock a fair lock without a holder.
    let forgiving = holder.name().starts_with("java") && kind.ends_with("fair");
    assert_eq!(matches!(late, Answer::Refused(_)), !forgiving, "{what}: {late:?}");
}

#[tokio::test]
async fn own_228_holds_are_visible_to_the_other_language_and_released_only_by_their_owners() {
    let setup = setup().await;
    for kind in ["plain", "spin", "fair", "fenced", "once", "once-fair", "read", "write", "group"] {
        for (holder, onlooker) in setup.pairs() {
            seen_rightly(kind, holder, onlooker, &setup.version).await;
        }
    }
    setup.no_complaints();
}

#[tokio::test]
async fn a_java_holder_is_visible_to_rust_and_java_can_force_unlock_a_rust_lock() {
    let setup = setup().await;
    let (java, client) = (&setup.java[0], Client::connect(setup.server.url()).await.unwrap());
    let lock = client.lock("leases-holder");
    let owner = java.ask("leases-holder", "owner").await;
    for _ in 0..3 {
        assert_eq!(java.ask("leases-holder", "lock plain leases-holder").await, "held");
    }
    let holder = lock.holder().await.unwrap().expect("Java has it");
    assert_eq!((holder.owner.as_ref().map(Owner::to_string), holder.holds), (Some(owner.clone()), 3));
    assert!(lock.is_held_by(owner.parse::<Owner>().unwrap()).await.unwrap());
    let busy = lock.acquire().wait(Duration::from_millis(50)).await.unwrap_err();
    assert!(busy.is_contended() && busy.to_string().contains(&owner), "{busy}");
    for _ in 0..3 {
        assert_eq!(java.ask("leases-holder", "unlock plain leases-holder").await, "released");
    }

    // A guard whose lock Java removes detects it at the next renewal, or when it checks.
    let short = Client::connect(setup.server.url())
        .watchdog(Duration::from_secs(9))
        .response_timeout(Duration::from_secs(20))
        .await
        .unwrap();
    let guard = short.lock("leases-holder").acquire().await.unwrap();
    assert_eq!(java.ask("leases-holder", "force plain leases-holder").await, "true");
    assert_eq!(timeout(LONG, guard.lost()).await.expect("it is notified"), Loss::Gone);
}

#[tokio::test]
async fn a_lease_of_one_language_expires_for_waiters_of_the_other() {
    let setup = setup().await;
    for (holder, waiter) in setup.pairs() {
        let mut waiting = Vec::new();
        for kind in ["plain", "spin", "fair", "fenced", "read", "write", "group", "multi"] {
            let name = format!("leases-end-{kind}-{}", holder.name()).replace(' ', "-");
            let (holds, wants) = match kind {
                "read" => (format!("read {name}"), format!("write {name}")),
                "group" => (format!("group {name}/a,b"), format!("group {name}/a")),
                "multi" => (format!("multi {name}-a,{name}-b"), format!("multi {name}-a,{name}-b")),
                _ => (format!("{kind} {name}"), format!("{kind} {name}")),
            };
            let thread = format!("leases-end-{kind}");
            assert_eq!(holder.ask(&thread, &format!("wait {holds} 10000 1500")).await, "true");
            let granted = waiter.tell(&thread, &format!("wait {wants} 60000 -1"));
            waiting.push((thread, holds, wants, granted));
        }
        for (thread, holds, wants, granted) in waiting {
            assert_eq!(granted.ok().await, "true", "{wants}");
            // Too late, and the next holder is not affected.
            let late = holder.tell(&thread, &format!("unlock {holds}")).answer().await;
            assert!(matches!(late, Answer::Refused(_)), "{holds}: {late:?}");
            assert_eq!(waiter.ask(&thread, &format!("unlock {wants}")).await, "released");
        }
    }
    setup.no_complaints();
}

/// Redisson does not change the time to live of a hash when it finds it at zero, so a value that is acquired in the
/// millisecond in which the whole hash expires is held for no time.
#[tokio::test]
async fn java_holds_values_acquired_at_the_moment_a_rust_lease_expires() {
    let setup = setup().await;
    let (java, rust) = (&setup.java[0], &setup.rust[0]);
    for round in 0..number("LEASEHOLD_ROUNDS", 40) {
        let (name, thread) = (format!("group leases-moment-{round}/a"), format!("leases-moment-{round}"));
        assert_eq!(rust.ask(&thread, &format!("wait {name} 20000 100")).await, "true");
        assert_eq!(java.ask("leases-moment", &format!("wait {name} 60000 -1")).await, "true");
        assert_eq!(java.ask("leases-moment", &format!("unlock {name}")).await, "released", "round {round}");
    }
    setup.no_complaints();
}
