//! The requests that are sent, and those that are not.

use std::time::Duration;

use leasehold::{Client, Guard};
use leasehold_testkit::proxy::{Proxy, Sent};
use leasehold_testkit::server::{Flavour, Server};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::{SECOND, alone, channels, connect, granted, keys, soon, subscribed, subscribers, until};

const CHANNEL: &str = "redisson_lock__channel:{n}";

/// Loads the scripts into the server.
async fn warm_up(client: &Client) {
    let lock = client.lock("warm-up");
    for _ in 0..2 {
        lock.acquire().await.expect("a free lock").release().await.expect("a held lock");
        drop(lock.acquire().await.expect("a free lock"));
        while lock.is_locked().await.expect("a reply") {}
    }
}

/// How many of the commands have this name.
fn count(sent: &[Sent], name: &str) -> usize {
    sent.iter().filter(|sent| sent.name == name).count()
}

#[tokio::test]
async fn an_uncontended_acquire_and_release_are_one_request_each() {
    let server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    warm_up(&client).await;
    let mut monitor = server.monitor();
    let guard = client.lock("n").acquire().await.unwrap();
    let sent = monitor.take_sent();
    assert!(sent.len() == 1 && sent[0].starts_with("\"EVALSHA\""), "{sent:?}");
    guard.release().await.unwrap();
    let sent = monitor.take_sent();
    assert!(sent.len() == 1 && sent[0].starts_with("\"EVALSHA\""), "{sent:?}");
    assert!(client.lock("n").try_acquire().await.unwrap().is_some());
    until("the guard is given back", || keys(&server).is_empty()).await;
    let sent = monitor.take_sent();
    let sent: Vec<_> = sent.iter().filter(|line| !line.starts_with("\"KEYS\"")).collect();
    assert_eq!(sent.len(), 2, "a dropped guard costs no more: {sent:?}");
}

#[tokio::test]
async fn several_locks_of_one_client_are_acquired_by_one_request() {
    let server = Server::start(Flavour::Redis);
    let client = connect(server.url()).await;
    warm_up(&client).await;
    let lock = client.multi_lock(["a", "b", "c"]);
    lock.acquire().await.unwrap().release().await.unwrap();
    let mut monitor = server.monitor();
    let guard = lock.acquire().await.unwrap();
    let sent = monitor.take_sent();
    assert!(sent.len() == 1 && sent[0].starts_with("\"EVALSHA\""), "{sent:?}");
    assert_eq!(keys(&server), ["a", "b", "c"]);
    guard.release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
}

#[tokio::test]
async fn a_sleeping_waiter_sends_no_request_but_asks_for_the_role_twice_a_second() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let (holder, client) = (connect(server.url()).await, connect(proxy.url()).await);
    warm_up(&client).await;
    let held = holder.lock("n").acquire().lease(SECOND * 60).await.unwrap();
    drop(proxy.take_sent());
    let waiter = tokio::spawn(client.lock("n").acquire().into_future());
    let mut sent = Vec::new();
    until("the waiter's first steps", || {
        sent.extend(proxy.take_sent());
        count(&sent, "EVALSHA") >= 2
    })
    .await;
    // The connection for pub/sub is set up once for a client, not for each waiter.
    let steps: Vec<_> = sent.iter().map(|sent| sent.name.as_str()).collect();
    let steps: Vec<_> = steps.into_iter().filter(|name| !["HELLO", "CLIENT"].contains(name)).collect();
    assert_eq!(steps, ["EVALSHA", "SUBSCRIBE", "EVALSHA"]);

    sleep(Duration::from_millis(6500)).await;
    let sent = proxy.take_sent();
    assert!(sent.iter().all(|sent| sent.name == "HELLO") && (1..=13).contains(&sent.len()), "{sent:?}");

    held.release().await.unwrap();
    let guard = granted(waiter).await;
    until("no client is subscribed", || channels(&server).is_empty()).await;
    let names: Vec<_> = proxy.take_sent().into_iter().map(|sent| sent.name).collect();
    let names: Vec<_> = names.iter().filter(|name| *name != "HELLO").collect();
    assert_eq!(names, ["EVALSHA", "UNSUBSCRIBE"]);
    drop(guard);
}

#[tokio::test]
async fn many_waiters_of_a_client_share_one_subscription() {
    let server = Server::start(Flavour::Redis);
    let proxy = Proxy::start(server.port());
    let (holder, client) = (connect(server.url()).await, connect(proxy.url()).await);
    warm_up(&client).await;
    let held = holder.lock("n").acquire().await.unwrap();
    drop(proxy.take_sent());
    let lock = client.lock("n");
    // On a busy machine one waiter may overtake another: each releases by itself.
    let waiters: Vec<_> = (0..64)
        .map(|_| {
            let waiter = lock.acquire().into_future();
            tokio::spawn(async { waiter.await.unwrap().release().await.unwrap() })
        })
        .collect();
    subscribed(&server, CHANNEL, 1).await;
    sleep(SECOND).await;
    assert_eq!(subscribers(&server, CHANNEL), 1);
    let sent = proxy.take_sent();
    assert_eq!(count(&sent, "SUBSCRIBE"), 1, "{sent:?}");

    held.release().await.unwrap();
    for waiter in waiters {
        soon("the waiter ends", waiter).await.unwrap();
    }
    until("no client is subscribed", || channels(&server).is_empty()).await;
    let sent = proxy.take_sent();
    assert_eq!((count(&sent, "SUBSCRIBE"), count(&sent, "UNSUBSCRIBE")), (0, 1), "{sent:?}");
    let requests = count(&sent, "EVALSHA");
    assert!(requests <= 64 * 3, "{requests} requests for 64 acquires and releases");
    assert_eq!(keys(&server), [""; 0]);
}

const MANY: usize = 10_000;
const WATCHDOG: Duration = Duration::from_secs(6);

/// How many requests the server has executed that may be renewals.
fn requests(server: &Server) -> i64 {
    let info = server.cli(&["INFO", "commandstats"]);
    let info = info.as_str().expect("text");
    let calls = |command: &str| -> i64 {
        let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| {
            let calls = line.split(['=', ',']).nth(1).expect("a number");
            calls.parse().expect("a number")
        })
    };
    calls("evalsha") + calls("eval")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_locks_are_renewed_with_at_most_a_hundred_requests_per_period() {
    let _alone = alone().await;
    let server = Server::start(Flavour::Redis);
    let client = Client::connect(server.url()).watchdog(WATCHDOG).await.unwrap();
    let mut guards: Vec<Guard> = Vec::new();
    while guards.len() < MANY {
        let mut acquires = JoinSet::new();
        for n in guards.len()..guards.len() + MANY / 10 {
            acquires.spawn(client.lock(format!("n:{n}")).acquire().into_future());
        }
        guards.extend(acquires.join_all().await.into_iter().map(|guard| guard.unwrap()));
    }
    let periods = 3;
    let (before, begun) = (requests(&server), Instant::now());
    sleep(WATCHDOG / 3 * periods).await;
    let sent = requests(&server) - before;
    let passed = begun.elapsed().as_secs_f64() / (WATCHDOG / 3).as_secs_f64();
    println!("{sent} requests for {MANY} locks in {passed:.1} periods");
    #[expect(clippy::cast_possible_truncation, reason = "a handful")]
    let most = 100 * passed.ceil() as i64;
    assert!((1..=most).contains(&sent), "{sent} requests in {passed:.1} periods");
    assert_eq!(keys(&server).len(), MANY);
    assert!(guards.iter().all(Guard::is_held));
    drop(guards);
    soon("all are given back", until("no key", || keys(&server).is_empty())).await;
}
