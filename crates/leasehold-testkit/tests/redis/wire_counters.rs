//! The wire format, byte for byte: the vectors of the semaphores and of the latch.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use leasehold::{ChangeError, PermitId, ServerError};
use leasehold_testkit::resp::Value;
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::sleep;

use crate::{REDISSON, SECOND, connect, keys, pttl, soon, subscribed, until};

on_both! {
    the_steps_of_a_semaphore_leave_the_same_state_as_redisson
    a_record_of_permits_exists_only_while_permits_are_held
    a_semaphore_keeps_its_time_to_live_until_permits_are_added_or_drained
    the_steps_of_leased_permits_leave_the_same_state_as_redisson
    leased_permits_have_the_time_to_live_of_their_semaphore
    the_steps_of_a_latch_leave_the_same_state_as_redisson
    waiters_are_woken_by_permits_and_latches_that_redisson_releases
    a_published_count_is_never_below_one_and_never_above_the_java_maximum
    hd_26_a_key_that_is_not_a_counter_is_refused_and_left_unchanged
}

const SEMAPHORE: &str = "redisson_sc:{n}";
const LATCH: &str = "redisson_countdownlatch__channel__{n}";
const RECORD: &str = "leasehold_permits:{n}";
const PERMITS: &str = "{n}:timeout";
const PERMANENT: &str = "922337203685477";

/// Waits until only these keys are there: notes of requests are removed when their reply has arrived.
async fn only(server: &Server, expected: &[&str]) {
    until(&format!("only {expected:?}"), || keys(server) == expected).await;
}

fn payloads(messages: Vec<leasehold_testkit::server::Message>) -> Vec<String> {
    messages.into_iter().map(|message| message.payload).collect()
}

async fn the_steps_of_a_semaphore_leave_the_same_state_as_redisson(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut messages = server.subscribe(&[SEMAPHORE]);
    let client = connect(server.url()).await;
    let semaphore = client.semaphore("n");
    assert!(semaphore.try_set_permits(10).await.unwrap());
    assert_eq!((server.cli(&["GET", "n"]), pttl(&server, "n")), ("10".into(), -1));
    assert_eq!(payloads(messages.take()), ["10"]);

    let four = semaphore.acquire(4).await.unwrap();
    assert_eq!(server.cli(&["GET", "n"]), "6");
    assert!(semaphore.try_acquire(7).await.unwrap().is_none());
    assert_eq!(server.cli(&["GET", "n"]), "6");
    assert_eq!(payloads(messages.take()), [""; 0]);
    assert_eq!(four.forget(), 4);

    semaphore.release(2).await.unwrap();
    assert_eq!(server.cli(&["GET", "n"]), "8");
    assert_eq!(payloads(messages.take()), ["8"]);
    assert_eq!(semaphore.add_permits(5).await.unwrap(), 13);
    assert_eq!(payloads(messages.take()), ["13"]);
    // Here Redisson publishes -7, on which its own listeners break.
    assert_eq!(semaphore.add_permits(-20).await.unwrap(), -7);
    assert_eq!((server.cli(&["GET", "n"]), payloads(messages.take())), ("-7".into(), vec![]));
    assert_eq!(semaphore.drain().await.unwrap(), -7);
    assert_eq!((server.cli(&["GET", "n"]), payloads(messages.take())), ("0".into(), vec![]));
    only(&server, &["n"]).await;
    assert!(semaphore.delete().await.unwrap());
    only(&server, &[]).await;
}

async fn a_record_of_permits_exists_only_while_permits_are_held(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut messages = server.subscribe(&[SEMAPHORE]);
    let client = connect(server.url()).await;
    let semaphore = client.semaphore("n");
    assert!(semaphore.try_set_permits(10).await.unwrap());
    let (released, dropped) = (semaphore.acquire(3).await.unwrap(), semaphore.acquire(2).await.unwrap());
    until("two notes", || server.cli(&["HLEN", RECORD]) == 2).await;
    let mut noted: Vec<_> = server.cli(&["HVALS", RECORD]).elements().to_vec();
    noted.sort_by_key(|value| value.as_str().map(str::to_owned));
    assert_eq!(noted, ["2", "3"]);
    let owner = server.cli(&["HKEYS", RECORD]).elements()[0].as_str().unwrap().to_owned();
    assert!(owner.starts_with(&format!("{}:", client.id())), "{owner}");
    let day = 24 * 60 * 60 * 1000;
    assert!((day - 60_000..=day).contains(&pttl(&server, RECORD)));
    drop(messages.take());
    released.release().await.unwrap();
    drop(dropped);
    only(&server, &["n"]).await;
    assert_eq!(server.cli(&["GET", "n"]), "10");
    assert_eq!(payloads(messages.take()), ["8", "10"]);
}

async fn a_semaphore_keeps_its_time_to_live_until_permits_are_added_or_drained(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let semaphore = client.semaphore("n");
    assert!(semaphore.try_set_permits(5).ttl(SECOND * 60).await.unwrap());
    let is_set = || (50_000..=60_000).contains(&pttl(&server, "n"));
    assert!(is_set());
    semaphore.acquire(2).await.unwrap().release().await.unwrap();
    semaphore.release(1).await.unwrap();
    assert!(is_set(), "it stays");
    semaphore.add_permits(1).await.unwrap();
    assert_eq!(pttl(&server, "n"), -1, "as with Redisson, which sets the value anew");
    server.cli(&["PEXPIRE", "n", "60000"]);
    semaphore.drain().await.unwrap();
    assert_eq!(pttl(&server, "n"), -1);
}

/// The ids on the server, in hexadecimal, with their scores.
fn permits(server: &Server) -> Vec<(String, String)> {
    let listed = server.cli(&["ZRANGE", PERMITS, "0", "-1", "WITHSCORES"]);
    let hex = |value: &Value| match value {
        Value::Bulk(bytes) => format!("{:032x}", u128::from_be_bytes(bytes.as_slice().try_into().unwrap())),
        other => panic!("not bytes: {other:?}"),
    };
    let pairs = listed.elements().chunks(2);
    pairs.map(|pair| (hex(&pair[0]), pair[1].as_str().unwrap().to_owned())).collect()
}

fn server_now(server: &Server) -> i64 {
    let time = server.cli(&["TIME"]);
    let part = |n: usize| time.elements()[n].as_str().unwrap().parse::<i64>().unwrap();
    part(0) * 1000 + part(1) / 1000
}

async fn the_steps_of_leased_permits_leave_the_same_state_as_redisson(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut messages = server.subscribe(&[SEMAPHORE]);
    let client = connect(server.url()).await;
    let semaphore = client.leased_semaphore("n");
    assert!(semaphore.try_set_permits(3).await.unwrap());
    assert_eq!(payloads(messages.take()), ["3"]);
    let permanent = semaphore.acquire(1).permanent().await.unwrap();
    let before = server_now(&server);
    let leased = semaphore.acquire(2).lease(SECOND / 5).await.unwrap().forget();
    let after = server_now(&server);
    only(&server, &["n", PERMITS]).await;
    assert_eq!(server.cli(&["GET", "n"]), "0");
    let listed = permits(&server);
    assert_eq!(listed.len(), 3);
    for ((id, score), expected) in listed.iter().zip(&leased) {
        assert_eq!((id.len(), id), (32, &expected.to_string()));
        assert!(id.starts_with(&client.id().replace('-', "")[..16]));
        let score: i64 = score.parse().unwrap();
        assert!((before + 200..=after + 200).contains(&score), "{score} is not within 200 ms of {before}");
    }
    assert_eq!(listed[2], (permanent[0].to_string(), PERMANENT.into()));
    assert!(semaphore.try_acquire(1).await.unwrap().is_none());
    assert_eq!(payloads(messages.take()), [""; 0]);

    sleep(SECOND * 3 / 10).await;
    let next = semaphore.acquire(1).permanent().await.unwrap();
    assert_eq!(payloads(messages.take()), ["1"], "one of the two is reclaimed, as many as are requested");
    assert_eq!(server.cli(&["GET", "n"]), "0");
    let other = leased.iter().find(|id| permits(&server).iter().any(|(hex, _)| *hex == id.to_string()));
    assert!(!semaphore.try_release([*other.unwrap()]).await.unwrap());
    assert_eq!(payloads(messages.take()), ["1"]);
    assert_eq!(server.cli(&["GET", "n"]), "1");

    // The sum, where Redisson publishes how many were released: either wakes the right number of waiters.
    semaphore.release([permanent[0], next[0]]).await.unwrap();
    assert_eq!((server.cli(&["GET", "n"]), payloads(messages.take())), ("3".into(), vec!["3".into()]));
    only(&server, &["n"]).await;
    assert!(semaphore.delete().await.unwrap());
    only(&server, &[]).await;

    // A permit of Redisson's is found by its id, in capitals, too.
    server.cli(&["SET", "n", "0"]);
    let raw: Vec<u8> = (1..=16).collect();
    server.cli(&[b"ZADD".as_slice(), PERMITS.as_bytes(), PERMANENT.as_bytes(), &raw]);
    let id: PermitId = "0102030405060708090A0B0C0D0E0F10".parse().unwrap();
    assert!(semaphore.lease_of(id).await.unwrap().is_some());
    assert!(semaphore.update_lease(id, SECOND * 60).await.unwrap());
    assert_eq!(payloads(messages.take()), ["1"], "a waiter that sleeps until a later end must retry");
    assert!(semaphore.update_lease(id, SECOND * 90).await.unwrap());
    assert_eq!(payloads(messages.take()), [""; 0]);
    semaphore.release([id]).await.unwrap();
    assert_eq!(server.cli(&["GET", "n"]), "1");
}

async fn leased_permits_have_the_time_to_live_of_their_semaphore(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let semaphore = client.leased_semaphore("n");
    assert!(semaphore.try_set_permits(3).await.unwrap());
    server.cli(&["PEXPIRE", "n", "60000"]);
    let _held = semaphore.acquire(1).await.unwrap();
    assert!((50_000..=60_000).contains(&pttl(&server, PERMITS)));
    assert!((50_000..=60_000).contains(&pttl(&server, "n")));
}

async fn the_steps_of_a_latch_leave_the_same_state_as_redisson(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut messages = server.subscribe(&[LATCH]);
    let client = connect(server.url()).await;
    let latch = client.latch("n");
    assert!(latch.try_set_count(2).await.unwrap());
    assert_eq!((server.cli(&["GET", "n"]), pttl(&server, "n")), ("2".into(), -1));
    assert_eq!(payloads(messages.take()), ["1"]);
    assert_eq!(latch.count_down().await.unwrap(), 1);
    assert_eq!((server.cli(&["GET", "n"]), payloads(messages.take())), ("1".into(), vec![]));
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert_eq!(payloads(messages.take()), ["0"]);
    only(&server, &[]).await;
    assert_eq!(latch.count_down().await.unwrap(), 0);
    assert_eq!(payloads(messages.take()), [""; 0]);
    only(&server, &[]).await;
    assert!(latch.try_set_count(1).await.unwrap());
    assert!(latch.delete().await.unwrap());
    assert_eq!(payloads(messages.take()), ["1", "1"]);
    only(&server, &[]).await;

    // The channel has braces of its own, for any name.
    let channel = "redisson_countdownlatch__channel__{{a}b}";
    let (mut messages, tagged) = (server.subscribe(&[channel]), client.latch("{a}b"));
    assert!(tagged.try_set_count(1).await.unwrap());
    let waiter = tokio::spawn(tagged.opened().into_future());
    subscribed(&server, channel, 2).await;
    tagged.count_down().await.unwrap();
    assert_eq!(payloads(messages.take()), ["1", "0"]);
    soon("the latch opens", waiter).await.unwrap().unwrap();
}

async fn waiters_are_woken_by_permits_and_latches_that_redisson_releases(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let (semaphore, leased, latch) = (client.semaphore("n"), client.leased_semaphore("m"), client.latch("l"));
    server.cli(&["SET", "n", "0"]);
    server.cli(&["SET", "m", "0"]);
    server.cli(&["SET", "l", "1"]);
    let waiting = tokio::spawn(semaphore.acquire(2).into_future());
    let waiting_leased = tokio::spawn(leased.acquire(1).into_future());
    let waiting_latch = tokio::spawn(latch.opened().into_future());
    subscribed(&server, SEMAPHORE, 1).await;
    subscribed(&server, "redisson_sc:{m}", 1).await;
    subscribed(&server, "redisson_countdownlatch__channel__{l}", 1).await;
    for nonsense in ["0", "-3", "", "x", "1.0"] {
        server.cli(&["PUBLISH", SEMAPHORE, nonsense]);
    }
    server.cli(&["INCRBY", "n", "2"]);
    server.cli(&["PUBLISH", SEMAPHORE, "2"]);
    server.cli(&["INCRBY", "m", "1"]);
    server.cli(&["PUBLISH", "redisson_sc:{m}", "1"]);
    server.cli(&["DEL", "l"]);
    server.cli(&["PUBLISH", "redisson_countdownlatch__channel__{l}", "0"]);
    let permits = soon("the permits", waiting).await.unwrap().unwrap();
    let permit = soon("the permit", waiting_leased).await.unwrap().unwrap();
    soon("the latch", waiting_latch).await.unwrap().unwrap();
    permits.release().await.unwrap();
    permit.release().await.unwrap();
    assert_eq!((server.cli(&["GET", "n"]), server.cli(&["GET", "m"])), ("2".into(), "1".into()));
}

async fn a_published_count_is_never_below_one_and_never_above_the_java_maximum(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut messages = server.subscribe(&[SEMAPHORE]);
    let client = connect(server.url()).await;
    let most = u32::try_from(i32::MAX).unwrap();
    let semaphore = client.semaphore("n");
    assert!(semaphore.try_set_permits(0).await.unwrap());
    semaphore.release(most).await.unwrap();
    semaphore.release(most).await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 2 * i64::from(most));
    assert_eq!(payloads(messages.take()), ["2147483647", "2147483647"]);
    assert!(semaphore.delete().await.unwrap());

    let leased = client.leased_semaphore("n");
    assert!(leased.try_set_permits(2).await.unwrap());
    let taken = leased.acquire(2).permanent().await.unwrap();
    leased.set_permits(1).await.unwrap();
    drop(messages.take());
    leased.release([taken[0]]).await.unwrap();
    assert_eq!(payloads(messages.take()), [""; 0], "none is free");
    leased.release([taken[1]]).await.unwrap();
    assert_eq!(payloads(messages.take()), ["1"]);
}

async fn hd_26_a_key_that_is_not_a_counter_is_refused_and_left_unchanged(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    for (make, read) in [
        (["SET", "n", "word"].as_slice(), ["GET", "n"].as_slice()),
        (&["RPUSH", "n", "word"], &["LRANGE", "n", "0", "-1"]),
        // A lock.
        (&["HSET", "n", REDISSON, "1"], &["HGETALL", "n"]),
    ] {
        server.cli(&["DEL", "n"]);
        server.cli(make);
        let before = server.cli(read);
        let (semaphore, leased) = (client.semaphore("n"), client.leased_semaphore("n"));
        for refused in [semaphore.acquire(1).await.map(drop), leased.acquire(1).await.map(drop)] {
            assert!(refused.as_ref().is_err_and(|error| !error.is_transient()), "{refused:?}");
        }
        assert!(semaphore.available().await.is_err() && leased.available().await.is_err());
        assert!(client.latch("n").opened().await.is_err());
        let refused = semaphore.release(1).await;
        assert!(
            matches!(
                refused,
                Err(ChangeError::Server { cause: ServerError::NotALock | ServerError::Denied(_), .. })
            ),
            "{refused:?}"
        );
        assert!(client.latch("n").count_down().await.is_err());
        assert_eq!(server.cli(read), before);
    }
    assert_eq!(keys(&server), ["n"]);
}
