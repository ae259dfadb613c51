//! This client's holds, renewed and checked in batches until they are released or lost.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, oneshot};

use super::Inner;
use super::ledger::{Batch, Entry, Id, Ledger};
use super::queues::Queues;
use super::store::{Shard, Store, StoreError, Verdict};
use super::undo::never;
use crate::engine::{HoldKey, Resource};
use crate::env::{self, Instant};
use crate::error::ServerError;
use crate::loss::Loss;
use crate::mutex::Mutex;
use crate::owner::OwnerId;
use crate::session::Session;
use crate::term::Term;

/// Tracks and renews holds.
#[derive(Debug)]
pub(super) struct Renewal {
    state: Mutex<State>,
    changed: Notify,
    /// How many more renewals may be in flight.
    room: Arc<Semaphore>,
    /// Waiters that may be woken when a hold is lost here, because its lock may then be free.
    queues: Arc<Queues>,
}

/// Invariant: `alarm` is not later than the next hold is due. Terms are notified of losses when the mutex is free again,
/// because that wakes tasks.
#[derive(Debug, Default)]
struct State {
    ledger: Ledger,
    /// When the renewal task wakes up by itself; never as long as nothing is held.
    alarm: Option<Instant>,
    /// How many holds were lost in the present outage of a shard.
    lost: HashMap<Shard, usize>,
}

/// How many renewals are in flight at once. Renewing a hundred thousand holds all together would need much more than keeping
/// them does.
const AT_ONCE: usize = 8;
/// A renewal that takes longer than this does not delay the others.
const SLOW: Duration = Duration::from_millis(100);
/// While anything is held, the clock is read at least this often: the machine may have been suspended.
const CLOCK_CHECK: Duration = Duration::from_secs(1);
/// A server may be busy for less than this without losing its connections, however short a lease is.
const SHORTEST_SILENCE: Duration = Duration::from_millis(500);
/// How many locks of a failed renewal a log line names.
const LISTED: usize = 3;

impl Renewal {
    pub(super) fn new(queues: Arc<Queues>) -> Self {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        Self { state: Mutex::default(), changed: Notify::new(), room, queues }
    }

    /// Enters a hold. Conflicting holds are no longer tracked.
    fn insert(&self, hold: Entry) -> Vec<Entry> {
        let (mut state, due) = (self.state.lock(), hold.due());
        let displaced = state.ledger.insert(hold);
        self.set_alarm(state, due);
        displaced
    }

    /// Schedules a re-entered hold in time for a lease of `length`.
    pub(super) fn reschedule(&self, key: &HoldKey, length: Duration) {
        let mut state = self.state.lock();
        let due = state.ledger.reschedule(key, length, env::now());
        if let Some(due) = due {
            self.set_alarm(state, due);
        }
    }

    /// Ends a hold that is bound to a session at this time, unless it is moved again.
    pub(super) fn ends_at(&self, key: &HoldKey, end: Instant) {
        let mut state = self.state.lock();
        state.ledger.set_due(key, end);
        self.set_alarm(state, end);
    }

    /// Makes the renewal task wake up no later than this.
    fn set_alarm(&self, mut state: MutexGuard<'_, State>, due: Instant) {
        if state.alarm.is_none_or(|alarm| due < alarm) {
            state.alarm = Some(due);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// This client's hold of a resource: of several, the one of this owner.
    pub(super) fn holder(&self, resource: &Resource, is_it: impl Fn(OwnerId) -> bool) -> Option<Entry> {
        let state = self.state.lock();
        let wanted = |hold: &Entry| {
            hold.term.is_held() && hold.key.resource.shares_holds_with(resource) && is_it(hold.key.owner)
        };
        state.ledger.find(&resource.name, wanted).cloned()
    }

    /// Sets the count of a hold; returns the hold, if it is there.
    pub(super) fn set_count(&self, key: &HoldKey, count: u32) -> Option<Entry> {
        self.state.lock().ledger.set_count(key, count).cloned()
    }

    /// A hold of another owner of this client that excludes this one.
    pub(super) fn in_the_way(&self, key: &HoldKey) -> Option<Entry> {
        let state = self.state.lock();
        let is_in_the_way = |hold: &Entry| hold.term.is_held() && hold.excludes(key);
        state.ledger.find(&key.resource.name, is_in_the_way).cloned()
    }

    /// Stops tracking a hold.
    pub(super) fn forget(&self, key: &HoldKey) -> Option<Entry> {
        let mut state = self.state.lock();
        let hold = state.ledger.remove(key)?;
        // Its guard noticed the loss, and was dropped, before the renewal task came to it.
        if let Some(lost) = state.lost.get_mut(&hold.shard).filter(|_| hold.term.loss().is_some()) {
            *lost += 1;
        }
        Some(hold)
    }

    /// Makes this term receive the loss of a hold, instead of the one before; false if the hold is not there.
    pub(super) fn rebind(&self, key: &HoldKey, term: &Arc<Term>) -> bool {
        self.state.lock().ledger.rebind(key, term)
    }

    pub(super) fn get(&self, key: &HoldKey) -> Option<Entry> {
        self.state.lock().ledger.get(key).cloned()
    }

    /// The term of a hold, by whichever handle of the same lock it was acquired.
    pub(super) fn term(&self, key: &HoldKey) -> Option<Arc<Term>> {
        let state = self.state.lock();
        let hold = state.ledger.find(&key.resource.name, |hold| {
            hold.key.owner == key.owner && hold.key.resource.shares_holds_with(&key.resource)
        });
        hold.map(|hold| Arc::clone(&hold.term))
    }

    /// Whether the owner has any hold under this name, be it another half of it.
    pub(super) fn is_inside(&self, key: &HoldKey) -> bool {
        let family = key.resource.kind.family();
        let is_inside =
            |hold: &Entry| hold.key.owner == key.owner && hold.key.resource.kind.family() == family;
        self.state.lock().ledger.find(&key.resource.name, is_inside).is_some()
    }

    /// A session is lost, and all holds under it.
    pub(super) fn lose_session(&self, session: &Arc<Session>, loss: Loss) {
        let all = self.state.lock().ledger.remove_session(session);
        session.lose(loss);
        for lost in all {
            lost.term.log_loss();
            self.queues.wake(&lost.key);
        }
    }

    /// Stops tracking all holds, and notifies their guards. Returns the remaining holds.
    pub(super) fn retire(&self) -> Vec<Entry> {
        let all = self.state.lock().ledger.take_all();
        let held = all.filter(|hold| hold.term.is_held());
        held.inspect(|hold| hold.term.lose(Loss::Shutdown)).collect()
    }

    /// How many holds there are on a shard, and the least time that one of them lasts without a renewal. The count of
    /// [losses in this outage](Self::lost_since_outage) begins.
    pub(super) fn at_stake(&self, shard: Shard) -> (usize, Option<Duration>) {
        let mut state = self.state.lock();
        let terms: Vec<_> = state.ledger.on(shard).map(|hold| Arc::clone(&hold.term)).collect();
        state.lost.insert(shard, 0);
        drop(state);
        let lasting = terms.iter().map(|term| term.remaining()).filter(|left| !left.is_zero());
        (lasting.clone().count(), lasting.min())
    }

    /// How many holds on a shard were lost since its outage has begun.
    pub(super) fn lost_since_outage(&self, shard: Shard) -> usize {
        let mut state = self.state.lock();
        let noticed = state.lost.remove(&shard).unwrap_or_default();
        noticed + state.ledger.on(shard).filter(|hold| hold.term.loss().is_some()).count()
    }

    /// After an outage the state of the holds on a shard is unknown: check them now.
    pub(super) fn check_all(&self, shard: Shard) {
        if !mutation!("no-check-after-outage") {
            self.state.lock().ledger.schedule_all(shard, env::now());
            self.changed.notify_one();
        }
    }

    /// The holds of the next request, and those that have ended.
    fn take_due(&self) -> Batch {
        let batch = {
            let mut state = self.state.lock();
            let batch = state.ledger.take_due(env::now());
            for hold in &batch.ended {
                if let Some(lost) = state.lost.get_mut(&hold.shard) {
                    *lost += 1;
                }
            }
            batch
        };
        // A caller that waits for the loss sleeps until the deadline by a clock that stops while the machine is suspended.
        for Entry { term, key, .. } in &batch.ended {
            term.announce();
            term.log_loss();
            self.queues.wake(key);
        }
        batch
    }

    /// When the next hold is due. The alarm is set for it.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        let mut state = self.state.lock();
        let due = state.ledger.next_due();
        state.alarm = due.map(|due| due.min(now + CLOCK_CHECK));
        due
    }

    /// The server reports that an entry is held. `length` is the time it was renewed for, if it was.
    fn found_held(&self, id: Id, begun: Instant, length: Duration) {
        let mut state = self.state.lock();
        let Some(hold) = state.ledger.entry(id) else { return };
        let is_renewed = !length.is_zero();
        let begun = if mutation!("renewal-lasts-from-reply") { env::now() } else { begun };
        let renewed = is_renewed.then(|| (Arc::clone(&hold.term), hold.until(begun, length)));
        let pause = hold.pause(is_renewed);
        state.ledger.schedule(id, begun + pause);
        drop(state);
        if let Some((term, until)) = renewed {
            if let Some(hold) = term.hold() {
                hold.shared.observer.renewed(|| term.remaining());
            }
            // A renewal shortens nothing, so an extension stays.
            term.extend_until(until);
            term.log_long_hold();
        }
    }
}

impl<S: Store> Inner<S> {
    /// The server has granted a hold, and its term is set. To be called when the outcome is read, before the caller is
    /// notified: later changes of the hold on the server reach its term in any case. Conflicting holds are lost.
    pub(super) fn granted(self: &Arc<Self>, hold: Entry, taken_over: bool) {
        let displaced = self.renewal.insert(hold);
        for before in displaced.into_iter().filter(|_| !mutation!("displaced-hold-not-told")) {
            self.lost(&before);
            before.term.lose(if taken_over { Loss::TakenOver } else { Loss::Gone });
            before.term.log_loss();
        }
    }

    /// All holds under the name of a resource, of any owner, are gone.
    pub(super) fn lose(self: &Arc<Self>, resource: &Resource, loss: Loss) {
        let all = self.renewal.state.lock().ledger.remove_all(resource);
        for hold in all {
            self.tell_loss(&hold, loss);
        }
    }

    /// One hold is gone.
    pub(super) fn lose_one(self: &Arc<Self>, key: &HoldKey, loss: Loss) {
        let lost = self.renewal.state.lock().ledger.remove_hold(key);
        if let Some(hold) = lost {
            self.tell_loss(&hold, loss);
        }
    }

    /// Applies the server's verdict on an entry. The hold may have been released meanwhile, and its slot reused. `length`
    /// is the time it was renewed for, if it was.
    fn apply_verdict(self: &Arc<Self>, id: Id, begun: Instant, length: Duration, verdict: Verdict) {
        let loss = match verdict {
            Verdict::Held => return self.renewal.found_held(id, begun, length),
            Verdict::TakenOver => Loss::TakenOver,
            Verdict::Gone if mutation!("gone-hold-not-told") => return,
            Verdict::Gone => Loss::Gone,
        };
        let lost = self.renewal.state.lock().ledger.remove_entry(id);
        if let Some(hold) = lost {
            self.tell_loss(&hold, loss);
        }
    }

    fn tell_loss(self: &Arc<Self>, hold: &Entry, loss: Loss) {
        self.lost(hold);
        hold.term.lose(loss);
        hold.term.log_loss();
        self.queues.wake(&hold.key);
    }

    /// Renews and checks holds that are due, until the client is gone. Runs on the I/O thread.
    pub(super) async fn keep_renewing(self: &Arc<Self>) {
        loop {
            let changed = self.renewal.changed.notified();
            let now = env::now();
            match self.renewal.next_due(now) {
                None => changed.await,
                Some(due) if due > now => {
                    let pause = (due - now).min(CLOCK_CHECK);
                    tokio::select! { biased; () = changed => {}, () = env::sleep_for(pause) => {} }
                }
                Some(_) => {
                    let Ok(room) = Arc::clone(&self.renewal.room).acquire_owned().await else { return };
                    let Batch { holds: batch, ended } = self.renewal.take_due();
                    // The server does not end a hold under a session.
                    for hold in ended.iter().filter(|hold| hold.term.has_session()) {
                        self.undo(&hold.key, 0, never());
                    }
                    if !batch.is_empty() {
                        // Sent in this order; the replies may arrive in any order. A slow renewal delays no other.
                        let renewal = self.renew_batch(&batch);
                        self.io.spawn(async move {
                            let mut renewal = pin!(renewal);
                            if env::within(SLOW, renewal.as_mut()).await.is_none() {
                                drop(room);
                                renewal.await;
                            }
                        });
                    }
                }
            }
        }
    }

    /// Renews and checks holds of one kind on one shard. Resolves when there is a reply, or when it is late.
    fn renew_batch(self: &Arc<Self>, batch: &[(Id, Entry)]) -> impl Future<Output = ()> + use<S> {
        let begun = env::now();
        let lengths: Vec<_> = batch.iter().map(|(_, hold)| hold.renewal(begun)).collect();
        let holds: Vec<_> =
            batch.iter().zip(&lengths).map(|((_, hold), length)| (&hold.key, *length)).collect();
        let Entry { key, shard, .. } = &batch[0].1;
        // A reply after half of the remaining time is too late for a retry. A hold that is only checked may end.
        let renewed = batch.iter().zip(&lengths).filter(|(_, length)| !length.is_zero());
        let limit = renewed.map(|((_, hold), _)| hold.term.remaining() / 2).min();
        let (over, is_over) = oneshot::channel::<()>();
        let ids: Vec<_> = batch.iter().map(|(id, _)| *id).collect();
        let first: Vec<_> = batch.iter().take(LISTED).map(|(_, hold)| hold.key.resource.clone()).collect();
        let left = move || {
            let left = limit.map(|half| (half * 2).saturating_sub(env::now() - begun));
            left.map(tracing::field::debug)
        };
        let inner = Arc::clone(self);
        let span = tracing::debug_span!("renewal", locks = batch.len());
        let done = move |outcome: Result<Vec<Verdict>, StoreError>| {
            let _entered = span.enter();
            match outcome {
                Ok(verdicts) => {
                    if limit.is_some()
                        && let Some(observer) = inner.observer.get()
                    {
                        observer.renewal_replied(begun);
                    }
                    for ((id, length), verdict) in ids.into_iter().zip(lengths).zip(verdicts) {
                        if verdict != Verdict::Held && mutation!("bad-member-fails-batch") {
                            break;
                        }
                        inner.apply_verdict(id, begun, length, verdict);
                    }
                }
                Err(StoreError::Refused(failure @ ServerError::Denied(_))) => {
                    let (locks, left) = (listed(&first, ids.len()), left());
                    tracing::warn!(locks, left, error = %failure, "a renewal was refused and is retried");
                }
                Err(error) => {
                    let (locks, left, error) = (listed(&first, ids.len()), left(), ServerError::from(error));
                    tracing::debug!(locks, left, %error, "a renewal failed and is retried");
                }
            }
            drop(over);
        };
        self.requesting().renew(key.resource.kind, &holds, done);
        let (inner, shard) = (Arc::clone(self), *shard);
        async move {
            let Some(limit) = limit else { return drop(is_over.await) };
            if env::within(limit, is_over).await.is_none() {
                // The holds may still be renewed on another connection, and the response time-out may be longer than the
                // remaining time.
                inner.store.doubt(shard, limit.max(SHORTEST_SILENCE));
            }
        }
    }
}

/// The names of the first of `count` resources, for a log line.
fn listed(first: &[Resource], count: usize) -> String {
    let names = first.iter().map(Resource::to_string).collect::<Vec<_>>().join(", ");
    match count - first.len() {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}
