//! Steps that have to be undone: retried until that is done, or until the lease would have ended anyway.
//!
//! A step from one count of a hold to the next whose outcome reaches no caller (its future was dropped, its reply is
//! missing) is undone by lowering the hold to the count before, which is idempotent. Until it is confirmed, the undo is
//! pending; the next step of the same hold sends it first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::Inner;
use super::ledger::Entry;
use super::store::{By, Done, Given, Shard, Store, StoreError};
use crate::engine::{HoldKey, Kind};
use crate::env::{self, Instant, jittered};
use crate::error::ServerError;
use crate::limits;
use crate::mutex::Mutex;

/// The pending undos of one client.
#[derive(Debug, Default)]
pub(super) struct Undos {
    state: Mutex<State>,
    /// How many there are, readable without the mutex: mostly none. The steps of one hold do not overlap, so the next step
    /// sees the undo of the one before.
    count: AtomicUsize,
    /// Whether a stale connection may still change any hold, readable likewise.
    has_stale_holds: AtomicBool,
    /// Notifies when there is none any more.
    pub(super) settled: Notify,
}

/// Invariant: at most one undo for each count, by [`HoldKey::of_hold`], whatever kind of lock entered the count. An undo is
/// sent under the mutex, so that it is never sent after the next step of its hold.
#[derive(Debug, Default)]
pub(super) struct State {
    pending: HashMap<HoldKey, Pending>,
    /// Steps with an unknown outcome, since the last connection to their shard.
    doubtful: Vec<(Shard, HoldKey)>,
    /// Holds that may still be changed by a stale connection: a step had no reply and its connection could not be ended.
    stale_holds: HashMap<HoldKey, StaleHold>,
    /// How many undos there were.
    numbers: u64,
}

/// A hold that may still be changed by a stale connection.
#[derive(Debug, Clone, Copy)]
struct StaleHold {
    until: Instant,
    /// How many requests for it are in flight: an undo that is sent after them would undo them.
    in_flight: u32,
}

/// An undo that is in flight or waits for its next attempt.
#[derive(Debug, Clone)]
struct Pending {
    number: u64,
    key: HoldKey,
    shard: Shard,
    /// The hold gets at most this count.
    to: u32,
    /// When the lease would have ended anyway.
    until: Instant,
    /// Until when a stale connection may still change the hold: an undo before that is not final.
    repeat: Option<Instant>,
    /// Waits for a connection.
    waits: bool,
    /// No other undo or step has replaced it.
    is_current: Arc<AtomicBool>,
}

impl Pending {
    fn is_repeated(&self) -> bool {
        self.repeat.is_some_and(|until| until > env::now())
    }

    fn is_over(&self) -> bool {
        self.until <= env::now() && !self.is_repeated()
    }
}

/// The pause before the next request to a server that is reachable but refuses, because it is loading or full.
pub(super) const BETWEEN_TRIES: Duration = Duration::from_millis(100);
/// Where a stale connection cannot be ended, its possible effects are undone this often.
const AGAIN: Duration = Duration::from_millis(500);
/// No request is in flight for longer than this on a broken connection.
const LONGEST_STALE: Duration = Duration::from_secs(60);

/// The end of a hold that the server does not end.
pub(super) fn never() -> Instant {
    env::now() + limits::LONGEST_LEASE
}

impl Undos {
    /// Whether a step of this hold key may still be undone; of any owner, if the server does not distinguish them.
    pub(super) fn concern(&self, key: &HoldKey, owners: By) -> bool {
        if self.is_settled() {
            return false;
        }
        let (state, hold) = (self.state.lock(), key.of_hold());
        match owners {
            By::Server => state.pending.contains_key(&hold),
            By::Client => state.pending.keys().any(|other| other.resource == hold.resource),
        }
    }

    /// Notes a step with an unknown outcome.
    pub(super) fn doubt(&self, shard: Shard, key: &HoldKey) {
        self.state.lock().doubtful.push((shard, key.clone()));
    }

    /// Whether an earlier request about this hold may still be carried out.
    pub(super) fn may_still_execute(&self, key: &HoldKey) -> bool {
        self.has_stale_holds.load(Ordering::SeqCst)
            && self.state.lock().stale_holds.get(&key.of_hold()).is_some_and(|stale| stale.until > env::now())
    }

    /// A request of this hold key is about to be sent. Returns the hold key if a stale connection may still change its hold:
    /// then [`end_request`](Self::end_request) has to be called when the outcome has taken effect.
    pub(super) fn begin_request(&self, key: &HoldKey) -> Option<HoldKey> {
        if !self.has_stale_holds.load(Ordering::SeqCst) {
            return None;
        }
        self.state.lock().stale_holds.get_mut(&key.of_hold())?.in_flight += 1;
        Some(key.clone())
    }

    /// The outcome of such a request has taken effect.
    pub(super) fn end_request(&self, key: &HoldKey) {
        if let Some(stale) = self.state.lock().stale_holds.get_mut(&key.of_hold()) {
            stale.in_flight = stale.in_flight.saturating_sub(1);
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    fn changed(&self, state: &State) {
        self.count.store(state.pending.len(), Ordering::SeqCst);
        if state.pending.is_empty() {
            self.settled.notify_waiters();
        }
    }
}

impl State {
    /// Removes the pending undos of the steps before one of this hold key: of the same hold, or of one of the same owner that
    /// has some of the same values.
    fn take_before(&mut self, key: &HoldKey) -> Vec<Pending> {
        let mut taken: Vec<_> = if key.resource.kind == Kind::Group {
            let is_before =
                |other: &HoldKey| other.owner == key.owner && other.resource.overlaps(&key.resource);
            self.pending.extract_if(|other, _| is_before(other)).map(|(_, pending)| pending).collect()
        } else {
            self.pending.remove(&key.of_hold()).into_iter().collect()
        };
        taken.sort_unstable_by_key(|pending| pending.number);
        for pending in &taken {
            pending.is_current.store(false, Ordering::SeqCst);
        }
        taken
    }

    /// Restores an undo that was removed and could not be sent.
    fn restore(&mut self, pending: Pending) {
        let is_current = Arc::new(AtomicBool::new(true));
        self.pending.insert(pending.key.of_hold(), Pending { is_current, waits: true, ..pending });
    }
}

/// The right to send a step of a hold. If undos were sent before it, no other step is sent meanwhile.
pub(super) struct StepPermit<'a>(Option<MutexGuard<'a, State>>);

impl StepPermit<'_> {
    /// Whether undos were sent: if the step is not sent, they have to be sent again.
    pub(super) fn sent_undos(&self) -> bool {
        self.0.is_some()
    }
}

/// The completion of one attempt of an undo. A replaced undo is not sent again.
struct Tried<F> {
    is_current: Arc<AtomicBool>,
    then: F,
}

impl<F: FnOnce(Result<Given, StoreError>) + Send + 'static> Done<Given> for Tried<F> {
    fn is_wanted(&self) -> bool {
        self.is_current.load(Ordering::SeqCst)
    }

    fn done(self, outcome: Result<Given, StoreError>) {
        (self.then)(outcome);
    }
}

impl<S: Store> Inner<S> {
    /// Sends the pending undos of the steps before one of this hold key, if there are any. The step has to be sent before the
    /// returned permit is dropped, so that no undo is sent in between.
    pub(super) fn send_undos_first(self: &Arc<Self>, key: &HoldKey) -> Result<StepPermit<'_>, ServerError> {
        // Where steps are sent one at a time, no step is sent while another one may have to be undone.
        if self.undos.is_settled() || self.is_sequenced || mutation!("undo-behind-next-step") {
            return Ok(StepPermit(None));
        }
        let mut state = self.undos.state.lock();
        let before = state.take_before(key);
        let Some(shard) = before.first().map(|pending| pending.shard) else { return Ok(StepPermit(None)) };
        let sent = before.iter().take_while(|pending| self.send_first(pending)).count();
        let is_clear = sent == before.len();
        // The next connection sends the others. So the step must not be sent, or they would follow it.
        before.into_iter().skip(sent).for_each(|pending| state.restore(pending));
        self.undos.changed(&state);
        if is_clear {
            return Ok(StepPermit(Some(state)));
        }
        let unknown = || ServerError::Unavailable("not connected".into());
        Err(self.shards.check(shard).err().unwrap_or_else(unknown))
    }

    /// Sends an undo right before a step. If the connection is lost, so is the step, which undoes itself; but not the rest
    /// of the undo, such as other values of a group.
    fn send_first(self: &Arc<Self>, Pending { key, to, until, .. }: &Pending) -> bool {
        let (inner, of, to, until) = (Arc::clone(self), key.clone(), *to, *until);
        let done = move |outcome: Result<Given, StoreError>| {
            if let Err(StoreError::NotSent(_) | StoreError::Unknown(_)) = outcome {
                inner.undo(&of, to, until);
            }
        };
        self.requesting().lower_first(key, to, done)
    }

    /// Lowers a hold to at most `to` counts, now or later, but no later than it would expire by itself.
    pub(super) fn undo(self: &Arc<Self>, key: &HoldKey, to: u32, until: Instant) {
        self.undo_in(&mut self.undos.state.lock(), key, to, until);
    }

    fn undo_in(self: &Arc<Self>, state: &mut State, key: &HoldKey, to: u32, until: Instant) {
        state.numbers += 1;
        let hold = key.of_hold();
        let mut pending = Pending {
            number: state.numbers,
            key: key.clone(),
            shard: self.store.shard(&key.resource),
            to,
            until,
            repeat: state.stale_holds.get(&hold).map(|of| of.until).filter(|_| !mutation!("undo-made-once")),
            waits: false,
            is_current: Arc::new(AtomicBool::new(true)),
        };
        // The undo that was pending before still applies, and for as long.
        if let Some(before) = state.pending.get(&hold).filter(|_| !mutation!("earlier-undo-forgotten")) {
            before.is_current.store(false, Ordering::SeqCst);
            pending.to = pending.to.min(before.to);
            pending.until = pending.until.max(before.until);
            pending.repeat = pending.repeat.max(before.repeat);
            if before.key.resource.kind == Kind::Fair {
                // The owner leaves the server's queue, too.
                pending.key = before.key.clone();
            }
        }
        self.send_undo(&pending);
        state.pending.insert(hold, pending);
        self.undos.changed(state);
    }

    /// A caller has released a hold, or has given up waiting for it. Earlier steps that may still be carried out are undone.
    pub(super) fn given_back(self: &Arc<Self>, key: &HoldKey) {
        self.undo_stale(key, || self.renewal.term(key).is_none());
    }

    /// A hold is lost, and its term is not notified yet. Earlier steps that may still be carried out are undone now, not
    /// only when the guard is dropped. If the term has ended by itself, the next step may be in flight.
    pub(super) fn lost(self: &Arc<Self>, hold: &Entry) {
        self.undo_stale(&hold.key, || hold.term.is_held());
    }

    fn undo_stale(self: &Arc<Self>, key: &HoldKey, is_due: impl FnOnce() -> bool) {
        if !self.undos.has_stale_holds.load(Ordering::SeqCst) {
            return;
        }
        let mut state = self.undos.state.lock();
        let stale = state.stale_holds.get(&key.of_hold()).filter(|stale| stale.in_flight == 0).copied();
        if let Some(StaleHold { until, .. }) = stale.filter(|_| is_due()) {
            self.undo_in(&mut state, key, 0, until);
        }
    }

    /// Steps of this shard are possible again. If earlier requests may still be carried out, undos are repeated: those that
    /// wait for a connection, and those yet to come for steps that had no reply.
    pub(super) fn resume_undos(self: &Arc<Self>, shard: Shard, stale: bool) {
        let now = env::now();
        let at_last = now + LONGEST_STALE;
        let mut state = self.undos.state.lock();
        let State { pending, doubtful, stale_holds, .. } = &mut *state;
        stale_holds.retain(|_, hold| hold.until > now);
        for (_, key) in doubtful.extract_if(.., |(of, _)| *of == shard).filter(|_| stale) {
            stale_holds.entry(key.of_hold()).or_insert(StaleHold { until: at_last, in_flight: 0 }).until =
                at_last;
        }
        self.undos.has_stale_holds.store(!stale_holds.is_empty(), Ordering::SeqCst);
        pending.retain(|_, pending| {
            if pending.shard == shard {
                // Also of those whose outcome is not read yet.
                pending.repeat = pending.repeat.max(stale.then_some(at_last));
            }
            !(pending.waits && pending.shard == shard && pending.is_over())
        });
        let waiting = pending.values_mut().filter(|pending| pending.waits && pending.shard == shard);
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable_by_key(|pending| pending.number);
        for pending in waiting {
            pending.waits = false;
            self.send_undo(pending);
        }
        self.undos.changed(&state);
    }

    fn send_undo(self: &Arc<Self>, pending: &Pending) {
        let Pending { number, key, to, is_current, .. } = pending;
        let (inner, number, of, begun) = (Arc::clone(self), *number, key.clone(), env::now());
        let then = move |outcome: Result<Given, StoreError>| inner.undo_tried(&of, number, begun, &outcome);
        let done = Tried { is_current: Arc::clone(is_current), then };
        if !self.is_sequenced {
            return self.requesting().lower(key, *to, done);
        }
        let (inner, of, to) = (Arc::clone(self), key.clone(), *to);
        self.in_turn(key, move |over| {
            let is_anothers =
                inner.store.traits().owners == By::Client && inner.renewal.in_the_way(&of).is_some();
            let then = done.then;
            let done = Tried {
                then: |outcome| {
                    then(outcome);
                    drop(over);
                },
                is_current: done.is_current,
            };
            if is_anothers {
                // To the server it is the same hold, which another owner of this client has by now. Completed later, because
                // this may be called under the mutex of the undos.
                inner.io.spawn(async move { done.done(Ok(Given { left: None, subscribers: None })) });
            } else {
                inner.requesting().lower(&of, to, done);
            }
        });
    }

    fn undo_tried(
        self: Arc<Self>,
        key: &HoldKey,
        number: u64,
        begun: Instant,
        outcome: &Result<Given, StoreError>,
    ) {
        let (pause, is_lost) = match outcome {
            Ok(Given { subscribers, .. }) => {
                self.queues.released(key, *subscribers, begun);
                (None, false)
            }
            Err(StoreError::Refused(ServerError::NotALock)) => (None, false),
            // Permissions can be restored, and a server that refuses may be the wrong one.
            Err(StoreError::Refused(ServerError::Denied(_))) => (Some(AGAIN), false),
            Err(StoreError::Refused(_)) => (Some(jittered(BETWEEN_TRIES)), false),
            Err(StoreError::NotSent(_)) => (Some(jittered(BETWEEN_TRIES)), true),
            Err(StoreError::Unknown(_)) => {
                // If it is carried out late, it ends the next hold of the same owner.
                self.undos.doubt(self.store.shard(&key.resource), key);
                (Some(jittered(BETWEEN_TRIES)), true)
            }
        };
        let hold = key.of_hold();
        let mut state = self.undos.state.lock();
        let newest = state.pending.get_mut(&hold).filter(|newest| newest.number == number);
        // A later step may have replaced it.
        let Some(pending) = newest else { return };
        let is_done = pause.is_none() && !pending.is_repeated();
        if is_done || mutation!("lost-undo") || pending.is_over() {
            state.pending.remove(&hold);
            self.undos.changed(&state);
        } else {
            // The next connection sends it at once. It may be there already.
            pending.waits = is_lost;
            drop(state);
            let inner = Arc::clone(&self);
            self.io.spawn(async move {
                env::sleep_for(pause.unwrap_or(AGAIN)).await;
                inner.undo_again(&hold, number, is_lost);
            });
        }
    }

    /// Retries an undo after a pause; a lost one only if no connection has retried it since.
    fn undo_again(self: &Arc<Self>, hold: &HoldKey, number: u64, was_lost: bool) {
        let mut state = self.undos.state.lock();
        let newest = state.pending.get_mut(hold).filter(|newest| newest.number == number);
        let Some(pending) = newest.filter(|newest| newest.waits == was_lost) else { return };
        if was_lost && !self.shards.is_up(pending.shard) {
            return;
        }
        pending.waits = false;
        if pending.is_over() {
            state.pending.remove(hold);
            self.undos.changed(&state);
        } else {
            // Under the mutex: no step of the same hold can be sent before it.
            self.send_undo(pending);
        }
    }
}
