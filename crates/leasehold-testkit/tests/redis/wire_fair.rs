//! The wire format, byte for byte: the vectors of the fair lock, and how waiters of other clients are treated.

#![expect(clippy::unwrap_used, reason = "every case is the body of a test")]

use std::future::{Future, IntoFuture, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use leasehold::{Client, FairLock, Owner};
use leasehold_testkit::proxy::{Proxy, Which};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, sleep};

use crate::published::Published;
use crate::{REDISSON, SECOND, Waiter, connect, granted, keys, ms, number, until};

on_both! {
    fl_09_the_steps_of_a_fair_lock_leave_the_same_state_as_redisson
    a_redisson_waiter_is_served_in_its_turn_and_not_removed
    a_redisson_waiter_that_is_presumed_dead_is_skipped
    a_live_waiter_is_not_presumed_dead
    fl_08_waiters_of_a_client_share_one_heartbeat
    fl_04_a_waiter_that_gives_up_lowers_the_time_outs_of_the_waiters_behind
    a_waiter_that_times_out_before_polling_its_queue_position_leaves_the_queue
    a_waiter_that_was_silent_for_too_long_is_notified_of_its_position_at_the_end
}

const QUEUE: &str = "redisson_lock_queue:{n}";
const SCORES: &str = "redisson_lock_timeout:{n}";
const MARKS: &str = "leasehold_lock_marks:{n}";
const WAITS: &str = "leasehold_lock_waits:{n}";

fn queue(server: &Server) -> Vec<String> {
    let queue = server.cli(&["LRANGE", QUEUE, "0", "-1"]);
    queue.elements().iter().map(|owner| owner.as_str().unwrap().to_owned()).collect()
}

fn score(server: &Server, owner: &str) -> i64 {
    let score = server.cli(&["ZSCORE", SCORES, owner]);
    let text = score.as_str().unwrap_or_else(|| panic!("{owner} has no score"));
    text.parse().unwrap_or_else(|_| panic!("{text} is not integral"))
}

fn now(server: &Server) -> i64 {
    let time = server.cli(&["TIME"]);
    let part = |n: usize| time.elements()[n].as_str().unwrap().parse::<i64>().unwrap();
    part(0) * 1000 + part(1) / 1000
}

/// A waiter of this owner, once it is queued behind this many others.
async fn queued(
    server: &Server,
    lock: &FairLock,
    owner: &Owner,
    wait: Option<Duration>,
    before: usize,
) -> Waiter {
    let acquire = lock.acquire().as_owner(owner);
    let acquire = if let Some(wait) = wait { acquire.wait(wait) } else { acquire };
    let waiter = tokio::spawn(acquire.into_future());
    until("it is queued", || queue(server).len() == before + 1).await;
    waiter
}

async fn fl_09_the_steps_of_a_fair_lock_leave_the_same_state_as_redisson(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let (a, b, c) = (connect(server.url()).await, connect(server.url()).await, connect(server.url()).await);
    let lock = |client: &Client| client.fair_lock("n");
    let owner = |number| Owner::number(number);
    let name = |client: &Client, number: u32| format!("{}:{number}", client.id());
    let (b_name, c_name) = (name(&b, 2), name(&c, 3));

    let held = lock(&a).acquire().as_owner(owner(1)).lease(SECOND * 30).await.unwrap();
    assert_eq!(server.cli(&["HGETALL", "n"]).elements(), [name(&a, 1).as_str(), "1"]);
    assert_eq!(keys(&server), ["n"]);

    let before = now(&server);
    let waiter_b = queued(&server, &lock(&b), &owner(2), None, 0).await;
    let elapsed = now(&server) - before;
    let score_b = score(&server, &b_name);
    let expected = before + 330_000;
    assert!((expected - 50 - elapsed..=expected + elapsed + 1).contains(&score_b), "{}", score_b - before);

    let waiter_c = queued(&server, &lock(&c), &owner(3), Some(SECOND * 10), 1).await;
    assert_eq!(queue(&server), [b_name.clone(), c_name.clone()]);
    assert_eq!(score(&server, &c_name), score(&server, &b_name) + 10_000);
    // Redisson's keys, and our own for heartbeats and wait times.
    assert_eq!(keys(&server), [MARKS, WAITS, "n", QUEUE, SCORES]);
    assert_eq!(published.take(), []);
    until("both have retried", || subscribers_of(&server, &[&b_name, &c_name]) == 2).await;

    held.release().await.unwrap();
    assert_eq!(published.take()[0], (format!("redisson_lock__channel:{{n}}:{b_name}"), "0".into()));
    let guard = granted(waiter_b).await;
    assert_eq!(queue(&server), std::slice::from_ref(&c_name));
    let lowered = score(&server, &c_name) - score_b;
    assert_eq!(lowered, 10_000 - 300_000, "lowered by the wait of the waiter that was served");

    waiter_c.abort();
    until("the queue is gone", || keys(&server) == ["n"]).await;
    guard.release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
}

fn subscribers_of(server: &Server, owners: &[&str]) -> i64 {
    let count = |owner: &&str| {
        let channel = format!("redisson_lock__channel:{{n}}:{owner}");
        number(&server.cli(&["PUBSUB", "NUMSUB", channel.as_str()]).elements()[1])
    };
    owners.iter().map(count).sum()
}

/// Puts a waiter of Redisson into the queue; it is presumed dead after `wait`.
fn queue_as_redisson(server: &Server, wait: Duration) {
    let score = (now(server) + ms(wait)).to_string();
    server.cli(&["ZADD", SCORES, &score, REDISSON]);
    server.cli(&["RPUSH", QUEUE, REDISSON]);
}

async fn a_redisson_waiter_is_served_in_its_turn_and_not_removed(flavour: Flavour) {
    let server = Server::start(flavour);
    let mut published = Published::on(&server);
    let client = connect(server.url()).await;
    let lock = client.fair_lock("n");
    let held = lock.acquire().await.unwrap();
    queue_as_redisson(&server, SECOND * 60);
    let waiter = queued(&server, &lock, &Owner::number(2), None, 1).await;
    held.release().await.unwrap();
    assert_eq!(published.take(), [(format!("redisson_lock__channel:{{n}}:{REDISSON}"), "0".to_owned())]);
    // Longer than a waiter of ours may go without a heartbeat. It is notified repeatedly, and no waiter overtakes it.
    let begun = Instant::now();
    while begun.elapsed() < SECOND * 6 {
        assert_eq!(queue(&server)[0], REDISSON);
        assert!(!waiter.is_finished());
        sleep(Duration::from_millis(100)).await;
    }
    // It leaves as Redisson's waiters do: without a message. A queue heartbeat wakes the next waiter.
    server.cli(&["ZREM", SCORES, REDISSON]);
    server.cli(&["LREM", QUEUE, "0", REDISSON]);
    granted(waiter).await.release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
}

async fn a_redisson_waiter_that_is_presumed_dead_is_skipped(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.fair_lock("n");
    let held = lock.acquire().await.unwrap();
    queue_as_redisson(&server, SECOND * 3);
    let waiter = queued(&server, &lock, &Owner::number(2), None, 1).await;
    let begun = now(&server);
    held.release().await.unwrap();
    drop(granted(waiter).await);
    assert!(now(&server) - begun > 1500, "not before its time");
    until("nothing is left", || keys(&server).is_empty()).await;
}

async fn a_live_waiter_is_not_presumed_dead(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.fair_lock("n");
    let held = lock.acquire().await.unwrap();
    let me = format!("{}:2", client.id());
    let waiter = queued(&server, &lock, &Owner::number(2), None, 0).await;
    // As after many earlier waiters with longer waits than it assumed.
    server.cli(&["ZADD", SCORES, &(now(&server) + 3000).to_string(), &me]);
    until("a beat sets that right", || score(&server, &me) > now(&server) + 290_000).await;
    assert_eq!(queue(&server), [me]);
    held.release().await.unwrap();
    drop(granted(waiter).await);
}

async fn fl_08_waiters_of_a_client_share_one_heartbeat(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.fair_lock("n");
    let held = lock.acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..20 {
        waiters.push(queued(&server, &lock, &Owner::number(number), None, number as usize).await);
    }
    sleep(SECOND).await;
    let mut monitor = server.monitor();
    let mut sent = 0;
    let begun = Instant::now();
    while begun.elapsed() < SECOND * 5 {
        sent +=
            monitor.take_sent().iter().filter(|command| format!("{command:?}").contains("EVALSHA")).count();
        sleep(Duration::from_millis(100)).await;
    }
    // One every 0.75 s at most; no waiter sends requests of its own.
    assert!((2..=8).contains(&sent), "{sent} requests in five seconds");
    held.release().await.unwrap();
    for waiter in waiters {
        granted(waiter).await.release().await.unwrap();
    }
    until("nothing is left", || keys(&server).is_empty()).await;
}

/// A waiter that gives up takes its wait time with it, so that the time-outs of the waiters behind it do not drift.
async fn fl_04_a_waiter_that_gives_up_lowers_the_time_outs_of_the_waiters_behind(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.fair_lock("n");
    let held = lock.acquire().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..4 {
        waiters
            .push(queued(&server, &lock, &Owner::number(number), Some(SECOND * 60), number as usize).await);
    }
    let name = |number: usize| format!("{}:{number}", client.id());
    let scores = || [0, 2, 3].map(|number| score(&server, &name(number)));
    let before = scores();
    assert_eq!(before[2] - before[0], 180_000);
    waiters[1].abort();
    until("it has left the queue", || queue(&server) == [0, 2, 3].map(name)).await;
    assert_eq!(scores(), [before[0], before[1] - 60_000, before[2] - 60_000]);

    // Many waiters that give up leave no trace either.
    for _ in 0..20 {
        lock.acquire().wait(Duration::from_millis(20)).await.unwrap_err();
    }
    until("they have left the queue", || queue(&server) == [0, 2, 3].map(name)).await;
    assert_eq!(scores(), [before[0], before[1] - 60_000, before[2] - 60_000]);
    held.release().await.unwrap();
    drop(waiters.remove(1));
    for waiter in waiters {
        granted(waiter).await.release().await.unwrap();
    }
}

async fn a_waiter_that_times_out_before_polling_its_queue_position_leaves_the_queue(flavour: Flavour) {
    let server = Server::start(flavour);
    let client = connect(server.url()).await;
    let lock = client.fair_lock("n");
    let held = lock.acquire().await.unwrap();
    let mut waiting = Box::pin(lock.acquire().wait(Duration::from_millis(20)).into_future());
    assert!(poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await);
    until("it is queued", || queue(&server).len() == 1).await;
    // It is not polled until its wait has timed out.
    std::thread::sleep(Duration::from_millis(50));
    waiting.await.unwrap_err();
    until("it has left the queue", || queue(&server).is_empty()).await;
    held.release().await.unwrap();
    assert_eq!(keys(&server), [""; 0]);
}

async fn a_waiter_that_was_silent_for_too_long_is_notified_of_its_position_at_the_end(flavour: Flavour) {
    let server = Server::start(flavour);
    let proxy = Proxy::start(server.port());
    let (near, far) = (connect(server.url()).await, connect(proxy.url()).await);
    let held = near.fair_lock("n").acquire().await.unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let silent = far.fair_lock("n").acquire().on_position(move |queued| tell.lock().unwrap().push(queued));
    let silent = tokio::spawn(silent.into_future());
    until("it is queued", || queue(&server).len() == 1).await;
    let next = tokio::spawn(near.fair_lock("n").acquire().into_future());
    until("another waiter is queued behind it", || queue(&server).len() == 2).await;
    proxy.blackhole(Which::All);
    until("the silent one is thrown out", || queue(&server).len() == 1).await;
    proxy.heal();
    until("it is notified", || {
        told.lock().unwrap().iter().any(|queued| queued.requeued && queued.position == 2)
    })
    .await;
    assert!(told.lock().unwrap().iter().any(|queued| !queued.requeued && queued.position == 1));
    held.release().await.unwrap();
    granted(next).await.release().await.unwrap();
    granted(silent).await.release().await.unwrap();
}
