//! Many holds in one request: an error in one of them does not affect the others.

#![expect(clippy::unwrap_used, reason = "what a case takes is there")]

use std::time::Duration;

use leasehold::{Client, Guard, LeasedPermits, ReadGuard, WriteGuard};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::sleep;

use crate::{alone, connect, number, pttl, soon, until};

const LEASE: Duration = Duration::from_secs(2);

/// A hold of any kind.
trait Held {
    fn held(&self) -> bool;
}

macro_rules! held {
    ($($guard:ty)+) => {
        $(impl Held for $guard {
            fn held(&self) -> bool {
                self.is_held()
            }
        })+
    };
}
held! { Guard ReadGuard WriteGuard LeasedPermits }

const KINDS: [&str; 7] = ["lock", "fair", "setnx", "read", "write", "group", "leased"];

/// Acquires one of a kind, under a name of its own, and returns the key of its hold.
async fn take(client: &Client, kind: &str, n: usize) -> (Box<dyn Held>, String) {
    let name = format!("{kind}{n}");
    let held: Box<dyn Held> = match kind {
        "lock" => Box::new(client.lock(&name).acquire().await.unwrap()),
        "fair" => Box::new(client.fair_lock(&name).acquire().await.unwrap()),
        "setnx" => Box::new(client.setnx_lock(&name).acquire().await.unwrap()),
        "read" => Box::new(client.rw_lock(&name).read().acquire().await.unwrap()),
        "write" => Box::new(client.rw_lock(&name).write().acquire().await.unwrap()),
        "group" => Box::new(client.group_lock(&name, ["a", "b"]).acquire().await.unwrap()),
        _ => {
            let semaphore = client.leased_semaphore(&name);
            semaphore.try_set_permits(5).await.unwrap();
            Box::new(semaphore.acquire(2).await.unwrap())
        }
    };
    (held, if kind == "leased" { format!("{{{name}}}:timeout") } else { name })
}

/// Overwrites a key: with another type, or with the same type and meaningless fields.
fn overwrite(server: &Server, key: &str, garble: bool) {
    let script = if garble {
        "for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
            local value = redis.call('hget', KEYS[1], field)
            if tonumber(value) then redis.call('hset', KEYS[1], field, 'no number') end
        end"
    } else {
        "redis.call('del', KEYS[1]) redis.call('rpush', KEYS[1], 'something else')"
    };
    server.cli(&["EVAL", script, "1", key]);
}

#[tokio::test]
async fn an_overwritten_key_loses_its_own_hold_and_no_other_hold_of_the_batch() {
    let _alone = alone().await;
    for flavour in Flavour::ALL {
        let server = Server::start(flavour);
        let client = Client::connect(server.url()).watchdog(LEASE).await.unwrap();
        let mut holds = Vec::new();
        for kind in KINDS {
            for n in 0..6 {
                holds.push((kind, n, take(&client, kind, n).await));
            }
        }
        let is_hash = |kind| ["read", "group"].contains(&kind);
        let is_overwritten = |kind, n: usize| n == 2 || n == 4 && is_hash(kind);
        for (kind, n, (_, key)) in &holds {
            if is_overwritten(*kind, *n) {
                overwrite(&server, key, *n == 4);
            }
        }
        let lost = || {
            holds.iter().filter(|(kind, n, _)| is_overwritten(*kind, *n)).all(|(.., (hold, _))| !hold.held())
        };
        until("what was overwritten is lost", lost).await;
        // The others are renewed more than once.
        sleep(LEASE * 3 / 2).await;
        let others = holds.iter().filter(|(kind, n, _)| !is_overwritten(*kind, *n));
        let lost: Vec<_> = others
            .filter(|(kind, _, (hold, key))| !hold.held() || *kind != "leased" && pttl(&server, key) <= 0)
            .map(|(kind, n, _)| format!("{kind} {n}"))
            .collect();
        assert_eq!(lost, [""; 0], "{flavour:?}: of those that were not overwritten");
    }
}

/// The waiters for fair locks of one client share a heartbeat.
#[tokio::test]
async fn an_overwritten_queue_removes_no_waiter_from_another_queue() {
    let server = Server::start(Flavour::Redis);
    let (holder, client) = (connect(server.url()).await, connect(server.url()).await);
    // Many of them have an intact queue: in any order of the request, most follow a broken one.
    let names = ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"];
    let broken = [
        "redisson_lock_queue:{b}",
        "redisson_lock_timeout:{c}",
        "leasehold_lock_marks:{d}",
        "leasehold_lock_waits:{e}",
    ];
    let (mut held, mut waiters) = (Vec::new(), Vec::new());
    for name in names {
        held.push(holder.fair_lock(name).acquire().await.unwrap());
        waiters.push(tokio::spawn(client.fair_lock(name).acquire().into_future()));
        let queue = format!("redisson_lock_queue:{{{name}}}");
        until("it is queued", || number(&server.cli(&["LLEN", &queue])) == 1).await;
    }
    for key in broken {
        server.cli(&["SET", key, "something else"]);
    }
    // Longer than a waiter without a heartbeat counts as alive.
    sleep(Duration::from_millis(4500)).await;
    for (name, (guard, waiter)) in names.into_iter().zip(held.into_iter().zip(waiters)) {
        if broken.iter().all(|key| !key.ends_with(&format!("{{{name}}}"))) {
            // An attempt to acquire removes waiters without a heartbeat.
            assert!(holder.fair_lock(name).try_acquire().await.unwrap().is_none());
            assert_eq!(holder.fair_lock(name).queue().await.unwrap().len(), 1, "{name}");
            guard.release().await.unwrap();
            soon("its turn", waiter).await.unwrap().unwrap().release().await.unwrap();
        } else {
            waiter.abort();
        }
    }
}
