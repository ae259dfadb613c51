//! Sessions on the simulated server: holds that last as long as the session or the connection of their client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::SimServer;
use super::server::{OwnedTake, now};
use super::store::Listener;
use crate::engine::remote::store::{Given, Taken};
use crate::engine::{Attempt, Busy, Engine, Released, Spot, Target};
use crate::env::{self, Instant};
use crate::error::Failure;
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
    places: BTreeMap<Target, VecDeque<(u64, OwnerId)>>,
}

#[derive(Debug)]
struct Live {
    service: Service,
    heard: Instant,
    holds: BTreeSet<Spot>,
    client: Weak<Listener>,
}

impl SimServer {
    /// Begins a session of a client, and ends it when its heartbeats stop.
    pub(super) fn begin_session(self: &Arc<Self>, service: Service, client: &Arc<Listener>) -> u64 {
        let mut state = self.state();
        let sessions = &mut state.sessions;
        sessions.begun += 1;
        let (id, heard) = (sessions.begun, env::now());
        let client = Arc::downgrade(client);
        sessions.live.insert(id, Live { service, heard, holds: BTreeSet::new(), client });
        drop(state);
        let server = Arc::clone(self);
        self.spawn(async move {
            let end = || server.state().sessions.live.get(&id).map(|live| live.heard + TTL);
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
        state.sessions.live.get_mut(&id).map(|live| live.heard = env::now()).is_some()
    }

    /// Frees all holds of a session.
    pub(super) fn end_session(&self, id: u64) {
        let mut state = self.state();
        let Some(live) = state.sessions.live.remove(&id) else { return };
        state.sessions.places.retain(|_, places| {
            places.retain(|(of, _)| *of != id);
            !places.is_empty()
        });
        drop(state);
        for spot in &live.holds {
            self.memory().abandon(spot, 0, Lease::Fixed(Duration::ZERO).into());
            self.wake_next(&spot.target);
        }
    }

    /// Acquires a lock under a session; a caller that waits is queued if it is busy.
    pub(super) fn take_bound(
        &self,
        take: &OwnedTake,
        id: u64,
        session: Arc<Session>,
    ) -> Result<Taken, Failure> {
        let Some(spot) = self.bound_spot(&take.spot, id) else { return Err(no_session()) };
        let place = (id, take.spot.owner);
        let first = self.state().sessions.places.get(&spot.target).and_then(|places| places.front().copied());
        if self.state().sessions.live.get(&id).is_some_and(|live| live.holds.contains(&spot)) {
            // The blocked call has returned with the lock.
            return Ok(Taken::Bound(None, session));
        }
        let attempt = match first {
            Some(first) if first != place => Attempt::Busy(Busy::default()),
            _ => now(self.memory().attempt(&take.unbounded_claim(&spot), None))?,
        };
        Ok(match attempt {
            Attempt::Granted(_, token) => {
                self.unplace(&spot.target, place);
                self.note(id, spot);
                Taken::Bound(token, session)
            }
            Attempt::Busy(busy) => {
                if take.waits {
                    let mut state = self.state();
                    let places = state.sessions.places.entry(spot.target.clone()).or_default();
                    if !places.contains(&place) {
                        places.push_back(place);
                    }
                }
                let holder = busy.holder.filter(|_| spot.owner == take.spot.owner);
                Taken::Busy(Busy { retry_in: None, holder, position: None })
            }
            _ => Taken::CountDiffers,
        })
    }

    /// Releases a lock, or only a position in the queue (`to` is not zero).
    pub(super) fn give_bound(&self, spot: &Spot, id: u64, to: u32) -> Result<Given, Failure> {
        let Some(bound) = self.bound_spot(spot, id) else {
            return Ok(Given { left: None, listeners: None });
        };
        self.unplace(&bound.target, (id, spot.owner));
        let mut left = None;
        if to == 0 {
            if let Some(live) = self.state().sessions.live.get_mut(&id) {
                live.holds.remove(&bound);
            }
            let released = now(self.memory().release(&bound, 1, Lease::Fixed(Duration::ZERO)))?;
            left = if let Released::Left(left, _) = released { Some(left) } else { None };
        }
        self.wake_next(&bound.target);
        Ok(Given { left, listeners: Some(0) })
    }

    /// Removes the hold of a target without a release by its holder; false if there is none.
    pub(crate) fn remove(&self, target: &Target) -> bool {
        if !self.memory().remove(target) {
            return false;
        }
        let mut told = Vec::new();
        for live in self.state().sessions.live.values_mut() {
            let before = live.holds.len();
            live.holds.retain(|spot| spot.target != *target);
            if live.holds.len() < before {
                told.extend(live.client.upgrade());
            }
        }
        for client in told {
            client.revoke(target);
        }
        self.wake_next(target);
        true
    }

    /// The spot as the server knows it: a connection is one owner.
    fn bound_spot(&self, spot: &Spot, id: u64) -> Option<Spot> {
        let service = self.state().sessions.live.get(&id)?.service;
        let target = spot.target.of_kind(spot.target.kind.of_hold());
        let number = if service == Service::Connections { id } else { spot.owner.number };
        Some(Spot { target, owner: OwnerId { number, ..spot.owner }, amount: 1 })
    }

    fn note(&self, id: u64, spot: Spot) {
        if let Some(live) = self.state().sessions.live.get_mut(&id) {
            live.holds.insert(spot);
        }
    }

    fn unplace(&self, target: &Target, place: (u64, OwnerId)) {
        let mut state = self.state();
        if let Some(places) = state.sessions.places.get_mut(target) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                state.sessions.places.remove(target);
            }
        }
    }

    /// A lock may be free: its front waiter is notified, or granted the lock if it is a blocked call.
    fn wake_next(&self, target: &Target) {
        let (place, service, client) = {
            let state = self.state();
            let place = state.sessions.places.get(target).and_then(|places| places.front().copied());
            let Some((id, owner)) = place else { return };
            let Some(live) = state.sessions.live.get(&id) else { return };
            let Some(client) = live.client.upgrade() else { return };
            ((id, owner), live.service, client)
        };
        let topic = (target.clone(), None);
        if service == Service::Sessions {
            return client.send(topic);
        }
        let (id, owner) = place;
        let spot = Spot { target: target.clone(), owner: OwnerId { number: id, ..owner }, amount: 1 };
        let claim = OwnedTake::bound(&spot);
        if let Ok(Attempt::Granted(..)) = now(self.memory().attempt(&claim.unbounded_claim(&spot), None)) {
            self.unplace(target, place);
            self.note(id, spot);
            client.send(topic);
        }
    }
}

fn no_session() -> Failure {
    Failure::Unavailable("the session is over".into())
}
