//! Mutual exclusion: tasks of two Rust processes and threads of two Java processes around one value.

use std::time::Duration;

use leasehold_testkit::peer::{Answer, Peer};
use leasehold_testkit::resp::Value;
use leasehold_testkit::server::Server;
use tokio::time::{Instant, sleep};

use crate::setup::{LONG, Setup, list, number, setup};

/// In each of the four processes.
const WORKERS: u32 = 2;

async fn exclude(setup: &Setup, topic: &str, kinds: [&str; 4], names: [&str; 4]) {
    contend(&setup.server, setup.peers(), topic, kinds, names).await;
}

/// Runs turns in four processes, two of another language first, and checks that no two were in the critical section at once.
/// `names` has the name that each of them uses.
pub(crate) async fn contend(
    server: &Server,
    peers: [&Peer; 4],
    topic: &str,
    kinds: [&str; 4],
    names: [&str; 4],
) {
    let turns = number("LEASEHOLD_TURNS", 300).div_ceil(4 * WORKERS);
    let begun = Instant::now();
    let running: Vec<_> = peers
        .into_iter()
        .zip(kinds.into_iter().zip(names))
        .map(|(peer, (kind, name))| {
            // The watchdog time is so long that a missed wake-up shows as a pause; but Java's readers may miss the end of a
            // writer, see `wake.rs`, and then wait for the end of its lease.
            let watchdog = if kinds.contains(&"read") { 30_000 } else { 120_000 };
            let pending = peer.tell(
                &format!("{watchdog}/{topic}"),
                &format!("loop {kind} {name} {topic} {WORKERS} {turns}"),
            );
            (peer, kind, pending)
        })
        .collect();
    let pause =
        longest_pause(server, topic, || running.iter().all(|(.., pending)| pending.is_answered())).await;
    let (mut writers, mut missing) = (0, false);
    for (peer, kind, running) in running {
        match running.answer().await {
            Answer::Ok(taken) => assert_eq!(taken, (WORKERS * turns).to_string()),
            Answer::Unsupported(what) => {
                println!("exclusion, {topic}: {} has no {what}", peer.name());
                missing = true;
                continue;
            }
            other => panic!("{topic}: {other:?}"),
        }
        writers += u32::from(kind != "read");
    }
    let took = begun.elapsed();

    assert_eq!(list(server, &format!("{topic}:violations")), [""; 0], "two owners held the lock at once");
    let log = list(server, &format!("{topic}:log"));
    for (n, line) in log.iter().enumerate() {
        let seen = line.rsplit(' ').next().expect("a line has words");
        assert_eq!(seen, n.to_string(), "turn {n} of {topic}: {:?}", &log[n.saturating_sub(3)..=n]);
    }
    assert_eq!(log.len(), usize::try_from(writers * WORKERS * turns).unwrap());
    let passed = log.windows(2).filter(|two| two[0][..4] != two[1][..4]).count();
    let reads = list(server, &format!("{topic}:reads")).len();
    println!(
        "exclusion, {topic}: {} turns and {reads} reads in {took:.1?}, the longest pause {pause:.1?}, passed between \
         languages {passed} times",
        log.len()
    );
    assert!(missing || passed > 0, "they were never there together");
    let keys = server.cli(&["KEYS", &format!("*{topic}:lock*")]);
    // Redisson's notes expire; tokens, numbers of permits and our records of requests stay.
    let kept =
        ["redisson_unlock_latch:", "redisson_lock_token:", "leasehold_permits:", "leasehold_requests:"];
    let counts = matches!(kinds[0], "semaphore" | "permits");
    let left = keys.elements().iter().filter(|key| {
        let key = key.as_str().expect("names are text");
        let stays = kept.iter().any(|kept| key.starts_with(kept)) || counts && key == names[0];
        !stays
    });
    assert_eq!(left.collect::<Vec<_>>(), Vec::<&Value>::new(), "something is left");
}

/// Waits for the end, and returns the longest time without a turn.
async fn longest_pause(server: &Server, topic: &str, is_over: impl Fn() -> bool) -> Duration {
    let turns = || ["log", "reads"].map(|list| server.cli(&["LLEN", &format!("{topic}:{list}")]));
    let (mut last, mut since, mut longest) = (turns(), Instant::now(), Duration::ZERO);
    while !is_over() {
        sleep(Duration::from_millis(20)).await;
        longest = longest.max(since.elapsed());
        assert!(longest < LONG, "{topic}: all owners wait");
        let now = turns();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    longest
}

async fn one_kind(kind: &str) {
    let setup = setup().await;
    let topic = format!("exclusion-{kind}");
    let name = format!("{topic}:lock");
    exclude(&setup, &topic, [kind; 4], [&name; 4]).await;
}

macro_rules! excludes {
    ($(fn $name:ident() = $kind:literal;)+) => {
        $(#[tokio::test]
        async fn $name() {
            one_kind($kind).await;
        })+
    };
}

excludes! {
    fn own_220_plain_locks_of_both_languages_exclude_each_other() = "plain";
    fn spin_locks_of_both_languages_exclude_each_other() = "spin";
    fn fair_locks_of_both_languages_exclude_each_other() = "fair";
    fn fenced_locks_of_both_languages_exclude_each_other() = "fenced";
    fn writers_of_both_languages_exclude_each_other() = "write";
    fn non_reentrant_locks_of_both_languages_exclude_each_other() = "once";
    fn non_reentrant_fair_locks_of_both_languages_exclude_each_other() = "once-fair";
}

#[tokio::test]
async fn own_221_readers_and_writers_of_both_languages_exclude_each_other() {
    let setup = setup().await;
    let topic = "exclusion-readers";
    exclude(&setup, topic, ["read", "write", "write", "read"], [&format!("{topic}:lock"); 4]).await;
}

#[tokio::test]
async fn multi_locks_of_both_languages_exclude_each_other() {
    let setup = setup().await;
    let topic = "exclusion-multi";
    let [a, b, c] = ["a", "b", "c"].map(|member| format!("{topic}:lock:{member}"));
    // One lock is common to all.
    let names = [format!("{a},{b}"), format!("{b},{c}"), format!("{b},{c}"), format!("{a},{b},{c}")];
    exclude(&setup, topic, ["multi"; 4], names.each_ref().map(String::as_str)).await;
}

#[tokio::test]
async fn holders_of_group_values_in_both_languages_exclude_each_other() {
    let setup = setup().await;
    let topic = "exclusion-group";
    let group = format!("{topic}:lock");
    let names = ["a,b", "b,c", "c,b", "a,b,c"].map(|values| format!("{group}/{values}"));
    exclude(&setup, topic, ["group"; 4], names.each_ref().map(String::as_str)).await;
}

#[tokio::test]
async fn holders_of_a_single_permit_in_both_languages_exclude_each_other() {
    let setup = setup().await;
    let topic = "exclusion-semaphore";
    let name = format!("{topic}:lock");
    assert_eq!(setup.java[0].ask(topic, &format!("set semaphore {name} 1")).await, "true");
    exclude(&setup, topic, ["semaphore"; 4], [&name; 4]).await;
    assert_eq!(setup.rust[0].ask(topic, &format!("available semaphore {name}")).await, "1");
}

#[tokio::test]
async fn holders_of_a_single_leased_permit_in_both_languages_exclude_each_other() {
    let setup = setup().await;
    let topic = "exclusion-permits";
    let name = format!("{topic}:lock");
    assert_eq!(setup.rust[0].ask(topic, &format!("set permits {name} 1")).await, "true");
    exclude(&setup, topic, ["permits"; 4], [&name; 4]).await;
    assert_eq!(setup.java[0].ask(topic, &format!("available permits {name}")).await, "1");
}
