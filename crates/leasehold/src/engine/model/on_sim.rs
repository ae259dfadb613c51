//! The engine on the simulated server, in virtual time.
//!
//! Every step happens at one moment, and no message is in flight when the runtime has no task left to run. Time passes as it
//! does for a real client: each timer ends when it is due.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::engine_pair::ServerEngine;
use super::op::CLIENTS;
use crate::engine::Engine;
use crate::engine::remote::Remote;
use crate::engine::remote::sim::{SimServer, SimStore};
use crate::env::{self, Instant};

/// How many steps there have to be.
const OPERATIONS: u64 = 200_000;

#[test]
fn both_engines_give_the_same_results() {
    super::compare(OPERATIONS, || Box::new(OnSim::start()));
}

/// A simulated server and a client for each of the model, new ones for each case.
struct OnSim {
    clients: Vec<Remote<SimStore>>,
    begun: Instant,
    /// By how much the time of the case was moved.
    advanced: Duration,
    idle: Idle,
    // Dropped last.
    runtime: Runtime,
}

impl OnSim {
    fn start() -> Self {
        let idle = Idle::default();
        let (parked, mut builder) = (idle.clone(), Builder::new_current_thread());
        let runtime =
            builder.enable_all().start_paused(true).on_thread_park(move || parked.reached()).build();
        let runtime = runtime.expect("a runtime");
        let begun = runtime.block_on(async { env::now() });
        Self { clients: Vec::new(), begun, advanced: Duration::ZERO, idle, runtime }
    }
}

impl ServerEngine for OnSim {
    fn name(&self) -> &'static str {
        "the simulated server"
    }

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn engine(&self, client: usize) -> &dyn Engine {
        &self.clients[client]
    }

    fn begin(&mut self) {
        self.clients.clear();
        self.runtime.block_on(async {
            let server = SimServer::new();
            for _ in 0..CLIENTS {
                let client =
                    Remote::embed(Duration::ZERO, false, |events| SimStore::new(&server, events)).await;
                self.clients.push(client.expect("the server is there"));
            }
            self.begun = env::now();
        });
        self.advanced = Duration::ZERO;
    }

    fn elapsed(&self) -> Duration {
        let _entered = self.runtime.enter();
        env::now().saturating_duration_since(self.begun + self.advanced)
    }

    fn advance(&mut self, length: Duration) {
        self.runtime.block_on(env::sleep_for(length));
        self.advanced += length;
    }

    fn finish(&self, _client: usize) {
        self.runtime.block_on(self.idle.wait());
    }

    fn settle(&mut self, _clients: &[usize]) {
        self.runtime.block_on(self.idle.wait());
    }
}

/// Whether the runtime has a task left to run.
#[derive(Clone, Default)]
struct Idle(Arc<Mutex<Option<Waker>>>);

impl Idle {
    /// The runtime has none, and is about to wait.
    fn reached(&self) {
        let waker = self.waker().take();
        waker.into_iter().for_each(Waker::wake);
    }

    /// Resolves when it has none. No time passes.
    async fn wait(&self) {
        let mut has_registered = false;
        poll_fn(|context| {
            let mut waker = self.waker();
            if has_registered && waker.is_none() {
                return Poll::Ready(());
            }
            has_registered = true;
            *waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
