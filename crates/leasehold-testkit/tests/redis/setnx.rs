//! The lock by `SET … NX`: its keys, its cost, and its behaviour beside other programs that write such keys.

use std::future::{IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{AcquireError, Client, Loss, Owner, ReleaseError, ServerError};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::resp::Value;
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::{
    SECOND, acquired, channels, connect, granted, keys, pttl, renewed, soon, subscribed, take_as_redisson,
    until,
};

const CHANNEL: &str = "leasehold_setnx__channel:{n}";
/// The value that another library writes.
const FOREIGN: &str = "0d5a3b8c11f04e9d9d1a";

/// Acquires the lock as other libraries do; false if it is held.
fn take_as_another(server: &Server, lease: Duration) -> bool {
    let lease = lease.as_millis().to_string();
    server.cli(&["SET", "n", FOREIGN, "NX", "PX", &lease]) == "OK"
}

#[tokio::test]
async fn a_setnx_lock_is_one_string_with_its_owner() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let mut messages = server.subscribe(&[CHANNEL]);
        let client = Client::connect(server.url()).watchdog(SECOND * 3).await.unwrap();
        let lock = client.setnx_lock("n");
        let guard = lock.acquire().as_owner(Owner::number(7)).await.unwrap();
        assert_eq!(server.cli(&["GET", "n"]), format!("{}:7", client.id()).as_str());
        assert!((2_000..=3_000).contains(&pttl(&server, "n")));
        renewed(&server, "n").await;
        assert_eq!(keys(&server), ["n"]);
        assert!(messages.take().is_empty());
        guard.release().await.unwrap();
        assert_eq!((keys(&server), messages.take().len()), (vec![], 1));
        drop(lock.acquire().await.unwrap());
        until("the dropped guard is given back", || keys(&server).is_empty()).await;
        until("it is announced", || messages.take().len() == 1).await;
        let _victim = lock.acquire().await.unwrap();
        assert!(lock.force_unlock().await.unwrap());
        assert_eq!((keys(&server), messages.take().len()), (vec![], 1));
        let token = lock.acquire().fenced().await.unwrap().token();
        assert_eq!((token, server.cli(&["GET", "redisson_lock_token:{n}"]) == "1"), (1, true));
    }
}

#[tokio::test]
async fn own_66_an_uncontended_setnx_acquire_is_one_command_and_a_release_one_round_trip() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let release = match delete_command(&server) {
            None => vec!["\"EVALSHA\"".to_owned()],
            // Both are sent at once: the caller does not wait for the second.
            Some(command) => vec![format!("\"{}\"", command.to_uppercase()), "\"PUBLISH\"".into()],
        };
        let client = connect(server.url()).await;
        let lock = client.setnx_lock("n");
        lock.acquire().await.unwrap().release().await.unwrap();
        let mut monitor = server.monitor();
        let guard = lock.acquire().await.unwrap();
        let sent = monitor.take_sent();
        let owner = guard.owner();
        assert_eq!(sent, [format!(r#""SET" "n" "{owner}" "NX" "PX" "30000""#)]);
        guard.release().await.unwrap();
        let sent = monitor.take_sent();
        let names: Vec<_> = sent.iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(names, release, "{sent:?}");
    }
}

#[tokio::test]
async fn a_release_of_a_setnx_lock_wakes_waiters_of_other_clients() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let (client, other) = (connect(server.url()).await, connect(server.url()).await);
        let (lock, elsewhere) = (client.setnx_lock("n"), other.setnx_lock("n"));
        let mut delays = Vec::new();
        for _ in 0..10 {
            let held = lock.acquire().await.unwrap();
            let waiter = tokio::spawn(elsewhere.acquire().into_future());
            subscribed(&server, CHANNEL, 1).await;
            let begun = Instant::now();
            held.release().await.unwrap();
            granted(waiter).await.release().await.unwrap();
            delays.push(begun.elapsed());
            until("there is no waiter", || channels(&server).is_empty()).await;
        }
        // The shortest pause between two polls is 100 ms: shorter delays in most of ten rounds are no coincidence.
        delays.sort();
        assert!(delays[6] < Duration::from_millis(90), "{delays:?}");
    }
}

#[tokio::test]
async fn a_setnx_lock_held_by_another_library_is_polled_until_free() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let lock = connect(server.url()).await.setnx_lock("n");
        assert!(take_as_another(&server, SECOND * 60));
        let holder = lock.holder().await.unwrap().unwrap();
        assert_eq!((holder.owner, holder.holds), (None, 1));
        assert!(lock.is_locked().await.unwrap() && lock.try_acquire().await.unwrap().is_none());
        let over = lock.acquire().wait(SECOND / 4).await.unwrap_err();
        assert!(matches!(over, AcquireError::Timeout { holder: None, .. }), "{over:?}");

        // It is released without a message.
        let mut monitor = server.monitor();
        let waiter = tokio::spawn(lock.acquire().into_future());
        sleep(SECOND * 2).await;
        let looks = monitor.take_sent().iter().filter(|line| line.starts_with("\"SET\"")).count();
        assert!((5..=22).contains(&looks), "{looks} polls in 2 s");
        server.cli(&["DEL", "n"]);
        let begun = Instant::now();
        let guard = granted(waiter).await;
        assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
        assert!(!take_as_another(&server, SECOND), "they wait for us, too");
        guard.release().await.unwrap();

        // It expires.
        assert!(take_as_another(&server, SECOND / 2));
        let guard = soon("the lock", lock.acquire().into_future()).await.unwrap();
        assert!(take_as_another(&server, SECOND).eq(&false) && guard.is_held());
        drop(guard);
        until("it is given back", || keys(&server).is_empty()).await;

        // It has no time to live at all.
        assert_eq!(server.cli(&["SET", "n", FOREIGN]), "OK");
        let waiter = tokio::spawn(lock.acquire().into_future());
        sleep(SECOND / 4).await;
        assert!(!waiter.is_finished());
        server.cli(&["DEL", "n"]);
        drop(granted(waiter).await);
    }
}

#[tokio::test]
async fn a_stale_setnx_guard_does_not_affect_a_lock_acquired_by_another_library() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let client = Client::connect(server.url()).watchdog(SECOND).await.unwrap();
        let lock = client.setnx_lock("n");
        let (dropped, released) = (lock.acquire().await.unwrap(), client.setnx_lock("m"));
        let released = released.acquire().await.unwrap();
        for key in ["n", "m"] {
            assert_eq!(server.cli(&["SET", key, FOREIGN, "PX", "60000"]), "OK");
        }
        // Before the client detects the loss, and after.
        let error = released.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::NotHeld { loss: Loss::Gone, .. }), "{error:?}");
        assert_eq!(soon("the loss", dropped.lost()).await, Loss::TakenOver);
        drop(dropped);
        sleep(SECOND / 5).await;
        for key in ["n", "m"] {
            assert_eq!(server.cli(&["GET", key]), FOREIGN);
            assert!(pttl(&server, key) > 50_000, "and it is not renewed");
        }
    }
}

#[tokio::test]
async fn a_setnx_lock_and_a_plain_lock_of_one_name_refuse_each_other() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let client = connect(server.url()).await;
        let not_a_lock = |error: AcquireError| {
            assert!(matches!(error, AcquireError::Server { cause: ServerError::NotALock, .. }), "{error:?}");
        };
        take_as_redisson(&server, "n", SECOND * 60);
        not_a_lock(client.setnx_lock("n").acquire().await.unwrap_err());
        not_a_lock(client.setnx_lock("n").acquire().steal().await.unwrap_err());
        not_a_lock(client.setnx_lock("n").acquire().fenced().await.unwrap_err());
        assert_eq!(server.cli(&["TYPE", "n"]), "hash");
        let guard = client.setnx_lock("m").acquire().await.unwrap();
        not_a_lock(client.lock("m").acquire().await.unwrap_err());
        // A key that has become another type is no longer held, and stays unchanged.
        server.cli(&["DEL", "m"]);
        server.cli(&["HSET", "m", "some", "thing"]);
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::NotHeld { loss: Loss::Gone, .. }), "{error:?}");
        assert_eq!(server.cli(&["TYPE", "m"]), "hash");
    }
}

#[tokio::test]
async fn a_setnx_acquire_without_a_reply_is_undone_and_a_release_is_carried_out() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let proxy = Proxy::start(server.port());
        let client = connect(proxy.url()).await;
        let (lock, owner) = (client.setnx_lock("n"), Owner::number(7));
        acquired(&lock).await.release().await.unwrap();
        for _ in 0..5 {
            proxy.lose_reply_once(Which::Command);
            let error = lock.try_acquire().as_owner(&owner).await.unwrap_err();
            assert!(error.is_unavailable(), "{error:?}");
            until("it is undone", || keys(&server).is_empty()).await;
            let guard = acquired(&lock).await;
            proxy.lose_reply_once(Which::Command);
            let error = guard.release().await.unwrap_err();
            assert!(matches!(error, ReleaseError::Unknown { .. }), "{error:?}");
            until("it is released", || keys(&server).is_empty()).await;
            // The same owner again: a repeated undo must not affect it.
            let guard = loop {
                match lock.acquire().as_owner(&owner).await {
                    Ok(guard) => break guard,
                    Err(error) => assert!(error.is_unavailable(), "{error:?}"),
                }
                sleep(Duration::from_millis(1)).await;
            };
            sleep(SECOND / 5).await;
            assert_eq!((guard.is_held(), keys(&server)), (true, vec!["n".to_owned()]));
            guard.release().await.unwrap();
        }
    }
}

/// The server's command that deletes a key if it has a value; none before Valkey 9 and Redis 8.4.
fn delete_command(server: &Server) -> Option<&'static str> {
    let has = |name: &&str| server.cli(&["COMMAND", "INFO", name]).elements()[0] != Value::Nil;
    ["delifeq", "delex"].into_iter().find(has)
}

#[tokio::test]
async fn a_denied_delete_command_is_replaced_by_the_script() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let mut rule = vec!["ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all"];
        let denied = delete_command(&server).map(|command| format!("-{command}"));
        rule.extend(denied.as_deref());
        assert_eq!(server.cli(&rule), "OK");
        let url = server.url().replace("redis://", "redis://worker:secret@");
        let lock = connect(url).await.setnx_lock("n");
        for _ in 0..3 {
            lock.acquire().await.unwrap().release().await.unwrap();
            assert_eq!(keys(&server), [""; 0]);
            drop(lock.acquire().await.unwrap());
            until("it is given back", || keys(&server).is_empty()).await;
        }
        let mut monitor = server.monitor();
        lock.acquire().await.unwrap().release().await.unwrap();
        let sent = monitor.take_sent();
        assert!(sent.len() == 2 && sent[1].starts_with("\"EVALSHA\""), "sent once: {sent:?}");
    }
}

#[tokio::test]
async fn a_server_out_of_memory_still_releases_a_setnx_lock() {
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let lock = connect(server.url()).await.setnx_lock("n");
        lock.acquire().await.unwrap().release().await.unwrap();
        let guard = lock.acquire().await.unwrap();
        server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        guard.release().await.unwrap();
        assert_eq!(keys(&server), [""; 0]);
        assert!(lock.try_acquire().await.unwrap_err().is_unavailable());
    }
}

#[tokio::test]
async fn only_the_front_waiter_of_a_setnx_lock_wakes_up_to_poll() {
    const WAITERS: usize = 200;
    let server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    assert!(take_as_another(&server, SECOND * 600));
    let polls = Arc::new(AtomicUsize::new(0));
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let (mut waiting, polls) = (client.setnx_lock("n").acquire().into_future(), Arc::clone(&polls));
        waiters.spawn(poll_fn(move |context| {
            polls.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut waiting).poll(context).map(drop)
        }));
    }
    until("all of them wait", || polls.load(Ordering::Relaxed) >= WAITERS).await;
    // They join the local wait queue sooner or later. If all polled, each would do so several times in any two seconds.
    let mut counts = Vec::new();
    while counts.last().is_none_or(|polls| *polls >= WAITERS / 2) {
        assert!(counts.len() < 4, "{counts:?} polls of {WAITERS} waiters in two seconds each");
        let before = polls.load(Ordering::Relaxed);
        sleep(SECOND * 2).await;
        counts.push(polls.load(Ordering::Relaxed) - before);
    }
    assert!(waiters.try_join_next().is_none(), "no waiter has got the lock");
}
