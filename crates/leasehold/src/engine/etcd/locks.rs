//! Locks, and both halves of a read-write lock: a key in the queue of a name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::keys::Span;
use super::link::Link;
use super::messages::{KeyValue, Ranged, Transaction};
use super::places::State;
use super::transaction::{created, delete, newest, oldest, put, read, transact};
use super::watches::Watched;
use super::{Cluster, LOOK_AGAIN, TURN, YOUNG, calls, decide, keys};
use crate::engine::remote::store::{Forced, Given, StoreError, Take, Taken};
use crate::engine::{Busy, HoldKey, Kind, Queueing, Resource};
use crate::env;
use crate::owner::OwnerId;

/// The parameters of [`Store::take`](crate::engine::remote::store::Store::take) that count here.
pub(super) struct Entry {
    pub(super) hold_key: HoldKey,
    pub(super) held: u32,
    pub(super) fenced: bool,
    queue: Option<Queueing>,
    /// Whether a place in the queue is kept if the lock is busy.
    stays: bool,
}

impl Entry {
    pub(super) fn new(take: &Take<'_>) -> Self {
        let Take { hold_key, held, fenced, queue, waits, .. } = *take;
        Self { hold_key: hold_key.clone(), held, fenced, queue, stays: waits || queue.is_some() }
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
        let hold_key = &entry.hold_key;
        if entry.held > 0 {
            return self.mint(&link, hold_key).await;
        }
        loop {
            let key = {
                let mut places = self.places.lock();
                if let Some(other) = other_half(hold_key)
                    && places.get(&other).is_some_and(|other| other.state == State::Held)
                {
                    return Ok(Taken::WouldDeadlock);
                }
                let place = places.enter(hold_key, link.client.lease);
                if place.state == State::Held {
                    return Ok(Taken::CountDiffers);
                }
                place.turn = None;
                (place.key.clone(), entry.stays || place.state != State::New)
            };
            let found = match self.step(&link, entry, &key.0, key.1).await {
                Ok(found) => found,
                Err(error) => {
                    self.failed(hold_key, &error);
                    return Err(error);
                }
            };
            match found {
                Found::Held(created, revision) => {
                    self.held(&link, hold_key, created);
                    let token = entry.fenced.then(|| revision.unsigned_abs());
                    return Ok(Taken::Bound(token, Arc::clone(&link.client.session)));
                }
                Found::Busy(holder) => {
                    self.places.lock().remove(hold_key);
                    return Ok(Taken::Busy(Busy { holder, ..Busy::default() }));
                }
                Found::Behind(created, before, holder) => {
                    if let Some(position) = self.wait_behind(&link, entry, created, before).await? {
                        let position = entry.queue.is_some().then_some(position);
                        let retry_in = Some(LOOK_AGAIN);
                        return Ok(Taken::Busy(Busy { retry_in, holder, position, ..Busy::default() }));
                    }
                    // They are gone by now.
                }
            }
        }
    }

    /// Writes the key of an owner, if it is not there, or only if no other key is before it, and reads whose turn it is.
    async fn step(&self, link: &Link, entry: &Entry, key: &[u8], stays: bool) -> Result<Found, StoreError> {
        let resource = &entry.hold_key.resource;
        let (span, own) = (keys::blockers(resource), Span::only(key.to_vec()));
        let mut then = vec![put(key, Vec::new(), link.client.lease)];
        then.extend(self.record(link, entry.hold_key.owner.client));
        let most = if entry.queue.is_some() { 0 } else { 2 };
        let transaction = if stays {
            // The newest key is the one that was written just now. A waiter for a fair lock has to know how many are before it.
            then.push(read(newest(&span, 0, most)));
            let otherwise = vec![read(oldest(&own, 1)), read(oldest(&span, 1))];
            Transaction { compare: vec![created(&own, 0)], then, otherwise }
        } else {
            Transaction { compare: vec![created(&span, 0)], then, otherwise: vec![read(oldest(&span, 1))] }
        };
        let done = transact(link, transaction).await?;
        let holder = |first: Option<&KeyValue>| first.and_then(|first| self.owner_of(resource, first));
        if done.held {
            link.client.is_recorded.store(true, Ordering::Relaxed);
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

    /// Mints a token for an owner that holds the lock: its key is written again, and keeps its place.
    pub(super) async fn mint(&self, link: &Link, hold_key: &HoldKey) -> Result<Taken, StoreError> {
        let Some((key, revision)) = self.holding(link, hold_key) else { return Ok(Taken::CountDiffers) };
        let compare = vec![created(&Span::only(key.clone()), revision)];
        let then = vec![put(&key, keys::value(&hold_key.resource), link.client.lease)];
        let done = transact(link, Transaction { compare, then, otherwise: Vec::new() }).await?;
        if !done.held {
            return Ok(Taken::CountDiffers);
        }
        Ok(Taken::Bound(Some(done.revision.unsigned_abs()), Arc::clone(&link.client.session)))
    }

    /// Whether an owner holds its lock. If its key is gone, it does not hold the lock any more.
    pub(super) async fn is_there(&self, hold_key: &HoldKey) -> Result<bool, StoreError> {
        let link = self.link()?;
        let Some((key, created)) = self.holding(&link, hold_key) else { return Ok(false) };
        let found: Ranged = link.call(calls::RANGE, newest(&Span::only(key), created, 1)).await?;
        let is_there = !found.found.is_empty();
        if !is_there && self.holding(&link, hold_key).is_some_and(|(_, revision)| revision == created) {
            self.leave(&link, hold_key);
            self.places.lock().remove(hold_key);
        }
        Ok(is_there)
    }

    /// The key of an owner that holds a lock, and the revision at which that was created.
    fn holding(&self, link: &Link, hold_key: &HoldKey) -> Option<(Vec<u8>, i64)> {
        let mut places = self.places.lock();
        let place = places.get(hold_key).filter(|place| place.state == State::Held)?;
        link.client.session.loss().is_none().then(|| (place.key.clone(), place.created))
    }

    /// The owner holds the lock. If it still does a moment later, its key is watched.
    pub(super) fn held(self: &Arc<Self>, link: &Arc<Link>, hold_key: &HoldKey, created: i64) {
        let mut places = self.places.lock();
        let place = places.enter(hold_key, link.client.lease);
        (place.state, place.created) = (State::Held, created);
        let before = place.watch.take();
        drop(places);
        before.inspect(|id| self.watches.end(&link.watches, *id));
        self.watch_later(hold_key, created);
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

    /// Watches the key of an owner that holds a lock.
    pub(super) fn watch_hold(&self, link: &Link, hold_key: &HoldKey, created: i64) {
        let mut places = self.places.lock();
        let is_it = |place: &&mut super::places::Place| {
            place.state == State::Held && place.created == created && place.watch.is_none()
        };
        if let Some(place) = places.get(hold_key).filter(is_it) {
            let span = Span::only(place.key.clone());
            let watched = Watched { hold_key: hold_key.clone(), span, created_until: created, found: 1 };
            place.watch = Some(self.watches.begin(&link.watches, watched));
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
            let created_until = last.create_revision;
            Watched { hold_key, span: Span::only(last.key.clone()), created_until, found: 1 }
        };
        let is_watched = |id| {
            let watch = self.watches.get(id);
            watch.is_some_and(|is| {
                (is.span, is.created_until, is.found)
                    == (watched.span.clone(), watched.created_until, watched.found)
            })
        };
        if !place.watch.is_some_and(is_watched) {
            place.watch.inspect(|id| self.watches.end(&link.watches, *id));
            place.watch = Some(self.watches.begin(&link.watches, watched));
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
                places.remove(&hold_key)
            };
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
    fn leave(&self, link: &Link, hold_key: &HoldKey) {
        let mut places = self.places.lock();
        let Some(place) = places.get(hold_key) else { return };
        place.state = State::Leaving;
        place.watch.take().inspect(|id| self.watches.end(&link.watches, *id));
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
            let own = self.force_own(&holder.key, true);
            let compare = vec![created(&Span::only(holder.key.clone()), holder.create_revision)];
            let then = vec![delete(&holder.key)];
            let done = transact(&link, Transaction { compare, then, otherwise: Vec::new() }).await;
            if !matches!(&done, Ok(done) if done.held) {
                self.force_own(&holder.key, false);
            } else if let Some(own) = own {
                self.leave(&link, &own);
                self.places.lock().remove(&own);
            }
            was_held |= done?.held;
        }
        Ok(Forced { was_held, subscribers: Some(0) })
    }

    /// The owner of a key that is about to be freed, if it is one of this client.
    pub(super) fn force_own(&self, key: &[u8], is_forced: bool) -> Option<HoldKey> {
        let mut places = self.places.lock();
        let own = places.owner(key).cloned()?;
        if let Some(place) = places.get(&own) {
            place.is_forced = is_forced;
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
