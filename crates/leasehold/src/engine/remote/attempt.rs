//! One attempt at a hold, or at several: what is checked before the request, and what its outcome changes.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::done::step;
use super::ledger::{Entry, until};
use super::store::{By, Shard, Store, StoreError, Take, Taken, TakenAll};
use crate::engine::{Attempt, AttemptAll, Claim, Family, HoldKey, Kind, Reply, Ticket};
use crate::env::{self, Instant};
use crate::error::ServerError;
use crate::lease::{Bounds, Lease};
use crate::session::Session;

/// The hold that a claim gets if it is granted.
pub(super) struct Grant {
    pub(super) hold: Entry,
    begun: Instant,
    pub(super) length: Duration,
    steal: bool,
}

impl Grant {
    pub(super) fn new(claim: &Claim, shard: Shard, begun: Instant) -> Self {
        let bounds = Bounds { lease: claim.lease, limit: claim.limit };
        let (key, term) = (claim.key.clone(), Arc::clone(claim.term));
        let hold = Entry::new(key, shard, term, bounds, begun);
        Self { hold, begun, length: bounds.length(begun), steal: claim.steal }
    }

    /// The claim is granted, perhaps under a session. This sets its term, or ends it if the reply is too late.
    pub(super) fn enter<S: Store>(
        mut self,
        inner: &Arc<Inner<S>>,
        token: Option<u64>,
        session: Option<Arc<Session>>,
    ) {
        self.hold.token = token;
        if let Some(session) = session {
            self.hold.bind(session, self.begun);
        }
        let begun = if mutation!("grant-lasts-from-reply") { env::now() } else { self.begun };
        self.hold.term.set_until(self.hold.until(begun, self.length));
        inner.granted(self.hold, self.steal);
    }
}

pub(super) fn take<'a>(claim: &Claim<'a>, length: Duration, turn: Option<Ticket>) -> Take<'a> {
    let Claim { key, held, lease, steal, fenced, queue, rw, .. } = *claim;
    let lease = match lease {
        Lease::Kept(_) => Lease::Kept(length),
        Lease::Fixed(_) => Lease::Fixed(length),
    };
    Take { hold_key: key, held, lease, steal, fenced, queue, rw, waits: turn.is_some() }
}

/// A request of an owner of which an earlier request may still be executed. It is in flight until this is dropped.
struct InFlight<S: Store> {
    inner: Arc<Inner<S>>,
    key: HoldKey,
}

impl<S: Store> Drop for InFlight<S> {
    fn drop(&mut self) {
        self.inner.undos.end_request(&self.key);
    }
}

impl<S: Store> Inner<S> {
    /// One attempt at a hold: pending undos of the same hold are sent before it.
    pub(super) fn attempt(self: &Arc<Self>, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt> {
        let begun = env::now();
        if claim.held > 0 && self.store.traits().counts == By::Client {
            return self.reenter(claim);
        }
        let shard = self.store.shard(&claim.key.resource);
        if let Err(failure) = self.can_send(shard) {
            return Reply::now(Attempt::NotSent(failure));
        }
        if claim.fresh
            && claim.held == 0
            && self.undos.may_still_execute(claim.key)
            && !mutation!("spent-owner-used")
        {
            return Reply::now(Attempt::OwnerSpent);
        }
        if self.queues_up(claim)
            && let Err(busy) = self.queues.may_send(claim.key, turn, begun)
        {
            return Reply::now(Attempt::Busy(busy));
        }
        if self.is_sequenced {
            return self.attempt_in_turn(claim, turn, shard);
        }
        let grant = Grant::new(claim, shard, begun);
        let take = take(claim, grant.length, turn);
        let in_flight =
            self.undos.begin_request(claim.key).map(|key| InFlight { inner: Arc::clone(self), key });
        let permit = match self.send_undos_first(claim.key) {
            Ok(permit) => permit,
            Err(failure) => return Reply::now(Attempt::NotSent(failure)),
        };
        let (is_reentry, has_turn, sent_undos) = (claim.held > 0, turn.is_some(), permit.sent_undos());
        let effects = Arc::clone(self);
        let (done, reply) = step(move |taken| {
            let attempt = effects.taken(grant, is_reentry, sent_undos, taken);
            if let Some(in_flight) = in_flight {
                let key = in_flight.key.clone();
                drop(in_flight);
                if !has_turn && matches!(attempt, Ok(Attempt::Busy(_))) {
                    // It has sent the undo of an earlier step before itself, and there may be no next step.
                    effects.given_back(&key);
                }
            }
            attempt
        });
        self.requesting().take(&take, done);
        drop(permit);
        reply
    }

    /// One attempt at several holds in one request. `None` if the store cannot do that.
    pub(super) fn attempt_all(
        self: &Arc<Self>,
        claims: &[Claim],
        turn: Option<(usize, Ticket)>,
    ) -> Option<Reply<AttemptAll>> {
        let begun = env::now();
        let shard = self.store.shard(&claims[0].key.resource);
        let is_elsewhere = |claim: &Claim| self.store.shard(&claim.key.resource) != shard;
        if claims.len() > self.store.traits().takes_all || claims.iter().any(is_elsewhere) {
            return None;
        }
        if let Err(failure) = self.can_send(shard) {
            return Some(Reply::now(AttemptAll::NotSent(failure)));
        }
        for (number, claim) in claims.iter().enumerate() {
            // A caller that has waited for its turn at one of them does not wait in other queues.
            let ticket = match turn {
                Some((whose, ticket)) if whose == number => Some(ticket),
                Some(_) => continue,
                None => None,
            };
            if let Err(busy) = self.queues.may_send(claim.key, ticket, begun) {
                return Some(Reply::now(AttemptAll::Busy(number, busy)));
            }
        }
        let grants: Vec<_> = claims.iter().map(|claim| Grant::new(claim, shard, begun)).collect();
        let takes: Vec<_> =
            claims.iter().zip(&grants).map(|(claim, grant)| take(claim, grant.length, None)).collect();
        let effects = Arc::clone(self);
        let enter = move |grants: Vec<Grant>, granted: Vec<(Option<u64>, Option<Arc<Session>>)>| {
            let enter = |(grant, (token, session)): (Grant, (Option<u64>, Option<Arc<Session>>))| {
                grant.enter(&effects, token, session);
                (None, token)
            };
            AttemptAll::Granted(grants.into_iter().zip(granted).map(enter).collect())
        };
        let effects = Arc::clone(self);
        let (done, reply) = step(move |taken| match taken {
            Ok(TakenAll::Granted(tokens)) => {
                Ok(enter(grants, tokens.into_iter().map(|token| (token, None)).collect()))
            }
            Ok(TakenAll::Bound(granted)) => {
                let bound = granted.into_iter().map(|(token, session)| (token, Some(session)));
                Ok(enter(grants, bound.collect()))
            }
            Ok(TakenAll::Busy(number, busy)) => {
                effects.queues.heard(&grants[number].hold.key);
                Ok(AttemptAll::Busy(number, busy))
            }
            Err(error @ StoreError::NotSent(_)) => Ok(AttemptAll::NotSent(effects.explained(shard, error))),
            Err(error) => {
                let keys = grants.iter().map(|grant| &grant.hold.key);
                keys.for_each(|key| drop(effects.failed(shard, key, error.clone())));
                Err(error.into())
            }
        });
        // If the caller is gone, the undo of each hold waits for the outcome.
        let steps: Vec<_> =
            claims.iter().filter(|_| self.is_sequenced).map(|claim| self.first_step(claim.key)).collect();
        let done = done.then(move || drop(steps));
        // Their owner is a new one for every attempt, so there is nothing to undo.
        self.requesting().take_all(&takes, done);
        Some(reply)
    }

    /// Applies the outcome of an attempt and returns the caller's result.
    pub(super) fn taken(
        self: &Arc<Self>,
        grant: Grant,
        is_reentry: bool,
        sent_undos: bool,
        taken: Result<Taken, StoreError>,
    ) -> Result<Attempt, ServerError> {
        if taken.is_ok() {
            self.queues.heard(&grant.hold.key);
        }
        let (token, session) = match taken {
            Ok(Taken::Granted(token)) => (token, None),
            Ok(Taken::Bound(token, session)) => (token, Some(session)),
            Ok(Taken::Busy(busy)) => return Ok(Attempt::Busy(busy)),
            Ok(Taken::CountDiffers) => return Ok(Attempt::Gone),
            Ok(Taken::WouldDeadlock) => return Ok(Attempt::WouldDeadlock),
            Err(error @ StoreError::NotSent(_)) if !sent_undos => {
                return Ok(Attempt::NotSent(self.explained(grant.hold.shard, error)));
            }
            Err(error) => return Err(self.failed(grant.hold.shard, &grant.hold.key, error)),
        };
        if is_reentry {
            // The hold is in the ledger, and stays there as it is until the caller takes the new guard.
            self.renewal.reschedule(&grant.hold.key, grant.length);
            let (kind, bounds) = (grant.hold.key.resource.kind, grant.hold.requested());
            return Ok(Attempt::Granted(Some(until(kind, bounds, grant.begun, grant.length)), token));
        }
        let freed = grant.steal && grant.hold.key.resource.kind == Kind::Read;
        let freed = freed.then(|| grant.hold.key.resource.clone());
        grant.enter(self, token, session);
        // After a takeover by a reader other owners can read, too, and may not have been notified.
        freed.inspect(|resource| self.queues.freed_without_message(resource));
        Ok(Attempt::Granted(None, token))
    }

    /// Whether a claim is queued behind the waiters of its queue.
    fn queues_up(&self, claim: &Claim) -> bool {
        let kind = claim.key.resource.kind;
        // A holder of one half that wants the other half, too, does not wait behind waiters that wait for its release.
        let is_inside = || kind.family() == Family::Rw && self.renewal.is_inside(claim.key);
        claim.held == 0 && !claim.steal && kind != Kind::Spin && !is_inside()
    }
}
