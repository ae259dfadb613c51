//! The Redis engine on real servers: its wire format, its cost, and the faults that it survives.
//!
//! Every test has a server of its own, so it may stop, starve and inspect it. Tests that measure time take turns.

/// Runs every case on both servers.
macro_rules! on_both {
    ($($case:ident)+) => {
        mod redis {
            $(#[tokio::test]
            async fn $case() {
                super::$case(super::Flavour::Redis).await;
            })+
        }
        mod valkey {
            $(#[tokio::test]
            async fn $case() {
                super::$case(super::Flavour::Valkey).await;
            })+
        }
    };
}

mod access;
mod address;
mod announcement;
mod batches;
mod cancellation;
mod codes;
mod cost;
mod counters;
mod credentials;
mod diagnosis;
mod endangered;
mod endless;
mod failover;
mod fake;
mod fence;
mod fenced;
mod forwarder;
mod generations;
mod half_open;
mod handover;
mod handshake;
mod heartbeat;
mod identity;
mod lazy;
mod listing;
mod order;
mod outage;
mod owners;
mod process;
mod published;
mod quorum;
mod quorum_loss;
mod readiness;
mod redis_py;
mod reentry;
mod refusal;
mod registration;
mod runtime;
mod setnx;
mod slow;
mod spin;
mod tampering;
mod through_outage;
mod tls;
mod token_retention;
mod undo;
mod wire;
mod wire_counters;
mod wire_fair;
mod wire_group;
mod wire_rw;
mod without_publish;

use std::future::Future;
use std::time::Duration;

use leasehold::{AcquireError, Client, Guard, Lock};
use leasehold_testkit::resp::Value;
use leasehold_testkit::server::Server;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
/// How long any step may take that has no duration of its own.
const LONG: Duration = Duration::from_secs(15);

/// The task of a waiter.
type Waiter = JoinHandle<Result<Guard, AcquireError>>;

/// The turn of a test whose timing is disturbed by other heavy tests.
async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

async fn connect(url: impl Into<String>) -> Client {
    Client::connect(url).await.expect("the server is there")
}

/// Polls until it has happened.
async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LONG, "not within {LONG:?}: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for a result, but not for ever.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(LONG, work).await.unwrap_or_else(|_| panic!("not within {LONG:?}: {what}"))
}

/// The guard that a waiter gets.
async fn granted(waiter: Waiter) -> Guard {
    soon("the waiter ends", waiter).await.expect("no panic").expect("the lock")
}

/// The lock, as soon as there is a connection again.
async fn acquired(lock: &Lock) -> Guard {
    let start = Instant::now();
    loop {
        match soon("an acquire", lock.acquire().into_future()).await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_unavailable() && start.elapsed() < LONG, "{error}"),
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// A waiter, once the server has its subscription.
async fn waiting(server: &Server, lock: &Lock, channel: &str) -> Waiter {
    let waiter = tokio::spawn(lock.acquire().into_future());
    subscribed(server, channel, 1).await;
    waiter
}

/// Waits until a channel has this many subscribers.
async fn subscribed(server: &Server, channel: &str, count: i64) {
    until(&format!("{count} subscribers of {channel}"), || subscribers(server, channel) == count).await;
}

fn subscribers(server: &Server, channel: &str) -> i64 {
    number(&server.cli(&["PUBSUB", "NUMSUB", channel]).elements()[1])
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        other => panic!("not a number: {other:?}"),
    }
}

/// A list of strings, sorted.
fn strings(value: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let mut strings: Vec<_> = value.elements().iter().map(text).collect();
    strings.sort();
    strings
}

/// All keys of the server, but for those that tell who a client is.
fn keys(server: &Server) -> Vec<String> {
    without_clients(&server.cli(&["KEYS", "*"]))
}

/// The keys of a list, but for those that tell who a client is.
fn without_clients(keys: &Value) -> Vec<String> {
    let mut keys = strings(keys);
    keys.retain(|key| !key.starts_with("leasehold:client:"));
    keys
}

/// All channels that have subscribers.
fn channels(server: &Server) -> Vec<String> {
    strings(&server.cli(&["PUBSUB", "CHANNELS", "*"]))
}

/// How many milliseconds a key has left; less than zero if it has no limit or does not exist.
fn pttl(server: &Server, key: &str) -> i64 {
    number(&server.cli(&["PTTL", key]))
}

/// Waits until the lease of a key has just begun anew.
async fn renewed(server: &Server, key: &str) {
    let mut last = pttl(server, key);
    until("a renewal", || {
        let left = pttl(server, key);
        std::mem::replace(&mut last, left) < left
    })
    .await;
}

/// A duration in milliseconds, as the server counts.
fn ms(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).expect("a short time")
}

/// Writes a lock of another owner, as Redisson writes it.
fn take_as_redisson(server: &Server, key: &str, lease: Duration) {
    // In one step: a request in between would find no lock.
    let script = "redis.call('del', KEYS[1]) redis.call('hset', KEYS[1], ARGV[1], 1) \
                  return redis.call('pexpire', KEYS[1], ARGV[2])";
    let lease = lease.as_millis().to_string();
    assert_eq!(server.cli(&["EVAL", script, "1", key, REDISSON, &lease]), 1);
}

/// Frees it as Redisson does.
fn free_as_redisson(server: &Server, key: &str, channel: &str) {
    server.cli(&["DEL", key]);
    server.cli(&["PUBLISH", channel, "0"]);
}

/// A thread of some Java client.
const REDISSON: &str = "71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:42";
