//! The wire format, byte for byte: the vectors of the read-write lock, and how holders of other clients are treated.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::{AcquireError, Client, Loss, Owner, QueryError, ServerError};
use leasehold_testkit::server::{Flavour, Server};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::published::Published;
use crate::{REDISSON, SECOND, channels, connect, keys, ms, pttl, renewed, soon, subscribed, until};

on_both! {
    the_steps_of_readers_leave_the_same_state_as_redisson
    the_steps_of_a_writer_leave_the_same_state_as_redisson
    a_downgrade_and_an_upgrade_leave_the_same_state_as_redisson
    the_release_of_a_live_reader_removes_dead_readers
    a_nested_read_does_not_shorten_the_lease_of_the_writer
    a_name_with_a_hash_tag_gives_its_hold_keys_the_same_tag
    a_dropped_guard_leaves_the_same_state_as_a_release
    force_unlock_and_take_over_delete_all_hold_keys
    a_renewal_extends_every_hold_of_its_owner_and_of_no_other_owner
    redisson_holders_are_visible_to_queries_and_waited_for
    a_waiting_preferred_writer_sets_and_removes_its_flag
    a_key_that_is_not_a_read_write_lock_is_refused_and_left_unchanged
    an_uncontended_step_of_a_read_write_lock_is_one_request
    wd_03_a_restart_without_data_is_reported_to_readers_and_writers
}

const CHANNEL: &str = "redisson_rwlock:{n}";
const MARK: &str = "leasehold_rwlock_waiting:{n}";

/// The fields of the lock `n`.
fn hash(server: &Server) -> BTreeMap<String, String> {
    let hash = server.cli(&["HGETALL", "n"]);
    let text: Vec<_> = hash.elements().iter().map(|value| value.as_str().unwrap().to_owned()).collect();
    text.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn fields<const N: usize>(fields: [(&str, &str); N]) -> BTreeMap<String, String> {
    fields.map(|(field, value)| (field.to_owned(), value.to_owned())).into()
}

/// The key of a read hold.
fn hold(owner: &str, n: usize) -> String {
    format!("{{n}}:{owner}:rwlock_timeout:{n}")
}

fn sorted<const N: usize>(keys: [&str; N]) -> Vec<String> {
    let mut keys = keys.map(str::to_owned).to_vec();
    keys.sort();
    keys
}

/// Checks that a key has this time to live, less the time since `begun`.
fn assert_lives(server: &Server, key: &str, lease: Duration, begun: Instant) {
    let left = pttl(server, key);
    let least = ms(lease) - ms(begun.elapsed()) - 20;
    assert!((least..=ms(lease)).contains(&left), "{key}: {left} ms are left, not {least} to {lease:?}");
}

fn told(payload: &str) -> Vec<(String, String)> {
    vec![(CHANNEL.into(), payload.into())]
}

fn name_of(client: &Client, number: u32) -> String {
    format!("{}:{number}", client.id())
}

/// Adds a reader of Redisson.
fn read_as_redisson(server: &Server, owner: &str, lease: Duration) {
    let lease = lease.as_millis().to_string();
    server.cli(&["HSET", "n", "mode", "read", owner, "1"]);
    server.cli(&["SET", &hold(owner, 1), "1", "PX", &lease]);
    if pttl(server, "n") < lease.parse().unwrap() {
        server.cli(&["PEXPIRE", "n", &lease]);
    }
}

async fn the_steps_of_readers_leave_the_same_state_as_redisson(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let (a, b) = (connect(server.url()).await, connect(server.url()).await);
    let (a_name, b_name) = (name_of(&a, 1), name_of(&b, 2));
    let read = |client: &Client, number, lease| {
        client.rw_lock("n").read().acquire().as_owner(Owner::number(number)).lease(lease)
    };
    let begun = Instant::now();
    let outer = read(&a, 1, SECOND * 30).await.unwrap();
    assert_eq!(hash(&server), fields([("mode", "read"), (&a_name, "1")]));
    assert_eq!(server.cli(&["GET", &hold(&a_name, 1)]), "1");
    assert_eq!(keys(&server), sorted(["n", &hold(&a_name, 1)]));
    // The longer lease stays, and applies to both.
    let inner = read(&a, 1, SECOND * 5).await.unwrap();
    let other = read(&b, 2, SECOND * 60).await.unwrap();
    assert_eq!(hash(&server), fields([("mode", "read"), (&a_name, "2"), (&b_name, "1")]));
    assert_lives(&server, "n", SECOND * 60, begun);
    assert_lives(&server, &hold(&a_name, 1), SECOND * 30, begun);
    let left = pttl(&server, &hold(&a_name, 2));
    assert!((29_000..=30_000).contains(&left), "{left}");
    assert_lives(&server, &hold(&b_name, 1), SECOND * 60, begun);

    assert_eq!(inner.release().await.unwrap().holds_left, 1);
    assert_eq!(hash(&server), fields([("mode", "read"), (&a_name, "1"), (&b_name, "1")]));
    assert_eq!(keys(&server), sorted(["n", &hold(&a_name, 1), &hold(&b_name, 1)]));
    assert_lives(&server, "n", SECOND * 60, begun);

    // The lock lasts as long as the longest of the remaining holds.
    assert_eq!(other.release().await.unwrap().holds_left, 0);
    assert_eq!(hash(&server), fields([("mode", "read"), (&a_name, "1")]));
    let (lock, left) = (pttl(&server, "n"), pttl(&server, &hold(&a_name, 1)));
    assert!((0..=1000).contains(&(lock - left)) && lock <= 30_000, "{lock} and {left}");
    assert_eq!(published.take(), []);

    assert_eq!(outer.release().await.unwrap().holds_left, 0);
    assert_eq!((keys(&server), published.take()), (vec![], told("0")));
}

async fn the_steps_of_a_writer_leave_the_same_state_as_redisson(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let (client, other) = (connect(server.url()).await, connect(server.url()).await);
    let (lock, owner, name) = (client.rw_lock("n"), Owner::number(1), name_of(&client, 1));
    let field = format!("{name}:write");
    let begun = Instant::now();
    let outer = lock.write().acquire().as_owner(&owner).await.unwrap();
    assert_eq!(hash(&server), fields([("mode", "write"), (&field, "1")]));
    let inner = lock.write().acquire().as_owner(&owner).await.unwrap();
    assert_eq!(hash(&server), fields([("mode", "write"), (&field, "2")]));
    assert_lives(&server, "n", SECOND * 30, begun);
    assert_eq!(keys(&server), ["n"]);

    let reads = lock.read().acquire().as_owner(&owner).await.unwrap();
    assert_eq!(hash(&server), fields([("mode", "write"), (&field, "2"), (&name, "1")]));
    assert_eq!(keys(&server), sorted(["n", &hold(&name, 1)]));
    assert!(other.rw_lock("n").read().try_acquire().await.unwrap().is_none());
    assert!(other.rw_lock("n").write().try_acquire().await.unwrap().is_none());

    assert_eq!(inner.release().await.unwrap().holds_left, 1);
    assert_eq!(hash(&server), fields([("mode", "write"), (&field, "1"), (&name, "1")]));
    assert_lives(&server, "n", SECOND * 30, begun);
    assert_eq!(published.take(), []);
    // Redisson publishes nothing here, and leaves its readers asleep.
    assert_eq!(outer.release().await.unwrap().holds_left, 0);
    assert_eq!(hash(&server), fields([("mode", "read"), (&name, "1")]));
    assert_eq!(published.take(), told("1"));
    reads.release().await.unwrap();
    assert_eq!((keys(&server), published.take()), (vec![], told("0")));

    lock.write().acquire().await.unwrap().release().await.unwrap();
    assert_eq!((keys(&server), published.take()), (vec![], told("1")));
}

async fn a_downgrade_and_an_upgrade_leave_the_same_state_as_redisson(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = connect(server.url()).await;
    let lock = client.rw_lock("n");
    let writes = lock.write().acquire().fenced().await.unwrap();
    assert_eq!(server.cli(&["GET", "redisson_lock_token:{n}"]), "1");
    assert_eq!(writes.token(), Some(1));
    server.cli(&["DEL", "redisson_lock_token:{n}"]);
    let name = writes.owner().to_string();
    let begun = Instant::now();
    let reads = writes.downgrade().await.unwrap();
    assert_eq!(hash(&server), fields([("mode", "read"), (&name, "1")]));
    assert_eq!(keys(&server), sorted(["n", &hold(&name, 1)]));
    assert_lives(&server, "n", SECOND * 30, begun);
    assert_eq!(published.take(), told("1"));

    let writes = reads.try_upgrade().await.unwrap();
    assert_eq!(hash(&server), fields([("mode", "write"), (&name, "1"), (&format!("{name}:write"), "1")]));
    assert_eq!(published.take(), []);
    writes.release().await.unwrap();
    assert_eq!(hash(&server), fields([("mode", "read"), (&name, "1")]));
    assert_eq!(published.take(), told("1"));
    reads.release().await.unwrap();
    assert_eq!((keys(&server), published.take()), (vec![], told("0")));
}

async fn the_release_of_a_live_reader_removes_dead_readers(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = connect(server.url()).await;
    let lock = client.rw_lock("n");
    let lives = lock.read().acquire().lease(SECOND * 30).await.unwrap();
    let also_lives = lock.read().acquire().await.unwrap();
    read_as_redisson(&server, REDISSON, SECOND / 20);
    assert_eq!(hash(&server).len(), 4);
    until("it is dead", || pttl(&server, &hold(REDISSON, 1)) == -2).await;
    assert!(!lock.read().is_held_by(REDISSON.parse::<Owner>().unwrap()).await.unwrap());
    also_lives.release().await.unwrap();
    assert_eq!(hash(&server), fields([("mode", "read"), (&lives.owner().to_string(), "1")]));
    assert_eq!(published.take(), []);
    read_as_redisson(&server, REDISSON, SECOND / 20);
    until("it is dead", || pttl(&server, &hold(REDISSON, 1)) == -2).await;
    lives.release().await.unwrap();
    assert_eq!((keys(&server), published.take()), (vec![], told("0")));
}

async fn a_nested_read_does_not_shorten_the_lease_of_the_writer(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let (lock, owner) = (client.rw_lock("n"), Owner::number(1));
    let begun = Instant::now();
    let writes = lock.write().acquire().as_owner(&owner).lease(SECOND * 60).await.unwrap();
    let reads = || lock.read().acquire().as_owner(&owner).lease(SECOND * 5);
    let (one, two) = (reads().await.unwrap(), reads().await.unwrap());
    one.release().await.unwrap();
    assert_lives(&server, "n", SECOND * 60, begun);
    two.release().await.unwrap();
    assert_lives(&server, "n", SECOND * 60, begun);
    let _stays = reads().await.unwrap();
    // Then it lasts as long as the read holds.
    writes.release().await.unwrap();
    let left = pttl(&server, "n");
    assert!((1..=5000).contains(&left), "{left}");
}

async fn a_name_with_a_hash_tag_gives_its_hold_keys_the_same_tag(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = Client::connect(server.url()).namespace("app:").await.unwrap();
    for (name, tag) in [("foo", "{app:foo}"), ("a{b}c", "app:a{b}c"), ("{x}:y:write", "app:{x}:y:write")] {
        let lock = client.rw_lock(name);
        let guard = lock.read().acquire().await.unwrap();
        let hold = format!("{tag}:{}:rwlock_timeout:1", guard.owner());
        assert_eq!(keys(&server), sorted([&format!("app:{name}"), &hold]));
        let waiter = tokio::spawn(lock.write().acquire().into_future());
        let channel = format!("redisson_rwlock:{tag}");
        subscribed(&server, &channel, 1).await;
        guard.release().await.unwrap();
        assert_eq!(published.take()[0], (channel, "0".into()));
        soon("the writer", waiter).await.unwrap().unwrap().release().await.unwrap();
        published.take();
    }
    until("no client is subscribed", || channels(&server).is_empty()).await;
}

async fn a_dropped_guard_leaves_the_same_state_as_a_release(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = connect(server.url()).await;
    let lock = client.rw_lock("n");
    let outer = lock.read().acquire().await.unwrap();
    let name = outer.owner().to_string();
    drop(outer.reenter().await.unwrap());
    until("one hold is left", || keys(&server) == sorted(["n", &hold(&name, 1)])).await;
    assert_eq!(hash(&server), fields([("mode", "read"), (&name, "1")]));
    assert_eq!(published.take(), []);
    drop(outer);
    until("nothing is left", || keys(&server).is_empty()).await;
    assert_eq!(published.take(), told("0"));

    let outer = lock.write().acquire().await.unwrap();
    let name = format!("{}:write", outer.owner());
    drop(outer.reenter().await.unwrap());
    until("one hold is left", || hash(&server) == fields([("mode", "write"), (&name, "1")])).await;
    drop(outer);
    until("nothing is left", || keys(&server).is_empty()).await;
    assert_eq!(published.take(), told("1"));
}

async fn force_unlock_and_take_over_delete_all_hold_keys(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let (client, thief) = (connect(server.url()).await, connect(server.url()).await);
    let lock = client.rw_lock("n");
    let outer = lock.read().acquire().await.unwrap();
    let _guards = (outer.reenter().await.unwrap(), lock.read().acquire().await.unwrap());
    assert!(!lock.write().force_unlock().await.unwrap());
    assert!(lock.read().force_unlock().await.unwrap());
    assert_eq!((keys(&server), published.take()), (vec![], told("0")));

    let victim = lock.write().acquire().await.unwrap();
    let _reads = lock.read().acquire().as_owner(victim.owner()).await.unwrap();
    assert!(!lock.read().force_unlock().await.unwrap());
    assert!(lock.write().force_unlock().await.unwrap());
    assert_eq!((keys(&server), published.take()), (vec![], told("1")));

    let _readers = (lock.read().acquire().await.unwrap(), lock.read().acquire().await.unwrap());
    let stolen = thief.rw_lock("n").write().acquire().steal().await.unwrap();
    let field = format!("{}:write", stolen.owner());
    assert_eq!(hash(&server), fields([("mode", "write"), (&field, "1")]));
    assert_eq!(keys(&server), ["n"]);
    let stolen_back = lock.read().acquire().steal().await.unwrap();
    let name = stolen_back.owner().to_string();
    assert_eq!(hash(&server), fields([("mode", "read"), (&name, "1")]));
    drop(stolen);
    assert!(thief.rw_lock("n").write().try_acquire().await.unwrap().is_none());
    assert_eq!(published.take(), told("1"));
}

async fn a_renewal_extends_every_hold_of_its_owner_and_of_no_other_owner(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = Client::connect(server.url()).watchdog(SECOND * 3).await.unwrap();
    let lock = client.rw_lock("n");
    let outer = lock.read().acquire().await.unwrap();
    let _inner = outer.reenter().await.unwrap();
    let name = outer.owner().to_string();
    read_as_redisson(&server, REDISSON, SECOND * 60);
    let begun = Instant::now();
    renewed(&server, &hold(&name, 1)).await;
    renewed(&server, &hold(&name, 2)).await;
    assert_lives(&server, &hold(&name, 1), SECOND * 3, begun);
    assert_lives(&server, &hold(&name, 2), SECOND * 3, begun);
    // Neither shortened nor prolonged.
    assert_lives(&server, "n", SECOND * 60, begun);
    assert_lives(&server, &hold(REDISSON, 1), SECOND * 60, begun);
    assert_eq!(hash(&server), fields([("mode", "read"), (&name, "2"), (REDISSON, "1")]));
    outer.extend(SECOND * 90).await.unwrap();
    let begun = Instant::now();
    for key in ["n", &hold(&name, 1), &hold(&name, 2)] {
        assert_lives(&server, key, SECOND * 90, begun);
    }
    // A missing hold is restored.
    server.cli(&["DEL", &hold(&name, 2)]);
    until("it is back", || pttl(&server, &hold(&name, 2)) > 0).await;
    assert!(outer.is_held());
    assert_eq!(published.take(), []);
}

async fn redisson_holders_are_visible_to_queries_and_waited_for(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.rw_lock("n");
    let stranger: Owner = REDISSON.parse().unwrap();

    // A reader, whose release message wakes one waiter.
    read_as_redisson(&server, REDISSON, SECOND * 20);
    let ours = lock.read().acquire().lease(SECOND * 5).await.unwrap();
    assert!(lock.read().is_held_by(&stranger).await.unwrap());
    let error = ours.try_upgrade().await.unwrap_err();
    assert!(matches!(error, AcquireError::OtherReaders { reader: Some(reader), .. } if reader == stranger));
    ours.release().await.unwrap();
    let left = pttl(&server, "n");
    assert!((15_000..=20_000).contains(&left), "{left}");
    let waiter = tokio::spawn(lock.write().acquire().into_future());
    subscribed(&server, CHANNEL, 1).await;
    sleep(SECOND / 10).await;
    server.cli(&["DEL", "n", &hold(REDISSON, 1)]);
    server.cli(&["PUBLISH", CHANNEL, "0"]);
    soon("the writer", waiter).await.unwrap().unwrap().release().await.unwrap();

    // A writer, whose release message wakes all waiters.
    server.cli(&["HSET", "n", "mode", "write", &format!("{REDISSON}:write"), "2"]);
    server.cli(&["PEXPIRE", "n", "20000"]);
    let holder = lock.write().holder().await.unwrap().unwrap();
    assert_eq!((holder.owner, holder.holds), (Some(stranger.clone()), 2));
    assert!(!lock.read().is_locked().await.unwrap());
    let error = lock.read().acquire().wait(SECOND / 10).await.unwrap_err();
    assert!(matches!(error, AcquireError::Timeout { holder: Some(holder), .. } if holder == stranger));
    let mut readers = JoinSet::new();
    for _ in 0..20 {
        readers.spawn(lock.read().acquire().into_future());
    }
    subscribed(&server, CHANNEL, 1).await;
    sleep(SECOND / 10).await;
    server.cli(&["DEL", "n"]);
    server.cli(&["PUBLISH", CHANNEL, "1"]);
    let readers = soon("all readers", readers.join_all()).await;
    assert!(readers.iter().all(|reader| reader.as_ref().is_ok_and(|reader| reader.is_held())));
}

async fn a_waiting_preferred_writer_sets_and_removes_its_flag(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = connect(server.url()).await;
    let lock = client.rw_lock("n").prefer_writers();
    let reads = lock.read().acquire().await.unwrap();
    assert!(lock.write().try_acquire().await.unwrap().is_none());
    assert_eq!(pttl(&server, MARK), -2, "an attempt without a wait sets none");

    let me = Owner::number(1);
    let waiter = tokio::spawn(lock.write().acquire().as_owner(&me).into_future());
    until("the mark", || pttl(&server, MARK) > 0).await;
    assert_eq!(server.cli(&["GET", MARK]), name_of(&client, 1).as_str());
    assert!(pttl(&server, MARK) <= 2000);
    renewed(&server, MARK).await;
    assert_eq!(published.take(), []);
    waiter.abort();
    until("it is gone", || pttl(&server, MARK) == -2).await;
    assert_eq!(published.take(), told("1"));

    let waiter = tokio::spawn(lock.write().acquire().into_future());
    until("the mark", || pttl(&server, MARK) > 0).await;
    reads.release().await.unwrap();
    let guard = soon("the writer", waiter).await.unwrap().unwrap();
    assert_eq!(keys(&server), ["n"]);
    guard.release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
    assert_eq!(published.take(), [told("0"), told("1")].concat());

    // The waiting-writer flag of another owner stays, and expires by itself.
    server.cli(&["SET", MARK, REDISSON, "PX", "300"]);
    assert!(lock.read().try_acquire().await.unwrap().is_none());
    assert!(client.rw_lock("n").read().try_acquire().await.unwrap().is_some());
    drop(soon("the writer", lock.write().acquire().into_future()).await.unwrap());
    assert!(soon("the reader", lock.read().acquire().into_future()).await.unwrap().is_held());
}

async fn a_key_that_is_not_a_read_write_lock_is_refused_and_left_unchanged(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.rw_lock("n");
    let plain = client.lock("n").acquire().await.unwrap();
    for text in [false, true] {
        if text {
            server.cli(&["SET", "n", "a text"]);
        }
        let refused =
            |error: AcquireError| matches!(error, AcquireError::Server { cause: ServerError::NotALock, .. });
        assert!(refused(lock.read().acquire().await.unwrap_err()));
        assert!(refused(lock.write().try_acquire().await.unwrap_err()));
        assert!(refused(lock.write().acquire().steal().await.unwrap_err()));
        assert!(matches!(
            lock.read().is_locked().await,
            Err(QueryError::Server { cause: ServerError::NotALock, .. })
        ));
        assert!(!text || server.cli(&["GET", "n"]) == "a text");
        assert!(text || plain.is_held() && client.lock("n").is_locked().await.unwrap());
        assert_eq!(keys(&server), ["n"]);
    }
}

async fn an_uncontended_step_of_a_read_write_lock_is_one_request(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.rw_lock("n");
    for warm in [true, false] {
        let mut monitor = server.monitor();
        let mut sent = |what: &str, count: usize| {
            let sent = monitor.take_sent();
            assert!(warm || sent.len() == count, "{what}: {sent:?}");
        };
        let reads = lock.read().acquire().await.unwrap();
        sent("a read", 1);
        let writes = reads.try_upgrade().await.unwrap();
        sent("an upgrade", 1);
        writes.release().await.unwrap();
        sent("a release", 1);
        reads.release().await.unwrap();
        sent("a release", 1);
        let writes = lock.write().acquire().await.unwrap();
        sent("a write", 1);
        let reads = writes.downgrade().await.unwrap();
        sent("a downgrade, which is a read and a release", 2);
        reads.release().await.unwrap();
        sent("a release", 1);
    }
}

async fn wd_03_a_restart_without_data_is_reported_to_readers_and_writers(flavour: Flavour) {
    let mut server = Server::start(flavour);
    let client = Client::connect(server.url()).watchdog(SECOND * 3).await.unwrap();
    let reads = client.rw_lock("n").read().acquire().await.unwrap();
    let writes = client.rw_lock("m").write().acquire().await.unwrap();
    server.restart();
    assert_eq!(soon("the loss", reads.lost()).await, Loss::Gone);
    assert_eq!(soon("the loss", writes.lost()).await, Loss::Gone);
    assert!(reads.release().await.is_err() && writes.release().await.is_err());
    assert_eq!(keys(&server), [""; 0]);
    // Both are renewed again.
    let reads = client.rw_lock("n").read().acquire().await.unwrap();
    let writes = client.rw_lock("m").write().acquire().await.unwrap();
    renewed(&server, "n").await;
    renewed(&server, "m").await;
    assert!(reads.is_held() && writes.is_held());
}
