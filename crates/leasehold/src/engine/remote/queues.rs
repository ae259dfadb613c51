//! The wait queues of one client: one for each topic, in FIFO order.
//!
//! Only the front waiter of a queue sends requests. A message wakes the front waiter, and the next waiter is woken when the
//! front waiter leaves. Messages are only wake-ups: each may be lost, and a front waiter retries by itself when the lease
//! that it saw is over. A sweep skips front waiters that are not polled, and wakes every waiter now and then.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::fairness::Fairness;
use super::store::{Shard, Topic, Watch};
use crate::engine::wait_queue::WaitQueue;
use crate::engine::{Aftermath, Busy, Family, HoldKey, Kind, Resource, Ticket};
use crate::env::{self, Instant};
use crate::mutex::Mutex;

/// Where messages are denied, the front waiter of a queue polls about this often …
const POLL: Duration = Duration::from_millis(200);

/// … or as often as its store requests, if there are no more such queues than these. More queues poll less often, so that the total rate stays the same.
const POLLING: u32 = 500;

/// The wait queues of one client.
#[derive(Debug, Default)]
pub(super) struct Queues {
    state: Mutex<State>,
    /// How many queues there are, readable without the mutex: mostly none. A waiter that joins at the same time may be
    /// missed, which is as if it had joined later.
    count: AtomicUsize,
    tickets: AtomicU64,
    /// Notifies when there is a waiter after there was none.
    joined: Notify,
    /// The server denies watching to this client: front waiters poll.
    denied: AtomicBool,
}

/// The store's data about a queue that begins.
pub(super) struct Begun {
    pub(super) shard: Shard,
    pub(super) watch: Watch,
    /// How often its front waiter polls, besides, if it does.
    pub(super) polls: Option<Duration>,
}

/// Invariant: a queue exists exactly as long as it has waiters, and the store watches it exactly as long as it exists.
#[derive(Debug, Default)]
struct State {
    queues: HashMap<Topic, Queue>,
    /// In how many of them the front waiter polls.
    polling: usize,
}

/// The waiters for one topic.
#[derive(Debug)]
struct Queue {
    waiters: WaitQueue,
    shard: Shard,
    polls: Option<Duration>,
    watch: Watch,
    /// Notifies waiters that wait until it is watched, if there are any, or until it is clear that it cannot be.
    awaited: Option<Arc<Notify>>,
    /// When the server last replied to an attempt of one of its waiters.
    heard: Option<Instant>,
    /// Seldom set, and larger than all the other fields.
    fairness: Option<Box<Fairness>>,
}

impl Queue {
    /// A message has arrived. Adds the wakers to call.
    fn on_message(&mut self, kind: Kind, now: Instant, wakers: &mut Vec<Waker>) {
        if self.fairness.as_mut().is_some_and(|fairness| !fairness.on_message(now)) {
            self.fairness = None;
        }
        self.wake(kind, wakers);
    }

    /// The state may have changed. Adds the wakers to call: of the front waiter, and at a latch of every waiter.
    fn wake(&mut self, kind: Kind, wakers: &mut Vec<Waker>) {
        if kind == Kind::Latch {
            wakers.extend(self.waiters.notify_all());
        } else {
            wakers.extend(self.waiters.reserve());
        }
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

fn notify_all(awaited: impl IntoIterator<Item = Arc<Notify>>) {
    for awaited in awaited {
        awaited.notify_waiters();
    }
}

/// The queue of a waiter of this hold key. Each owner that waits for a fair lock has a position on the server and messages of
/// its own, so it has a queue by itself.
fn topic(key: &HoldKey) -> Topic {
    (key.resource.clone(), (key.resource.kind == Kind::Fair).then_some(key.owner))
}

impl Queues {
    /// Joins the end of the queue of a hold key, which `begin` starts if this is its first waiter. A waiter that
    /// `accepts_handover` can take over a hold of another owner of this client.
    pub(super) fn join(
        &self,
        key: &HoldKey,
        accepts_handover: bool,
        begin: impl FnOnce(&Topic) -> Begun,
    ) -> Ticket {
        let (ticket, is_first) = self.join_unswept(key, accepts_handover, begin);
        if is_first {
            self.joined.notify_one();
        }
        ticket
    }

    /// The same without the sweep; returns whether the sweep has to be notified, because there was no waiter.
    pub(super) fn join_unswept(
        &self,
        key: &HoldKey,
        accepts_handover: bool,
        begin: impl FnOnce(&Topic) -> Begun,
    ) -> (Ticket, bool) {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let was_empty = state.queues.is_empty();
        let State { queues, polling } = &mut *state;
        let queue = match queues.entry(topic(key)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                // Under the mutex, so that it is not watched after the `unwatch` of the queue before.
                let Begun { shard, watch, polls } = begin(entry.key());
                *polling += usize::from(polls.is_some());
                let waiters = WaitQueue::default();
                entry.insert(Queue {
                    waiters,
                    shard,
                    polls,
                    watch,
                    awaited: None,
                    heard: None,
                    fairness: None,
                })
            }
        };
        if accepts_handover {
            queue.waiters.join_for_handover(ticket);
        } else {
            queue.waiters.join(ticket);
        }
        self.count.store(queues.len(), Ordering::Relaxed);
        (ticket, was_empty)
    }

    /// Resolves when messages for this hold key arrive, or when it is clear that they cannot arrive now.
    pub(super) async fn watched(&self, key: &HoldKey) {
        loop {
            let (awaited, notified);
            {
                let mut state = self.state.lock();
                let queue = state.queue(key).filter(|queue| queue.watch == Watch::Pending);
                let Some(queue) = queue.filter(|_| !self.is_denied()) else { return };
                awaited = Arc::clone(queue.awaited.get_or_insert_default());
                notified = awaited.notified();
            }
            notified.await;
        }
    }

    /// Ready when the waiter with this ticket should retry.
    pub(super) fn poll_wake_up(&self, key: &HoldKey, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let Some(Queue { waiters, .. }) = state.queue(key) else { return Poll::Ready(()) };
        let (polled, aftermath) = waiters.poll_wake_up(ticket, context);
        drop(state);
        aftermath.run();
        polled
    }

    /// Whether this is the front waiter of its queue.
    pub(super) fn is_front(&self, key: &HoldKey, ticket: Ticket) -> bool {
        self.state.lock().queue(key).is_some_and(|queue| queue.waiters.is_front(ticket))
    }

    /// Leaves the queue. If this was the front waiter, the next one is woken and retries. `end` cleans up a queue that has
    /// no waiter any more.
    pub(super) fn leave(&self, key: &HoldKey, ticket: Ticket, end: impl FnOnce(&Topic)) {
        let mut state = self.state.lock();
        let Some(Queue { waiters, .. }) = state.queue(key) else { return };
        let aftermath = waiters.leave(ticket, key.resource.kind != Kind::Latch);
        if waiters.is_empty()
            && let Some((topic, queue)) = state.queues.remove_entry(&topic(key))
        {
            state.polling -= usize::from(queue.polls.is_some());
            self.count.store(state.queues.len(), Ordering::Relaxed);
            end(&topic);
        }
        drop(state);
        aftermath.run();
    }

    /// Whether a request may be sent now, or the result for the caller instead.
    pub(super) fn may_send(&self, key: &HoldKey, ticket: Option<Ticket>, now: Instant) -> Result<(), Busy> {
        if self.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock();
        let Some(Queue { waiters, fairness, heard, .. }) = state.queue(key) else { return Ok(()) };
        let not_sent = Busy { not_sent: true, heard: *heard, ..Busy::default() };
        if let Some(ticket) = ticket {
            waiters.mark_present(ticket);
        }
        // The waiters of one owner for a fair lock share one position on the server, for which each of them may send
        // requests.
        if key.resource.kind != Kind::Fair && !waiters.may_take(ticket) {
            return Err(not_sent);
        }
        let retry_in = fairness.as_ref().and_then(|fairness| fairness.left(now));
        if retry_in.is_some() && !mutation!("no-pause-after-release") {
            return Err(Busy { retry_in, ..not_sent });
        }
        waiters.withdraw();
        Ok(())
    }

    /// The server has replied to an attempt.
    pub(super) fn heard(&self, key: &HoldKey) {
        if self.is_empty() {
            return;
        }
        if let Some(queue) = self.state.lock().queue(key) {
            queue.heard = Some(env::now());
        }
    }

    /// One pass of the [sweep](super::Inner::keep_sweeping), which skips front waiters that are not polled.
    pub(super) fn sweep(&self, is_reachable: impl Fn(Shard) -> bool) {
        let mut after = Aftermath::default();
        for (_, Queue { waiters, .. }) in self.state.lock().in_order(|_, queue| is_reachable(queue.shard)) {
            // A front waiter that has to leave the lock to other clients retries by itself; or else it is late.
            let again = if waiters.is_reserved() { waiters.notify_front() } else { None };
            after = std::mem::take(&mut after).and(waiters.sweep().unwrap_or_default()).also_waking(again);
        }
        after.run();
    }

    /// Resolves when there are waiters.
    pub(super) async fn has_waiters(&self) {
        while self.is_empty() {
            self.joined.notified().await;
        }
    }

    /// The longest that a waiter may sleep where no message may wake it; `None` if a message does, or if another waiter
    /// polls: at a latch every waiter polls, elsewhere the front waiter.
    pub(super) fn longest_sleep(&self, key: &HoldKey, ticket: Ticket) -> Option<Duration> {
        let is_denied = self.is_denied();
        let mut state = self.state.lock();
        let queue = state.queue(key)?;
        let is_poller = queue.waiters.is_front(ticket) || key.resource.kind == Kind::Latch;
        let period = queue.polls.or(is_denied.then_some(POLL)).filter(|_| is_poller)?;
        let polling = if is_denied { state.queues.len() } else { state.polling };
        drop(state);
        let pause = period.max(period * u32::try_from(polling).unwrap_or(u32::MAX) / POLLING);
        Some(env::jittered(pause))
    }

    /// How many waiters there are, if the front waiter accepts a hand-over and gets a message when the lock becomes free after
    /// all.
    pub(super) fn local_waiters(&self, key: &HoldKey) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut state = self.state.lock();
        let Some(Queue { waiters, watch, .. }) = state.queue(key) else { return 0 };
        if *watch == Watch::Active && waiters.front_accepts_handover() { waiters.len() } else { 0 }
    }

    /// Whether it is the turn of the waiter with this ticket. If so, it leaves the queue at once, and the next waiter is not
    /// woken. The caller has to run the returned aftermath.
    pub(super) fn take_turn(&self, key: &HoldKey, ticket: Ticket) -> Option<Aftermath> {
        let mut state = self.state.lock();
        let Queue { waiters, .. } = state.queue(key)?;
        if !waiters.may_take(Some(ticket)) {
            return None;
        }
        waiters.withdraw();
        Some(waiters.leave(ticket, false))
    }

    /// A lock is being released here. If this client has waiters for it, they retry only when it is known which other
    /// clients are subscribed.
    pub(super) fn releasing(&self, key: &HoldKey) {
        if self.is_empty() || !matches!(key.resource.kind, Kind::Lock | Kind::SetNx) {
            return;
        }
        if let Some(queue) = self.state.lock().queue(key) {
            queue.fairness = Some(Box::new(Fairness::until_reply(env::now())));
        }
    }

    /// A release that was `begun` then is over. If it published that the lock is free, so many clients are subscribed.
    pub(super) fn released(&self, key: &HoldKey, subscribers: Option<usize>, begun: Instant) {
        if self.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let paused = state.queue(key).and_then(|queue| Some((queue.fairness.take()?, queue)));
        let Some((fairness, queue)) = paused else {
            drop(state);
            if subscribers == Some(0) {
                self.freed_without_message(&key.resource);
            }
            return;
        };
        let now = env::now();
        let took = now.saturating_duration_since(begun);
        let ours = usize::from(queue.watch == Watch::Active);
        queue.fairness = fairness.replied(subscribers.unwrap_or_default(), ours, took, now).map(Box::new);
        let waker = queue.waiters.reserve();
        drop(state);
        wake(waker);
    }

    /// A lock is free, and no message notifies this client: publishing may be denied. Its waiters retry as after a message.
    pub(super) fn freed_without_message(&self, resource: &Resource) {
        if self.is_empty() {
            return;
        }
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        match resource.kind {
            Kind::Fair => {
                // If the front waiter on the server belongs to this client, it is the one that arrived first.
                let waiting = state.queues.iter_mut().filter(|((waited_for, _), _)| waited_for == resource);
                if let Some((_, queue)) = waiting.min_by_key(|(_, queue)| queue.waiters.first_ticket()) {
                    queue.wake(resource.kind, &mut wakers);
                }
            }
            Kind::Group => {
                for (_, queue) in state.in_order(|(waited_for, _), _| waited_for.overlaps(resource)) {
                    queue.wake(resource.kind, &mut wakers);
                }
            }
            kind => {
                let kinds =
                    if kind.family() == Family::Rw { &[Kind::Read, Kind::Write][..] } else { &[kind] };
                for kind in kinds {
                    if let Some(queue) = state.queues.get_mut(&(resource.of_kind(*kind), None)) {
                        queue.wake(*kind, &mut wakers);
                    }
                }
            }
        }
        drop(state);
        wake(wakers);
    }

    /// A message has arrived.
    pub(super) fn freed(&self, topic: &Topic) {
        let mut wakers = Vec::new();
        if let Some(queue) = self.state.lock().queues.get_mut(topic).filter(|_| !mutation!("lost-wake-up")) {
            queue.on_message(topic.0.kind, env::now(), &mut wakers);
        }
        wake(wakers);
    }

    /// Wakes the front waiter of this hold key.
    pub(super) fn wake(&self, key: &HoldKey) {
        let waker = self.state.lock().queue(key).and_then(|queue| queue.waiters.reserve());
        wake(waker);
    }

    /// Wakes every front waiter: after a gap, messages may have been missed.
    pub(super) fn wake_fronts(&self) {
        let mut wakers = Vec::new();
        for ((resource, _), queue) in self.state.lock().in_order(|_, _| true) {
            queue.wake(resource.kind, &mut wakers);
        }
        wake(wakers);
    }

    /// Wakes every waiter of a shard, or of all shards, not only the front waiters: each has its own limit for outages.
    pub(super) fn wake_all(&self, shard: Option<Shard>) {
        let mut state = self.state.lock();
        let queues = state.in_order(|_, queue| shard.is_none_or(|shard| queue.shard == shard));
        let wakers: Vec<_> = queues.into_iter().flat_map(|(_, queue)| queue.waiters.notify_all()).collect();
        drop(state);
        wake(wakers);
    }

    /// The messages of these topics arrive from now on.
    pub(super) fn watching(&self, topics: &[Topic]) {
        let mut state = self.state.lock();
        let mut awaited = Vec::new();
        for topic in topics {
            if let Some(queue) = state.queues.get_mut(topic) {
                queue.watch = Watch::Active;
                awaited.extend(queue.awaited.take());
            }
        }
        drop(state);
        notify_all(awaited);
    }

    /// No messages arrive for now.
    pub(super) fn unwatched(&self) {
        let mut state = self.state.lock();
        state.queues.values_mut().for_each(|queue| queue.watch = Watch::Unavailable);
        let awaited = state.awaited();
        drop(state);
        notify_all(awaited);
    }

    /// The server does not allow watching, or may do so again.
    pub(super) fn set_denied(&self, denied: bool) {
        if denied && !self.denied.swap(true, Ordering::Relaxed) {
            tracing::warn!("the server does not allow SUBSCRIBE: waiters poll for freed locks");
            // Waiters that sleep already have not started to poll.
            self.wake_fronts();
        }
        self.denied.store(denied, Ordering::Relaxed);
        if denied {
            let awaited = self.state.lock().awaited();
            notify_all(awaited);
        }
    }

    /// How many waiters there are for this name.
    pub(super) fn waiters(&self, name: &str) -> usize {
        let state = self.state.lock();
        let queues = state.queues.iter().filter(|((resource, _), _)| resource.name.as_str() == name);
        queues.map(|(_, queue)| queue.waiters.len()).sum()
    }

    fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}

impl State {
    /// The queue of a hold key, if there are waiters.
    fn queue(&mut self, key: &HoldKey) -> Option<&mut Queue> {
        self.queues.get_mut(&topic(key))
    }

    /// The wanted queues in the order in which their first waiters arrived: the hash map's order differs between processes.
    fn in_order(&mut self, wanted: impl Fn(&Topic, &Queue) -> bool) -> Vec<(&Topic, &mut Queue)> {
        let mut queues: Vec<_> =
            self.queues.iter_mut().filter(|(topic, queue)| wanted(topic, queue)).collect();
        queues.sort_unstable_by_key(|(_, queue)| queue.waiters.first_ticket());
        queues
    }

    /// The notifiers of waiters that wait until a queue is watched.
    fn awaited(&mut self) -> Vec<Arc<Notify>> {
        self.in_order(|_, _| true).into_iter().filter_map(|(_, queue)| queue.awaited.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_id::ClientId;
    use crate::name::Name;
    use crate::owner::OwnerId;

    fn key(kind: Kind, name: &str) -> HoldKey {
        let resource = Resource::new(kind, Name::new("", name).unwrap());
        HoldKey { resource, owner: OwnerId::fresh(ClientId::random(), 1), amount: 1 }
    }

    fn begin(_topic: &Topic) -> Begun {
        Begun { shard: Shard::ONLY, watch: Watch::Active, polls: Some(POLL) }
    }

    #[test]
    fn many_queues_together_poll_at_a_limited_rate() {
        let queues = Queues::default();
        let (mut last, mut ticket) = (key(Kind::SetNx, "none"), 0);
        for (count, shortest) in [(1, 100), (500, 100), (1_000, 200), (10_000, 2_000)] {
            while queues.state.lock().queues.len() < count {
                let name = queues.state.lock().queues.len().to_string();
                last = key(Kind::SetNx, &name);
                ticket = queues.join(&last, false, begin);
            }
            let shortest = Duration::from_millis(shortest);
            let pauses: Vec<_> = (0..100).filter_map(|_| queues.longest_sleep(&last, ticket)).collect();
            assert!(
                pauses.len() == 100 && pauses.iter().all(|pause| (shortest..shortest * 2).contains(pause)),
                "{count}: {pauses:?}"
            );
        }
        let behind = queues.join(&last, false, begin);
        assert_eq!(queues.longest_sleep(&last, behind), None, "the front waiter polls for it");
    }

    #[test]
    fn a_front_waiter_that_is_woken_and_does_not_retry_is_skipped() {
        let queues = Queues::default();
        let key = key(Kind::Lock, "a");
        let [front, next] = [0, 1].map(|_| queues.join(&key, false, begin));
        let is_woken =
            |ticket| queues.poll_wake_up(&key, ticket, &mut Context::from_waker(Waker::noop())).is_ready();
        let may_send = |ticket| queues.may_send(&key, Some(ticket), env::now()).is_ok();
        let sweep = |times| (0..times).for_each(|_| queues.sweep(|_| true));
        assert!(!is_woken(front) && !is_woken(next));
        sweep(5);
        assert!(may_send(front) && !may_send(next), "a front waiter that sleeps is not late");
        queues.wake(&key);
        assert!(is_woken(front));
        queues.releasing(&key);
        assert!(!may_send(front) && !is_woken(front), "it must leave the lock to other clients");
        sweep(5);
        assert!(is_woken(next), "it did not retry");
        std::thread::sleep(Duration::from_millis(60));
        assert!(may_send(next) && is_woken(front) && may_send(front), "skipped, not forgotten");
    }

    /// Records the order in which it is woken.
    struct Noted(usize, Arc<Mutex<Vec<usize>>>);

    impl std::task::Wake for Noted {
        fn wake(self: Arc<Self>) {
            self.1.lock().push(self.0);
        }
    }

    #[test]
    fn queues_are_woken_in_the_order_of_arrival_of_their_first_waiters() {
        for wake in [Queues::wake_fronts, |queues: &Queues| queues.wake_all(None)] {
            let (queues, order) = (Queues::default(), Arc::default());
            for number in 0..50 {
                let key = key(Kind::Lock, &format!("{}", (number * 31) % 50));
                let ticket = queues.join(&key, false, begin);
                let waker = Arc::new(Noted(number, Arc::clone(&order))).into();
                assert!(queues.poll_wake_up(&key, ticket, &mut Context::from_waker(&waker)).is_pending());
            }
            wake(&queues);
            assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_queues_of_an_unreachable_shard_are_not_swept() {
        let queues = Queues::default();
        let key = key(Kind::Lock, "a");
        let [front, next] = [0, 1].map(|_| queues.join(&key, false, begin));
        let is_woken =
            |ticket| queues.poll_wake_up(&key, ticket, &mut Context::from_waker(Waker::noop())).is_ready();
        assert!(!is_woken(front) && !is_woken(next));
        queues.wake(&key);
        (0..5).for_each(|_| queues.sweep(|_| false));
        assert!(!is_woken(next), "no waiter can send a request, so none is late");
        (0..5).for_each(|_| queues.sweep(|_| true));
        assert!(is_woken(next));
    }
}
