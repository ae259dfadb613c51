//! Clients in processes of their own, which are stopped for longer than their leases, and killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{env, fs, process, thread};

use leasehold_testkit::server::Etcd;
use tokio::time::{Instant, sleep};

use crate::PATIENCE;
use crate::faults::connect;
use crate::record::{Number, Record, deadline, now};

/// The address of the server, and the file with the number, for a process that was started as a part.
const SERVER: &str = "LEASEHOLD_ETCD_PART_SERVER";
const FILE: &str = "LEASEHOLD_ETCD_PART_FILE";

/// How long a part works between its read and its write.
const WORK: Duration = Duration::from_millis(200);

/// Tells the parent what has happened, and when.
fn tell(what: &str, at: Duration) {
    println!("\n@{what} {}", at.as_micros());
}

/// Raises the number in the file under the lock until a line arrives, as long as the guard allows that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part_that_raises_a_number_in_a_file() {
    let (Ok(url), Ok(file)) = (env::var(SERVER), env::var(FILE)) else { return };
    let is_over = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let _ = std::io::stdin().read_line(&mut String::new());
            is_over.store(true, Ordering::SeqCst);
        }
    });
    let lock = connect(url, 1).await.lock("n");
    while !is_over.load(Ordering::SeqCst) {
        let Ok(guard) = lock.acquire().wait(PATIENCE).await else { continue };
        let Some(first) = deadline(&guard) else { continue };
        tell("granted", now());
        tell("trusted", first);
        let seen: u64 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        tell("working", now());
        let (begun, mut told) = (Instant::now(), first);
        while let Some(deadline) = deadline(&guard).filter(|_| begun.elapsed() < WORK) {
            if deadline > told + Duration::from_millis(1) {
                tell("trusted", deadline);
                told = deadline;
            }
            sleep(Duration::from_millis(2)).await;
        }
        if guard.is_held() {
            fs::write(&file, (seen + 1).to_string()).unwrap();
            tell("wrote", Duration::from_micros(seen + 1));
        }
        tell("releases", now());
        let _ = guard.release().await;
    }
}

/// What a part has told that a test waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Told {
    Working,
    Wrote(u64),
}

/// A part that runs, and is killed with this at the latest.
struct Part {
    child: Child,
    told: mpsc::Receiver<Told>,
    /// What it wrote, as far as that was received.
    wrote: Vec<u64>,
}

impl Part {
    fn start(server: &Etcd, file: &Path, owner: &'static str, record: &Arc<Record>) -> Self {
        let mut child = Command::new(env::current_exe().expect("this process knows its program"))
            .args(["deadlines::paused::part_that_raises_a_number_in_a_file", "--exact", "--nocapture"])
            .env(SERVER, server.url())
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a part can be started");
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let (sender, told) = mpsc::channel();
        let record = Arc::clone(record);
        thread::spawn(move || {
            let mut granted = Duration::ZERO;
            let mut hold: Option<Number> = None;
            for line in lines.map_while(Result::ok) {
                let Some((what, at)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) else {
                    continue;
                };
                let number: u64 = at.parse().expect("it tells a number");
                let at = Duration::from_micros(number);
                match (what, hold) {
                    ("granted", _) => (granted, hold) = (at, None),
                    ("trusted", None) => hold = Some(record.granted_at(owner, granted, at)),
                    ("trusted", Some(hold)) => record.trusted(hold, at),
                    ("releases", Some(hold)) => record.releases_at(hold, at),
                    ("working", _) => drop(sender.send(Told::Working)),
                    ("wrote", _) => drop(sender.send(Told::Wrote(number))),
                    _ => panic!("{line}"),
                }
            }
        });
        Self { child, told, wrote: Vec::new() }
    }

    /// Waits until it works under the lock, from now on.
    fn works(&mut self) {
        while let Ok(told) = self.told.try_recv() {
            self.note(told);
        }
        loop {
            let told = self.told.recv_timeout(PATIENCE).expect("it works under the lock");
            if self.note(told) {
                return;
            }
        }
    }

    /// Whether it works.
    fn note(&mut self, told: Told) -> bool {
        if let Told::Wrote(number) = told {
            self.wrote.push(number);
        }
        told == Told::Working
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status();
        assert!(sent.is_ok_and(|status| status.success()), "no {name}");
    }

    /// Tells it to stop, or kills it, and returns all that it wrote.
    fn end(mut self, is_killed: bool) -> Vec<u64> {
        if is_killed {
            self.child.kill().expect("it was started here");
        } else {
            self.child.stdin.take().expect("it is a pipe").write_all(b"stop\n").expect("it reads");
        }
        let status = self.child.wait().expect("it was started here");
        assert!(is_killed || status.success(), "{status}");
        while let Ok(told) = self.told.recv_timeout(PATIENCE) {
            self.note(told);
        }
        std::mem::take(&mut self.wrote)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn own_657_a_process_that_is_stopped_or_killed_loses_its_lock_before_another_has_it() {
    let server = Etcd::start();
    let file: PathBuf =
        env::temp_dir().join(format!("leasehold-etcd-part-{}-{}", process::id(), server.port()));
    fs::write(&file, "0").unwrap();
    let record = Arc::new(Record::default());
    let start = |owner| Part::start(&server, &file, owner, &record);
    let (mut one, mut other, mut killed) = (start("one"), start("other"), start("killed"));
    for turn in 0..4 {
        let (stopped, next) = if turn % 2 == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
        stopped.works();
        stopped.signal("STOP");
        // It is granted when the lease of the stopped process has run out, and written under.
        next.works();
        next.works();
        stopped.signal("CONT");
    }
    killed.works();
    let mut wrote = killed.end(true);
    one.works();
    other.works();
    wrote.extend(one.end(false));
    wrote.extend(other.end(false));
    wrote.sort_unstable();
    assert_eq!(record.violations(), [""; 0]);
    let last = u64::try_from(wrote.len()).unwrap();
    assert_eq!(wrote, (1..=last).collect::<Vec<_>>(), "each number is written once");
    assert_eq!(fs::read_to_string(&file).unwrap(), last.to_string());
    fs::remove_file(&file).unwrap();
}
