//! The thread of a client ends with its last handle, whatever the server does.

use std::fs;
use std::time::Duration;

use leasehold::{Client, Loss};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::resp::Connection;
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{part, run_part, server_of_part, take, wait_until};

const SECOND: Duration = Duration::from_secs(1);

/// How many threads of this process belong to clients.
fn io_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("this test reads Linux's /proc");
    let names = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.trim() == "leasehold-io").count()
}

fn no_thread_within(limit: Duration) {
    wait_until(limit, || match io_threads() {
        0 => Ok(()),
        left => Err(format!("{left} threads are left")),
    });
}

#[test]
fn ten_thousand_guards_and_their_client_leave_nothing_behind() {
    let server = Server::start(Flavour::Redis);
    run_part(&mut part("threads::child_process_with_ten_thousand_guards", &server));
}

#[test]
fn child_process_with_ten_thousand_guards() {
    let Some(port) = server_of_part() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut server = Connection::open(port).unwrap();
    runtime.block_on(async {
        let client = Client::connect(format!("redis://127.0.0.1:{port}"))
            .linger(10 * SECOND)
            .anonymous()
            .await
            .unwrap();
        assert_eq!(io_threads(), 1);
        let begun = Instant::now();
        let mut guards = take(&client, "name", 10_000).await;
        println!("10 000 guards: taken in {:.1?}", begun.elapsed());
        assert_eq!(server.call(&["DBSIZE"]).unwrap(), 10_000);

        // Half of them end in time, the others do not.
        let late = guards.split_off(5_000);
        let lost = late[0].lost();
        drop(guards);
        assert_eq!(client.shutdown(SECOND / 10).await.left_to_expire, 5_000);
        assert!(late.iter().all(|guard| !guard.is_held()));
        assert_eq!(lost.await, Loss::Shutdown);
        wait_until(10 * SECOND, || match server.call(&["DBSIZE"]).unwrap() {
            left if left == 5_000 => Ok(()),
            left => Err(left),
        });

        // Their work is over now; the client ends with the last of them.
        drop(client);
        let begun = Instant::now();
        drop(late);
        println!("10 000 guards: the last 5 000 and the client dropped in {:.1?}", begun.elapsed());
        assert_eq!(server.call(&["DBSIZE"]).unwrap(), 0, "the client waits for what it owes");
        no_thread_within(5 * SECOND);
    });
}

/// The fault of the server when a client is dropped.
#[derive(Clone, Copy, Debug)]
enum Outage {
    /// Connections are cut and refused.
    Refused,
    /// Connections stay open and silent, new ones too.
    Silent,
    /// The same after a cut, so that the client is just setting up a new connection.
    SilentAfterCut,
    /// Every reply is late.
    Late,
}

#[test]
fn the_thread_of_a_client_dropped_in_an_outage_ends() {
    let server = Server::start(Flavour::Redis);
    run_part(&mut part("threads::child_process_that_drops_clients_in_outages", &server));
}

#[test]
fn child_process_that_drops_clients_in_outages() {
    let Some(port) = server_of_part() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for outage in [Outage::Refused, Outage::Silent, Outage::SilentAfterCut, Outage::Late] {
        // At once, before the client notices the fault, and later, while it handles the fault.
        for after in [Duration::ZERO, SECOND / 20, SECOND / 2] {
            runtime.block_on(go_in(port, outage, after));
        }
    }
}

async fn go_in(port: u16, outage: Outage, after: Duration) {
    let proxy = Proxy::start(port);
    let client = Client::connect(proxy.url())
        .namespace(format!("{outage:?} {after:?}:"))
        .connect_timeout(SECOND / 2)
        .response_timeout(SECOND / 2)
        .linger(SECOND / 4)
        .await
        .expect("there is no outage yet");
    // One of each: a hold, an owner's second hold, a waiter with its subscription.
    let guard = client.lock("a").acquire().await.expect("no other waiter");
    let inner = guard.reenter().await.expect("it is held");
    let waiter = tokio::spawn(client.lock("a").acquire().wait(30 * SECOND).into_future());
    while proxy.open(Which::PubSub) == 0 {
        sleep(SECOND / 100).await;
    }
    match outage {
        Outage::Refused => proxy.refuse(),
        Outage::Silent => proxy.blackhole(Which::All),
        Outage::SilentAfterCut => {
            proxy.blackhole(Which::All);
            proxy.cut(Which::All);
        }
        Outage::Late => proxy.delay(Which::All, 2 * SECOND),
    }
    sleep(after).await;
    let begun = Instant::now();
    // An attempt and a release in flight, a dropped guard, and then no handle any more.
    let _ = timeout(SECOND / 100, client.lock("b").acquire().into_future()).await;
    let _ = timeout(SECOND / 100, inner.release()).await;
    drop(guard);
    waiter.abort();
    let _ = waiter.await;
    drop(client);
    let dropped = begun.elapsed();
    no_thread_within(5 * SECOND);
    println!("{outage:?} for {after:?}: gone after {dropped:.1?}, its thread after {:.1?}", begun.elapsed());
    assert!(dropped < 2 * SECOND, "{outage:?}, {after:?}: dropping took {dropped:?}");
}
