//! Tasks that take turns at a plain lock across failovers. `Turns.java` does the same.
//!
//! They read a value and write one more, on a server that has no failover, and record each turn in a stream there.

use std::future::ready;
use std::ops::AddAssign;
use std::time::Duration;

use leasehold::{Client, Guard};
use leasehold_testkit::resp::{Connection, Value};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// So that one language does not take all turns.
const PAUSE: Duration = Duration::from_millis(5);
/// Before the next attempt when there is no primary.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Runs so many tasks until there is `:stop`. Returns how many turns they took, and which failures they met.
pub(super) async fn take(client: &Client, port: u16, [name, topic]: [&str; 2], tasks: usize) -> String {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        running.spawn(taking(client.clone(), name.to_owned(), Record::open(port, topic), task));
    }
    let mut sum = Count::default();
    running.join_all().await.into_iter().for_each(|count| sum += count);
    let Count { taken, skipped, failed, lost } = sum;
    format!(
        "{taken} turns, {skipped} not written without the lock, {failed} failed attempts, {lost} not held at their end"
    )
}

/// Takes one turn, and writes only when the loss of the lock has been reported. Returns whether it did write.
pub(super) async fn after_loss(client: &Client, port: u16, [name, topic]: [&str; 2]) -> String {
    let mut record = Record::open(port, topic);
    let guard = client.lock(name).acquire().await.expect("it is free");
    let seen = record.seen();
    let loss = guard.lost().await;
    let wrote = record.write(&guard, 0, seen).await;
    format!("{loss:?}, {}", if wrote { "written all the same" } else { "nothing written" })
}

async fn taking(client: Client, name: String, mut record: Record, task: usize) -> Count {
    let lock = client.lock(name);
    let mut count = Count::default();
    while !record.is_over() {
        let guard = match lock.acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                if !error.is_unavailable() {
                    record.violated(&format!("rust {task}: {error}"));
                }
                count.failed += 1;
                sleep(BACK_OFF).await;
                continue;
            }
        };
        let seen = record.seen();
        let wrote = record.write(&guard, task, seen).await;
        *if wrote { &mut count.taken } else { &mut count.skipped } += 1;
        count.lost += u64::from(guard.release().await.is_err());
        sleep(PAUSE).await;
    }
    count
}

/// What became of turns.
#[derive(Default)]
struct Count {
    taken: u64,
    skipped: u64,
    failed: u64,
    lost: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.taken += other.taken;
        self.skipped += other.skipped;
        self.failed += other.failed;
        self.lost += other.lost;
    }
}

/// The value, and the turns.
struct Record {
    connection: Connection,
    topic: String,
}

impl Record {
    fn open(port: u16, topic: &str) -> Self {
        Self { connection: Connection::open(port).expect("the server listens"), topic: topic.into() }
    }

    fn call(&mut self, command: &str, what: &str, rest: &[&str]) -> Value {
        let key = format!("{}:{what}", self.topic);
        let command = [&[command, key.as_str()], rest].concat();
        self.connection.call(&command).expect("the server replies")
    }

    fn is_over(&mut self) -> bool {
        self.call("EXISTS", "stop", &[]) == 1
    }

    fn seen(&mut self) -> u64 {
        let seen = self.call("GET", "value", &[]);
        seen.as_str().map_or(0, |seen| seen.parse().expect("a number"))
    }

    /// Writes one more than was seen, if the lock is held. Returns whether it is.
    async fn write(&mut self, guard: &Guard, task: usize, seen: u64) -> bool {
        let told = tokio::select! {
            biased;
            _ = guard.lost() => true,
            () = ready(()) => false,
        };
        if !guard.is_held() {
            return false;
        }
        self.call("SET", "value", &[&(seen + 1).to_string()]);
        self.call("XADD", "turns", &["*", "turn", &format!("rust {task} {seen}")]);
        if told {
            self.violated(&format!("rust {task} wrote {} with a lock that was reported as lost", seen + 1));
        }
        true
    }

    fn violated(&mut self, how: &str) {
        self.call("RPUSH", "violations", &[how]);
    }
}
