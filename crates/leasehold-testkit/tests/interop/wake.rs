//! A release in one language wakes a waiter of the other as fast as one of its own.

use std::time::Duration;

use leasehold_testkit::peer::{Answer, Peer};
use tokio::time::{Instant, sleep};

use crate::setup::{LONG, Setup, alone, number};

/// The commands to acquire, wait and release; `NAME` is the name, `RESULT` the result of the acquire.
struct Case {
    what: &'static str,
    take: &'static [&'static str],
    wait: &'static str,
    give: &'static str,
    /// The channel of a waiter; `OWNER` is the owner that waits.
    channel: &'static str,
}

/// The watchdog time is so long that a lock without a release stays for two minutes.
const HOLDER: &str = "120000/wake-holder";
const WAITER: &str = "120000/wake-waiter";

const CASES: &[Case] = &[
    Case {
        what: "plain lock",
        take: &["lock plain NAME"],
        wait: "lock plain NAME",
        give: "unlock plain NAME",
        channel: "redisson_lock__channel:{NAME}",
    },
    Case {
        what: "fenced lock",
        take: &["lock fenced NAME"],
        wait: "token fenced NAME",
        give: "unlock fenced NAME",
        channel: "redisson_lock__channel:{NAME}",
    },
    Case {
        what: "non-reentrant lock",
        take: &["lock once NAME"],
        wait: "lock once NAME",
        give: "unlock once NAME",
        channel: "redisson_lock__channel:{NAME}",
    },
    Case {
        what: "fair lock",
        take: &["lock fair NAME"],
        wait: "lock fair NAME",
        give: "unlock fair NAME",
        channel: "redisson_lock__channel:{NAME}:OWNER",
    },
    Case {
        what: "non-reentrant fair lock",
        take: &["lock once-fair NAME"],
        wait: "lock once-fair NAME",
        give: "unlock once-fair NAME",
        channel: "redisson_lock__channel:{NAME}:OWNER",
    },
    Case {
        what: "reader behind a writer",
        take: &["lock write NAME"],
        wait: "lock read NAME",
        give: "unlock write NAME",
        channel: "redisson_rwlock:{NAME}",
    },
    Case {
        what: "writer behind a reader",
        take: &["lock read NAME"],
        wait: "lock write NAME",
        give: "unlock read NAME",
        channel: "redisson_rwlock:{NAME}",
    },
    Case {
        what: "multi lock",
        take: &["lock multi NAME-a,NAME-b"],
        wait: "lock multi NAME-a,NAME-b",
        give: "unlock multi NAME-a,NAME-b",
        channel: "redisson_lock__channel:{NAME-a}",
    },
    Case {
        what: "values of a group",
        take: &["lock group NAME/a,b"],
        wait: "lock group NAME/b,c",
        give: "unlock group NAME/a,b",
        channel: "redisson_lock__channel:{NAME}",
    },
    Case {
        what: "semaphore",
        take: &["set semaphore NAME 1", "acquire semaphore NAME 1"],
        wait: "acquire semaphore NAME 1",
        give: "release semaphore NAME 1",
        channel: "redisson_sc:{NAME}",
    },
    Case {
        what: "permits with a lease",
        take: &["set permits NAME 1", "acquire permits NAME 1 120000"],
        wait: "acquire permits NAME 1 120000",
        give: "release permits NAME RESULT",
        channel: "redisson_sc:{NAME}",
    },
    Case {
        what: "latch",
        take: &["set latch NAME 1"],
        wait: "await latch NAME",
        give: "down latch NAME",
        channel: "redisson_countdownlatch__channel__{NAME}",
    },
];

/// The median time from the release until the waiter holds the lock, over all rounds; `None` if the holder lacks the
/// primitive; Java's side is tried first.
async fn woken(setup: &Setup, case: &Case, holder: &Peer, waiter: &Peer) -> Option<Duration> {
    let rounds = number("LEASEHOLD_ROUNDS", 9);
    let mut times = Vec::new();
    for round in 0..rounds {
        // A new name each time, so that no subscription of an earlier round is taken for the current one.
        let name =
            format!("wake-{}-{}-{}-{round}", case.what, holder.name(), waiter.name()).replace(' ', "-");
        let said = |text: &str| text.replace("NAME", &name);
        let mut result = String::new();
        for take in case.take {
            result = match holder.tell(HOLDER, &said(take)).answer().await {
                Answer::Ok(result) => result,
                Answer::Unsupported(what) => {
                    println!("wake-up, {}: Redisson {} has no {what}", case.what, setup.version);
                    return None;
                }
                other => panic!("{take}: {other:?}"),
            };
        }
        let owner = waiter.ask(WAITER, "owner").await;
        let waiting = waiter.tell(WAITER, &said(case.wait));
        setup.subscribed(&said(case.channel).replace("OWNER", &owner)).await;
        if case.give.starts_with("unlock write") {
            // At the end of a writer Redisson wakes the readers that sleep at this moment. A reader that has found the lock
            // busy and does not sleep yet misses the wake-up, as it does among Java programs. A test cannot observe from
            // outside when it sleeps.
            sleep(Duration::from_millis(200)).await;
        }
        assert!(!waiting.is_answered(), "{}: there was no release", case.what);
        let begun = Instant::now();
        holder.ask(HOLDER, &said(case.give).replace("RESULT", &result)).await;
        waiting.ok().await;
        times.push(begun.elapsed());
    }
    times.sort();
    // No waiter has waited for the end of a lease.
    assert!(times[times.len() - 1] < LONG, "{}: {times:?}", case.what);
    Some(times[times.len() / 2])
}

#[tokio::test]
async fn own_222_a_release_wakes_waiters_of_the_other_language() {
    let setup = alone().await;
    let [java, other_java, rust, other_rust] = setup.peers();
    for case in CASES {
        let mut times = Vec::new();
        for (holder, waiter) in [(java, other_java), (rust, other_rust), (java, rust), (rust, java)] {
            let Some(time) = woken(&setup, case, holder, waiter).await else { break };
            times.push(time);
        }
        let [in_java, in_rust, to_rust, to_java] = times[..] else { continue };
        println!(
            "wake-up, {}: Java to Rust {to_rust:.1?}, {:.2} of Rust to Rust; Rust to Java {to_java:.1?}, {:.2} of Java to Java",
            case.what,
            to_rust.as_secs_f64() / in_rust.as_secs_f64(),
            to_java.as_secs_f64() / in_java.as_secs_f64(),
        );
    }
    setup.no_complaints();
}
