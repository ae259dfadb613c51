//! The guarantees about a loss, and the holes that `docs/guarantees.md` describes: each is shown to exist, and the holder is
//! notified as soon as stated there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{Client, ConnectOptions, Guard, Loss};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::resp::{Connection, Value};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{part, server_of_part, wait_until};

const SECOND: Duration = Duration::from_secs(1);
/// A removed lock goes undetected for a third of it at most.
const LEASE: Duration = Duration::from_millis(4500);
/// For a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

fn client(url: String) -> ConnectOptions {
    Client::connect(url).watchdog(LEASE).response_timeout(SECOND).connect_timeout(SECOND)
}

async fn connected_again(client: &Client) {
    let connected = async {
        while client.lock("b").try_acquire().await.is_err() {
            sleep(SECOND / 50).await;
        }
    };
    timeout(10 * SECOND, connected).await.expect("the server is there again");
}

#[tokio::test]
async fn a_guard_reports_its_loss_before_the_lease_ends_on_the_server() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = client(proxy.url()).watchdog(SECOND).await.unwrap();
    for round in 0..3 {
        let guard = client.lock("a").acquire().await.unwrap();
        // Sometimes after a renewal.
        sleep(SECOND / 4 * round).await;
        proxy.blackhole(Which::All);
        // From now on nothing is renewed: the guard's deadline and the server's can be compared.
        let ends_here = Instant::now() + guard.remaining();
        let Value::Int(left) = server.cli(&["PTTL", "a"]) else { panic!("PTTL is a number") };
        let ends_there = Instant::now() + Duration::from_millis(u64::try_from(left).unwrap() + 1);
        assert!(ends_here < ends_there, "{:?} too late", ends_here - ends_there);
        assert_eq!(guard.lost().await, Loss::Unreachable);
        assert!(!guard.is_held());
        proxy.cut(Which::All);
        proxy.heal();
        drop(guard);
        wait_until(
            5 * SECOND,
            || if server.cli(&["EXISTS", "a"]) == 0 { Ok(()) } else { Err("still there") },
        );
        connected_again(&client).await;
    }
}

#[tokio::test]
async fn the_lease_of_a_guard_counts_from_the_sending_of_its_request() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let client = client(proxy.url()).watchdog(4 * SECOND).await.unwrap();
    // Far more than the hundredth of the lease that is the safety margin of a guard.
    proxy.delay(Which::Command, SECOND / 4);
    let loses_in_time = |guard: &Guard, what: &str| {
        // In this order: any operation on the server in between makes its deadline later.
        let ends_here = Instant::now() + guard.remaining();
        let Value::Int(left) = server.cli(&["PTTL", guard.name()]) else { panic!("PTTL is a number") };
        let ends_there = Instant::now() + Duration::from_millis(u64::try_from(left).unwrap() + 1);
        assert!(ends_here < ends_there, "{what}: {:?} too late", ends_here - ends_there);
    };
    for lock in [client.lock("a"), client.setnx_lock("b")] {
        let guard = lock.acquire().lease(4 * SECOND).await.unwrap();
        loses_in_time(&guard, "granted");
        guard.extend(8 * SECOND).await.unwrap();
        loses_in_time(&guard, "extended");
        guard.release().await.unwrap();
        let guard = lock.acquire().await.unwrap();
        // Through several renewals.
        for _ in 0..70 {
            loses_in_time(&guard, "renewed");
            sleep(SECOND / 40).await;
        }
        assert!(guard.is_held(), "its renewals arrive in time");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_deleted_key_admits_a_second_holder_and_the_first_is_notified_within_a_third_of_the_lease() {
    let server = Server::start(Flavour::Redis);
    let (first, second) = (client(server.url()).await.unwrap(), client(server.url()).await.unwrap());
    let guard = first.lock("a").acquire().await.unwrap();
    server.cli(&["DEL", "a"]);
    let deleted = Instant::now();
    let other = second.lock("a").try_acquire().await.unwrap().expect("the key is gone");
    assert!(guard.is_held() && other.is_held(), "this is the hole");
    assert_eq!(timeout(LEASE, guard.lost()).await.unwrap(), Loss::TakenOver);
    assert!(deleted.elapsed() < LEASE / 3 + SLACK, "notified after {:?}", deleted.elapsed());
    assert!(other.is_held());
}

#[tokio::test]
async fn a_restart_without_data_admits_a_second_holder_and_the_first_is_notified_on_reconnection() {
    let mut server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let first = client(proxy.url()).watchdog(60 * SECOND).await.unwrap();
    let guard = first.lock("a").acquire().await.unwrap();
    // The first client does not notice the restart for a while.
    proxy.blackhole(Which::All);
    server.restart();
    let second = client(server.url()).await.unwrap();
    let other = second.lock("a").try_acquire().await.unwrap().expect("the server knows of nothing");
    assert!(guard.is_held() && other.is_held(), "this is the hole");
    proxy.heal();
    let healed = Instant::now();
    assert_eq!(timeout(10 * SECOND, guard.lost()).await.unwrap(), Loss::TakenOver);
    assert!(healed.elapsed() < SECOND + SLACK, "notified after {:?}", healed.elapsed());
    assert!(other.is_held());
}

#[tokio::test]
async fn a_restart_with_data_keeps_the_lock() {
    let mut server = Server::builder(Flavour::Redis).persistent().start();
    let first = client(server.url()).watchdog(60 * SECOND).await.unwrap();
    let guard = first.lock("a").acquire().await.unwrap();
    server.restart();
    let second = client(server.url()).await.unwrap();
    assert!(second.lock("a").try_acquire().await.unwrap().is_none());
    connected_again(&first).await;
    assert!(timeout(SECOND, guard.lost()).await.is_err());
    guard.release().await.unwrap();
    assert!(second.lock("a").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn an_eviction_admits_a_second_holder_and_the_first_is_notified_within_a_third_of_the_lease() {
    let server = Server::start(Flavour::Redis);
    let (first, second) = (client(server.url()).await.unwrap(), client(server.url()).await.unwrap());
    let guard = first.lock("a").acquire().await.unwrap();
    // Keys with a time to live are evicted first, and only locks have one here.
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1mb"]);
    server.cli(&["SET", "filler", "more than nothing"]);
    assert_eq!(server.cli(&["EXISTS", "a"]), 0);
    let evicted = Instant::now();
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let other = second.lock("a").try_acquire().await.unwrap().expect("the key is gone");
    assert!(guard.is_held() && other.is_held(), "this is the hole");
    assert_eq!(timeout(LEASE, guard.lost()).await.unwrap(), Loss::TakenOver);
    assert!(evicted.elapsed() < LEASE / 3 + SLACK, "notified after {:?}", evicted.elapsed());
}

#[tokio::test]
async fn a_failover_without_the_write_admits_a_second_holder_and_the_first_is_notified_in_time() {
    let mut primary = Server::start(Flavour::Redis);
    let replica =
        Server::builder(Flavour::Redis).config(format!("replicaof 127.0.0.1 {}", primary.port())).start();
    let link_is = |status: &str| {
        let replication = replica.cli(&["INFO", "replication"]);
        let line = format!("master_link_status:{status}");
        if replication.as_str().is_some_and(|text| text.contains(&line)) { Ok(()) } else { Err(replication) }
    };
    wait_until(20 * SECOND, || link_is("up"));
    let first = client(primary.url()).await.unwrap();
    // The replica falls behind: it cannot connect any more.
    primary.cli(&["CONFIG", "SET", "requirepass", "secret"]);
    let mut operator = Connection::open(primary.port()).unwrap();
    assert_eq!(operator.call(&["AUTH", "secret"]).unwrap(), "OK");
    operator.call(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap();
    wait_until(20 * SECOND, || link_is("down"));
    let asked = Instant::now();
    let guard = first.lock("a").acquire().await.unwrap();
    primary.kill();
    assert_eq!(replica.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    let second = client(replica.url()).await.unwrap();
    let other = second.lock("a").try_acquire().await.unwrap().expect("the replica does not have it");
    assert!(guard.is_held() && other.is_held(), "this is the hole");
    assert!(Instant::now() + guard.remaining() < asked + LEASE, "it ends after its lease");
    assert_eq!(guard.lost().await, Loss::Unreachable);
}

/// A naive worker: it checks the guard, and then it writes.
#[test]
fn child_process_that_is_paused_before_its_write() {
    let Some(port) = server_of_part() else { return };
    let client = client(format!("redis://127.0.0.1:{port}")).watchdog(SECOND / 2).block().unwrap();
    let guard = client.lock("a").acquire().block().unwrap();
    assert!(guard.is_held());
    println!("looked");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    Connection::open(port).unwrap().call(&["SET", "value", "first"]).unwrap();
    assert!(!guard.is_held(), "a later check reports the loss");
}

#[tokio::test]
async fn a_process_paused_between_check_and_write_writes_after_its_lease_has_ended() {
    let server = Server::start(Flavour::Redis);
    let mut command = part("holes::child_process_that_is_paused_before_its_write", &server);
    let mut first = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(first.stdout.take().unwrap()).lines();
    while !said.next().unwrap().unwrap().contains("looked") {}
    let stopped = Command::new("sh").args(["-c", &format!("kill -STOP {}", first.id())]).status().unwrap();
    assert!(stopped.success());

    let second = client(server.url()).await.unwrap();
    let guard = second.lock("a").acquire().wait(5 * SECOND).await.unwrap();
    server.cli(&["SET", "value", "second"]);
    // It continues as if nothing had happened, and makes its pending write.
    let resumed = Command::new("sh").args(["-c", &format!("kill -CONT {}", first.id())]).status().unwrap();
    assert!(resumed.success());
    first.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert!(first.wait().unwrap().success());
    assert!(guard.is_held());
    assert_eq!(server.cli(&["GET", "value"]), "first", "this is the hole: only fencing closes it");
}
