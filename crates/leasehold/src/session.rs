//! The session of a client with a server: the holds under it last as long as the session does.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use crate::env::{self, Instant};
use crate::loss::Loss;
use crate::mutex::Mutex;

/// One session: a lease that many holds share, or a connection to which they are bound.
///
/// The reply to a heartbeat moves the deadline of all its holds at once. Like a [`Term`](crate::term::Term) it guarantees
/// that a loss is final and follows our own clock: a reply that arrives after the deadline revives nothing.
#[derive(Debug)]
pub(crate) struct Session {
    state: Mutex<State>,
    /// Notified when the session is lost or its deadline moves.
    pub(crate) changed: Notify,
}

/// Invariant: once `lost` is set, neither field changes.
#[derive(Debug)]
struct State {
    /// None if it lasts as long as the process.
    deadline: Option<Instant>,
    lost: Option<Loss>,
}

impl Session {
    /// A session that lasts until `deadline` if no heartbeat gets a reply.
    #[cfg_attr(
        not(any(feature = "test-util", feature = "etcd", feature = "mysql")),
        expect(dead_code, reason = "no other engine has heartbeats")
    )]
    pub(crate) fn new(deadline: Instant) -> Arc<Self> {
        Self::until(Some(deadline))
    }

    /// A session that lasts as long as the process.
    #[cfg(any(feature = "file", feature = "test-util"))]
    pub(crate) fn endless() -> Arc<Self> {
        Self::until(None)
    }

    fn until(deadline: Option<Instant>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { deadline, lost: None }), changed: Notify::new() })
    }

    /// A heartbeat got a reply: the session lasts until `deadline`, unless it is lost already.
    pub(crate) fn set_deadline(&self, deadline: Instant) {
        let mut state = self.checked();
        if state.lost.is_none() && state.deadline.is_some_and(|before| deadline > before) {
            state.deadline = Some(deadline);
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// The session is over, and so are all holds under it.
    pub(crate) fn lose(&self, loss: Loss) {
        self.checked().lost.get_or_insert(loss);
        self.changed.notify_waiters();
    }

    /// Why it is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.checked().lost
    }

    /// Until when it lasts if nothing happens; `None`: as long as the process.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.checked().deadline
    }

    /// How long it lasts from now on if nothing happens.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline().map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(env::now()))
    }

    /// The state after a check of the clock.
    fn checked(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if state.lost.is_none() && state.deadline.is_some_and(|deadline| env::now() >= deadline) {
            state.lost = Some(Loss::Unreachable);
        }
        state
    }
}
