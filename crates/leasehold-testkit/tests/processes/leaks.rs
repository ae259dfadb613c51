//! Many short-lived names, cancelled acquires and dropped guards: nothing leaks.

use std::env;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, Guard};
use leasehold_testkit::proxy::Proxy;
use leasehold_testkit::resp::{Connection, Value};
use leasehold_testkit::server::{Flavour, Server};
use peak_alloc::PeakAlloc;
use tokio::time::{Instant, timeout};

use crate::support::{Dice, part, run_part, server_of_part, take, wait_until};

/// Set by `cargo xtask leaks --full`.
const FULL: &str = "LEASEHOLD_LEAKS_FULL";

/// How much of each.
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
            Self { names: 50_000, cancelled: 40_000, dropped: 4_000 }
        }
    }

    /// The n-th of `parts` parts.
    fn part(self, n: usize, parts: usize) -> [Range<usize>; 3] {
        [self.names, self.cancelled, self.dropped].map(|all| all * n / parts..all * (n + 1) / parts)
    }
}

const TASKS: usize = 32;

/// In how many parts the work is done; memory is measured after each.
const PARTS: usize = 4;

/// Bytes that vary: two buffers of a connection may keep this many, because they grow when many replies arrive at once. Less
/// than 4 for each name and each cancelled acquire of a half.
const KEPT: usize = 2 * 64 * 1024;

/// Counts the bytes that are allocated and not freed. Resident memory also depends on how the allocator handled the peak,
/// which differs from run to run.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

#[test]
fn names_cancelled_acquires_and_dropped_guards_leave_nothing_behind() {
    let server = Server::start(Flavour::Redis);
    run_part(&mut part("leaks::child_process_that_acquires_cancels_and_drops_many_locks", &server));
}

#[test]
fn child_process_that_acquires_cancels_and_drops_many_locks() {
    let Some(port) = server_of_part() else { return };
    let amount = Amount::chosen();
    println!("leaks: {amount:?}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut server = Connection::open(port).unwrap();
    // A short stall of the machine must not fail the test.
    let client =
        Client::connect(format!("redis://127.0.0.1:{port}")).response_timeout(Duration::from_secs(10));
    let client = client.anonymous().block().unwrap();
    // The peak is first: its memory is kept, and would count as a leak if the peak were later. While the server
    // replies, the number of requests in flight at once is random.
    let guards = runtime.block_on(take(&client, "dropped", amount.dropped));
    assert_eq!(server.call(&["CLIENT", "PAUSE", "60000", "WRITE"]).unwrap(), "OK");
    drop_on_a_thread(guards);
    assert_eq!(server.call(&["CLIENT", "UNPAUSE"]).unwrap(), "OK");
    let mut live = [0; PARTS];
    for (part, live) in live.iter_mut().enumerate() {
        let begun = Instant::now();
        let [names, cancelled, dropped] = amount.part(part, PARTS);
        runtime.block_on(take_and_release(&client, names));
        runtime.block_on(cancel(&client, cancelled));
        runtime.block_on(drop_guards(&client, dropped));
        nothing_is_left(&mut server);
        *live = live_at_rest();
        println!(
            "leaks: {} bytes live after {} of {PARTS} parts, {} KiB resident, {:.1?}",
            *live,
            part + 1,
            resident_now(),
            begun.elapsed()
        );
    }
    nothing_adds_up(&live, KEPT);
}

/// Checks that the second half adds nothing to the first that could be a leak. The least of each half counts, and variable
/// memory is ignored: the buffers of a connection keep a varying amount of room for the next burst.
fn nothing_adds_up(live: &[usize; PARTS], kept: usize) {
    let (first, second) = live.split_at(PARTS / 2);
    let [before, after] = [first, second].map(|half| half.iter().min().copied().expect("there are parts"));
    let more = after.saturating_sub(before);
    println!("leaks: the second half added {more} bytes to {before}");
    assert!(more < kept.max(before / 50), "the second half added too much: {live:?} bytes");
}

#[test]
fn acquires_that_fail_in_an_outage_leave_nothing_behind() {
    let server = Server::start(Flavour::Redis);
    run_part(&mut part("leaks::child_process_with_failing_acquires", &server));
}

#[test]
fn child_process_with_failing_acquires() {
    let Some(port) = server_of_part() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let proxy = Proxy::start(port);
    let watchdog = Duration::from_millis(200);
    // It lives to the end, and so would the key with its identity.
    let client = Client::connect(proxy.url()).watchdog(watchdog).anonymous().block().unwrap();
    proxy.refuse();
    let mut live = [0; PARTS];
    for (round, live) in live.iter_mut().enumerate() {
        runtime.block_on(divide(0..20_000, |numbers| {
            let client = client.clone();
            async move {
                for number in numbers {
                    let lock = client.lock(format!("{round}:{number}"));
                    assert!(lock.try_acquire().await.is_err(), "there is no server");
                }
            }
        }));
        *live = live_at_rest();
    }
    println!("outage: {live:?} bytes live after 20 000 failed acquires each");
    // Without a connection there are no buffers for one.
    nothing_adds_up(&live, 0);
    proxy.heal();
    let back = || client.lock("back").try_acquire().block().map(drop).map_err(|error| error.to_string());
    wait_until(Duration::from_secs(20), back);
    nothing_is_left(&mut Connection::open(port).unwrap());
}

/// Bytes that are allocated once the last replies have been processed: when nothing has changed for a while.
fn live_at_rest() -> usize {
    let (mut live, mut still) = (HEAP.current_usage(), 0);
    while still < 20 {
        std::thread::sleep(Duration::from_millis(10));
        let now = HEAP.current_usage();
        still = if now == live { still + 1 } else { 0 };
        live = now;
    }
    live
}

/// Resident memory of this process in KiB.
fn resident_now() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("this test reads Linux's /proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS is there");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("VmRSS is a number")
}

/// Neither keys nor subscriptions, long before any lease of 30 s is over.
fn nothing_is_left(server: &mut Connection) {
    let mut call = |command: &[&str]| server.call(command).expect("the server replies");
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
                let guard = client.lock(format!("order:{name}")).acquire().await.expect("no other waiter");
                guard.release().await.expect("it is held");
            }
        }
    })
    .await;
}

/// Cancels at every stage: before the request is sent, in flight, in the wait queue.
async fn cancel(client: &Client, numbers: Range<usize>) {
    let busy = Arc::new(client.lock("busy").acquire().await.expect("no other waiter"));
    divide(numbers, |numbers| {
        let (client, busy) = (client.clone(), Arc::clone(&busy));
        let mut dice = Dice::new(numbers.first().map_or(0, |number| *number as u64));
        async move {
            for number in numbers {
                // Half of the time on a name of its own, half of the time behind a holder.
                let name = if number % 2 == 0 { format!("cancelled:{number}") } else { "busy".into() };
                let own = if number % 4 == 0 { client.lock(&name).try_acquire().await.ok() } else { None };
                let acquire = client.lock(&name).acquire().into_future();
                let limit = dice.between(Duration::ZERO, Duration::from_millis(4));
                drop(timeout(limit, acquire).await);
                drop(own);
                // Now and then waits for everything in flight, lest the peak decide how much memory is resident.
                if number % (8 * TASKS) < TASKS {
                    let guard = client.lock(format!("settled:{number}")).acquire().await.expect("it is free");
                    guard.release().await.expect("it is held");
                }
            }
            assert!(busy.is_held(), "only this test releases it");
        }
    })
    .await;
}

async fn drop_guards(client: &Client, numbers: Range<usize>) {
    drop_on_a_thread(take(client, "dropped", numbers.len()).await);
}

/// Outside of any runtime, as in a destructor at the end of a program.
fn drop_on_a_thread(guards: Vec<Guard>) {
    std::thread::spawn(move || drop(guards)).join().expect("dropping does not panic");
}
