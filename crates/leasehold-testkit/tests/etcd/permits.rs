//! Permits with a lease: keys that end with their client, at a time of their own, or not at all.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use leasehold::{ChangeError, Client, Loss, ServerError};
use leasehold_testkit::server::Etcd;
use tokio::time::{Instant, sleep, timeout};

use crate::counters::{impatient, value};
use crate::leases::{granted, lease_of};
use crate::{PATIENCE, client, until};

const URL: &str = "LEASEHOLD_TEST_PERMITS_URL";
const FILE: &str = "LEASEHOLD_TEST_PERMITS_FILE";

/// A process of its own that runs a part of these tests, and ends with this.
struct Part(Child);

impl Part {
    fn start(part: &str, server: &Etcd, file: &Path) -> (Self, impl Iterator<Item = String> + Send + use<>) {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", &format!("permits::{part}"), "--nocapture"]);
        command.env(URL, server.url()).env(FILE, file).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Without those of the harness.
        let lines = lines.filter_map(|line| line.strip_prefix("part: ").map(str::to_owned));
        (Self(child), lines)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Increments the number in a file, which two processes at once would not do twice.
async fn increment(file: &Path) {
    let seen: u64 = fs::read_to_string(file).unwrap().parse().unwrap();
    sleep(Duration::from_millis(2)).await;
    let new = file.with_extension(std::process::id().to_string());
    fs::write(&new, (seen + 1).to_string()).unwrap();
    fs::rename(new, file).unwrap();
}

/// Part: takes turns, and prints each.
#[tokio::test]
async fn part_takes_turns() {
    let (Ok(url), Ok(file)) = (env::var(URL), env::var(FILE)) else { return };
    let connect =
        Client::connect(url).watchdog(Duration::from_secs(2)).response_timeout(Duration::from_millis(500));
    let client = connect.outage_limit(Duration::from_secs(60)).await.unwrap();
    println!();
    for turn in 1..=40 {
        let permit = client.leased_semaphore("s").acquire(1).wait(Duration::from_secs(60)).await.unwrap();
        increment(file.as_ref()).await;
        println!("part: {turn}");
        drop(permit);
    }
}

#[tokio::test]
async fn own_585_no_increment_is_lost_while_a_holder_is_killed_and_the_server_is_started_again() {
    let mut server = Etcd::start();
    let file = env::temp_dir().join(format!("leasehold-permits-{}", std::process::id()));
    fs::write(&file, "0").unwrap();
    let semaphore = client(&server).await.leased_semaphore("s");
    assert!(semaphore.try_set_permits(1).await.unwrap());
    let start = || Part::start("part_takes_turns", &server, &file);
    let ((mut killed, mut turns), two, three) = (start(), start(), start());
    let (_two, _three) = (two.0, three.0);
    let others = [two.1, three.1].map(|turns| std::thread::spawn(|| turns.count()));
    let mut last = 0;
    while last < 10 {
        last = turns.next().expect("it takes turns").parse().unwrap();
    }
    killed.kill();
    last = turns.last().map_or(last, |turn| turn.parse().unwrap());
    server.restart();
    let others = tokio::task::spawn_blocking(|| others.map(|turns| turns.join().unwrap()));
    assert_eq!(timeout(PATIENCE * 3, others).await.unwrap().unwrap(), [40, 40]);
    let sum: usize = fs::read_to_string(&file).unwrap().parse().unwrap();
    fs::remove_file(&file).unwrap();
    // It may have been killed before it could say so.
    assert!(sum == 80 + last || sum == 81 + last, "{sum} after {last}");
    until("no permit is taken", || server.keys("_leasehold/permits/") == ["_leasehold/permits/s/total"])
        .await;
    assert_eq!(semaphore.available().await.unwrap(), 1);
}

/// Part: holds permits of all sorts until it is killed.
#[tokio::test]
async fn part_holds_permits() {
    let Ok(url) = env::var(URL) else { return };
    let client = Client::connect(url).watchdog(Duration::from_secs(1)).await.unwrap();
    let semaphore = client.leased_semaphore("s");
    let _kept = semaphore.acquire(2).await.unwrap();
    let _forgotten = semaphore.acquire(1).lease(Duration::from_secs(4)).await.unwrap().forget();
    let _permanent = semaphore.acquire(1).permanent().await.unwrap();
    println!("\npart: holds");
    sleep(Duration::from_secs(3600)).await;
}

#[tokio::test]
async fn own_586_permits_of_a_killed_client_come_back_with_its_lease_or_with_their_own() {
    let server = Etcd::start();
    let semaphore = client(&server).await.leased_semaphore("s");
    assert!(semaphore.try_set_permits(4).await.unwrap());
    let (mut holder, mut lines) = Part::start("part_holds_permits", &server, Path::new(""));
    assert_eq!(lines.next().as_deref(), Some("holds"));
    let begun = Instant::now();
    holder.kill();
    assert_eq!(semaphore.available().await.unwrap(), 0);
    // Its keys are deleted by the server, and the watch reports that.
    let two = timeout(PATIENCE, semaphore.acquire(2)).await.unwrap().unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 0, "one has a lease that is not over");
    let one = timeout(PATIENCE, semaphore.acquire(1)).await.unwrap().unwrap();
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(semaphore.acquired().await.unwrap(), 4, "one is permanent");
    two.release().await.unwrap();
    one.release().await.unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 3);
}

#[tokio::test]
async fn own_587_taken_permits_are_keys_with_their_ids_and_their_end() {
    let server = Etcd::start();
    let client = client(&server).await;
    let semaphore = client.leased_semaphore("s");
    semaphore.set_permits(9).await.unwrap();
    assert_eq!(value(&server, "_leasehold/permits/s/total"), "9");
    let taken = || {
        let keys = server.keys("_leasehold/permits/s/");
        keys.into_iter().filter(|key| !key.ends_with("total")).collect::<Vec<_>>()
    };
    let kept = semaphore.acquire(3).await.unwrap();
    let ids: Vec<_> = kept.ids().iter().map(ToString::to_string).collect();
    let key = format!("_leasehold/permits/s/{}-3", ids[0]);
    assert_eq!((taken(), value(&server, &key)), (vec![key], "kept 30000".into()));

    // What is left after the release of one of them has other keys, so the guard is told.
    assert!(semaphore.try_release([kept.ids()[1]]).await.unwrap());
    let mut left = [&ids[0], &ids[2]].map(|id| format!("_leasehold/permits/s/{id}-1"));
    left.sort_unstable();
    let mut found = taken();
    found.sort_unstable();
    assert_eq!(found, left);
    assert_eq!(timeout(PATIENCE, kept.lost()).await.unwrap(), Loss::Gone);
    drop(kept);
    until("what is left goes with the guard", || taken().is_empty()).await;

    let fixed = semaphore.acquire(1).lease(Duration::from_secs(60)).await.unwrap();
    assert_eq!(value(&server, &taken()[0]), "60000");
    let leases = || server.ctl(&["lease", "list"]).lines().count();
    let before = leases();
    assert!(semaphore.make_permanent(fixed.ids()[0]).await.unwrap());
    assert_eq!(value(&server, &taken()[0]), "");
    until("a lease that no key has is revoked", || leases() < before).await;
    assert!(fixed.is_held());
    fixed.release().await.unwrap();
    assert_eq!((taken(), semaphore.available().await.unwrap()), (Vec::new(), 9));
}

/// A transaction has 128 operations at most.
#[tokio::test]
async fn own_588_a_list_of_more_permits_than_a_transaction_takes_is_refused_as_a_whole() {
    let server = Etcd::start();
    let semaphore = impatient(&server).await.leased_semaphore("s");
    semaphore.set_permits(1000).await.unwrap();
    let mut single = Vec::new();
    for _ in 0..130 {
        single.extend(semaphore.acquire(1).permanent().await.unwrap());
    }
    let many = semaphore.acquire(700).permanent().await.unwrap();
    let error = semaphore.release(single.clone()).await.unwrap_err();
    assert!(
        matches!(&error, ChangeError::Server { cause: ServerError::Denied(text), .. } if text.contains("128")),
        "{error:?}"
    );
    assert_eq!(semaphore.acquired().await.unwrap(), 830);
    // Permits that were acquired together are one key.
    semaphore.release(single[..100].iter().chain(&many).copied()).await.unwrap();
    semaphore.release(single[100..].to_vec()).await.unwrap();
    assert_eq!(semaphore.acquired().await.unwrap(), 0);
}

/// The server would end the lease after two seconds.
#[tokio::test]
async fn own_589_permits_with_a_least_time_come_back_after_it_also_without_their_client() {
    const LEAST: Duration = Duration::from_millis(1100);
    let server = Etcd::start();
    let other = client(&server).await;
    let semaphore = other.leased_semaphore("n");
    semaphore.set_permits(2).await.unwrap();
    for is_closed in [false, true] {
        let one = client(&server).await;
        let begun = Instant::now();
        let permits = one.leased_semaphore("n").acquire(2).min_hold(LEAST).await.unwrap();
        permits.release().await.unwrap();
        let keys = server.keys("_leasehold/permits/n/");
        let key = keys.iter().find(|key| !key.ends_with("total")).expect("they stay taken");
        assert_eq!(granted(&server, &lease_of(&server, key)), 2);
        if is_closed {
            one.shutdown(Duration::ZERO).await;
        }
        let next = timeout(PATIENCE, semaphore.acquire(2).into_future()).await.unwrap().unwrap();
        assert!(begun.elapsed() >= LEAST, "{:?}", begun.elapsed());
        assert!(is_closed || begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        next.release().await.unwrap();
    }
}
