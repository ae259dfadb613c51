//! The whole client on a simulated server: no server, no real time.

mod bound;
mod cancellation;
mod end;
mod handover;
mod lazy;
mod messages;
mod order;
mod outage;
mod run;
mod rw_cancellation;
mod schedule;
mod several;
mod through_outage;
mod undo;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::test::Simulation;
use leasehold::{Client, Guard, Lock};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
/// How long a request takes to the server and a reply or a message back, where that is not zero.
const LATENCY: Duration = Duration::from_millis(10);
const NAME: &str = "n";

/// A server and a client of it.
async fn start() -> (Simulation, Client) {
    let simulation = Simulation::new();
    let client = connect(&simulation).await;
    (simulation, client)
}

async fn connect(simulation: &Simulation) -> Client {
    Client::connect(simulation.url()).await.unwrap()
}

/// All locks that can be taken over.
fn locks(client: &Client) -> [Lock; 5] {
    [
        client.lock(NAME),
        client.setnx_lock(NAME),
        client.fair_lock(NAME).into(),
        client.rw_lock(NAME).write().into(),
        client.group_lock(NAME, ["a", "b"]),
    ]
}

/// Waits for a result that arrives before a waiter would retry by itself because messages can be lost.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(SECOND * 15, work).await.unwrap_or_else(|_| panic!("not within 15 s: {what}"))
}

/// The guard that a waiter gets.
async fn granted<E: std::fmt::Debug>(waiter: JoinHandle<Result<Guard, E>>) -> Guard {
    soon("the waiter gets the lock", waiter).await.unwrap().unwrap()
}

/// A future that has sent its request, and is not polled until it is awaited.
fn begun<F: Future + Unpin>(mut future: F) -> F {
    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    future
}
