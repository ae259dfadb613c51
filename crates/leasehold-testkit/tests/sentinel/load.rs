//! Holders, waiters and turns that go on while the servers change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Guard};
use leasehold_testkit::watched::Watched;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::{LABEL, LONG, SECOND, in_step, soon};

/// How many locks are held all the time.
const HOLDS: usize = 200;
/// How many tasks take turns.
const TURNS: usize = 64;

/// Two clients with 200 holds between them and 64 tasks that take turns at one lock, until this ends.
pub(crate) struct Load {
    pub(crate) held: Vec<Guard>,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<u64>>,
}

#[derive(Default)]
struct Shared {
    over: AtomicBool,
    /// Read and written in separate steps under the lock: two holders at once would lose a turn.
    value: AtomicU64,
    turns: AtomicU64,
}

impl Load {
    /// Begins, and returns when all holds are known to the replicas.
    pub(crate) async fn begin(watched: &Watched) -> Self {
        let client = || Client::connect(watched.url()).label(LABEL).watchdog(SECOND * 20).into_future();
        let clients = [client().await.unwrap(), client().await.unwrap()];
        let mut held = Vec::new();
        for number in 0..HOLDS {
            held.push(clients[number % 2].lock(format!("held:{number}")).acquire().await.unwrap());
        }
        let shared = Arc::new(Shared::default());
        let task = |number: usize| tokio::spawn(take_turns(clients[number % 2].clone(), Arc::clone(&shared)));
        let tasks = (0..TURNS).map(task).collect();
        in_step(watched).await;
        Self { held, shared, tasks }
    }

    /// How many turns there were so far.
    pub(crate) fn turns(&self) -> u64 {
        self.shared.turns.load(Ordering::SeqCst)
    }

    /// Waits until there were so many more turns.
    pub(crate) async fn more_turns(&self, count: u64) {
        let wanted = self.turns() + count;
        crate::until("more turns", || self.turns() >= wanted).await;
    }

    /// Ends the turns. Returns how many of them were lost, because two tasks held the lock at once.
    pub(crate) async fn end(self) -> u64 {
        self.shared.over.store(true, Ordering::SeqCst);
        let mut turns = 0;
        for task in self.tasks {
            turns += soon("a task ends", task).await.expect("no panic");
        }
        turns - self.shared.value.load(Ordering::SeqCst)
    }
}

/// Takes turns until it is over. Returns how many.
async fn take_turns(client: Client, shared: Arc<Shared>) -> u64 {
    let lock = client.lock("turns");
    let mut turns = 0;
    while !shared.over.load(Ordering::SeqCst) {
        let guard = match lock.acquire().wait(LONG).await {
            Ok(guard) => guard,
            Err(error) => panic!("{error}"),
        };
        let before = shared.value.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        // A holder that knows that it has lost the lock writes nothing.
        if guard.is_held() {
            shared.value.store(before + 1, Ordering::SeqCst);
            turns += 1;
            shared.turns.fetch_add(1, Ordering::SeqCst);
        }
        // What becomes of it does not matter: its server may be gone.
        let _ = guard.release().await;
        sleep(Duration::from_millis(1)).await;
    }
    turns
}
