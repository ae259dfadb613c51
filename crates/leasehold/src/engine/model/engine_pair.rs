//! The two engines side by side, and how their time passes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::engine::memory::Memory;
use crate::engine::{Engine, HoldKey, Reply, Ticket};
use crate::name::Name;
use crate::term::Term;

/// Both engines. The memory engine uses a clock that stands still until it is advanced by the time that has passed for the
/// other one.
pub(super) struct EnginePair {
    paused: Runtime,
    memory: Arc<Memory>,
    server: Box<dyn ServerEngine>,
    /// By how much of the time since the case began the still clock has been advanced.
    advanced: Duration,
}

/// An engine on a server that is compared with the memory engine: several clients, and how their time passes.
pub(super) trait ServerEngine {
    /// Its name in a failure.
    fn name(&self) -> &'static str;

    /// The runtime whose clock its clients use.
    fn runtime(&self) -> &Runtime;

    fn engine(&self, client: usize) -> &dyn Engine;

    /// Begins a case: nothing is held.
    fn begin(&mut self);

    /// How long the case has taken, without what it was [advanced](Self::advance) by.
    fn elapsed(&self) -> Duration;

    fn advance(&mut self, length: Duration);

    /// Waits until all requests of `client` are done.
    fn finish(&self, client: usize);

    /// Waits until these clients have received every published message.
    fn settle(&mut self, clients: &[usize]);
}

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Memory = 0,
    Server = 1,
}

/// The reply of an engine.
pub(super) type ReplyFuture<T> = Pin<Box<dyn Future<Output = T>>>;

impl EnginePair {
    pub(super) fn new(server: Box<dyn ServerEngine>) -> Self {
        let paused = Builder::new_current_thread().enable_all().start_paused(true).build();
        Self { paused: paused.expect("a runtime"), memory: Memory::new(), server, advanced: Duration::ZERO }
    }

    /// Begins a case: nothing is held anywhere.
    pub(super) fn begin(&mut self) {
        self.server.begin();
        self.memory = Memory::new();
        self.advanced = Duration::ZERO;
    }

    /// The name of the server.
    pub(super) fn server_name(&self) -> &'static str {
        self.server.name()
    }

    /// How long the case has taken.
    pub(super) fn elapsed(&self) -> Duration {
        self.server.elapsed()
    }

    /// Advances the still clock by the time that the case has taken.
    pub(super) fn tick(&mut self) {
        let elapsed = self.elapsed();
        let more = elapsed.saturating_sub(self.advanced);
        self.advanced = elapsed;
        self.paused.block_on(tokio::time::advance(more));
    }

    pub(super) fn advance(&mut self, length: Duration) {
        self.tick();
        self.paused.block_on(tokio::time::advance(length));
        self.server.advance(length);
    }

    /// Calls both engines: first the memory engine, then the one of `client`.
    pub(super) fn call<T: Unpin>(
        &self,
        client: usize,
        mut operation: impl FnMut(&dyn Engine) -> Reply<T>,
    ) -> [T; 2] {
        [self.call_memory(&mut operation), self.call_server(client, operation)]
    }

    pub(super) fn call_side<T: Unpin>(
        &self,
        side: Side,
        client: usize,
        operation: impl FnOnce(&dyn Engine) -> Reply<T>,
    ) -> T {
        match side {
            Side::Memory => self.call_memory(operation),
            Side::Server => self.call_server(client, operation),
        }
    }

    pub(super) fn call_memory<T: Unpin>(&self, operation: impl FnOnce(&dyn Engine) -> Reply<T>) -> T {
        let reply = self.paused.block_on(async { operation(self.memory.as_ref()).await });
        reply.expect("the memory engine always replies")
    }

    pub(super) fn call_server<T: Unpin>(
        &self,
        client: usize,
        operation: impl FnOnce(&dyn Engine) -> Reply<T>,
    ) -> T {
        self.server
            .runtime()
            .block_on(async { operation(self.server.engine(client)).await })
            .expect("the server replies")
    }

    /// Makes all these calls on both engines, in one round trip to the server.
    pub(super) fn call_all<T>(
        &self,
        client: usize,
        calls: impl Fn(&dyn Engine) -> Vec<ReplyFuture<T>>,
    ) -> [Vec<T>; 2] {
        let all = async |engine: &dyn Engine| {
            let mut replies = Vec::new();
            for reply in calls(engine) {
                replies.push(reply.await);
            }
            replies
        };
        [
            self.paused.block_on(all(self.memory.as_ref())),
            self.server.runtime().block_on(all(self.server.engine(client))),
        ]
    }

    /// Renews all of these on the server, where each client has some.
    pub(super) fn renew<'a>(&self, holds: impl IntoIterator<Item = (usize, &'a HoldKey)>, length: Duration) {
        self.server.runtime().block_on(async {
            let renewals: Vec<_> = holds
                .into_iter()
                .map(|(client, key)| self.server.engine(client).renew(key, length))
                .collect();
            for renewal in renewals {
                renewal.await.expect("the server replies");
            }
        });
    }

    /// Calls both engines without waiting for a reply.
    pub(super) fn call_without_reply<T>(
        &self,
        client: usize,
        mut operation: impl FnMut(&dyn Engine, Side) -> T,
    ) -> [T; 2] {
        let memory = {
            let _entered = self.paused.enter();
            operation(self.memory.as_ref(), Side::Memory)
        };
        let _entered = self.server.runtime().enter();
        [memory, operation(self.server.engine(client), Side::Server)]
    }

    /// Which of both has woken the waiter.
    pub(super) fn woken(&self, client: usize, key: &HoldKey, tickets: [Ticket; 2]) -> [bool; 2] {
        let mut context = Context::from_waker(Waker::noop());
        self.call_without_reply(client, |engine, side| {
            engine.poll_wake_up(key, tickets[side as usize], &mut context).is_ready()
        })
    }

    /// Lets so much time pass for the other engine.
    pub(super) fn pause(&self, length: Duration) {
        self.server.runtime().block_on(async { tokio::time::sleep(length).await });
    }

    /// Waits until all requests of `client` are done.
    pub(super) fn finish(&self, client: usize) {
        self.server.finish(client);
    }

    /// Waits until these clients have received every published message.
    pub(super) fn settle(&mut self, clients: &[usize]) {
        self.server.settle(clients);
    }
}

pub(super) fn name(name: &str) -> Name {
    Name::new("", name).expect("a good name")
}

/// A term for each engine, which uses its clock.
pub(super) fn terms() -> [Arc<Term>; 2] {
    std::array::from_fn(|_| Term::new(std::sync::Weak::new()))
}
