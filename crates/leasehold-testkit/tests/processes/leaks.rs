//! Names that come and go, acquires that are cancelled, guards that are dropped: nothing adds up.

use std::env;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::resp::{Connection, Value};
use leasehold_testkit::server::{Flavour, Server};
use tokio::time::{Instant, timeout};

use crate::support::{Dice, part, run_part, server_of_part, take, wait_until};

/// Set by `cargo xtask leaks --full`.
const FULL: &str = "LEASEHOLD_LEAKS_FULL";

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Amount {
    names: usize,
    cancelled: usize,
    dropped: usize,
}

impl Amount {
    fn chosen() -> Self {
        if env::var_os(FULL).is_some() {
            Self { names: 1_000_000, cancelled: 100_000, dropped: 10_000 }
        } else {
            Self { names: 50_000, cancelled: 5_000, dropped: 1_000 }
        }
    }

    /// The n-th of so many parts.
    fn part(self, n: usize, parts: usize) -> [Range<usize>; 3] {
        [self.names, self.cancelled, self.dropped].map(|all| all * n / parts..all * (n + 1) / parts)
    }
}

const TASKS: usize = 32;

#[test]
fn names_cancelled_acquires_and_dropped_guards_leave_nothing_behind() {
    let server = Server::start(Flavour::Redis);
    run_part(&mut part("leaks::come_and_go", &server));
}

#[test]
fn come_and_go() {
    let Some(port) = server_of_part() else { return };
    let amount = Amount::chosen();
    println!("leaks: {amount:?}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut server = Connection::open(port).unwrap();
    let client = Client::connect(format!("redis://127.0.0.1:{port}")).block().unwrap();
    let mut resident = Vec::new();
    for quarter in 0..4 {
        let begun = Instant::now();
        let [names, cancelled, dropped] = amount.part(quarter, 4);
        runtime.block_on(take_and_release(&client, names));
        runtime.block_on(cancel(&client, cancelled));
        runtime.block_on(drop_guards(&client, dropped));
        nothing_is_left(&mut server);
        resident.push(resident_now());
        println!(
            "leaks: {} KiB after {} of 4 parts, {:.1?}",
            resident[quarter],
            quarter + 1,
            begun.elapsed()
        );
    }
    let (half, all) = (resident[1], resident[3]);
    let more = all.saturating_sub(half);
    println!("leaks: the second half added {more} KiB to {half} KiB");
    assert!(more * 50 < half, "the second half added 2 % or more: {resident:?} KiB");
}

/// Resident memory of this process in KiB.
fn resident_now() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("this test reads Linux's /proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS is there");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("VmRSS is a number")
}

/// Neither keys nor subscriptions, long before any lease of 30 s is over.
fn nothing_is_left(server: &mut Connection) {
    let mut call = |command: &[&str]| server.call(command).expect("the server answers");
    wait_until(Duration::from_secs(15), || {
        let nothing = Value::Array(Vec::new());
        let (keys, channels) = (call(&["DBSIZE"]), call(&["PUBSUB", "CHANNELS"]));
        if keys == 0 && channels == nothing { Ok(()) } else { Err((keys, call(&["KEYS", "*"]), channels)) }
    });
}

/// Divides `numbers` among some tasks, and waits for them.
async fn divide<F, W>(numbers: Range<usize>, work: F)
where
    F: Fn(Vec<usize>) -> W,
    W: Future<Output = ()> + Send + 'static,
{
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        tasks.push(tokio::spawn(work(numbers.clone().skip(task).step_by(TASKS).collect())));
    }
    for task in tasks {
        task.await.expect("no task panics");
    }
}

async fn take_and_release(client: &Client, names: Range<usize>) {
    divide(names, |names| {
        let client = client.clone();
        async move {
            for name in names {
                let guard =
                    client.lock(format!("order:{name}")).acquire().await.expect("nobody else wants it");
                guard.release().await.expect("it is held");
            }
        }
    })
    .await;
}

/// Cancels at every stage: before it is sent, under way, waiting in line.
async fn cancel(client: &Client, numbers: Range<usize>) {
    let busy = Arc::new(client.lock("busy").acquire().await.expect("nobody else wants it"));
    divide(numbers, |numbers| {
        let (client, busy) = (client.clone(), Arc::clone(&busy));
        let mut dice = Dice::new(numbers.first().map_or(0, |number| *number as u64));
        async move {
            for number in numbers {
                // Half of the time on a name of its own, half of the time behind somebody.
                let name = if number % 2 == 0 { format!("cancelled:{number}") } else { "busy".into() };
                let own = if number % 4 == 0 { client.lock(&name).try_acquire().await.ok() } else { None };
                let acquire = client.lock(&name).acquire().into_future();
                let limit = dice.between(Duration::ZERO, Duration::from_millis(4));
                drop(timeout(limit, acquire).await);
                drop(own);
                // Now and then everything that is under way is waited for, lest the greatest pile that there ever
                // was decides how much memory is resident.
                if number % (8 * TASKS) < TASKS {
                    let guard = client.lock(format!("settled:{number}")).acquire().await.expect("it is free");
                    guard.release().await.expect("it is held");
                }
            }
            assert!(busy.is_held(), "nobody but this test releases it");
        }
    })
    .await;
}

async fn drop_guards(client: &Client, numbers: Range<usize>) {
    let guards = take(client, "dropped", numbers.len()).await;
    // Outside of any runtime, as in a destructor of somebody's at the end of a program.
    std::thread::spawn(move || drop(guards)).join().expect("dropping does not panic");
}
