//! Turns of processes of ours and of `flock(1)` on one file, while processes are killed.
//!
//! A turn reads the last line of a log, yields, and appends the next number. The line is one `write(2)`, so a process that is
//! killed has taken the whole turn or none; the log is the count. Two that hold the lock at once write the same number.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use leasehold::{Client, Lock};
use leasehold_testkit::bench::Files;
use leasehold_testkit::dice::Dice;
use tokio::time::Instant;

use crate::support::{Count, kernel_lines, number, part, signal, url_of_part};

const PROCESSES: usize = 8;
/// These are killed and replaced again and again.
const MORTAL: usize = 4;
const TASKS: usize = 2;
const SHELLS: usize = 2;
const NAME: &str = "turns";
const TURNS: &str = "LEASEHOLD_TURNS";
const LOG: &str = "LEASEHOLD_PART_LOG";
const SEAT: &str = "LEASEHOLD_SEAT";
/// After so long without a turn all contenders wait for each other.
const STALLED: Duration = Duration::from_secs(20);

#[test]
fn child_process_that_takes_turns() {
    let (Some(url), Ok(log)) = (url_of_part(), env::var(LOG)) else { return };
    let (seat, turns) = (env::var(SEAT).unwrap(), number(TURNS, 0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| tokio::spawn(take_turns(client.lock(NAME), PathBuf::from(&log), seat.clone(), turns)))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

async fn take_turns(lock: Lock, log: PathBuf, seat: String, turns: u64) {
    for turn in 0_u64.. {
        let guard = lock.acquire().await.unwrap();
        let seen = last(&log);
        if seen >= turns {
            return;
        }
        tokio::task::yield_now().await;
        let mut file = OpenOptions::new().append(true).open(&log).unwrap();
        let line = format!("{} {seat}\n", seen + 1);
        assert_eq!(file.write(line.as_bytes()).unwrap(), line.len());
        // Both ways to release.
        if turn % 2 == 0 {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
    }
}

/// The number of the last turn.
fn last(log: &Path) -> u64 {
    let mut file = File::open(log).unwrap();
    let length = file.metadata().unwrap().len();
    file.seek(SeekFrom::Start(length.saturating_sub(40))).unwrap();
    let mut end = String::new();
    file.read_to_string(&mut end).unwrap();
    let line = end.lines().last().unwrap_or_default();
    line.split(' ').next().unwrap().parse().expect("a line begins with its number")
}

/// A process that takes turns, and is ended with this at the latest.
struct Contender(Child);

impl Contender {
    fn ours(files: &Files, log: &Path, seat: usize, turns: u64) -> Self {
        let mut command = part("turns::child_process_that_takes_turns", files);
        command.env(LOG, log).env(SEAT, seat.to_string()).env(TURNS, turns.to_string());
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// Between two turns it pauses: blocked `flock(1)`s that come again at once would hand the lock over to each other for ever.
    fn shell(files: &Files, log: &Path, turns: u64) -> Self {
        let (file, log) = (files.lock_file(NAME), log.display());
        let turn = format!(
            "n=$(tail -n 1 {log} | cut -d ' ' -f 1); [ $n -lt {turns} ] && echo $((n + 1)) shell >> {log}"
        );
        let script = "while flock \"$0\" sh -c \"$1\"; do sleep 0.01; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(file).arg(turn);
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    /// Ends it by SIGKILL; true if it held the lock then.
    fn kill(&mut self, file: &Path) -> bool {
        // A stopped process neither takes a turn nor ends one while the kernel's list is read.
        signal(self.0.id(), "STOP");
        let holds = holder(file) == Some(self.0.id());
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        holds
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The process that has locked a file.
fn holder(file: &Path) -> Option<u32> {
    let lines = kernel_lines(file);
    let line = lines.iter().find(|line| !line.contains("->"))?;
    line.split_whitespace().nth(4)?.parse().ok()
}

#[test]
fn processes_and_flock_take_turns_while_some_are_killed() {
    let (turns, seed) = (number(TURNS, 5_000), number("LEASEHOLD_SEED", 1));
    println!("turns: seed {seed}, {turns} turns");
    let (mut dice, files, log) = (Dice::new(seed), Files::new(), Count::new());
    fs::write(log.path(), "0 none\n").unwrap();
    fs::create_dir_all(files.path()).unwrap();
    let (file, log) = (files.lock_file(NAME), log.path());
    let begun = Instant::now();
    let mut ours: Vec<_> = (0..PROCESSES).map(|seat| Contender::ours(&files, log, seat, turns)).collect();
    let mut shells: Vec<_> = (0..SHELLS).map(|_| Contender::shell(&files, log, turns)).collect();

    let (mut kills, mut killed_holding) = (0, 0);
    let mut progress = (0, Instant::now());
    loop {
        thread::sleep(dice.between(Duration::from_millis(20), Duration::from_millis(150)));
        let value = last(log);
        if value >= turns {
            break;
        }
        if value > progress.0 {
            progress = (value, Instant::now());
        }
        assert!(progress.1.elapsed() < STALLED, "no turn for {STALLED:?} after {value}");
        // Every second time one that has just held the lock, and may hold it still.
        let mut victim = dice.index(MORTAL);
        if kills % 2 == 0 {
            let mortal = |holder| ours[..MORTAL].iter().position(|one| one.0.id() == holder);
            let limit = Instant::now() + Duration::from_millis(100);
            while Instant::now() < limit {
                if let Some(holds) = holder(&file).and_then(mortal) {
                    victim = holds;
                    break;
                }
            }
        }
        killed_holding += u32::from(ours[victim].kill(&file));
        kills += 1;
        ours[victim] = Contender::ours(&files, log, victim, turns);
    }
    let took = begun.elapsed();

    // Every process sees that all turns are taken, and ends.
    let limit = Instant::now() + STALLED;
    for (at, contender) in ours.iter_mut().chain(&mut shells).enumerate() {
        let status = loop {
            if let Some(status) = contender.ended() {
                break status;
            }
            assert!(Instant::now() < limit, "contender {at} does not end");
            thread::sleep(Duration::from_millis(5));
        };
        assert!(at >= PROCESSES || status.success(), "contender {at} ended with {status}");
    }

    let text = fs::read_to_string(log).unwrap();
    let lines: Vec<_> = text.lines().skip(1).map(|line| line.split_once(' ').unwrap()).collect();
    let numbers = lines.iter().map(|(number, _)| number.parse::<u64>().unwrap());
    if let Some(wrong) = numbers.clone().zip(1..).position(|(is, should)| is != should) {
        panic!(
            "two held the lock at once: {:?}",
            &lines[wrong.saturating_sub(3)..lines.len().min(wrong + 3)]
        );
    }
    assert_eq!(numbers.count() as u64, turns);
    let mut by_seat: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, seat) in &lines {
        *by_seat.entry(seat).or_default() += 1;
    }
    println!(
        "turns: {turns} in {took:.1?}, {kills} kills, {killed_holding} of holders; turns by seat: {by_seat:?}"
    );
    let starved: Vec<_> = (MORTAL..PROCESSES)
        .map(|seat| seat.to_string())
        .filter(|seat| !by_seat.contains_key(&**seat))
        .collect();
    assert!(
        starved.is_empty() && by_seat.contains_key("shell"),
        "some had no turn: {starved:?}, {by_seat:?}"
    );
    assert!(killed_holding > 0, "no process was killed while it held the lock");
}
