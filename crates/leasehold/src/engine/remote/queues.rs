//! The wait queues of one client: one for each topic, in the order in which its waiters came.
//!
//! Only the front waiter of a queue asks the server. A message wakes the front waiter, and the waiter behind it is woken when
//! the front waiter leaves. Messages are hints: each may be lost, and a front waiter tries by itself when the lease that it
//! saw is over.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::fairness::Fairness;
use super::store::{Shard, Store, Topic, Wake, Watch};
use crate::engine::line::{Line, MayTake};
use crate::engine::{Aftermath, Family, Kind, Spot, Target, Ticket};
use crate::time::{self, Instant};

/// Where no message may come, the front waiter of a queue tries about this often …
const POLL: Duration = Duration::from_millis(200);

/// … if there are no more such queues than these. All of them together do not try more often than so many do.
const POLLING: u32 = 500;

/// The longest sleep of a waiter to which nothing is said: messages can be lost.
const SAFETY_CAP: Duration = Duration::from_secs(30);

/// The wait queues of one client.
#[derive(Debug, Default)]
pub(super) struct Queues {
    state: Mutex<State>,
    /// How many queues there are, to be seen without the mutex: mostly none. A waiter that joins at the same time may be
    /// missed, which is as if it had joined after this look.
    count: AtomicUsize,
    tickets: AtomicU64,
    /// The server does not let this client watch: front waiters try from time to time.
    denied: AtomicBool,
}

/// Invariant: a queue is here exactly as long as it has waiters, and is watched by the store exactly as long as it is here.
#[derive(Debug, Default)]
struct State {
    queues: HashMap<Topic, Queue>,
    /// In how many of them the front waiter tries from time to time.
    polling: usize,
}

/// The waiters for one topic.
#[derive(Debug)]
struct Queue {
    line: Line,
    shard: Shard,
    polls: bool,
    watch: Watch,
    /// Rings for waiters that wait until it is watched, if there are any, or until it is clear that it cannot be.
    awaited: Option<Arc<Notify>>,
    /// Seldom there, and larger than all the rest.
    fairness: Option<Box<Fairness>>,
}

impl Queue {
    /// A message has come. Adds what to wake.
    fn hear(&mut self, kind: Kind, now: Instant, wakers: &mut Vec<Waker>) {
        if self.fairness.as_mut().is_some_and(|fairness| !fairness.hear(now)) {
            self.fairness = None;
        }
        self.wake(kind, now, wakers);
    }

    /// Something may have changed. Adds what to wake: the front waiter, and at a latch every waiter.
    fn wake(&mut self, kind: Kind, now: Instant, wakers: &mut Vec<Waker>) {
        if kind == Kind::Latch {
            wakers.extend(self.line.hint_all());
        } else {
            wakers.extend(self.line.promise(now));
        }
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

fn ring(awaited: impl IntoIterator<Item = Arc<Notify>>) {
    for awaited in awaited {
        awaited.notify_waiters();
    }
}

/// The queue in which a waiter at this spot stands: each waiter for a fair lock, which has a place on the server and messages
/// of its own, in one by itself.
fn topic(spot: &Spot) -> Topic {
    (spot.target.clone(), (spot.target.kind == Kind::Fair).then_some(spot.owner))
}

impl Queues {
    /// Joins the queue of a spot, at its end. An `heir` can take over a hold of another owner of this client.
    pub(super) fn join(&self, store: &impl Store, spot: &Spot, heir: bool) -> Ticket {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        let State { queues, polling } = &mut *state;
        let queue = match queues.entry(topic(spot)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let polls = store.wake(spot.target.kind) == Wake::Poll;
                *polling += usize::from(polls);
                // Under the mutex, so that it is not watched behind the `unwatch` of the queue before.
                let watch = store.watch(entry.key());
                let shard = store.shard(&spot.target);
                let line = Line::default();
                entry.insert(Queue { line, shard, polls, watch, awaited: None, fairness: None })
            }
        };
        if heir {
            queue.line.join_as_heir(ticket);
        } else {
            queue.line.join(ticket);
        }
        self.count.store(queues.len(), Ordering::Relaxed);
        ticket
    }

    /// Resolves when messages for this spot come, or when it is clear that they cannot come now.
    pub(super) async fn watched(&self, spot: &Spot) {
        loop {
            let (awaited, rings);
            {
                let mut state = self.state();
                let queue = state.queue(spot).filter(|queue| queue.watch == Watch::Pending);
                let Some(queue) = queue.filter(|_| !self.is_denied()) else { return };
                awaited = Arc::clone(queue.awaited.get_or_insert_default());
                rings = awaited.notified();
            }
            rings.await;
        }
    }

    /// Ready when the waiter with this ticket should try again.
    pub(super) fn poll_wake(&self, spot: &Spot, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let Some(Queue { line, .. }) = state.queue(spot) else { return Poll::Ready(()) };
        let (polled, aftermath) = line.poll_hint(ticket, context);
        drop(state);
        aftermath.run();
        polled
    }

    /// Leaves the queue. If this was the front waiter, the next one is woken, and tries for itself.
    pub(super) fn leave(&self, store: &impl Store, spot: &Spot, ticket: Ticket) {
        let mut state = self.state();
        let Some(Queue { line, .. }) = state.queue(spot) else { return };
        let was_head = line.is_head(ticket);
        let mut aftermath = line.leave(ticket, time::now());
        if was_head && aftermath.wake.is_none() && spot.target.kind != Kind::Latch {
            aftermath.wake = line.promise(time::now());
        }
        self.end_if_empty(&mut state, store, spot);
        drop(state);
        aftermath.run();
    }

    /// Takes out the queue of a spot in which there is no waiter any more.
    fn end_if_empty(&self, state: &mut State, store: &impl Store, spot: &Spot) {
        if state.queue(spot).is_some_and(|queue| !queue.line.is_empty()) {
            return;
        }
        if let Some((topic, queue)) = state.queues.remove_entry(&topic(spot)) {
            state.polling -= usize::from(queue.polls);
            store.unwatch(&topic);
        }
        self.count.store(state.queues.len(), Ordering::Relaxed);
    }

    /// Whether the server may be asked now, or what to do instead.
    pub(super) fn may_ask(&self, spot: &Spot, ticket: Option<Ticket>, now: Instant) -> MayTake {
        if self.is_empty() {
            return MayTake::Yes;
        }
        let mut state = self.state();
        let Some(Queue { line, fairness, .. }) = state.queue(spot) else { return MayTake::Yes };
        match line.may_take(ticket, now) {
            // A front waiter that sleeps is not late: it knows when to try.
            MayTake::In(_) if !line.is_promised() => MayTake::WhenHinted,
            MayTake::Yes => {
                if let Some(left) = fairness.as_ref().and_then(|fairness| fairness.left(now)) {
                    return MayTake::In(left);
                }
                let skipped = line.taken(ticket);
                drop(state);
                wake(skipped);
                MayTake::Yes
            }
            not_yet => not_yet,
        }
    }

    /// The longest that a waiter at this spot may sleep to which nothing is said.
    pub(super) fn longest_sleep(&self, store: &impl Store, spot: &Spot) -> Duration {
        let is_denied = self.is_denied();
        if !is_denied && store.wake(spot.target.kind) == Wake::Message {
            return SAFETY_CAP;
        }
        let state = self.state();
        let polling = if is_denied { state.queues.len() } else { state.polling };
        drop(state);
        time::jittered(POLL.max(POLL * u32::try_from(polling).unwrap_or(u32::MAX) / POLLING))
    }

    /// How many wait here, if the front waiter is an heir and gets a message when the lock is free after all.
    pub(super) fn heirs(&self, spot: &Spot) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut state = self.state();
        let Some(Queue { line, watch, .. }) = state.queue(spot) else { return 0 };
        if *watch == Watch::Active && line.has_heir() { line.len() } else { 0 }
    }

    /// Whether it is the turn of the waiter with this ticket. If so, it leaves the line at once, and the next waiter is not
    /// woken. What has to happen after that is the caller's to run.
    pub(super) fn inherits(&self, spot: &Spot, ticket: Ticket) -> Option<Aftermath> {
        let now = time::now();
        let mut state = self.state();
        let Queue { line, .. } = state.queue(spot)?;
        if line.may_take(Some(ticket), now) != MayTake::Yes {
            return None;
        }
        let skipped = line.taken(Some(ticket));
        Some(line.leave(ticket, now).also_waking(skipped))
    }

    /// A lock is being released here. If this client has waiters for it, they ask only when it is known which others have.
    pub(super) fn releasing(&self, spot: &Spot) {
        if self.is_empty() || !matches!(spot.target.kind, Kind::Lock | Kind::SetNx) {
            return;
        }
        if let Some(queue) = self.state().queue(spot) {
            queue.fairness = Some(Box::new(Fairness::until_answered(time::now())));
        }
    }

    /// A release that was `begun` then is over. If it was announced that something is free, so many clients listen.
    pub(super) fn released(&self, spot: &Spot, listeners: Option<usize>, begun: Instant) {
        if self.is_empty() {
            return;
        }
        let mut state = self.state();
        let paused = state.queue(spot).and_then(|queue| Some((queue.fairness.take()?, queue)));
        let Some((fairness, queue)) = paused else {
            drop(state);
            if listeners == Some(0) {
                self.unheard(&spot.target);
            }
            return;
        };
        let now = time::now();
        let took = now.saturating_duration_since(begun);
        let ours = usize::from(queue.watch == Watch::Active);
        queue.fairness = fairness.answered(listeners.unwrap_or_default(), ours, took, now).map(Box::new);
        let waker = queue.line.promise(now);
        drop(state);
        wake(waker);
    }

    /// Something is free, and no message says so to this client: publishing may be denied. Its waiters try as if one had
    /// come.
    pub(super) fn unheard(&self, target: &Target) {
        if self.is_empty() {
            return;
        }
        let now = time::now();
        let mut wakers = Vec::new();
        let mut state = self.state();
        match target.kind {
            Kind::Fair => {
                // If the first in the queue on the server is a waiter of this client, it is the one that came first.
                let waiting = state.queues.iter_mut().filter(|((waited_for, _), _)| waited_for == target);
                if let Some((_, queue)) = waiting.min_by_key(|(_, queue)| queue.line.first_ticket()) {
                    queue.wake(target.kind, now, &mut wakers);
                }
            }
            Kind::Group => {
                let waiting =
                    state.queues.iter_mut().filter(|((waited_for, _), _)| waited_for.overlaps(target));
                waiting.for_each(|(_, queue)| queue.wake(target.kind, now, &mut wakers));
            }
            kind => {
                let kinds =
                    if kind.family() == Family::Rw { &[Kind::Read, Kind::Write][..] } else { &[kind] };
                for kind in kinds {
                    if let Some(queue) = state.queues.get_mut(&(target.of_kind(*kind), None)) {
                        queue.wake(*kind, now, &mut wakers);
                    }
                }
            }
        }
        drop(state);
        wake(wakers);
    }

    /// A message has come.
    pub(super) fn freed(&self, topic: &Topic) {
        let mut wakers = Vec::new();
        if let Some(queue) = self.state().queues.get_mut(topic) {
            queue.hear(topic.0.kind, time::now(), &mut wakers);
        }
        wake(wakers);
    }

    /// Wakes the front waiter at this spot.
    pub(super) fn wake(&self, spot: &Spot) {
        let waker = self.state().queue(spot).and_then(|queue| queue.line.promise(time::now()));
        wake(waker);
    }

    /// Wakes every front waiter: after a gap it is not known what was missed.
    pub(super) fn wake_fronts(&self) {
        let now = time::now();
        let mut wakers = Vec::new();
        for ((target, _), queue) in &mut self.state().queues {
            queue.wake(target.kind, now, &mut wakers);
        }
        wake(wakers);
    }

    /// Wakes every waiter of a shard, or of all, not only the front ones: each has a limit of its own for outages.
    pub(super) fn wake_all(&self, shard: Option<Shard>) {
        let mut state = self.state();
        let queues = state.queues.values_mut().filter(|queue| shard.is_none_or(|shard| queue.shard == shard));
        let wakers: Vec<_> = queues.flat_map(|queue| queue.line.hint_all()).collect();
        drop(state);
        wake(wakers);
    }

    /// The messages of these topics come from now on.
    pub(super) fn watching(&self, topics: &[Topic]) {
        let mut state = self.state();
        let mut awaited = Vec::new();
        for topic in topics {
            if let Some(queue) = state.queues.get_mut(topic) {
                queue.watch = Watch::Active;
                awaited.extend(queue.awaited.take());
            }
        }
        drop(state);
        ring(awaited);
    }

    /// No messages come for now.
    pub(super) fn unwatched(&self) {
        let mut state = self.state();
        for queue in state.queues.values_mut() {
            queue.watch = Watch::Unavailable;
        }
        let awaited = state.awaited();
        drop(state);
        ring(awaited);
    }

    /// The server does not allow watching, or may do so again.
    pub(super) fn set_denied(&self, denied: bool) {
        if denied && !self.denied.swap(true, Ordering::Relaxed) {
            // Waiters that sleep already do not know that they have to try by themselves.
            self.wake_fronts();
        }
        self.denied.store(denied, Ordering::Relaxed);
        if denied {
            let awaited = self.state().awaited();
            ring(awaited);
        }
    }

    fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The queue of a spot, if there are waiters.
    fn queue(&mut self, spot: &Spot) -> Option<&mut Queue> {
        self.queues.get_mut(&topic(spot))
    }

    /// What rings for waiters that wait until a queue is watched.
    fn awaited(&mut self) -> Vec<Arc<Notify>> {
        self.queues.values_mut().filter_map(|queue| queue.awaited.take()).collect()
    }
}
