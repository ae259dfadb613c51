//! The import under faults. No test here takes real time.

use std::time::Duration;

use leasehold::test::Simulation;
use leasehold::{Client, Error, Loss};
use paused_time_tests::{LOCK, PAGE, PAGES, import};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// An import that runs, and the server that it uses.
struct Running {
    simulation: Simulation,
    import: JoinHandle<Result<(), Error>>,
    written: UnboundedReceiver<u32>,
}

impl Running {
    /// Begins an import on a server that `prepare` has changed.
    async fn start_after<T>(prepare: impl FnOnce(&Simulation) -> T) -> (Self, T) {
        let simulation = Simulation::new();
        let client = Client::connect(simulation.url()).await.expect("no fault yet");
        let prepared = prepare(&simulation);
        let (sender, written) = unbounded_channel();
        let import = tokio::spawn(async move { import(&client, &sender).await });
        (Self { simulation, import, written }, prepared)
    }

    async fn start() -> Self {
        Self::start_after(|_| ()).await.0
    }

    /// Waits until so many pages are written.
    async fn written(&mut self, pages: u32) {
        while self.written.recv().await.expect("the import goes on") < pages {}
    }

    /// Waits for the end: the result, and how many pages were written since.
    async fn end(&mut self) -> (Result<(), Error>, usize) {
        let result = (&mut self.import).await.expect("the import does not panic");
        let mut rest = 0;
        while self.written.recv().await.is_some() {
            rest += 1;
        }
        (result, rest)
    }
}

#[tokio::test(start_paused = true)]
async fn an_import_of_an_hour_is_renewed_to_its_end() {
    let start = Instant::now();
    let (result, pages) = Running::start().await.end().await;
    assert_eq!((result, pages), (Ok(()), 60));
    assert!(start.elapsed() >= PAGE * PAGES, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_import_ends_where_it_is_when_another_client_takes_its_lock() {
    let mut running = Running::start().await;
    running.written(10).await;
    let _other = running.simulation.take_over(LOCK);
    let (result, rest) = running.end().await;
    assert_eq!(result.unwrap_err().loss(), Some(Loss::TakenOver));
    assert_eq!(rest, 0, "no page after the loss");
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_is_shorter_than_the_lease_is_not_noticed() {
    let mut running = Running::start().await;
    running.written(10).await;
    running.simulation.outage();
    sleep(Duration::from_secs(10)).await;
    running.simulation.clear();
    assert_eq!(running.end().await, (Ok(()), 50));
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_is_longer_than_the_lease_ends_the_import_in_time() {
    let mut running = Running::start().await;
    running.written(10).await;
    running.simulation.outage();
    let start = Instant::now();
    let (result, rest) = running.end().await;
    assert_eq!(result.unwrap_err().loss(), Some(Loss::Unreachable));
    assert_eq!(rest, 0);
    // The lease is 30 s: after that, another client may have the lock.
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_import_begins_when_the_one_before_it_is_done() {
    let (mut running, other) = Running::start_after(|simulation| simulation.take_over(LOCK)).await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!(running.simulation.waiters(LOCK), 1);
    drop(other);
    assert_eq!(running.end().await, (Ok(()), 60));
}

#[tokio::test(start_paused = true)]
async fn an_import_that_waits_too_long_writes_nothing() {
    let (mut running, _other) = Running::start_after(|simulation| simulation.take_over(LOCK)).await;
    let (result, pages) = running.end().await;
    assert!(result.unwrap_err().is_contended());
    assert_eq!(pages, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_the_acquire_neither_fails_the_import_nor_leaves_its_lock_behind() {
    let (mut running, ()) = Running::start_after(Simulation::lose_reply).await;
    assert_eq!(running.end().await, (Ok(()), 60));
    assert_eq!(running.simulation.names(), 0);
}
