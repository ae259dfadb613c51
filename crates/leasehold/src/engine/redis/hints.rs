//! Who waits for what in this client: one line for each target, and at most one subscription for each channel.
//!
//! Only the head of a line asks the server. A message wakes the head; whoever is passed over is woken when the
//! head leaves. Messages are hints: each may be lost, and heads look by themselves when the lease they saw is over.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::courtesy::Courtesy;
use super::keys;
use crate::engine::line::{Line, MayTake};
use crate::engine::{Aftermath, Kind, Spot, Target, Ticket};
use crate::error::Failure;
use crate::time::{self, Instant};

/// How long a channel stays subscribed after the last who waited for it has gone.
const LINGER: Duration = Duration::from_millis(100);

/// Where nobody tells that a lock is free, the head of a line looks about this often …
const POLL: Duration = Duration::from_millis(200);

/// … if no more than these look. All of them together do not look more often than so many do.
const LOOKERS: u32 = 500;

/// How many channels there is room for when few or none are needed.
const SPARE: usize = 64;

/// The lines of one client.
#[derive(Debug, Default)]
pub(super) struct Hints {
    state: Mutex<State>,
    /// How many lines there are, to be seen without the mutex: mostly none. Whoever comes just then has come a moment later.
    lines: AtomicUsize,
    tickets: AtomicU64,
    /// Rings for the subscriber when a name has got or lost its last waiter.
    pub(super) wanted: Notify,
    /// There is no connection for commands.
    outage: AtomicBool,
    /// Why not, if another one was tried.
    reason: Mutex<Option<Failure>>,
    /// The server does not let us subscribe: heads have to look from time to time.
    denied: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    lines: HashMap<Topic, Queue>,
    channels: HashMap<Arc<str>, Channel>,
    /// Channels whose subscription may be out of step with the lines.
    touched: HashSet<Arc<str>>,
    /// Channels that are subscribed although nobody waits any more, and since when.
    idle: VecDeque<(Instant, Arc<str>)>,
    /// Whether messages can come at all.
    link: Link,
    /// How many lines are for locks whose release nobody need tell.
    silent: usize,
}

/// What one line is about: a target, and for a fair lock, where everybody has a channel, the number of the owner that waits
/// for it.
type Topic = (Target, Option<u64>);

fn topic(spot: &Spot) -> Topic {
    (spot.target.clone(), (spot.target.kind == Kind::Fair).then_some(spot.owner.number))
}

/// Whether others release such a lock without a word.
pub(super) fn is_silent(spot: &Spot) -> bool {
    spot.target.kind == Kind::SetNx
}

/// Those who wait for one target.
#[derive(Debug)]
struct Queue {
    line: Line,
    channel: Arc<str>,
    /// Seldom there, and larger than all the rest.
    courtesy: Option<Box<Courtesy>>,
}

impl Queue {
    fn new(channel: Arc<str>) -> Self {
        Self { line: Line::default(), channel, courtesy: None }
    }

    /// Something may have changed. Adds whom to wake.
    fn hear(&mut self, kind: Kind, now: Instant, wakers: &mut Vec<Waker>) {
        if self.courtesy.as_mut().is_some_and(|courtesy| !courtesy.hear(now)) {
            self.courtesy = None;
        }
        self.wake(kind, now, wakers);
    }

    /// Adds whose turn it is when something may have changed: the head's, and at a latch everybody's.
    fn wake(&mut self, kind: Kind, now: Instant, wakers: &mut Vec<Waker>) {
        if kind == Kind::Latch {
            wakers.extend(self.line.hint_all());
        } else {
            wakers.extend(self.line.promise(now));
        }
    }
}

/// What is announced on one channel: `x` and `{x}` share theirs.
#[derive(Debug)]
struct Channel {
    /// Nothing if nobody waits any more.
    topics: Vec<Topic>,
    idle_since: Option<Instant>,
    subscribed: bool,
    /// Rings for those who wait until it is subscribed, if anybody does, or until it is clear that it cannot be.
    awaited: Option<Arc<Notify>>,
}

impl State {
    /// The queue of a spot, if anybody waits there.
    fn queue(&mut self, spot: &Spot) -> Option<&mut Queue> {
        self.lines.get_mut(&topic(spot))
    }

    /// Puts somebody into the line of a target, made if nobody waits yet; and tells whether its messages come.
    fn join(&mut self, spot: &Spot, ticket: Ticket, heir: bool) -> bool {
        let Self { lines, channels, touched, silent, .. } = self;
        let queue = match lines.entry(topic(spot)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                *silent += usize::from(is_silent(spot));
                let name: Arc<str> = keys::waiting_channel(spot).into();
                let topic = entry.key().clone();
                match channels.entry(Arc::clone(&name)) {
                    Entry::Occupied(mut channel) => {
                        let channel = channel.get_mut();
                        channel.topics.push(topic);
                        channel.idle_since = None;
                    }
                    Entry::Vacant(channel) => {
                        let topics = vec![topic];
                        let (idle_since, awaited) = (None, None);
                        channel.insert(Channel { topics, idle_since, subscribed: false, awaited });
                    }
                }
                entry.insert(Queue::new(name))
            }
        };
        if heir {
            queue.line.join_as_heir(ticket);
        } else {
            queue.line.join(ticket);
        }
        let subscribed = channels.get(&queue.channel).is_some_and(|channel| channel.subscribed);
        if !subscribed {
            touched.insert(Arc::clone(&queue.channel));
        }
        subscribed
    }

    /// Takes out the line of a target for which nobody waits any more.
    ///
    /// Whoever waited for a lock will often do so again in a moment. So its channel stays subscribed for a while; but not
    /// that of one waiter alone.
    fn remove(&mut self, spot: &Spot) {
        let Self { lines, channels, touched, idle, silent, .. } = self;
        let Some((topic, Queue { channel: name, .. })) = lines.remove_entry(&topic(spot)) else { return };
        *silent -= usize::from(is_silent(spot));
        let Entry::Occupied(mut channel) = channels.entry(name) else { return };
        let Channel { topics, idle_since, subscribed, .. } = channel.get_mut();
        topics.retain(|other| *other != topic);
        if topics.is_empty() && *subscribed && spot.target.kind != Kind::Fair {
            let now = time::now();
            *idle_since = Some(now);
            idle.push_back((now, Arc::clone(channel.key())));
        } else if topics.is_empty() {
            // A subscription that is on its way finds nobody, and is touched then.
            let (name, channel) = channel.remove_entry();
            if channel.subscribed {
                touched.insert(name);
            } else {
                touched.remove(&name);
            }
        }
    }

    /// Whether the messages of a channel come.
    fn hears(&self, channel: &str) -> bool {
        self.channels.get(channel).is_some_and(|channel| channel.subscribed)
    }

    /// Gives up channels for which nobody has waited for long enough.
    fn give_up_idle(&mut self, now: Instant) {
        while self.idle.front().is_some_and(|(since, _)| *since + LINGER <= now)
            && let Some((since, name)) = self.idle.pop_front()
        {
            if self.channels.get(&name).is_some_and(|channel| channel.idle_since == Some(since)) {
                self.channels.remove(&name);
                self.touched.insert(name);
            }
        }
        if self.idle.is_empty() {
            // Many may have come and gone within a moment; what they needed is not kept for the next time.
            self.idle.shrink_to(SPARE);
            self.channels.shrink_to(SPARE);
        }
    }

    /// Those who wait until something is subscribed.
    fn awaited(&mut self) -> Vec<Arc<Notify>> {
        self.channels.values_mut().filter_map(|channel| channel.awaited.take()).collect()
    }
}

fn ring(awaited: Vec<Arc<Notify>>) {
    for awaited in awaited {
        awaited.notify_waiters();
    }
}

fn wake(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        waker.wake();
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Link {
    #[default]
    Opening,
    Up,
    Down,
}

/// What the subscriber has to do next.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) subscribe: Vec<Arc<str>>,
    pub(super) unsubscribe: Vec<Arc<str>>,
}

impl Hints {
    pub(super) fn listen(&self, spot: &Spot, heir: bool) -> Ticket {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        let subscribed = state.join(spot, ticket, heir);
        self.lines.store(state.lines.len(), Ordering::Relaxed);
        drop(state);
        if !subscribed {
            self.wanted.notify_one();
        }
        ticket
    }

    /// Resolves when messages for this target come, or when it is clear that they cannot come now.
    pub(super) async fn listening(&self, spot: &Spot) {
        loop {
            let (awaited, rings);
            {
                let mut state = self.state();
                let State { lines, channels, link, .. } = &mut *state;
                let channel = lines.get(&topic(spot)).and_then(|queue| channels.get_mut(&queue.channel));
                let Some(channel) = channel.filter(|channel| !channel.subscribed) else { return };
                if *link == Link::Down || self.is_denied() {
                    return;
                }
                awaited = Arc::clone(channel.awaited.get_or_insert_default());
                rings = awaited.notified();
            }
            rings.await;
        }
    }

    pub(super) fn poll_hint(&self, spot: &Spot, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let Some(Queue { line, .. }) = state.queue(spot) else { return Poll::Ready(()) };
        let (polled, aftermath) = line.poll_hint(ticket, context);
        drop(state);
        aftermath.run();
        polled
    }

    /// Leaves the line. The next one becomes the head, and looks for itself.
    pub(super) fn leave(&self, spot: &Spot, ticket: Ticket) {
        let mut state = self.state();
        let Some(Queue { line, .. }) = state.queue(spot) else { return };
        let was_head = line.is_head(ticket);
        let mut aftermath = line.leave(ticket, time::now());
        if was_head && aftermath.wake.is_none() && spot.target.kind != Kind::Latch {
            aftermath.wake = line.promise(time::now());
        }
        let empty = line.is_empty();
        if empty {
            state.remove(spot);
            self.lines.store(state.lines.len(), Ordering::Relaxed);
        }
        drop(state);
        aftermath.run();
        if empty {
            self.wanted.notify_one();
        }
    }

    /// Whether the server may be asked now, or what to do instead.
    pub(super) fn may_ask(&self, spot: &Spot, ticket: Option<Ticket>, now: Instant) -> MayTake {
        if self.is_idle() {
            return MayTake::Yes;
        }
        let mut state = self.state();
        let Some(Queue { line, courtesy, .. }) = state.queue(spot) else { return MayTake::Yes };
        match line.may_take(ticket, now) {
            // A head that sleeps is not late: it knows when to look.
            MayTake::In(_) if !line.is_promised() => MayTake::WhenHinted,
            MayTake::Yes => {
                if let Some(left) = courtesy.as_ref().and_then(|courtesy| courtesy.left(now)) {
                    return MayTake::In(left);
                }
                let passed = line.taken(ticket);
                drop(state);
                wake(passed);
                MayTake::Yes
            }
            not_yet => not_yet,
        }
    }

    /// When the head of a line should look again where it may not be told.
    pub(super) fn next_look(&self) -> Duration {
        let state = self.state();
        let looking = if self.is_denied() { state.lines.len() } else { state.silent };
        drop(state);
        time::jittered(POLL.max(POLL * u32::try_from(looking).unwrap_or(u32::MAX) / LOOKERS))
    }

    /// How many wait here, if the head is an heir and will hear when the lock is free after all.
    pub(super) fn heirs(&self, spot: &Spot) -> usize {
        if self.is_idle() {
            return 0;
        }
        let state = self.state();
        let Some(Queue { line, channel, .. }) = state.lines.get(&topic(spot)) else { return 0 };
        if state.hears(channel) && line.has_heir() { line.len() } else { 0 }
    }

    /// Whether it is the turn of this ticket. If so, it leaves the line at once, and the next one is told nothing.
    pub(super) fn inherits(&self, spot: &Spot, ticket: Ticket) -> Option<Aftermath> {
        let now = time::now();
        let mut state = self.state();
        let Queue { line, .. } = state.queue(spot)?;
        if line.may_take(Some(ticket), now) != MayTake::Yes {
            return None;
        }
        let passed = line.taken(Some(ticket));
        Some(line.leave(ticket, now).also_waking(passed))
    }

    /// A lock is being released here. If others here wait for it, they ask only when it is known who else does.
    pub(super) fn releasing(&self, spot: &Spot) {
        if self.is_idle() || !matches!(spot.target.kind, Kind::Lock | Kind::SetNx) {
            return;
        }
        if let Some(queue) = self.state().queue(spot) {
            queue.courtesy = Some(Box::new(Courtesy::until_answered(time::now())));
        }
    }

    /// A release that was `begun` then is over. If it was announced that something is free, so many listen.
    pub(super) fn released(&self, spot: &Spot, listeners: Option<usize>, begun: Instant) {
        if self.is_idle() {
            return;
        }
        let mut state = self.state();
        let courteous =
            state.queue(spot).and_then(|queue| Some((queue.courtesy.take()?, Arc::clone(&queue.channel))));
        let Some((courtesy, channel)) = courteous else {
            drop(state);
            if listeners == Some(0) {
                self.unheard(&spot.target);
            }
            return;
        };
        let (now, ours) = (time::now(), state.hears(&channel));
        let took = now.saturating_duration_since(begun);
        let courtesy = courtesy.answered(listeners.unwrap_or_default(), usize::from(ours), took, now);
        let waker = state.queue(spot).and_then(|queue| {
            queue.courtesy = courtesy.map(Box::new);
            queue.line.promise(now)
        });
        drop(state);
        wake(waker);
    }

    /// Something is free, and no message says so to this client: publishing may be denied. Its waiters look as if one had
    /// come.
    pub(super) fn unheard(&self, target: &Target) {
        if self.is_idle() {
            return;
        }
        let now = time::now();
        let mut wakers = Vec::new();
        let mut state = self.state();
        if target.kind == Kind::Fair {
            // Each has a channel of its own. If the first in the queue is one of ours, it is the one that came first.
            let waiting = state.lines.iter_mut().filter(|((waited_for, _), _)| waited_for == target);
            if let Some((_, queue)) = waiting.min_by_key(|(_, queue)| queue.line.first_ticket()) {
                queue.wake(target.kind, now, &mut wakers);
            }
        } else {
            let State { lines, channels, .. } = &mut *state;
            let channel = channels.get(keys::channel(target).to_string().as_str());
            for topic in channel.map_or(&[][..], |channel| &channel.topics) {
                if let Some(queue) = lines.get_mut(topic) {
                    queue.wake(topic.0.kind, now, &mut wakers);
                }
            }
        }
        drop(state);
        wake(wakers);
    }

    /// A message has come.
    pub(super) fn message(&self, channel: &str, payload: &[u8]) {
        let now = time::now();
        let mut wakers = Vec::new();
        {
            let mut state = self.state();
            let State { lines, channels, .. } = &mut *state;
            for topic in channels.get(channel).map_or(&[][..], |channel| &channel.topics) {
                let kind = topic.0.kind;
                if means_something(kind, payload)
                    && let Some(queue) = lines.get_mut(topic)
                {
                    queue.hear(kind, now, &mut wakers);
                }
            }
        }
        wake(wakers);
    }

    /// Lets whoever stands at this spot look.
    pub(super) fn hint(&self, spot: &Spot) {
        let waker = self.state().queue(spot).and_then(|queue| queue.line.promise(time::now()));
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Lets every head look for itself: after a gap nobody knows what was missed.
    pub(super) fn wake_all(&self) {
        let now = time::now();
        let mut wakers = Vec::new();
        for ((target, _), queue) in &mut self.state().lines {
            queue.wake(target.kind, now, &mut wakers);
        }
        wake(wakers);
    }

    /// An outage has begun or ended. Everybody looks, not only the heads: each has a limit of its own for outages.
    pub(super) fn outage(&self, outage: bool) {
        *self.reason() = None;
        self.outage.store(outage, Ordering::SeqCst);
        self.hint_all();
    }

    /// Lets everybody look.
    pub(super) fn hint_all(&self) {
        let wakers: Vec<_> =
            self.state().lines.values_mut().flat_map(|queue| queue.line.hint_all()).collect();
        wake(wakers);
    }

    pub(super) fn is_outage(&self) -> bool {
        self.outage.load(Ordering::SeqCst)
    }

    /// Another connection for commands could not be opened. Waiters look when the reason is a new one: a refusal ends
    /// their wait.
    pub(super) fn not_connected_because(&self, failure: Failure) {
        let before = self.reason().replace(failure.clone());
        if before != Some(failure) {
            self.hint_all();
        }
    }

    /// What a request comes to without a connection for commands.
    pub(super) fn not_connected(&self) -> Failure {
        match self.reason().as_ref() {
            None => Failure::Unavailable("not connected".into()),
            Some(Failure::Denied(text)) => Failure::Denied(format!("not connected: {text}")),
            Some(Failure::Unavailable(text)) => Failure::Unavailable(format!("not connected: {text}")),
            Some(other) => other.clone(),
        }
    }

    fn reason(&self) -> MutexGuard<'_, Option<Failure>> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has to be subscribed and unsubscribed to be in step with the lines. Empties the list.
    pub(super) fn take_changes(&self) -> Changes {
        let mut state = self.state();
        state.give_up_idle(time::now());
        let mut changes = Changes::default();
        for channel in std::mem::take(&mut state.touched) {
            match state.channels.get(&channel) {
                Some(Channel { subscribed: true, .. }) => {}
                Some(_) => changes.subscribe.push(channel),
                None => changes.unsubscribe.push(channel),
            }
        }
        changes
    }

    /// When there will be something to unsubscribe if nobody waits again.
    pub(super) fn next_idle(&self) -> Option<Instant> {
        self.state().idle.front().map(|(since, _)| *since + LINGER)
    }

    pub(super) fn subscribed(&self, channels: &[Arc<str>]) {
        let mut awaited = Vec::new();
        let mut state = self.state();
        for name in channels {
            match state.channels.get_mut(name) {
                Some(channel) => {
                    channel.subscribed = true;
                    awaited.extend(channel.awaited.take());
                }
                // Everybody left while it was on its way.
                None => drop(state.touched.insert(Arc::clone(name))),
            }
        }
        drop(state);
        ring(awaited);
    }

    pub(super) fn denied(&self) {
        if !self.denied.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the server does not allow SUBSCRIBE: waiters look for freed locks from time to time"
            );
            // Those who sleep already do not know that they have to.
            self.wake_all();
        }
        let awaited = self.state().awaited();
        ring(awaited);
    }

    pub(super) fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    /// The connection for messages is there. Nothing is subscribed on it yet.
    pub(super) fn link_up(&self) {
        let mut state = self.state();
        state.link = Link::Up;
        self.denied.store(false, Ordering::Relaxed);
        let State { channels, touched, .. } = &mut *state;
        touched.clear();
        for (name, channel) in channels {
            channel.subscribed = false;
            touched.insert(Arc::clone(name));
        }
    }

    pub(super) fn link_down(&self) {
        let mut state = self.state();
        state.link = Link::Down;
        state.idle.clear();
        state.channels.retain(|_, channel| channel.idle_since.is_none());
        for channel in state.channels.values_mut() {
            channel.subscribed = false;
        }
        let awaited = state.awaited();
        drop(state);
        ring(awaited);
    }

    /// Whether nobody waits for anything.
    pub(super) fn is_idle(&self) -> bool {
        self.lines.load(Ordering::Relaxed) == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a message can be one of Redisson's. Anything else is not for us.
fn means_something(kind: Kind, payload: &[u8]) -> bool {
    match kind {
        // How many permits there are.
        Kind::Semaphore | Kind::Permits => std::str::from_utf8(payload)
            .is_ok_and(|payload| payload.parse::<i64>().is_ok_and(|permits| permits >= 1)),
        // 0 frees a lock, 1 frees it for many; 0 opens a latch, 1 sets or deletes it.
        _ => matches!(payload, b"0" | b"1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_id::ClientId;
    use crate::name::Name;
    use crate::owner::OwnerId;

    #[test]
    fn many_lines_together_look_no_more_often_than_some() {
        let hints = Hints::default();
        let owner = OwnerId::fresh(ClientId::random(), 1);
        for (lines, shortest) in [(1, 100), (500, 100), (1_000, 200), (10_000, 2_000)] {
            while hints.state().lines.len() < lines {
                let name = Name::new("", &hints.state().lines.len().to_string()).unwrap();
                hints.listen(&Spot { target: Target::new(Kind::SetNx, name), owner, amount: 1 }, false);
            }
            let shortest = Duration::from_millis(shortest);
            let looks: Vec<_> = (0..100).map(|_| hints.next_look()).collect();
            assert!(looks.iter().all(|look| (shortest..shortest * 2).contains(look)), "{lines}: {looks:?}");
        }
    }
}
