//! Sessions on the simulated server: holds that last as long as the session or the connection of their client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::SimServer;
use super::server::{OwnedTake, now};
use super::store::Listener;
use crate::engine::remote::store::{Given, Taken};
use crate::engine::{Attempt, Busy, Engine, HoldKey, Released, Resource};
use crate::env::{self, Instant};
use crate::error::ServerError;
use crate::lease::Lease;
use crate::owner::OwnerId;
use crate::session::Session;

/// What binds the holds of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// A session with heartbeats, as of `ZooKeeper` and Consul: owners are distinguished, and a waiter has a position in a queue,
    /// whose front waiter is notified when the lock is free.
    Sessions,
    /// A connection, as of `MySQL` and `PostgreSQL`: to the server a client is one owner, and a waiter is a call that does not
    /// return before the lock is granted.
    Connections,
}

/// A session without a heartbeat for longer than this ends.
pub(super) const TTL: Duration = Duration::from_secs(10);

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    begun: u64,
    live: BTreeMap<u64, Live>,
    /// Waiters in FIFO order, each by its session and its owner.
    queues: BTreeMap<Resource, VecDeque<(u64, OwnerId)>>,
}

#[derive(Debug)]
struct Live {
    service: Service,
    last_heartbeat: Instant,
    holds: BTreeSet<HoldKey>,
    client: Weak<Listener>,
}

impl SimServer {
    /// Begins a session of a client, and ends it when its heartbeats stop.
    pub(super) fn begin_session(self: &Arc<Self>, service: Service, client: &Arc<Listener>) -> u64 {
        let mut state = self.state();
        let sessions = &mut state.sessions;
        sessions.begun += 1;
        let (id, last_heartbeat) = (sessions.begun, env::now());
        let client = Arc::downgrade(client);
        sessions.live.insert(id, Live { service, last_heartbeat, holds: BTreeSet::new(), client });
        drop(state);
        let server = Arc::clone(self);
        self.spawn(async move {
            let end = || server.state().sessions.live.get(&id).map(|live| live.last_heartbeat + TTL);
            while let Some(end) = end() {
                if env::now() >= end {
                    return server.end_session(id);
                }
                env::sleep_until(end).await;
            }
        });
        id
    }

    /// Whether the session is alive; if so, it is for another [`TTL`].
    pub(super) fn heartbeat(&self, id: u64) -> bool {
        let mut state = self.state();
        state.sessions.live.get_mut(&id).map(|live| live.last_heartbeat = env::now()).is_some()
    }

    /// Frees all holds of a session.
    pub(super) fn end_session(&self, id: u64) {
        let mut state = self.state();
        let Some(live) = state.sessions.live.remove(&id) else { return };
        state.sessions.queues.retain(|_, queue| {
            queue.retain(|(of, _)| *of != id);
            !queue.is_empty()
        });
        drop(state);
        for key in &live.holds {
            self.memory().undo(key, 0, Lease::Fixed(Duration::ZERO).into());
            self.wake_next(&key.resource);
        }
    }

    /// Acquires a lock under a session; a caller that waits is queued if it is busy.
    pub(super) fn take_bound(
        &self,
        take: &OwnedTake,
        id: u64,
        session: Arc<Session>,
    ) -> Result<Taken, ServerError> {
        let Some(key) = self.bound_key(&take.hold_key, id) else { return Err(no_session()) };
        let waiter = (id, take.hold_key.owner);
        let first = self.state().sessions.queues.get(&key.resource).and_then(|queue| queue.front().copied());
        if self.state().sessions.live.get(&id).is_some_and(|live| live.holds.contains(&key)) {
            // The blocked call has returned with the lock.
            return Ok(Taken::Bound(None, session));
        }
        let attempt = match first {
            Some(first) if first != waiter => Attempt::Busy(Busy::default()),
            _ => now(self.memory().attempt(&take.unbounded_claim(&key), None))?,
        };
        Ok(match attempt {
            Attempt::Granted(_, token) => {
                self.unqueue_bound(&key.resource, waiter);
                self.note(id, key);
                Taken::Bound(token, session)
            }
            Attempt::Busy(busy) => {
                if take.waits {
                    let mut state = self.state();
                    let queue = state.sessions.queues.entry(key.resource.clone()).or_default();
                    if !queue.contains(&waiter) {
                        queue.push_back(waiter);
                    }
                }
                let holder = busy.holder.filter(|_| key.owner == take.hold_key.owner);
                Taken::Busy(Busy { holder, ..Busy::default() })
            }
            _ => Taken::CountDiffers,
        })
    }

    /// Releases a lock, or only a position in the queue (`to` is not zero).
    pub(super) fn give_bound(&self, key: &HoldKey, id: u64, to: u32) -> Result<Given, ServerError> {
        let Some(bound) = self.bound_key(key, id) else {
            return Ok(Given { left: None, subscribers: None });
        };
        self.unqueue_bound(&bound.resource, (id, key.owner));
        let mut left = None;
        if to == 0 {
            if let Some(live) = self.state().sessions.live.get_mut(&id) {
                live.holds.remove(&bound);
            }
            let released = now(self.memory().release(&bound, 1, Lease::Fixed(Duration::ZERO)))?;
            left = if let Released::Left(left, _) = released { Some(left) } else { None };
        }
        self.wake_next(&bound.resource);
        Ok(Given { left, subscribers: Some(0) })
    }

    /// Removes the hold of a resource without a release by its holder; false if there is none.
    pub(crate) fn remove(&self, resource: &Resource) -> bool {
        if !self.memory().remove(resource) {
            return false;
        }
        let mut notified = Vec::new();
        for live in self.state().sessions.live.values_mut() {
            let before = live.holds.len();
            live.holds.retain(|key| key.resource != *resource);
            if live.holds.len() < before {
                notified.extend(live.client.upgrade());
            }
        }
        for client in notified {
            client.revoke(resource);
        }
        self.wake_next(resource);
        true
    }

    /// The hold key as the server knows it: a connection is one owner.
    fn bound_key(&self, key: &HoldKey, id: u64) -> Option<HoldKey> {
        let service = self.state().sessions.live.get(&id)?.service;
        let resource = key.resource.of_kind(key.resource.kind.of_hold());
        let number = if service == Service::Connections { id } else { key.owner.number };
        Some(HoldKey { resource, owner: OwnerId { number, ..key.owner }, amount: 1 })
    }

    fn note(&self, id: u64, key: HoldKey) {
        if let Some(live) = self.state().sessions.live.get_mut(&id) {
            live.holds.insert(key);
        }
    }

    fn unqueue_bound(&self, resource: &Resource, waiter: (u64, OwnerId)) {
        let mut state = self.state();
        if let Some(queue) = state.sessions.queues.get_mut(resource) {
            queue.retain(|other| *other != waiter);
            if queue.is_empty() {
                state.sessions.queues.remove(resource);
            }
        }
    }

    /// A lock may be free: its front waiter is notified, or granted the lock if it is a blocked call.
    fn wake_next(&self, resource: &Resource) {
        let (waiter, service, client) = {
            let state = self.state();
            let waiter = state.sessions.queues.get(resource).and_then(|queue| queue.front().copied());
            let Some((id, owner)) = waiter else { return };
            let Some(live) = state.sessions.live.get(&id) else { return };
            let Some(client) = live.client.upgrade() else { return };
            ((id, owner), live.service, client)
        };
        let topic = (resource.clone(), None);
        if service == Service::Sessions {
            return client.send(topic);
        }
        let (id, owner) = waiter;
        let key = HoldKey { resource: resource.clone(), owner: OwnerId { number: id, ..owner }, amount: 1 };
        let claim = OwnedTake::bound(&key);
        if let Ok(Attempt::Granted(..)) = now(self.memory().attempt(&claim.unbounded_claim(&key), None)) {
            self.unqueue_bound(resource, waiter);
            self.note(id, key);
            client.send(topic);
        }
    }
}

fn no_session() -> ServerError {
    ServerError::Unavailable("the session is over".into())
}
