//! The wire format, byte for byte: the vectors of the plain lock.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::time::Duration;

use leasehold::{AcquireError, Client, Loss, Owner, QueryError, ServerError};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::published::Published;
use crate::{
    REDISSON, SECOND, connect, free_as_redisson, granted, keys, ms, number, pttl, renewed, soon, subscribed,
    take_as_redisson, until, waiting,
};

on_both! {
    qd_21_the_steps_of_a_lock_leave_the_same_state_as_redisson
    a_lock_name_with_a_hash_tag_keeps_its_tag_in_the_channel
    force_unlock_deletes_the_key_and_publishes_one_message
    a_lock_taken_over_has_only_the_field_of_its_new_owner
    a_dropped_guard_leaves_the_same_state_as_a_release
    a_renewal_changes_only_the_time_to_live
    fl_16_a_namespace_is_part_of_the_key_and_of_the_channel
    a_lock_held_by_redisson_is_visible_to_queries_and_waited_for
    a_lock_without_a_time_to_live_is_waited_for
    a_lock_of_a_port_of_redisson_is_visible_to_queries
}

const CHANNEL: &str = "redisson_lock__channel:{n}";

fn freed(channel: &str) -> Vec<(String, String)> {
    vec![(channel.into(), "0".into())]
}

/// Checks that the key is a hash with this field and value and nothing else, that its lease has begun at `begun` or
/// later and before now, and that there is no other key.
fn assert_held(server: &Server, key: &str, field: &str, count: &str, lease: Duration, begun: Instant) {
    let left = pttl(server, key);
    let least = ms(lease) - ms(begun.elapsed()) - 2;
    assert!((least..=ms(lease)).contains(&left), "{left} ms are left, not {least} to {lease:?}");
    assert_eq!(server.cli(&["TYPE", key]), "hash");
    let hash = server.cli(&["HGETALL", key]);
    assert_eq!(hash.elements(), [field, count]);
    assert_eq!(keys(server), [key]);
}

/// Checks the format of a field: a random UUID of the fourth version, a colon and a decimal number.
fn assert_owner(field: &str) {
    let (id, number) = field.split_once(':').expect("a colon");
    let groups: Vec<_> = id.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{field}");
    assert!(id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')), "{field}");
    assert!(id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "not version 4: {field}");
    assert!(number.bytes().all(|byte| byte.is_ascii_digit()), "{field}");
    assert_eq!(number.parse::<u64>().map(|number| number.to_string()).as_deref(), Ok(number));
}

async fn qd_21_the_steps_of_a_lock_leave_the_same_state_as_redisson(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = connect(server.url()).await;
    let (lock, owner) = (client.lock("n"), Owner::number(7));
    let field = format!("{}:7", client.id());
    assert_owner(&field);
    assert_eq!(keys(&server), [""; 0]);

    let begun = Instant::now();
    let outer = lock.acquire().as_owner(&owner).await.unwrap();
    assert_held(&server, "n", &field, "1", SECOND * 30, begun);
    assert_eq!(outer.owner().to_string(), field);

    let begun = Instant::now();
    let inner = lock.acquire().as_owner(&owner).lease(SECOND * 5).await.unwrap();
    assert_held(&server, "n", &field, "2", SECOND * 5, begun);

    // Neither a failed try nor a wait that timed out leaves anything.
    let other = connect(server.url()).await;
    assert!(other.lock("n").try_acquire().await.unwrap().is_none());
    let error = other.lock("n").acquire().wait(SECOND / 5).await.unwrap_err();
    assert!(
        matches!(&error, AcquireError::Timeout { holder: Some(holder), .. } if holder.to_string() == field)
    );
    assert_held(&server, "n", &field, "2", SECOND * 5, begun);

    // The lease begins anew, and is that of the current hold.
    let begun = Instant::now();
    assert_eq!(inner.release().await.unwrap().holds_left, 1);
    assert_held(&server, "n", &field, "1", SECOND * 5, begun);
    assert_eq!(published.take(), []);

    assert_eq!(outer.release().await.unwrap().holds_left, 0);
    assert_eq!(keys(&server), [""; 0]);
    assert_eq!(published.take(), freed(CHANNEL));

    // A drawn owner has the same form.
    let guard = lock.acquire().await.unwrap();
    let hash = server.cli(&["HKEYS", "n"]);
    assert_owner(hash.elements()[0].as_str().unwrap());
    assert_eq!(hash.elements(), [guard.owner().to_string().as_str()]);
    assert!(guard.owner().to_string().starts_with(&client.id()));
}

async fn a_lock_name_with_a_hash_tag_keeps_its_tag_in_the_channel(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = connect(server.url()).await;
    for (name, channel) in [
        ("foo", "redisson_lock__channel:{foo}"),
        ("a{b}c", "redisson_lock__channel:a{b}c"),
        ("{x}:y", "redisson_lock__channel:{x}:y"),
        ("lock:über 1", "redisson_lock__channel:{lock:über 1}"),
    ] {
        // Every release must reach the server.
        let lock = client.lock(name).local_handover(false);
        let begun = Instant::now();
        let guard = lock.acquire().await.unwrap();
        assert_held(&server, name, &guard.owner().to_string(), "1", SECOND * 30, begun);
        let waiter = waiting(&server, &lock, channel).await;
        guard.release().await.unwrap();
        assert_eq!(published.take(), freed(channel));
        granted(waiter).await.release().await.unwrap();
        assert_eq!(published.take(), freed(channel));
        assert_eq!(keys(&server), [""; 0]);
        subscribed(&server, channel, 0).await;
    }
}

async fn force_unlock_deletes_the_key_and_publishes_one_message(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let guard = client.lock("n").acquire().await.unwrap();
    assert!(client.lock("n").force_unlock().await.unwrap());
    assert_eq!((keys(&server), published.take()), (vec![], freed(CHANNEL)));
    assert_eq!(soon("the loss", guard.lost()).await, Loss::ForceUnlocked);

    let _foreign = other.lock("n").acquire().await.unwrap();
    assert!(client.lock("n").force_unlock().await.unwrap());
    assert_eq!((keys(&server), published.take()), (vec![], freed(CHANNEL)));

    assert!(!client.lock("n").force_unlock().await.unwrap());
    assert_eq!((keys(&server), published.take()), (vec![], vec![]));
}

async fn a_lock_taken_over_has_only_the_field_of_its_new_owner(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let (client, thief) = (connect(server.url()).await, connect(server.url()).await);
    let outer = client.lock("n").acquire().await.unwrap();
    let _inner = outer.reenter().await.unwrap();
    let begun = Instant::now();
    let stolen = thief.lock("n").acquire().steal().lease(SECOND * 5).await.unwrap();
    let field = stolen.owner().to_string();
    assert!(field.starts_with(&thief.id()));
    assert_held(&server, "n", &field, "1", SECOND * 5, begun);
    assert_eq!(published.take(), []);

    // Later operations of the victim do not affect the thief.
    drop(outer);
    assert!(client.lock("n").try_acquire().await.unwrap().is_none());
    assert_held(&server, "n", &field, "1", SECOND * 5, begun);
    assert_eq!(published.take(), []);
    stolen.release().await.unwrap();
    assert_eq!((keys(&server), published.take()), (vec![], freed(CHANNEL)));
}

async fn a_dropped_guard_leaves_the_same_state_as_a_release(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = connect(server.url()).await;
    let outer = client.lock("n").acquire().await.unwrap();
    let owner = outer.owner().to_string();
    let inner = outer.reenter().await.unwrap();
    drop(inner);
    until("one hold is left", || server.cli(&["HGET", "n", &owner]) == "1").await;
    assert_eq!(published.take(), []);
    drop(outer);
    until("the key is gone", || keys(&server).is_empty()).await;
    assert_eq!(published.take(), freed(CHANNEL));
}

async fn a_renewal_changes_only_the_time_to_live(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = Client::connect(server.url()).watchdog(SECOND * 3).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    for _ in 0..2 {
        let begun = Instant::now();
        renewed(&server, "n").await;
        assert_held(&server, "n", &guard.owner().to_string(), "1", SECOND * 3, begun);
    }
    // An explicit lease is not renewed, and not changed.
    let given = client.lock("given").acquire().lease(SECOND * 2).await.unwrap();
    let begun = Instant::now();
    let mut last = i64::MAX;
    while begun.elapsed() < SECOND * 3 / 2 {
        let left = pttl(&server, "given");
        assert!(left <= last, "{left} ms after {last}");
        last = left;
        sleep(Duration::from_millis(20)).await;
    }
    assert!(guard.is_held());
    assert_eq!(published.take(), []);
    drop(given);
}

async fn fl_16_a_namespace_is_part_of_the_key_and_of_the_channel(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = Client::connect(server.url()).namespace("app:").await.unwrap();
    let begun = Instant::now();
    let guard = client.lock("n").acquire().await.unwrap();
    assert_held(&server, "app:n", &guard.owner().to_string(), "1", SECOND * 30, begun);
    guard.release().await.unwrap();
    assert_eq!(published.take(), freed("redisson_lock__channel:{app:n}"));
}

async fn a_lock_held_by_redisson_is_visible_to_queries_and_waited_for(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.lock("n");
    take_as_redisson(&server, "n", SECOND * 20);
    server.cli(&["HINCRBY", "n", REDISSON, "1"]);
    let holder = lock.holder().await.unwrap().unwrap();
    assert_eq!((holder.owner.unwrap().to_string().as_str(), holder.holds), (REDISSON, 2));
    assert!(holder.remaining <= SECOND * 20 && holder.remaining > SECOND * 10);
    assert_eq!(lock.hold_count(REDISSON.parse::<Owner>().unwrap()).await.unwrap(), 2);
    let waiter = waiting(&server, &lock, CHANNEL).await;
    free_as_redisson(&server, "n", CHANNEL);
    assert!(granted(waiter).await.is_held());

    // An expiry is not published.
    until("the guard is given back", || keys(&server).is_empty()).await;
    take_as_redisson(&server, "n", SECOND / 2);
    let begun = Instant::now();
    let guard = soon("the lock", lock.acquire().into_future()).await.unwrap();
    assert!(guard.is_held() && begun.elapsed() < SECOND * 5);
}

async fn a_lock_without_a_time_to_live_is_waited_for(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.lock("n");
    assert_eq!(number(&server.cli(&["HSET", "n", REDISSON, "1"])), 1);
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.is_locked().await.unwrap());
    let waiter = waiting(&server, &lock, CHANNEL).await;
    free_as_redisson(&server, "n", CHANNEL);
    assert!(granted(waiter).await.is_held());
}

/// The threads of node-redisson are UUIDs, too.
async fn a_lock_of_a_port_of_redisson_is_visible_to_queries(flavour: Flavour) {
    const CLIENT: &str = "71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11";
    let server = Server::start(flavour);
    let lock = connect(server.url()).await.lock("n");
    let hold = |field: &str, value: &str| {
        server.cli(&["DEL", "n"]);
        assert_eq!(server.cli(&["HSET", "n", field, value]), 1);
        assert_eq!(server.cli(&["PEXPIRE", "n", "60000"]), 1);
    };
    for thread in ["0f0d5a3b-8c11-4f0e-9d1a-71b96ce82746", "main", ""] {
        hold(&format!("{CLIENT}:{thread}"), "2");
        let holder = lock.holder().await.unwrap().unwrap();
        assert_eq!((holder.owner, holder.holds), (None, 2), "{thread}");
        assert!(lock.is_locked().await.unwrap());
        assert!(lock.ttl().await.unwrap().unwrap() > SECOND * 50);
        let (owner, busy) = (Owner::number(7), lock.acquire().wait(SECOND / 20).await.unwrap_err());
        assert!(!lock.is_held_by(&owner).await.unwrap() && lock.hold_count(&owner).await.unwrap() == 0);
        assert!(matches!(busy, AcquireError::Timeout { holder: None, .. }), "{busy:?}");
    }
    // Other hashes are no locks.
    for (field, value) in [
        (format!("{CLIENT}:7:write"), "1"),
        (CLIENT.into(), "1"),
        ("some:thing".into(), "1"),
        ("thing".into(), "1"),
        (format!("{CLIENT}:main"), "many"),
    ] {
        hold(&field, value);
        let error = lock.holder().await.unwrap_err();
        assert!(
            matches!(error, QueryError::Server { cause: ServerError::NotALock, .. }),
            "{field}: {error:?}"
        );
    }
}
