//! Several machines in one thread: some are stopped, some have wrong clocks, and a seed determines the schedule.

use std::env;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::test::{Host, Schedule, Simulation, Task, Trace};
use leasehold::{Client, Guard, Loss};
use tokio::time::{Instant, sleep, timeout};

use super::{LATENCY, MILLISECOND, NAME, SECOND};

/// Detects two guards that both report the same lock as held: after a hold has acted, no earlier one may act any more.
#[derive(Debug, Default)]
struct Acts {
    holds: AtomicU64,
    newest: AtomicU64,
    overlaps: AtomicU64,
}

impl Acts {
    /// The number of a hold that begins.
    fn begin(&self) -> u64 {
        self.holds.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// A hold does something that only one may do.
    fn act(&self, hold: u64) {
        let newest = self.newest.fetch_max(hold, Ordering::SeqCst);
        self.overlaps.fetch_add(u64::from(newest > hold), Ordering::SeqCst);
    }

    fn overlaps(&self) -> u64 {
        self.overlaps.load(Ordering::SeqCst)
    }

    /// Acts repeatedly for `length`, as long as the guard reports that it is held.
    async fn keep_acting(&self, guard: &Guard, length: Duration) {
        let (hold, end) = (self.begin(), Instant::now() + length);
        while guard.is_held() && Instant::now() < end {
            self.act(hold);
            sleep(MILLISECOND).await;
        }
    }
}

async fn connect(url: &str) -> Client {
    Client::connect(url).watchdog(SECOND * 5).await.unwrap()
}

/// Acquires the lock on a host, acts for `length`, and returns when that began and ended.
fn holder(host: &Host, simulation: &Simulation, acts: &Arc<Acts>, length: Duration) -> Task<[Instant; 2]> {
    let (url, acts) = (simulation.url().to_owned(), Arc::clone(acts));
    host.spawn(async move {
        let guard = connect(&url).await.lock(NAME).acquire().await.unwrap();
        let begun = Instant::now();
        acts.keep_acting(&guard, length).await;
        let ended = Instant::now();
        drop(guard);
        [begun, ended]
    })
}

#[test]
fn a_client_stopped_past_its_lease_detects_the_loss_before_any_further_work() {
    for seed in 0..20 {
        Schedule::run(seed, async |schedule| {
            let (simulation, acts) = (Simulation::new(), Arc::new(Acts::default()));
            simulation.latency(LATENCY);
            let stopped = schedule.host();
            let (has_acted, url) = (Arc::new(AtomicBool::new(false)), simulation.url().to_owned());
            let first = {
                let (acts, has_acted) = (Arc::clone(&acts), Arc::clone(&has_acted));
                stopped.spawn(async move {
                    let guard = connect(&url).await.lock(NAME).acquire().await.unwrap();
                    let hold = acts.begin();
                    loop {
                        // Nothing happens between this check and the act, so a host stops before or after both.
                        if !guard.is_held() {
                            return guard.lost().await;
                        }
                        acts.act(hold);
                        has_acted.store(true, Ordering::SeqCst);
                        sleep(MILLISECOND * 10).await;
                    }
                })
            };
            sleep(SECOND * 7).await;
            stopped.stop();
            has_acted.store(false, Ordering::SeqCst);
            let at = Instant::now();
            let [second, third] = [(); 2].map(|()| holder(&schedule.host(), &simulation, &acts, SECOND * 2));
            let (second, third) = (second.await, third.await);
            let [earlier, later] = if second < third { [second, third] } else { [third, second] };
            let waited = earlier[0] - at;
            assert!((SECOND * 3..SECOND * 6).contains(&waited), "seed {seed}: for the lease: {waited:?}");
            assert_eq!(earlier[1] - earlier[0], SECOND * 2, "seed {seed}: it continues undisturbed");
            assert!(later[0] >= earlier[1], "seed {seed}: one after the other");
            assert!(!first.is_done() && !has_acted.load(Ordering::SeqCst), "seed {seed}: it is stopped");
            stopped.resume();
            assert_eq!(first.await, Loss::Unreachable, "seed {seed}");
            assert!(!has_acted.load(Ordering::SeqCst), "seed {seed}: it knows before it does anything");
            assert_eq!(acts.overlaps(), 0, "seed {seed}");
            sleep(SECOND).await;
            assert_eq!(simulation.names(), 0, "seed {seed}");
        });
    }
}

/// A lease of ten seconds on a host whose clock runs at this rate, and a client that waits for it. Returns how long the
/// first guard reports the lock as held, how long the second client waits, and how often both held at once.
fn with_clock_rate(rate: f64) -> (Duration, Duration, u64) {
    Schedule::run(1, async |schedule| {
        let (simulation, acts) = (Simulation::new(), Arc::new(Acts::default()));
        let (host, url) = (schedule.host(), simulation.url().to_owned());
        let client = host.spawn(async move { connect(&url).await }).await;
        host.clock_rate(rate);
        let begun = Instant::now();
        let first = {
            let acts = Arc::clone(&acts);
            host.spawn(async move {
                let guard = client.lock(NAME).acquire().lease(SECOND * 10).await.unwrap();
                acts.keep_acting(&guard, SECOND * 60).await;
                let believed = Instant::now();
                assert_eq!(guard.lost().await, Loss::Expired);
                // A guard that is dropped releases the lock, if it is still held.
                sleep(SECOND * 10).await;
                believed
            })
        };
        sleep(SECOND).await;
        let second = holder(&schedule.host(), &simulation, &acts, SECOND).await;
        (first.await - begun, second[0] - begun, acts.overlaps())
    })
}

#[test]
fn a_clock_with_a_wrong_rate_ends_a_guard_early_or_within_its_margin() {
    let lease = SECOND * 10;
    for (rate, believed) in [(1.5, 6_600), (1.0, 9_900), (0.995, 9_950)] {
        let (first, second, overlaps) = with_clock_rate(rate);
        let expected = Duration::from_millis(believed);
        assert!(first.abs_diff(expected) <= MILLISECOND * 2, "{rate}: {first:?}");
        assert!(second >= lease && second <= lease + MILLISECOND * 5, "{rate}: {second:?}");
        assert_eq!(overlaps, 0, "{rate}");
    }
    // Slower than the margin allows for, to show that the count above can detect it.
    let (first, second, overlaps) = with_clock_rate(0.8);
    assert!(first > SECOND * 12 && second <= lease + MILLISECOND * 5, "{first:?}, {second:?}");
    assert!(overlaps > 500, "{overlaps}");
}

#[test]
fn a_sleep_follows_a_clock_whose_rate_changes() {
    Schedule::run(3, async |schedule| {
        let simulation = Simulation::new();
        let (host, url) = (schedule.host(), simulation.url().to_owned());
        let begun = Instant::now();
        let waiter = host.spawn(async move {
            let client = connect(&url).await;
            let _holder = client.lock(NAME).acquire().await.unwrap();
            let error = client.lock(NAME).acquire().wait(SECOND * 10).await.unwrap_err();
            assert!(error.is_contended(), "{error}");
            Instant::now()
        });
        sleep(SECOND * 4).await;
        host.clock_rate(2.0);
        let took = waiter.await - begun;
        assert!(took.abs_diff(SECOND * 7) <= MILLISECOND * 3, "4 s, and 6 s in half the time: {took:?}");
    });
}

/// Three machines that contend for everything, while connections break, messages and replies are lost, and machines hang.
fn workload(seed: u64) -> (Trace, u64) {
    Schedule::run(seed, async |schedule| {
        let (simulation, acts) = (Simulation::new(), Arc::new(Acts::default()));
        let hosts = [(); 3].map(|()| schedule.host());
        let set = {
            let url = simulation.url().to_owned();
            schedule.spawn(async move { connect(&url).await.semaphore("s").try_set_permits(2).await })
        };
        assert!(set.await.unwrap());
        // Clients stay until the end: one that ends soon gives up its pending undos.
        let (mut clients, mut workers) = (Vec::new(), Vec::new());
        for host in &hosts {
            let url = simulation.url().to_owned();
            let client = host.spawn(async move { connect(&url).await }).await;
            for _ in 0..3 {
                let (schedule, acts) = (schedule.clone(), Arc::clone(&acts));
                workers.push(host.spawn(work(schedule, client.clone(), acts)));
            }
            clients.push(client);
        }
        trouble(&schedule, &simulation, &hosts).await;
        for worker in workers {
            timeout(SECOND * 300, worker).await.expect("no worker is stranded");
        }
        // An expired hold is only evaluated at the next request for it.
        let url = simulation.url().to_owned();
        let last = schedule.spawn(async move {
            let client = connect(&url).await;
            client.lock(NAME).acquire().wait(SECOND * 60).await.unwrap().release().await.unwrap();
            client.rw_lock("rw").write().acquire().wait(SECOND * 60).await.unwrap().release().await.unwrap();
            let all = client.semaphore("s").acquire(2).wait(SECOND * 60).await.unwrap();
            all.release().await.unwrap();
            assert!(client.semaphore("s").delete().await.unwrap());
        });
        last.await;
        sleep(SECOND).await;
        assert_eq!(simulation.names(), 0, "seed {seed}");
        (schedule.trace(), acts.overlaps())
    })
}

/// The work of one task. It may fail at any time.
async fn work(schedule: Schedule, client: Client, acts: Arc<Acts>) {
    for _ in 0..15 {
        let wait = SECOND * u32::try_from(schedule.random_below(10)).unwrap();
        let length = MILLISECOND * u32::try_from(schedule.random_below(300)).unwrap();
        match schedule.random_below(4) {
            0 => {
                if let Ok(guard) = client.lock(NAME).acquire().wait(wait).await {
                    acts.keep_acting(&guard, length).await;
                }
            }
            1 => {
                // Dropped in the middle of an attempt, mostly.
                let write = client.rw_lock("rw").write();
                let _ = timeout(length, async { Some(write.acquire().await.ok()?.release().await) }).await;
            }
            2 => {
                if let Ok(guard) = client.rw_lock("rw").read().acquire().wait(wait).await {
                    sleep(length).await;
                    drop(guard.release().await);
                }
            }
            _ => {
                if let Ok(permits) = client.semaphore("s").acquire(1).wait(wait).await {
                    sleep(length).await;
                    drop(permits);
                }
            }
        }
        sleep(length).await;
    }
}

/// The faults. In the end everything works again.
async fn trouble(schedule: &Schedule, simulation: &Simulation, hosts: &[Host; 3]) {
    for _ in 0..20 {
        let host = &hosts[usize::try_from(schedule.random_below(3)).unwrap()];
        match schedule.random_below(8) {
            0 => simulation.latency(MILLISECOND * u32::try_from(schedule.random_below(100)).unwrap()),
            1 => simulation.lose_reply(),
            2 => simulation.cut(),
            3 => simulation.outage(),
            4 => simulation.lose_message(),
            5 => host.stop(),
            6 => host.clock_rate(1.0 + f64::from(u32::try_from(schedule.random_below(100)).unwrap()) / 100.0),
            _ => simulation.clear(),
        }
        sleep(MILLISECOND * u32::try_from(schedule.random_below(4_000)).unwrap()).await;
        host.resume();
    }
    simulation.clear();
    hosts.iter().for_each(Host::resume);
}

#[test]
fn three_hosts_under_faults_admit_no_two_holders_and_leave_nothing_behind() {
    for seed in 0..30 {
        assert_eq!(workload(seed).1, 0, "seed {seed}");
    }
}

#[test]
fn many_holds_dropped_in_an_outage_are_undone_in_the_same_order_each_time() {
    let trace = || {
        Schedule::run(5, async |schedule| {
            let simulation = Simulation::new();
            let (host, url) = (schedule.host(), simulation.url().to_owned());
            let client = host.spawn(async move { connect(&url).await }).await;
            let held = {
                let client = client.clone();
                host.spawn(async move {
                    let mut held = Vec::new();
                    for number in 0..20 {
                        held.push(client.lock(format!("{number}")).acquire().await.unwrap());
                        held.push(client.group_lock("g", [format!("{number}")]).acquire().await.unwrap());
                    }
                    held
                })
            };
            let held = held.await;
            simulation.outage();
            sleep(SECOND).await;
            host.spawn(async move { drop(held) }).await;
            sleep(MILLISECOND).await;
            simulation.clear();
            sleep(SECOND).await;
            assert_eq!(simulation.names(), 0);
            schedule.trace()
        })
    };
    assert_eq!(trace(), trace());
}

/// Set for a process that only prints the schedule of a seed.
const ONE: &str = "LEASEHOLD_SCHEDULE_SEED";

#[test]
fn a_seed_gives_the_same_trace_in_every_run_and_process() {
    let (trace, _) = workload(7);
    if env::var_os(ONE).is_some() {
        println!("\ntrace: {trace}");
        return;
    }
    assert!(trace.steps() > 1_000, "{trace}");
    assert_eq!(workload(7).0, trace);
    assert_ne!(workload(8).0, trace);
    let mut command = Command::new(env::current_exe().expect("this process knows its program"));
    command.args([
        "sim::schedule::a_seed_gives_the_same_trace_in_every_run_and_process",
        "--exact",
        "--nocapture",
    ]);
    let played = command.env(ONE, "7").stdin(Stdio::null()).output().expect("it can be started");
    let said = String::from_utf8_lossy(&played.stdout);
    assert!(said.lines().any(|line| line == format!("trace: {trace}")), "not {trace}: {said}");
}
