//! The workload on files of one directory, which are removed and replaced under their holders.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Client;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::environment::Environment;
use super::history::{History, Who};
use super::mixed::{PACE, Task};
use super::polling::Polling;
use super::request::Request;
use super::resource::{Kind, NAMES, Resource};
use super::round::{CLIENTS, OUTAGE_LIMIT, Round};
use super::{Report, begin};
use crate::bench::{Backend as _, Files};
use crate::dice::Dice;

const TASKS: usize = 4;
const LENGTH: Duration = Duration::from_millis(2500);
/// Files are replaced for so long. Afterwards a guard that was not told is not excused for long.
const FAULTS: Duration = Duration::from_secs(1);
/// Short, because a guard is excused for as long after its file was replaced, and for the lateness of a busy machine.
const WATCHDOG: Duration = Duration::from_millis(300);

/// The directory of a round.
#[derive(Debug)]
pub(super) struct LockFiles(Files);

impl LockFiles {
    /// Whether the engine has this feature.
    pub(super) fn has(&self, feature: &str) -> bool {
        !self.0.lacks().contains(&feature)
    }

    /// The files that are locked, and the tables with content, except those of semaphores.
    pub(super) fn left(&self) -> Vec<String> {
        let left = self.0.left("lock:").into_iter();
        let stays = |name: &String| name.contains("semaphore") || name.contains("leased");
        left.filter(|name| !stays(name)).map(|name| format!("the file {name}")).collect()
    }

    /// Removes or replaces the file of a lock.
    fn disturb(&self, resource: Resource, dice: &mut Dice) -> &'static str {
        let (file, other) = (self.0.lock_file(&resource.name()), self.0.path().join("other"));
        // A file that no client has made yet cannot be removed.
        match dice.roll(3) {
            0 => {
                let _ = fs::remove_file(&file);
                "is removed"
            }
            1 => {
                let _ = fs::rename(&file, &other);
                "is moved away"
            }
            _ => {
                let _ = fs::write(&other, "").and_then(|()| fs::rename(&other, &file));
                "is replaced"
            }
        }
    }
}

/// Plays the round of a seed on files, as [`run`](super::run) does on servers. Every second seed replaces files.
///
/// # Panics
///
/// When the system cannot start a thread.
#[must_use]
pub fn run_on_files(seed: u64) -> Report {
    let again =
        format!("LEASEHOLD_SEARCH_SEED={seed} cargo test -p leasehold-testkit --test search on_files");
    begin(format!("seed {seed} on files"), again, move |history| play(seed, history))
}

async fn play(seed: u64, history: Arc<History>) -> Vec<String> {
    let mut dice = Dice::new(seed);
    let directory = Files::new();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let connect = Client::connect(directory.url()).watchdog(WATCHDOG).outage_limit(OUTAGE_LIMIT);
        clients.push(connect.linger(Duration::from_millis(10)).await.expect("the directory can be used"));
    }
    let observer = Client::connect(directory.url()).await.expect("the directory can be used");
    let files = Arc::new(LockFiles(directory));
    let environment = Environment::Files(Arc::clone(&files));
    let times = [WATCHDOG, Duration::ZERO, OUTAGE_LIMIT];
    let round = Arc::new(Round::new((clients, observer), times, history, environment));
    round.create().await;
    round.query_owners(dice.one_in(2));
    let end = Instant::now() + LENGTH;
    let mut tasks = JoinSet::new();
    for who in (0..CLIENTS).flat_map(|client| (0..TASKS).map(move |task| Who { client, task })) {
        tasks.spawn(Task::new(Arc::clone(&round), who, PACE, dice.fork()).run(end));
    }
    if seed % 2 == 1 {
        let end = Instant::now() + FAULTS;
        tasks.spawn(replace_files(Arc::clone(&round), files, end, dice.fork()));
    }
    tasks.join_all().await;
    round.end().await;
    round.checker.violations()
}

/// Removes and replaces the files of locks, and tells the checker, for which such a file is a hold that is lost.
async fn replace_files(round: Arc<Round>, files: Arc<LockFiles>, end: Instant, mut dice: Dice) {
    // A disturbance of no client: each has to find out.
    let who = Who { client: CLIENTS, task: 0 };
    while Instant::now() < end {
        sleep(dice.between(Duration::from_millis(10), Duration::from_millis(100))).await;
        let name = u32::try_from(dice.index(NAMES as usize)).expect("some names");
        let resource = Resource::new(dice.one_of(&[Kind::Plain, Kind::Plain, Kind::Write]), name);
        if dice.one_in(2) {
            // A guard that is kept until the end of the round, so that it is seen whether it is told.
            let keeper = Who { client: dice.index(CLIENTS), task: TASKS };
            let request = Request::new(resource, Duration::from_millis(200));
            let _ = round.acquire(keeper, &request, None, Polling::Whole).await;
        }
        let disturbing = round.checker.disturb(who, resource);
        let what = files.disturb(resource, &mut dice);
        round.checker.disturbed(disturbing);
        round.history.fault(format!("the file of {} {what}", resource.name()));
    }
}
