//! The fair lock across processes: FIFO order, and dead waiters delay the queue only briefly.

use std::collections::VecDeque;
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::resp::Connection;
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::Instant;

use crate::support::{Running, number, part, server_of_part, wait_until};

const PROCESSES: usize = 5;
const TASKS: usize = 4;
const GRANTS: &str = "LEASEHOLD_GRANTS";
const QUEUE: &str = "redisson_lock_queue:{one name}";

async fn connect(port: u16) -> Client {
    let connect = Client::connect(format!("redis://127.0.0.1:{port}"));
    connect.response_timeout(Duration::from_secs(10)).await.expect("the server listens")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Tasks that take turns up to a total, counted on the server.
#[test]
fn child_process_whose_tasks_take_turns_under_a_fair_lock() {
    let Some(port) = server_of_part() else { return };
    let grants = number(GRANTS, 0);
    runtime().block_on(async {
        let client = connect(port).await;
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let lock = client.fair_lock("one name");
                tokio::spawn(async move {
                    let mut server = Connection::open(port).unwrap();
                    let mut served = 0;
                    while served < grants {
                        let guard = lock.acquire().await.unwrap();
                        let seen = server.call(&["GET", "served"]).unwrap();
                        let seen: u64 = seen.as_str().unwrap_or("0").parse().unwrap();
                        served = seen + 1;
                        server.call(&["SET", "served", &served.to_string()]).unwrap();
                        server.call(&["RPUSH", "log", &served.to_string()]).unwrap();
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// The server's view of one queue, and whether all waiters were served in its order.
#[derive(Default)]
struct Replay {
    queue: VecDeque<String>,
    served_from_queue: usize,
    served_at_once: usize,
}

impl Replay {
    /// Processes one line of the monitor.
    fn see(&mut self, line: &str) {
        let Some((_, command)) = line.split_once(" lua] ") else { return };
        let words: Vec<_> = command.split("\" \"").map(|word| word.trim_matches('"')).collect();
        match words[..] {
            ["rpush", QUEUE, owner] => self.queue.push_back(owner.into()),
            ["lrem", QUEUE, _, owner] => self.queue.retain(|waiter| waiter != owner),
            ["hincrby", "one name", owner, "1"] => {
                if let Some(head) = self.queue.pop_front() {
                    assert_eq!(head, owner, "served before the waiters in front of it: {:?}", self.queue);
                    self.served_from_queue += 1;
                } else {
                    self.served_at_once += 1;
                }
            }
            _ => {}
        }
    }
}

#[test]
fn waiters_of_several_processes_are_served_in_the_order_of_arrival_at_the_server() {
    let grants = number(GRANTS, 2_000);
    let server = Server::start(Flavour::Redis);
    let mut monitor = server.monitor();
    let begun = Instant::now();
    let start = || {
        let mut command = part("fairness::child_process_whose_tasks_take_turns_under_a_fair_lock", &server);
        Running::start(command.env(GRANTS, grants.to_string()))
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let mut replay = Replay::default();
    while processes.iter_mut().any(|process| process.ended().is_none()) {
        monitor.take().iter().for_each(|line| replay.see(line));
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(processes.iter_mut().all(|process| process.ended().is_some_and(|status| status.success())));
    monitor.take().iter().for_each(|line| replay.see(line));
    // Written under the lock, which alone keeps it right.
    let log = server.cli(&["LRANGE", "log", "0", "-1"]);
    let log: Vec<u64> = log.elements().iter().map(|turn| turn.as_str().unwrap().parse().unwrap()).collect();
    assert!(log.iter().copied().eq(1..=log.len() as u64), "{log:?}");
    let Replay { served_from_queue, served_at_once, queue } = replay;
    println!(
        "fairness: {} grants in {:.1?}, {served_from_queue} in the order of the queue, {served_at_once} while it was empty",
        log.len(),
        begun.elapsed()
    );
    assert_eq!(served_from_queue + served_at_once, log.len());
    assert!(queue.is_empty() && served_from_queue * 10 > log.len() * 9, "they hardly ever met");
}

/// Waits for the lock with all tasks; each counts itself as served and releases.
#[test]
fn child_process_with_waiters_for_a_fair_lock() {
    let Some(port) = server_of_part() else { return };
    runtime().block_on(async {
        let client = connect(port).await;
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let lock = client.fair_lock("one name");
                tokio::spawn(async move {
                    let guard = lock.acquire().await.unwrap();
                    Connection::open(port).unwrap().call(&["INCR", "served"]).unwrap();
                    guard.release().await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn dead_waiters_delay_the_queue_by_five_seconds_at_most() {
    for round in 0..2 {
        let server = Server::start(Flavour::Redis);
        let queued = |number: usize| {
            wait_until(Duration::from_secs(20), || match server.cli(&["LLEN", QUEUE]) {
                length if length == i64::try_from(number).unwrap() => Ok(()),
                other => Err(other),
            });
        };
        let client = Client::connect(server.url()).block().unwrap();
        let guard = client.fair_lock("one name").acquire().block().unwrap();
        // The dead waiters are queued before the living ones, and between them.
        let mut processes: Vec<_> = (1..=3)
            .map(|number| {
                let process = Running::start(&mut part(
                    "fairness::child_process_with_waiters_for_a_fair_lock",
                    &server,
                ));
                queued(number * TASKS);
                process
            })
            .collect();
        processes[0].kill();
        if round == 1 {
            // The second dies while the first still counts as alive: both are removed five seconds after its death.
            std::thread::sleep(Duration::from_millis(700));
            processes[1].kill();
        }
        let died = Instant::now();
        guard.release().block().unwrap();
        wait_until(Duration::from_secs(20), || match server.cli(&["GET", "served"]) {
            served if served.as_str().is_some() => Ok(()),
            other => Err(other),
        });
        let delay = died.elapsed();
        println!("fairness: round {round}: the next live waiter was served {delay:.1?} after the last death");
        assert!(delay < Duration::from_secs(5), "{delay:?}");
        let living = if round == 0 { 2 } else { 1 };
        wait_until(Duration::from_secs(20), || match server.cli(&["GET", "served"]) {
            served if served == (living * TASKS).to_string().as_str() => Ok(()),
            other => Err(other),
        });
        drop(client);
        wait_until(Duration::from_secs(10), || match server.cli(&["EXISTS", "one name", QUEUE]) {
            left if left == 0 => Ok(()),
            other => Err(other),
        });
    }
}
