//! Locks, and both halves of a read-write lock: a key in the queue of a name.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::keys::Span;
use super::leases::OwnLease;
use super::link::Link;
use super::messages::{KeyValue, Ranged, Transaction};
use super::places::State;
use super::transaction::{created, delete, newest, oldest, put, put_again, read, transact, transact_under};
use super::watches::Watched;
use super::{Cluster, LONGEST_PAUSE, LOOK_AGAIN, TURN, YOUNG, calls, decide, keys};
use crate::engine::remote::store::{Forced, Given, StoreError, Take, Taken};
use crate::engine::{Busy, HoldKey, Kind, Queueing, Resource};
use crate::env::{self, Instant};
use crate::lease::Lease;
use crate::loss::Loss;
use crate::owner::OwnerId;
use crate::session::Session;

/// The parameters of [`Store::take`](crate::engine::remote::store::Store::take) that count here.
pub(super) struct Entry {
    pub(super) hold_key: HoldKey,
    pub(super) held: u32,
    pub(super) fenced: bool,
    queue: Option<Queueing>,
    /// Whether a place in the queue is kept if the lock is busy.
    stays: bool,
    pub(super) steal: bool,
    /// How long the hold lasts at most, if it has a fixed lease.
    pub(super) length: Option<Duration>,
}

impl Entry {
    pub(super) fn new(take: &Take<'_>) -> Self {
        let Take { hold_key, held, fenced, queue, waits, steal, lease, .. } = *take;
        let length = match lease {
            Lease::Fixed(length) => Some(length),
            Lease::Kept(_) => None,
        };
        let stays = waits || queue.is_some() || steal;
        Self { hold_key: hold_key.clone(), held, fenced, queue, stays, steal, length }
    }
}

/// What the owner found when it was its turn, or not.
enum Found {
    /// It holds the lock, by a key that was created at this revision; and the revision of the reply that says so.
    Held(i64, i64),
    /// It has a key that was created at this revision. Of the keys before it there are these, the newest first; none if they have
    /// to be read.
    Behind(i64, Option<Vec<KeyValue>>, Option<OwnerId>),
    /// It has no key.
    Busy(Option<OwnerId>),
}

impl Cluster {
    pub(super) async fn take(self: &Arc<Self>, entry: &Entry) -> Result<Taken, StoreError> {
        let link = self.link()?;
        if entry.held > 0 {
            return self.enter_again(&link, entry).await;
        }
        loop {
            if let Some(taken) = self.attempt(&link, entry).await? {
                return Ok(taken);
            }
            // What it waits for is gone by now, or its own key.
        }
    }

    /// One attempt; `None` if the next one may have another outcome.
    async fn attempt(self: &Arc<Self>, link: &Arc<Link>, entry: &Entry) -> Result<Option<Taken>, StoreError> {
        let hold_key = &entry.hold_key;
        let failed = |error: &StoreError| self.failed(hold_key, error);
        let (key, state) = {
            let mut places = self.places.lock();
            if let Some(other) = other_half(hold_key)
                && places.get(&other).is_some_and(|other| other.state == State::Held)
            {
                return Ok(Some(Taken::WouldDeadlock));
            }
            let place = places.enter(hold_key, link.client.lease);
            match place.state {
                State::Held => return Ok(Some(Taken::CountDiffers)),
                State::Abandoned => {
                    let (holder, retry_in) = (Some(hold_key.owner), Some(LONGEST_PAUSE));
                    return Ok(Some(Taken::Busy(Busy { retry_in, holder, ..Busy::default() })));
                }
                State::New | State::Waiting | State::Removed | State::Leaving => {}
            }
            place.unbind();
            place.turn = None;
            (place.key.clone(), place.state)
        };
        if entry.steal
            && state == State::New
            && !self.evict(link, hold_key, &key).await.inspect_err(failed)?
        {
            return Ok(None);
        }
        let stays = entry.stays || state != State::New;
        // No lease may run out while its owner waits, so a place in the queue has the lease of the client.
        let lease = match entry.length.filter(|_| !stays) {
            Some(length) => Some(self.own_lease(link, length).await.inspect_err(failed)?),
            None => None,
        };
        let found = self.step(link, entry, &key, stays, lease.as_deref()).await.inspect_err(failed)?;
        match found {
            Found::Held(created, mut revision) => {
                if let (None, Some(length)) = (&lease, entry.length) {
                    self.waits(link, hold_key, created);
                    let bound = self.bind(link, hold_key, (&key, created), length).await;
                    let Some(bound) = bound.inspect_err(failed)? else {
                        self.removed(link, hold_key, created);
                        return Ok(None);
                    };
                    revision = bound;
                }
                let session = self.held(link, hold_key, created, lease);
                let token = entry.fenced.then(|| revision.unsigned_abs());
                Ok(Some(Taken::Bound(token, session)))
            }
            Found::Busy(holder) => {
                self.places.lock().remove(hold_key);
                Ok(Some(Taken::Busy(Busy { holder, ..Busy::default() })))
            }
            Found::Behind(created, before, holder) => {
                let position = self.wait_behind(link, entry, created, before).await?;
                // It has a place before it is the first waiter of its client, which is the one that is woken.
                let retry_in = Some(if entry.steal { TURN / 2 } else { LOOK_AGAIN });
                Ok(position.map(|position| {
                    let position = entry.queue.is_some().then_some(position);
                    Taken::Busy(Busy { retry_in, holder, position, ..Busy::default() })
                }))
            }
        }
    }

    /// Writes the key of an owner, if it is not there, or only if no other key is before it, and reads whose turn it is.
    async fn step(
        &self,
        link: &Link,
        entry: &Entry,
        key: &[u8],
        stays: bool,
        lease: Option<&OwnLease>,
    ) -> Result<Found, StoreError> {
        let HoldKey { resource, owner, .. } = &entry.hold_key;
        let (span, own) = (keys::blockers(resource), Span::only(key.to_vec()));
        let under = lease.map_or(link.client.lease, |lease| lease.id);
        let mut then = vec![put(key, Vec::new(), under)];
        then.extend(match lease {
            Some(lease) => Some(self.own_record(lease.id, owner.client)),
            None => self.record(link, owner.client),
        });
        let most = if entry.queue.is_some() { 0 } else { 2 };
        let transaction = if stays {
            // The newest key is the one that was written just now. A waiter for a fair lock has to know how many are before it.
            then.push(read(newest(&span, 0, most)));
            let otherwise = vec![read(oldest(&own, 1)), read(oldest(&span, 1))];
            Transaction { compare: vec![created(&own, 0)], then, otherwise }
        } else {
            Transaction { compare: vec![created(&span, 0)], then, otherwise: vec![read(oldest(&span, 1))] }
        };
        let done = transact_under(link, under, transaction).await?;
        let holder = |first: Option<&KeyValue>| first.and_then(|first| self.owner_of(resource, first));
        if done.held {
            link.client.is_recorded.fetch_or(lease.is_none(), Ordering::Relaxed);
            let found = done.found().last().unwrap_or_default();
            let before: Vec<_> =
                found.iter().filter(|one| one.create_revision < done.revision).cloned().collect();
            let revision = done.revision;
            // Of two keys the older one may be that of another waiter.
            let oldest = holder(before.last().filter(|_| most == 0));
            let is_held = decide::holds(before.last(), revision);
            return Ok(if is_held {
                Found::Held(revision, revision)
            } else {
                Found::Behind(revision, Some(before), oldest)
            });
        }
        let first = done.found().last().and_then(<[_]>::first);
        if !stays {
            return Ok(Found::Busy(holder(first)));
        }
        let own = done.found().next().and_then(<[_]>::first).map_or(0, |own| own.create_revision);
        let is_held = decide::holds(first, own);
        Ok(if is_held { Found::Held(own, done.revision) } else { Found::Behind(own, None, holder(first)) })
    }

    /// The owner holds the lock, and enters again: its key is written again under the lease that it has from now on, and keeps its
    /// place and its value. The revision is the token.
    pub(super) async fn enter_again(
        self: &Arc<Self>,
        link: &Link,
        entry: &Entry,
    ) -> Result<Taken, StoreError> {
        let hold_key = &entry.hold_key;
        let Some((key, at)) = self.holding(link, hold_key) else { return Ok(Taken::CountDiffers) };
        let revision = if let Some(length) = entry.length {
            self.bind(link, hold_key, (&key, at), length).await?
        } else {
            let compare = vec![created(&Span::only(key.clone()), at)];
            let then = vec![put_again(&key, link.client.lease)];
            let done = transact(link, Transaction { compare, then, otherwise: Vec::new() }).await?;
            if done.held
                && let Some(place) = self.places.lock().get(hold_key).filter(|place| place.created == at)
            {
                place.unbind();
            }
            done.held.then_some(done.revision)
        };
        let Some(revision) = revision else { return Ok(Taken::CountDiffers) };
        let session = self.places.lock().get(hold_key).and_then(|place| place.session.clone());
        let session = session.unwrap_or_else(|| Arc::clone(&link.client.session));
        Ok(Taken::Bound(Some(revision.unsigned_abs()), session))
    }

    /// Whether an owner holds its lock, which then lasts for at least this length, if there is one. If its key is gone, it does not
    /// hold the lock any more.
    pub(super) async fn is_there(
        self: &Arc<Self>,
        hold_key: &HoldKey,
        length: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let link = self.link()?;
        let Some((key, created)) = self.holding(&link, hold_key) else { return Ok(false) };
        let is_there = if let Some(length) = length {
            self.bind(&link, hold_key, (&key, created), length).await?.is_some()
        } else {
            let found: Ranged = link.call(calls::RANGE, newest(&Span::only(key), created, 1)).await?;
            !found.found.is_empty()
        };
        if !is_there && self.holding(&link, hold_key).is_some_and(|(_, revision)| revision == created) {
            self.lost(&link, hold_key);
        }
        Ok(is_there)
    }

    /// The key of an owner that holds a lock, and the revision at which that was created.
    fn holding(&self, link: &Link, hold_key: &HoldKey) -> Option<(Vec<u8>, i64)> {
        let mut places = self.places.lock();
        let place = places.get(hold_key).filter(|place| place.state == State::Held)?;
        let session = place.session.as_ref().unwrap_or(&link.client.session);
        session.loss().is_none().then(|| (place.key.clone(), place.created))
    }

    /// The owner holds the lock, by a key under this lease of its own if there is one. If it still does a moment later, its key is
    /// watched. Returns what the hold lasts as long as.
    pub(super) fn held(
        self: &Arc<Self>,
        link: &Arc<Link>,
        hold_key: &HoldKey,
        created: i64,
        lease: Option<Arc<OwnLease>>,
    ) -> Arc<Session> {
        let mut places = self.places.lock();
        let place = places.enter(hold_key, link.client.lease);
        (place.state, place.created) = (State::Held, created);
        if let Some(lease) = lease {
            place.bind(lease);
        }
        let before = place.watch.take();
        let session = Arc::clone(place.session.as_ref().unwrap_or(&link.client.session));
        drop(places);
        before.inspect(|id| self.watches.end(&link.watches, *id));
        self.watch_later(hold_key, created);
        session
    }

    /// Watches the key of a hold, unless that is over soon.
    pub(super) fn watch_later(self: &Arc<Self>, hold_key: &HoldKey, created: i64) {
        let (cluster, hold_key) = (Arc::downgrade(self), hold_key.clone());
        self.spawn(async move {
            env::sleep_for(YOUNG).await;
            if let Some(cluster) = cluster.upgrade()
                && let Ok(link) = cluster.link()
            {
                cluster.watch_hold(&link, &hold_key, created);
            }
        });
    }

    /// The key of an owner that held something was deleted. What is left of a set of values stays until that owner releases it.
    pub(super) fn lost(&self, link: &Link, hold_key: &HoldKey) {
        self.leave(link, hold_key);
        if hold_key.resource.kind != Kind::Group {
            self.places.lock().remove(hold_key);
        }
    }

    /// The holder is gone, and the lock stays taken for `rest`, which is over at `end`. False if it was not held.
    pub(super) async fn abandon(
        self: &Arc<Self>,
        hold_key: &HoldKey,
        rest: Duration,
        end: Instant,
    ) -> Result<bool, StoreError> {
        let link = self.link()?;
        let Some((key, created)) = self.holding(&link, hold_key) else { return Ok(false) };
        if let Some(place) = self.places.lock().get(hold_key) {
            place.state = State::Abandoned;
        }
        if self.bind(&link, hold_key, (&key, created), rest).await?.is_none() {
            self.leave(&link, hold_key);
            self.places.lock().remove(hold_key);
            return Ok(false);
        }
        let (cluster, hold_key) = (Arc::downgrade(self), hold_key.clone());
        self.spawn(async move {
            env::sleep_until(end).await;
            while let Some(cluster) = cluster.upgrade() {
                if cluster.end_rest(&hold_key, created).await.is_ok() {
                    return;
                }
                drop(cluster);
                env::sleep_for(LONGEST_PAUSE).await;
            }
        });
        Ok(true)
    }

    /// A lock that was abandoned is free.
    async fn end_rest(&self, hold_key: &HoldKey, revision: i64) -> Result<(), StoreError> {
        let is_it =
            |place: &mut super::places::Place| (place.state, place.created) == (State::Abandoned, revision);
        let key = self.places.lock().get(hold_key).and_then(|place| is_it(place).then(|| place.key.clone()));
        let Some(key) = key else { return Ok(()) };
        let link = self.link()?;
        let compare = vec![created(&Span::only(key.clone()), revision)];
        let then = vec![delete(&key)];
        transact(&link, Transaction { compare, then, otherwise: Vec::new() }).await?;
        if self.places.lock().get(hold_key).is_some_and(is_it) {
            self.leave(&link, hold_key);
            self.places.lock().remove(hold_key);
        }
        Ok(())
    }

    /// Watches the key of an owner that holds a lock.
    pub(super) fn watch_hold(&self, link: &Link, hold_key: &HoldKey, created: i64) {
        let mut places = self.places.lock();
        let is_it = |place: &&mut super::places::Place| {
            place.state == State::Held && place.created == created && place.own_watch.is_none()
        };
        if let Some(place) = places.get(hold_key).filter(is_it) {
            let watched = Watched::only(hold_key, place.key.clone(), created);
            place.own_watch = Some(self.watches.begin(&link.watches, watched));
        }
    }

    /// An owner has a key in the queue, which was created at this revision.
    pub(super) fn waits(&self, link: &Link, hold_key: &HoldKey, created: i64) {
        let mut places = self.places.lock();
        let place = places.enter(hold_key, link.client.lease);
        (place.state, place.created) = (State::Waiting, created);
    }

    /// The key of a waiter is gone: its next attempt writes another one, at the end of the queue.
    fn removed(&self, link: &Link, hold_key: &HoldKey, created: i64) {
        let mut places = self.places.lock();
        if let Some(place) = places.get(hold_key).filter(|place| place.created == created) {
            place.state = State::Removed;
            let watches = place.take_watches();
            watches.iter().flatten().for_each(|id| self.watches.end(&link.watches, *id));
        }
    }

    /// Watches what an owner waits for, and returns how many keys are before its own; `None` if there are none any more.
    ///
    /// A waiter for a plain lock needs the last of them only.
    async fn wait_behind(
        &self,
        link: &Link,
        entry: &Entry,
        own: i64,
        before: Option<Vec<KeyValue>>,
    ) -> Result<Option<usize>, StoreError> {
        let span = keys::blockers(&entry.hold_key.resource);
        let before = if let Some(before) = before {
            Ok(before)
        } else {
            let limit = i64::from(entry.queue.is_none());
            let found: Result<Ranged, _> = link.call(calls::RANGE, newest(&span, own - 1, limit)).await;
            found.map(|found| found.found)
        };
        let mut places = self.places.lock();
        let place = places.enter(&entry.hold_key, link.client.lease);
        (place.state, place.created) = (State::Waiting, own);
        let before = before?;
        // There may be another connection by now, on which watches report.
        let link = self.link()?;
        let Some(last) = before.first() else { return Ok(None) };
        let hold_key = entry.hold_key.clone();
        let watched = if entry.queue.is_some_and(|queue| queue.watched) {
            Watched { hold_key, span, created_until: own - 1, found: before.len() }
        } else {
            Watched::only(&hold_key, last.key.clone(), last.create_revision)
        };
        let own = Watched::only(&entry.hold_key, place.key.clone(), own);
        for (watch, watched) in [(&mut place.watch, watched), (&mut place.own_watch, own)] {
            if !watch.is_some_and(|id| self.watches.get(id).as_ref() == Some(&watched)) {
                watch.inspect(|id| self.watches.end(&link.watches, *id));
                *watch = Some(self.watches.begin(&link.watches, watched));
            }
        }
        Ok(Some(before.len()))
    }

    /// A waiter whose turn may have come loses its place if it does not retry: it is not polled, and the server would keep the lock
    /// for it. If it retries later, it gets another key.
    pub(super) fn expect_retry(self: &Arc<Self>, link: &Arc<Link>, hold_key: &HoldKey) {
        let turn = self.watches.number();
        if let Some(place) = self.places.lock().get(hold_key).filter(|place| place.state == State::Waiting) {
            place.turn = Some(turn);
        }
        let (cluster, link, hold_key) = (Arc::downgrade(self), Arc::downgrade(link), hold_key.clone());
        self.spawn(async move {
            env::sleep_for(TURN).await;
            let (Some(cluster), Some(link)) = (cluster.upgrade(), link.upgrade()) else { return };
            let place = {
                let mut places = cluster.places.lock();
                if places.get(&hold_key).is_none_or(|place| place.turn != Some(turn)) {
                    return;
                }
                places.doubt(&hold_key);
                let place = places.remove(&hold_key);
                if place.as_ref().is_some_and(|place| place.has_taken_over) {
                    let again = places.enter(&hold_key, link.client.lease);
                    (again.state, again.has_taken_over) = (State::Removed, true);
                }
                place
            };
            let own_watch = place.as_ref().and_then(|place| place.own_watch);
            own_watch.inspect(|id| cluster.watches.end(&link.watches, *id));
            let then = place.iter().map(|place| delete(&place.key)).collect();
            // If that fails, the connection does, and the waiter is woken.
            let _ = transact(&link, Transaction { then, ..Transaction::default() }).await;
        });
    }

    /// An attempt has failed.
    pub(super) fn failed(&self, hold_key: &HoldKey, error: &StoreError) {
        let mut places = self.places.lock();
        if let StoreError::Unknown(_) = error {
            places.doubt(hold_key);
            if let Some(place) = places.get(hold_key).filter(|place| place.state == State::New) {
                place.state = State::Leaving;
            }
        } else if places.get(hold_key).is_some_and(|place| place.state == State::New) {
            places.remove(hold_key);
        }
    }

    /// Releases a lock: deletes the key of this very hold.
    pub(super) async fn give(&self, hold_key: &HoldKey) -> Result<Given, StoreError> {
        let link = self.link()?;
        let Some((key, revision)) = self.holding(&link, hold_key) else { return Ok(given(false)) };
        self.leave(&link, hold_key);
        let compare = vec![created(&Span::only(key.clone()), revision)];
        let then = vec![delete(&key)];
        let done = transact(&link, Transaction { compare, then, otherwise: Vec::new() }).await;
        self.left(hold_key, done.as_ref().err());
        Ok(given(done?.held))
    }

    /// Removes an owner from the queue; with `to` zero also from the lock. Idempotent.
    pub(super) async fn lower(&self, hold_key: &HoldKey, to: u32) -> Result<Given, StoreError> {
        let link = self.link()?;
        let (place, mut all) = {
            let mut places = self.places.lock();
            let late = places.late(hold_key);
            (places.get(hold_key).cloned(), late)
        };
        if place.as_ref().is_some_and(|place| to > 0 && place.state == State::Held) {
            return Ok(Given { left: Some(to), subscribers: Some(0) });
        }
        all.extend(place.map(|place| place.key));
        all.sort_unstable();
        all.dedup();
        if all.is_empty() {
            return Ok(given(false));
        }
        self.leave(&link, hold_key);
        let then = all.iter().map(|key| delete(key)).collect();
        let done = transact(&link, Transaction { then, ..Transaction::default() }).await;
        self.left(hold_key, done.as_ref().err());
        Ok(given(done?.deleted() > 0))
    }

    /// The key of an owner is about to be deleted.
    pub(super) fn leave(&self, link: &Link, hold_key: &HoldKey) {
        let mut places = self.places.lock();
        let Some(place) = places.get(hold_key) else { return };
        place.state = State::Leaving;
        let watches = place.take_watches();
        watches.iter().flatten().for_each(|id| self.watches.end(&link.watches, *id));
    }

    /// It was deleted, unless this error says otherwise.
    fn left(&self, hold_key: &HoldKey, error: Option<&StoreError>) {
        let mut places = self.places.lock();
        match error {
            None => drop(places.remove(hold_key)),
            Some(StoreError::Unknown(_)) => places.doubt(hold_key),
            Some(_) => {}
        }
    }

    /// Frees a resource in place of its holders.
    pub(super) async fn force(&self, resource: &Resource) -> Result<Forced, StoreError> {
        let link = self.link()?;
        let all: Ranged = link.call(calls::RANGE, oldest(&keys::all(resource), 0)).await?;
        let mut was_held = false;
        for holder in decide::holders(resource, &all.found) {
            let own = self.decide_fate(&holder.key, Some(Loss::ForceUnlocked));
            let compare = vec![created(&Span::only(holder.key.clone()), holder.create_revision)];
            let then = vec![delete(&holder.key)];
            let done = transact(&link, Transaction { compare, then, otherwise: Vec::new() }).await;
            if !matches!(&done, Ok(done) if done.held) {
                self.decide_fate(&holder.key, None);
            } else if let Some(own) = own {
                self.lost(&link, &own);
            }
            was_held |= done?.held;
        }
        Ok(Forced { was_held, subscribers: Some(0) })
    }

    /// The owner of a key that is about to be deleted in place of its holder, for this reason, if it is one of this client.
    pub(super) fn decide_fate(&self, key: &[u8], fate: Option<Loss>) -> Option<HoldKey> {
        let mut places = self.places.lock();
        let own = places.owner(key).cloned()?;
        if let Some(place) = places.get(&own) {
            place.fate = fate;
        }
        Some(own)
    }
}

/// The other half of a read-write lock, which the same owner cannot hold besides: it would wait for itself.
fn other_half(hold_key: &HoldKey) -> Option<HoldKey> {
    let other = match hold_key.resource.kind {
        Kind::Read => Kind::Write,
        Kind::Write => Kind::Read,
        _ => return None,
    };
    Some(HoldKey { resource: hold_key.resource.of_kind(other), ..hold_key.clone() })
}

fn given(was_held: bool) -> Given {
    Given { left: was_held.then_some(0), subscribers: Some(0) }
}
