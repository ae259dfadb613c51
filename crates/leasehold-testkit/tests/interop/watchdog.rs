//! Locks without a lease: renewed while their holder lives, and free soon after it has died, for the other language too.

use std::time::Duration;

use leasehold_testkit::jvm;
use leasehold_testkit::peer::{Answer, Peer, Pending};
use tokio::time::{Instant, sleep};

use crate::driver;
use crate::setup::{LONG, Setup, setup};

const KINDS: [&str; 10] =
    ["plain", "spin", "fair", "fenced", "once", "once-fair", "read", "write", "multi", "group"];

/// The lock of a kind for the holder and for the waiter; the waiter behind a reader writes.
fn names(test: &str, kind: &'static str, holder: &Peer) -> (String, String) {
    let name = format!("{test}-{kind}-{}", holder.name().replace([' ', ','], ""));
    match kind {
        "read" => (format!("read {name}"), format!("write {name}")),
        "multi" => (format!("multi {name}-a,{name}-b"), format!("multi {name}-b,{name}-c")),
        "group" => (format!("group {name}/a,b"), format!("group {name}/b,c")),
        _ => (format!("{kind} {name}"), format!("{kind} {name}")),
    }
}

/// A waiter for a lock that another process holds.
struct Waiting<'a> {
    holder: &'a Peer,
    waiter: &'a Peer,
    holds: String,
    wants: String,
    granted: Pending,
}

/// Makes one process hold a lock of each supported kind, and the other wait for it.
async fn hold_and_wait<'a>(
    setup: &Setup,
    test: &str,
    watchdog: u32,
    (holder, waiter): (&'a Peer, &'a Peer),
) -> Vec<Waiting<'a>> {
    let mut all = Vec::new();
    for kind in KINDS {
        let (holds, wants) = names(test, kind, holder);
        let thread = format!("{watchdog}/{test}-{kind}");
        match holder.tell(&thread, &format!("lock {holds}")).answer().await {
            Answer::Ok(_) => {}
            Answer::Unsupported(what) => {
                println!("{test}: Redisson {} has no {what}", setup.version);
                continue;
            }
            other => panic!("{holds}: {other:?}"),
        }
        let granted = waiter.tell(&format!("{test}-{kind}-waiter"), &format!("wait {wants} 90000 -1"));
        all.push(Waiting { holder, waiter, holds, wants, granted });
    }
    all
}

impl Waiting<'_> {
    /// Waits until the waiter is granted the lock, and makes it release.
    async fn granted(self, test: &str, limit: Duration) {
        let kind = self.holds.split(' ').next().expect("a kind");
        match self.granted.within(limit).answer().await {
            Answer::Ok(granted) => assert_eq!(granted, "true", "{}", self.wants),
            Answer::Unsupported(_) => return,
            other => panic!("{}: {other:?}", self.wants),
        }
        let thread = format!("{test}-{kind}-waiter");
        assert_eq!(self.waiter.ask(&thread, &format!("unlock {}", self.wants)).await, "released");
    }
}

#[tokio::test]
async fn own_226_a_lock_is_renewed_past_three_watchdog_times_while_the_other_language_waits() {
    const WATCHDOG: u32 = 8000;
    let (test, setup) = ("watchdog-kept", setup().await);
    let mut all = Vec::new();
    for pair in setup.pairs() {
        all.extend(hold_and_wait(&setup, test, WATCHDOG, pair).await);
    }
    sleep(Duration::from_millis(u64::from(WATCHDOG)) * 7 / 2).await;
    for waiting in &all {
        // A kind that Redisson lacks has no waiter.
        let kind = waiting.holds.split(' ').next().expect("a kind");
        let unsupported = setup.version.starts_with("3.") && kind.starts_with("once");
        assert!(unsupported || !waiting.granted.is_answered(), "{} was lost", waiting.holds);
    }
    for waiting in all {
        let kind = waiting.holds.split(' ').next().expect("a kind");
        let thread = format!("{WATCHDOG}/{test}-{kind}");
        assert_eq!(waiting.holder.ask(&thread, &format!("unlock {}", waiting.holds)).await, "released");
        waiting.granted(test, LONG).await;
    }
    setup.no_complaints();
}

#[tokio::test]
async fn own_227_a_lock_of_a_killed_process_goes_to_the_other_language_when_its_lease_expires() {
    const WATCHDOG: u32 = 3000;
    let (test, setup) = ("watchdog-killed", setup().await);
    let java = jvm::start("java, mortal", &setup.version, &setup.server);
    let rust = driver::start("rust, mortal", &setup.server);
    for (mortal, survivor) in [(&java, &setup.rust[0]), (&rust, &setup.java[0])] {
        let all = hold_and_wait(&setup, test, WATCHDOG, (mortal, survivor)).await;
        sleep(Duration::from_secs(1)).await;
        let waits = all.iter().filter(|waiting| !waiting.granted.is_answered()).count();
        assert!(waits >= KINDS.len() - 2, "only {waits} wait");
        mortal.kill();
        let begun = Instant::now();
        for waiting in all {
            waiting.granted(test, LONG).await;
        }
        println!(
            "{test}: {} has all that {} held after {:.1?}",
            survivor.name(),
            mortal.name(),
            begun.elapsed()
        );
    }
    setup.no_complaints();
}
