//! Mutual exclusion and turns, with a value that detects a violation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::{Client, Lock};

const TASKS: usize = 64;
const THREADS: usize = 8;
const TURNS: u64 = 100_000;

/// A plain variable: read, and written later. Only a lock makes that exact.
#[derive(Default)]
struct Plain(AtomicU64);

impl Plain {
    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn write(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// One contender's turns, until all turns are taken.
struct Contender {
    lock: Lock,
    variable: Arc<Plain>,
    turns: u64,
}

impl Contender {
    async fn run(mut self) -> u64 {
        loop {
            let guard = self.lock.acquire().await.unwrap();
            let seen = self.variable.read();
            if seen == TURNS {
                return self.turns;
            }
            tokio::task::yield_now().await;
            self.variable.write(seen + 1);
            self.turns += 1;
            guard.release().await.unwrap();
        }
    }

    fn run_blocking(mut self) -> u64 {
        loop {
            let guard = self.lock.acquire().block().unwrap();
            let seen = self.variable.read();
            if seen == TURNS {
                return self.turns;
            }
            std::thread::yield_now();
            self.variable.write(seen + 1);
            self.turns += 1;
            // Every other one by dropping, to cover both ways to release.
            if self.turns.is_multiple_of(2) {
                drop(guard);
            } else {
                guard.release().block().unwrap();
            }
        }
    }
}

/// Jain's index: 1/n when one contender has all turns, 1 when all have the same number.
#[expect(clippy::cast_precision_loss, reason = "the sums are far below 2^52")]
fn jain_fairness(turns: &[u64]) -> f64 {
    let sum = turns.iter().sum::<u64>() as f64;
    let squares = turns.iter().map(|turns| turns * turns).sum::<u64>() as f64;
    sum * sum / (turns.len() as f64 * squares)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_and_threads_take_100_000_turns_fairly_and_without_a_lost_update() {
    let client = Client::connect("memory:").await.unwrap();
    let variable = Arc::new(Plain::default());
    let contender = || Contender { lock: client.lock("one name"), variable: Arc::clone(&variable), turns: 0 };

    // No contender begins before all are queued.
    let gate = client.lock("one name").acquire().await.unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let contender = contender();
            std::thread::spawn(move || contender.run_blocking())
        })
        .collect();
    let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(contender().run())).collect();
    drop(gate);

    let mut turns = Vec::new();
    for task in tasks {
        turns.push(task.await.unwrap());
    }
    for thread in threads {
        turns.push(tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap());
    }
    assert_eq!(variable.read(), TURNS);
    assert_eq!(turns.iter().sum::<u64>(), TURNS);
    let fairness = jain_fairness(&turns);
    println!("{} contenders, Jain fairness {fairness:.4}", turns.len());
    assert!(fairness >= 0.99, "{fairness}: {turns:?}");
}
