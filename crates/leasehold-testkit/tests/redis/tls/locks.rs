//! Locks over TLS.

#![expect(clippy::unwrap_used, reason = "every function is a part of a test")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use leasehold::{Client, Credentials, Lock};
use leasehold_testkit::certificates::Certificates;
use tokio::task::JoinSet;

use super::Secure;
use crate::{
    LONG, SECOND, connect, free_as_redisson, granted, keys, pttl, renewed, soon, subscribed,
    take_as_redisson, until, waiting,
};

const CHANNEL: &str = "redisson_lock__channel:{n}";

#[tokio::test]
async fn a_lock_is_acquired_waited_for_and_released() {
    let secure = Secure::start();
    let (client, other) = (secure.client().await, secure.client().await);
    let guard = client.lock("n").acquire().await.unwrap();
    assert_eq!(keys(&secure.server), ["n"]);
    assert!(other.lock("n").try_acquire().await.unwrap().is_none());
    let waiter = waiting(&secure.server, &other.lock("n"), CHANNEL).await;
    guard.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    assert_eq!(keys(&secure.server), [""; 0]);
}

#[tokio::test]
async fn both_versions_of_tls_work() {
    for version in ["TLSv1.2", "TLSv1.3"] {
        let secure = Secure::configured(Certificates::server, |builder| {
            builder.config(format!("tls-protocols \"{version}\""))
        });
        let client = secure.client().await;
        client.lock("n").acquire().await.expect(version).release().await.expect(version);
    }
}

#[tokio::test]
async fn a_lock_is_renewed() {
    let secure = Secure::start();
    let client = Client::connect(secure.url()).watchdog(SECOND * 3 / 2).await.unwrap();
    let guard = client.lock("n").acquire().await.unwrap();
    for _ in 0..4 {
        renewed(&secure.server, "n").await;
    }
    assert!(guard.is_held() && pttl(&secure.server, "n") > 0);
    guard.release().await.unwrap();
}

/// Adds one to a number that nothing but the lock protects, this often.
async fn add(lock: Lock, value: Arc<Mutex<u64>>, times: u64) {
    for _ in 0..times {
        let guard = lock.acquire().await.unwrap();
        let seen = *value.lock().unwrap();
        tokio::task::yield_now().await;
        *value.lock().unwrap() = seen + 1;
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn tasks_and_plain_threads_of_several_clients_take_turns() {
    let secure = Secure::start();
    let value = Arc::new(Mutex::new(0));
    let mut tasks = JoinSet::new();
    let mut threads = Vec::new();
    for client in [secure.client().await, secure.client().await] {
        for _ in 0..8 {
            tasks.spawn(add(client.lock("n"), Arc::clone(&value), 50));
        }
        let (lock, value) = (client.lock("n"), Arc::clone(&value));
        threads.push(thread::spawn(move || {
            for _ in 0..50 {
                let guard = lock.acquire().block().unwrap();
                let seen = *value.lock().unwrap();
                thread::yield_now();
                *value.lock().unwrap() = seen + 1;
                guard.release().block().unwrap();
            }
        }));
    }
    soon("all turns", tasks.join_all()).await;
    until("the threads end", || threads.iter().all(thread::JoinHandle::is_finished)).await;
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    assert_eq!(*value.lock().unwrap(), 2 * 9 * 50);
    until("nothing is left", || keys(&secure.server).is_empty()).await;
}

/// A client that was made on no runtime reads on its own thread alone.
#[test]
fn a_client_without_a_runtime_waits_and_is_woken() {
    let secure = Secure::start();
    let client = Client::connect(secure.url()).block().unwrap();
    take_as_redisson(&secure.server, "n", SECOND * 60);
    let waiter = {
        let lock = client.lock("n");
        thread::spawn(move || lock.acquire().wait(LONG).block().map(drop))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(subscribed(&secure.server, CHANNEL, 1));
    free_as_redisson(&secure.server, "n", CHANNEL);
    waiter.join().unwrap().unwrap();
}

/// The I/O thread cannot read while a source of credentials blocks it, so whatever is read meanwhile is read by the runtime of
/// the callers.
#[tokio::test]
async fn the_runtime_of_the_callers_reads() {
    let secure = Secure::start();
    let (asked, is_asked) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let first = Mutex::new(true);
    let connect = Client::connect(secure.url()).credentials(move || {
        if !std::mem::take(&mut *first.lock().unwrap()) {
            asked.send(()).unwrap();
            // Until the test goes on, or fails.
            let _ = may_go_on.lock().unwrap().recv();
        }
        async { Ok::<_, Infallible>(Credentials::new("default", "")) }
    });
    let client = connect.await.unwrap();
    take_as_redisson(&secure.server, "n", SECOND * 60);
    // Waiting needs a second connection.
    let waiter = tokio::spawn(client.lock("n").acquire().into_future());
    until("the I/O thread is blocked", || is_asked.try_recv().is_ok()).await;
    let lock = client.lock("m");
    for _ in 0..20 {
        soon("an acquire", lock.acquire().into_future()).await.unwrap().release().await.unwrap();
    }
    go_on.send(()).unwrap();
    subscribed(&secure.server, CHANNEL, 1).await;
    free_as_redisson(&secure.server, "n", CHANNEL);
    granted(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn many_tasks_of_one_client_hand_the_lock_over_without_the_server() {
    let secure = Secure::start();
    let client = secure.client().await;
    let value = Arc::new(Mutex::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        tasks.spawn(add(client.lock("n"), Arc::clone(&value), 50));
    }
    soon("all turns", tasks.join_all()).await;
    assert_eq!(*value.lock().unwrap(), 16 * 50);
    let info = secure.server.cli(&["INFO", "commandstats"]);
    let info = info.as_str().unwrap();
    let calls = |line: &str| line.split(['=', ',']).nth(1)?.parse::<usize>().ok();
    let evals: usize = info.lines().filter(|line| line.starts_with("cmdstat_eval")).filter_map(calls).sum();
    assert!(evals < 16 * 50 / 2, "{evals} requests");
}

/// More than the buffers of both ends of a socket have room for. The server reads nothing until all of it is written, and what
/// is encrypted and not sent must not be forgotten.
#[tokio::test]
async fn twenty_thousand_long_names_at_once_are_all_served() {
    const NAMES: usize = 20_000;
    let secure = Secure::start();
    let client = Client::connect(secure.url()).response_timeout(SECOND * 60).await.unwrap();
    connect(secure.url()).await.lock("warm-up").acquire().await.unwrap().release().await.unwrap();
    let filler = "x".repeat(1000);
    secure.server.pause();
    let mut tasks = JoinSet::new();
    for index in 0..NAMES {
        let lock = client.lock(format!("{index}:{filler}"));
        tasks.spawn(async move { lock.acquire().await.map(std::mem::forget) });
    }
    // All have been polled then.
    tokio::time::sleep(Duration::from_millis(100)).await;
    secure.server.resume();
    let all = async {
        while let Some(acquired) = tasks.join_next().await {
            acquired.unwrap().unwrap();
        }
    };
    tokio::time::timeout(SECOND * 60, all).await.expect("all are served");
    assert_eq!(keys(&secure.server).len(), NAMES);
}
