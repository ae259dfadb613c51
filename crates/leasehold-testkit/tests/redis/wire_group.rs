//! The wire format, byte for byte: the vectors of a group, and how holders of other clients are treated.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::{AcquireError, Client, Loss, Owner, QueryError, ServerError};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::published::Published;
use crate::{REDISSON, SECOND, connect, keys, ms, number, pttl, soon, subscribed, until};

on_both! {
    the_steps_of_a_set_leave_the_same_state_as_redisson
    an_expired_value_of_a_set_is_overwritten_and_leaves_no_fields_behind
    a_renewal_extends_only_the_fields_of_its_own_set
    redisson_holders_are_visible_to_queries_and_waited_for
    force_unlock_and_take_over_affect_only_the_given_values
    a_key_that_is_not_a_group_is_refused_and_left_unchanged
    an_uncontended_acquire_or_release_of_a_set_is_one_request
}

const CHANNEL: &str = "redisson_lock__channel:{n}";
/// The fields of the values `Jack_001` and `Mary_002`, as Redisson derives them.
const JACK: &str = "7pNoDdizVy2xY792MaFv+w";
const MARY: &str = "kIX2DFOX4IWct7G7K6tV9A";
const BOTH: [&str; 2] = ["Jack_001", "Mary_002"];

/// The fields of the group `n`.
fn hash(server: &Server) -> BTreeMap<String, String> {
    let hash = server.cli(&["HGETALL", "n"]);
    let text: Vec<_> = hash.elements().iter().map(|value| value.as_str().unwrap().to_owned()).collect();
    text.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

/// The fields without the times.
fn counts(server: &Server) -> BTreeMap<String, String> {
    hash(server).into_iter().filter(|(field, _)| !field.ends_with(":expire_time")).collect()
}

/// The fields of values that an owner holds, without the time.
fn held<const N: usize>(values: [(&str, &str, u32); N]) -> BTreeMap<String, String> {
    let fields = |(field, owner, count): (&str, &str, u32)| {
        [(field.into(), owner.into()), (format!("{field}:{owner}:lock_count"), count.to_string())]
    };
    values.into_iter().flat_map(fields).collect()
}

/// How many ms a value is still held, by the clock of the server.
fn left(server: &Server, field: &str, owner: &str) -> i64 {
    let time = server.cli(&["TIME"]);
    let part = |n: usize| -> i64 { time.elements()[n].as_str().unwrap().parse().unwrap() };
    let till: i64 = hash(server)[&format!("{field}:{owner}:expire_time")].parse().unwrap();
    till - part(0) * 1000 - part(1) / 1000
}

fn assert_nearly(left: i64, lease: Duration, begun: Instant) {
    let least = ms(lease) - ms(begun.elapsed()) - 20;
    assert!((least..=ms(lease)).contains(&left), "{left} ms are left, not {least} to {lease:?}");
}

fn told() -> Vec<(String, String)> {
    vec![(CHANNEL.into(), "0".into())]
}

/// A value that Redisson holds, for `lease` ms from now.
fn take_as_redisson(server: &Server, field: &str, lease: i64) {
    let script = "local t = redis.call('time') \
        local till = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[3]) \
        redis.call('hset', KEYS[1], ARGV[1], ARGV[2], ARGV[1] .. ':' .. ARGV[2] .. ':expire_time', till, \
            ARGV[1] .. ':' .. ARGV[2] .. ':lock_count', 1) \
        return redis.call('pexpire', KEYS[1], 60000)";
    assert_eq!(server.cli(&["EVAL", script, "1", "n", field, REDISSON, &lease.to_string()]), 1);
}

async fn the_steps_of_a_set_leave_the_same_state_as_redisson(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let (lock, me) = (client.group_lock("n", BOTH), Owner::number(1));
    let name = format!("{}:1", client.id());
    let begun = Instant::now();
    let outer = lock.acquire().as_owner(&me).lease(SECOND * 30).await.unwrap();
    assert_eq!(counts(&server), held([(JACK, &name, 1), (MARY, &name, 1)]));
    assert_eq!(hash(&server).len(), 6);
    for field in [JACK, MARY] {
        assert_nearly(left(&server, field, &name), SECOND * 30, begun);
    }
    // A second longer than its values, for compatibility with Redisson.
    assert_nearly(pttl(&server, "n"), SECOND * 31, begun);

    let inner = lock.acquire().as_owner(&me).lease(SECOND * 5).await.unwrap();
    assert_eq!(counts(&server), held([(JACK, &name, 2), (MARY, &name, 2)]));
    assert!(left(&server, JACK, &name) > 25_000, "the longer lease stays");

    // Other holders acquire and release beside it; the longest of their times is that of the hash.
    let beside = other.group_lock("n", ["other"]).acquire().lease(SECOND * 60).await.unwrap();
    assert_eq!(hash(&server).len(), 9);
    assert!((55_000..=61_000).contains(&pttl(&server, "n")));
    assert!(left(&server, JACK, &name) <= 30_000);
    assert!(other.group_lock("n", ["Jack_001"]).try_acquire().await.unwrap().is_none());
    assert_eq!(published.take(), []);
    beside.release().await.unwrap();
    assert_eq!((hash(&server).len(), published.take()), (6, told()));

    assert_eq!(inner.release().await.unwrap().holds_left, 1);
    assert_eq!(counts(&server), held([(JACK, &name, 1), (MARY, &name, 1)]));
    assert_eq!(published.take(), []);
    assert_eq!(outer.release().await.unwrap().holds_left, 0);
    assert_eq!((keys(&server), published.take()), (vec![], told()));

    drop(lock.acquire().await.unwrap());
    until("it is given back", || keys(&server).is_empty()).await;
    assert_eq!(published.take(), told());
    let token = lock.acquire().fenced().await.unwrap().token();
    assert_eq!((token, number(&server.cli(&["EXISTS", "redisson_lock_token:{n}"]))), (1, 1));
}

async fn an_expired_value_of_a_set_is_overwritten_and_leaves_no_fields_behind(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    take_as_redisson(&server, JACK, -1);
    let lock = client.group_lock("n", BOTH);
    assert!(!lock.is_locked().await.unwrap());
    let guard = lock.try_acquire().await.unwrap().unwrap();
    let name = guard.owner().to_string();
    assert_eq!(counts(&server), held([(JACK, &name, 1), (MARY, &name, 1)]));
    assert_eq!(hash(&server).len(), 6);
    guard.release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
}

async fn a_renewal_extends_only_the_fields_of_its_own_set(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = Client::connect(server.url()).watchdog(SECOND * 3).await.unwrap();
    take_as_redisson(&server, "elsewhere", 60_000);
    let guard = client.group_lock("n", BOTH).acquire().await.unwrap();
    let name = guard.owner().to_string();
    let stored = |field: &str, owner: &str| hash(&server)[&format!("{field}:{owner}:expire_time")].clone();
    let before = [stored(JACK, &name), stored(MARY, &name), stored("elsewhere", REDISSON)];
    until("a renewal", || stored(JACK, &name) > before[0] && stored(MARY, &name) > before[1]).await;
    assert_eq!(stored("elsewhere", REDISSON), before[2]);
    assert!(pttl(&server, "n") > 50_000, "the time of the hash is not lowered");
    guard.extend(SECOND * 90).await.unwrap();
    assert!(left(&server, JACK, &name) > 85_000 && pttl(&server, "n") > 85_000);
    // The loss of one value is the loss of all.
    server.cli(&["HDEL", "n", MARY]);
    take_as_redisson(&server, MARY, 60_000);
    assert_eq!(soon("the loss", guard.lost()).await, Loss::TakenOver);
    drop(guard);
    until("the rest is given back", || !hash(&server).contains_key(JACK)).await;
    assert_eq!(hash(&server)[MARY], REDISSON);
}

async fn redisson_holders_are_visible_to_queries_and_waited_for(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let (lock, stranger): (_, Owner) = (client.group_lock("n", BOTH), REDISSON.parse().unwrap());
    take_as_redisson(&server, MARY, 20_000);
    let holder = lock.holder().await.unwrap().unwrap();
    assert_eq!((holder.owner, holder.holds), (Some(stranger.clone()), 1));
    assert!(!lock.is_held_by(&stranger).await.unwrap());
    assert!(client.group_lock("n", ["Mary_002"]).is_held_by(&stranger).await.unwrap());
    let waiter = tokio::spawn(lock.acquire().into_future());
    subscribed(&server, CHANNEL, 1).await;
    sleep(SECOND / 10).await;
    server.cli(&["DEL", "n"]);
    server.cli(&["PUBLISH", CHANNEL, "0"]);
    soon("the waiter", waiter).await.unwrap().unwrap().release().await.unwrap();

    take_as_redisson(&server, JACK, 700);
    let begun = Instant::now();
    let guard = soon("the end of its time", lock.acquire().into_future()).await.unwrap();
    assert!(begun.elapsed() > SECOND / 2);
    guard.release().await.unwrap();
}

async fn force_unlock_and_take_over_affect_only_the_given_values(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let (client, thief) = (connect(server.url()).await, connect(server.url()).await);
    let victim = client.group_lock("n", BOTH).acquire().await.unwrap();
    let name = victim.owner().to_string();
    assert!(thief.group_lock("n", ["Jack_001"]).force_unlock().await.unwrap());
    assert_eq!((counts(&server), published.take()), (held([(MARY, &name, 1)]), told()));
    let stolen = thief.group_lock("n", ["Mary_002"]).acquire().steal().await.unwrap();
    assert_eq!(counts(&server), held([(MARY, &stolen.owner().to_string(), 1)]));
    assert_eq!(hash(&server).len(), 3);
    assert!(victim.release().await.is_err());
    assert_eq!(counts(&server), held([(MARY, &stolen.owner().to_string(), 1)]));
}

async fn a_key_that_is_not_a_group_is_refused_and_left_unchanged(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.group_lock("n", BOTH);
    let check = || async {
        let refused =
            |error: AcquireError| matches!(error, AcquireError::Server { cause: ServerError::NotALock, .. });
        assert!(refused(lock.acquire().await.unwrap_err()));
        assert!(refused(lock.acquire().steal().await.unwrap_err()));
        assert!(matches!(
            lock.is_locked().await,
            Err(QueryError::Server { cause: ServerError::NotALock, .. })
        ));
    };
    let plain = client.lock("n").acquire().await.unwrap();
    check().await;
    plain.release().await.unwrap();
    let reads = client.rw_lock("n").read().acquire().await.unwrap();
    check().await;
    reads.release().await.unwrap();
    server.cli(&["SET", "n", "a text"]);
    check().await;
    assert_eq!(server.cli(&["GET", "n"]), "a text");
}

async fn an_uncontended_acquire_or_release_of_a_set_is_one_request(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.group_lock("n", BOTH);
    lock.acquire().await.unwrap().release().await.unwrap();
    let mut monitor = server.monitor();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(monitor.take_sent().len(), 1);
    guard.release().await.unwrap();
    assert_eq!(monitor.take_sent().len(), 1);
}
