//! Holds that end at a time of their own.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, io, thread};

use leasehold::{Client, Loss, Owner};
use leasehold_testkit::dice::Dice;
use leasehold_testkit::server::Etcd;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::record::now;
use crate::{PATIENCE, client, until};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// How long the server may take to end a lease, and a waiter on a busy machine to be served after that.
const LATER: Duration = Duration::from_millis(2500);

/// The lease of a key, in hexadecimal digits.
pub(crate) fn lease_of(server: &Etcd, key: &str) -> String {
    let fields = server.ctl(&["get", key, "-w", "fields"]);
    let lease = fields.lines().find_map(|line| line.strip_prefix("\"Lease\" : ")).expect("it is there");
    format!("{:x}", lease.parse::<i64>().unwrap())
}

/// For how long the server has granted a lease, in seconds.
pub(crate) fn granted(server: &Etcd, lease: &str) -> u64 {
    let text = server.ctl(&["lease", "timetolive", lease]);
    let after = text.split("TTL(").nth(1).unwrap_or_else(|| panic!("{text}"));
    after.split('s').next().unwrap().parse().unwrap()
}

/// How many leases there are.
pub(crate) fn leases(server: &Etcd) -> usize {
    let text = server.ctl(&["lease", "list"]);
    text.split_whitespace().nth(1).unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

pub(crate) fn only_key(server: &Etcd, prefix: &str) -> String {
    let [key] = server.keys(prefix).try_into().unwrap();
    key
}

/// The server would end the lease after two seconds.
#[tokio::test]
async fn own_603_a_fixed_lease_is_a_lease_of_its_own_and_ends_at_the_exact_moment() {
    const LENGTH: Duration = Duration::from_millis(1100);
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let rw = one.rw_lock("n");
    for lock in [one.lock("n"), one.fair_lock("n").into(), rw.read().into(), rw.write().into()] {
        let begun = Instant::now();
        let guard = lock.acquire().lease(LENGTH).await.unwrap();
        let key = only_key(&server, "n/");
        let lease = lease_of(&server, &key);
        assert_eq!(granted(&server, &lease), 2);
        assert!(!key.contains(&lease), "the key is named after the client: {key}");
        let listed = server.ctl(&["lease", "timetolive", "--keys", &lease]);
        assert!(listed.contains(&format!("_leasehold/clients/{lease}")), "{listed}");
        assert!(guard.remaining() <= LENGTH && guard.is_held());
        let seen = other.lock("n").holder().await.unwrap().expect("it is held");
        assert!(seen.remaining <= 2 * SECOND, "{seen:?}");
        let next = timeout(PATIENCE, other.lock("n").acquire()).await.unwrap().unwrap();
        assert!((LENGTH..2 * SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert_eq!(guard.lost().await, Loss::Expired);
        next.release().await.unwrap();
    }
}

/// What a child process does.
const PART: &str = "LEASEHOLD_PART";
const URL: &str = "LEASEHOLD_PART_URL";

/// A process that holds the lock `n`, and until when it may believe that, by the clock of the machine.
struct Part {
    child: Child,
    believes_until: Duration,
}

impl Part {
    fn start(part: &str, server: &Etcd) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        let test = "leases::child_process_that_holds_a_lock";
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        command.env(PART, part).env(URL, server.url()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("until ")?.to_owned()));
        let until = said.expect("it holds the lock").parse().unwrap();
        Self { child, believes_until: Duration::from_millis(until) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn child_process_that_holds_a_lock() {
    let (Ok(part), Ok(url)) = (env::var(PART), env::var(URL)) else { return };
    let client = Client::connect(url).watchdog(SECOND).label("child").block().unwrap();
    let lock = client.lock("n");
    let mut until = now();
    if part == "lease" {
        let guard = lock.acquire().lease(3200 * MS).block().unwrap();
        until = now() + guard.remaining();
        std::mem::forget(guard);
    } else {
        until += 2200 * MS;
        let _ = lock.acquire().min_hold(2200 * MS).block().unwrap().release().block().unwrap();
    }
    // The test harness has begun a line of its own.
    println!("\nuntil {}", until.as_millis());
    if part != "ends" {
        let _ = io::stdin().read(&mut [0]);
        thread::sleep(PATIENCE);
    }
    // At once, without a goodbye.
    std::process::exit(0);
}

/// A waiter gets the lock no earlier than the dead process might believe to hold it, and at most a second and the server's delay
/// later.
#[tokio::test]
async fn own_604_a_fixed_lease_outlasts_the_death_of_its_process_until_it_ends() {
    let server = Etcd::start();
    let other = client(&server).await;
    let mut part = Part::start("lease", &server);
    assert_eq!(leases(&server), 3);
    part.child.kill().unwrap();
    until("the lease of the dead client has ended", || leases(&server) == 2).await;
    let holder = other.lock("n").holder().await.unwrap().expect("it is held");
    let owner = holder.owner.expect("its client is known");
    let info = holder.client.expect("what it has said about itself outlasts it");
    assert!(format!("{info:?}").contains("child"), "{info:?} {owner}");
    let next = timeout(PATIENCE, other.lock("n").acquire()).await.unwrap().unwrap();
    let late = now().checked_sub(part.believes_until).expect("both held the lock");
    assert!(late < SECOND + LATER, "{late:?}");
    next.release().await.unwrap();
    assert_eq!(leases(&server), 1);
}

#[tokio::test]
async fn own_605_leases_of_holds_that_are_over_do_not_pile_up() {
    const LEASE: Duration = Duration::from_secs(3600);
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = one.lock("n");
    let is_clean = || leases(&server) == 2 && server.keys("n").is_empty();
    for _ in 0..20 {
        lock.acquire().lease(LEASE).await.unwrap().release().await.unwrap();
        drop(lock.acquire().lease(LEASE).await.unwrap());
    }
    until("released holds have left nothing", is_clean).await;
    for _ in 0..2 {
        let lapses = lock.acquire().lease(500 * MS).await.unwrap();
        timeout(PATIENCE, lapses.lost()).await.unwrap();
        let short = timeout(PATIENCE, lock.acquire().min_hold(50 * MS)).await.unwrap().unwrap();
        short.release().await.unwrap();
    }
    until("holds that have ended have left nothing", is_clean).await;

    let guard = lock.acquire().lease(LEASE).await.unwrap();
    guard.extend(LEASE * 2).await.unwrap();
    guard.reenter().await.unwrap().release().await.unwrap();
    for _ in 0..5 {
        assert!(other.lock("n").try_acquire().lease(LEASE).await.unwrap().is_none());
        let over = other.lock("n").acquire().lease(LEASE).wait(20 * MS).await.unwrap_err();
        assert!(over.is_contended());
    }
    until("there is the lease of the hold, and no other", || leases(&server) == 3).await;
    assert!(other.lock("n").force_unlock().await.unwrap());
    assert_eq!(timeout(PATIENCE, guard.lost()).await.unwrap(), Loss::Gone);
    drop(guard);
    until("the hold that was removed has left nothing", is_clean).await;

    let all = one.multi_lock(["n:a", "n:b", "n:c"]);
    let guard = all.acquire().lease(LEASE).await.unwrap();
    let together: Vec<_> = server.keys("n:").iter().map(|key| lease_of(&server, key)).collect();
    assert!(together.len() == 3 && together.iter().all(|lease| *lease == together[0]), "{together:?}");
    guard.release().await.unwrap();
    for turn in 0..40 {
        drop(timeout(MS / 20 * turn, all.acquire().lease(LEASE)).await);
        drop(timeout(MS / 20 * turn, lock.acquire().lease(LEASE)).await);
    }
    until("dropped attempts have left nothing", is_clean).await;
    // Also what is released right before the end of the client.
    lock.acquire().lease(LEASE).await.unwrap().release().await.unwrap();
    drop((one, lock, all));
    until("its own lease is left of the other one", || leases(&server) == 1).await;
}

#[tokio::test]
async fn own_606_a_fixed_lease_is_not_lost_with_the_session_of_its_client() {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let kept = one.lock("kept").acquire().await.unwrap();
    let fixed = one.lock("fixed").acquire().lease(20 * SECOND).await.unwrap();
    let key = only_key(&server, "fixed/");
    let session = key.strip_prefix("fixed/").unwrap();
    sleep(200 * MS).await;
    let _ = server.ctl(&["lease", "revoke", session]);
    assert_eq!(timeout(PATIENCE, kept.lost()).await.unwrap(), Loss::Gone);
    let again = timeout(PATIENCE, one.lock("kept").acquire()).await.unwrap().unwrap();
    assert!(fixed.is_held() && other.lock("fixed").try_acquire().await.unwrap().is_none());
    assert!(one.lock("fixed").try_acquire().await.unwrap().is_none());
    fixed.extend(30 * SECOND).await.unwrap();
    let next = tokio::spawn(async move { other.lock("fixed").acquire().await });
    until("it waits", || server.keys("fixed/").len() == 2).await;
    fixed.release().await.unwrap();
    let next = timeout(PATIENCE, next).await.unwrap().unwrap().unwrap();

    // It is still watched under the next session.
    let third = one.lock("third").acquire().lease(20 * SECOND).await.unwrap();
    sleep(200 * MS).await;
    let key = server.keys("kept/").pop().unwrap();
    let _ = server.ctl(&["lease", "revoke", key.strip_prefix("kept/").unwrap()]);
    timeout(PATIENCE, again.lost()).await.unwrap();
    timeout(PATIENCE, one.lock("kept").acquire()).await.unwrap().unwrap().release().await.unwrap();
    assert!(third.is_held());
    let _ = server.ctl(&["del", "--prefix", "third/"]);
    assert_eq!(timeout(PATIENCE, third.lost()).await.unwrap(), Loss::Gone);
    next.release().await.unwrap();
}

#[tokio::test]
async fn own_607_no_lease_runs_out_while_its_owner_waits() {
    let server = Etcd::start();
    let (one, other, third) = (client(&server).await, client(&server).await, client(&server).await);
    let guard = one.lock("n").acquire().await.unwrap();
    let second = tokio::spawn(async move { (other.lock("n").acquire().lease(SECOND).fenced().await, other) });
    until("the second is in the queue", || server.keys("n/").len() == 2).await;
    let third = tokio::spawn(async move { (third.lock("n").acquire().fenced().await, third) });
    until("the third is in the queue", || server.keys("n/").len() == 3).await;
    let queue = server.keys("n/");
    sleep(2500 * MS).await;
    assert_eq!(server.keys("n/"), queue);
    assert_eq!(lease_of(&server, &queue[1]), queue[1].strip_prefix("n/").unwrap());
    guard.release().await.unwrap();
    let (second, _other) = timeout(PATIENCE, second).await.unwrap().unwrap();
    let second = second.unwrap();
    assert!(second.is_held() && !third.is_finished(), "it keeps its place");
    assert_ne!(lease_of(&server, &queue[1]), queue[1].strip_prefix("n/").unwrap());
    let (token, begun) = (second.token(), Instant::now());
    let (next, _third) = timeout(PATIENCE, third).await.unwrap().unwrap();
    let next = next.unwrap();
    assert!(next.token() > token && !second.is_held(), "its lease ends by itself");
    assert!(begun.elapsed() < SECOND + LATER);
}

#[tokio::test]
async fn own_608_the_lease_on_the_server_follows_extensions_and_re_entries() {
    let server = Etcd::start();
    let client = client(&server).await;
    let (lock, me) = (client.lock("n"), Owner::unique());
    let guard = lock.acquire().as_owner(&me).lease(SECOND).await.unwrap();
    let key = only_key(&server, "n/");
    let session = key.strip_prefix("n/").unwrap();
    let lasts = || granted(&server, &lease_of(&server, &key));
    assert_eq!(lasts(), 1);
    guard.extend(40 * SECOND).await.unwrap();
    assert_eq!(lasts(), 40);
    guard.extend(SECOND).await.unwrap();
    assert_eq!(lasts(), 40, "an extension shortens nothing");
    let again = lock.acquire().as_owner(&me).lease(5 * SECOND).await.unwrap();
    assert_eq!(lasts(), 5);
    assert!(guard.remaining() <= 5 * SECOND && again.remaining() <= 5 * SECOND);
    let kept = lock.acquire().as_owner(&me).await.unwrap();
    assert_eq!(lease_of(&server, &key), session);
    sleep(2 * SECOND).await;
    assert!(kept.is_held() && guard.is_held());
    let fixed = lock.acquire().as_owner(&me).lease(9 * SECOND).await.unwrap();
    assert_eq!(lasts(), 9);
    assert_eq!(fixed.release().await.unwrap().holds_left, 3);
    until("one lease is that of the hold, and one that of the client", || leases(&server) == 2).await;
    drop((guard, again, kept));
    until("the hold has left nothing", || leases(&server) == 1 && server.keys("n/").is_empty()).await;
}

/// The lock stays taken, and for no longer, whether its client lives or not.
#[tokio::test]
async fn own_609_a_least_time_is_kept_also_by_a_process_that_ends_at_once() {
    let server = Etcd::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let mut last = 0;
    for _ in 0..3 {
        let begun = Instant::now();
        let guard = one.lock("n").acquire().fenced().min_hold(300 * MS).await.unwrap();
        assert!(guard.token() > last);
        guard.release().await.unwrap();
        let key = only_key(&server, "n/");
        assert_ne!(lease_of(&server, &key), key.strip_prefix("n/").unwrap());
        let next = timeout(PATIENCE, other.lock("n").acquire().fenced()).await.unwrap().unwrap();
        // The smallest time to live of this server is a second, and it ends a lease half a second later.
        assert!((300 * MS..SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        last = next.token();
        next.release().await.unwrap();
    }
    for part in ["killed", "ends"] {
        let mut part = Part::start(part, &server);
        let _ = part.child.kill();
        part.child.wait().unwrap();
        let next = timeout(PATIENCE, other.lock("n").acquire()).await.unwrap().unwrap();
        let late = now().checked_sub(part.believes_until).expect("it was taken for longer");
        assert!(late < SECOND + LATER, "{late:?}");
        next.release().await.unwrap();
    }
    until("nothing is left", || leases(&server) <= 3 && server.keys("n/").is_empty()).await;
}

/// Each grant must come after the last moment at which any earlier holder may have believed that it still held the lock: some
/// release, some leave it to the clock, and the leases of the clients are revoked meanwhile.
#[tokio::test]
async fn own_610_no_grant_comes_before_the_end_of_an_earlier_fixed_lease() {
    const TURNS: usize = 12;
    let server = Arc::new(Etcd::start());
    let believed: Arc<Mutex<BTreeMap<u64, Instant>>> = Arc::default();
    let (numbers, value) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for seed in 0..4 {
        let lock = client(&server).await.lock("n");
        let (believed, numbers, value) = (Arc::clone(&believed), Arc::clone(&numbers), Arc::clone(&value));
        tasks.spawn(async move {
            let mut dice = Dice::new(seed);
            for _ in 0..TURNS {
                let length = dice.between(50 * MS, 250 * MS);
                let Ok(guard) = lock.acquire().lease(length).await else { continue };
                let now = Instant::now();
                let number = numbers.fetch_add(1, Ordering::SeqCst);
                {
                    let mut believed = believed.lock().unwrap();
                    let last = believed.values().max().copied();
                    assert!(
                        last.is_none_or(|last| last <= now),
                        "{:?} too early",
                        last.map(|last| last - now)
                    );
                    believed.insert(number, now + guard.remaining());
                }
                if dice.one_in(2) {
                    std::mem::forget(guard);
                    continue;
                }
                let seen = value.load(Ordering::SeqCst);
                sleep(10 * MS).await;
                if guard.is_held() {
                    value.store(seen + 1, Ordering::SeqCst);
                }
                believed.lock().unwrap().remove(&number);
                let _ = guard.release().await;
            }
        });
    }
    let operator = tokio::spawn({
        let server = Arc::clone(&server);
        async move {
            loop {
                sleep(400 * MS).await;
                let server = Arc::clone(&server);
                let revoke = move || {
                    // The client that waits longest.
                    if let Some(key) = server.keys("n/").get(1) {
                        let _ =
                            server.etcdctl(&["lease", "revoke", key.strip_prefix("n/").unwrap()]).output();
                    }
                };
                tokio::task::spawn_blocking(revoke).await.unwrap();
            }
        }
    });
    while let Some(done) = timeout(PATIENCE, tasks.join_next()).await.expect("they go on") {
        done.unwrap();
    }
    operator.abort();
    assert!(numbers.load(Ordering::SeqCst) > 10, "some turns succeed");
}
