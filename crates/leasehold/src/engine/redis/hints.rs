//! Who waits for what in this client: one line and at most one subscription per name.
//!
//! Only the head of a line asks the server. A message wakes the head; whoever is passed over is woken when the
//! head leaves. Messages are hints: each may be lost, and heads look by themselves when the lease they saw is over.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::Notify;

use super::keys;
use crate::engine::Ticket;
use crate::engine::aftermath::Aftermath;
use crate::engine::line::{Line, MayTake};
use crate::name::Name;
use crate::time::{self, Instant};

/// The lines of one client.
#[derive(Debug, Default)]
pub(super) struct Hints {
    state: Mutex<State>,
    tickets: AtomicU64,
    /// Rings for the subscriber when a name has got or lost its last waiter.
    pub(super) wanted: Notify,
    /// Rings when subscriptions have come or gone.
    changed: Notify,
    /// There is no connection for commands.
    outage: AtomicBool,
    /// The server does not let us subscribe: heads have to look from time to time.
    denied: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    lines: HashMap<Name, Queue>,
    /// Names whose subscription may be out of step with their line.
    touched: HashSet<Name>,
    /// Whether messages can come at all.
    link: Link,
}

impl State {
    fn is_waited_for(&self, name: &str) -> bool {
        Name::new("", name).is_ok_and(|name| self.lines.contains_key(&name))
    }
}

#[derive(Debug, Default)]
struct Queue {
    line: Line,
    subscribed: bool,
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
    pub(super) subscribe: Vec<Name>,
    pub(super) unsubscribe: Vec<Name>,
}

impl Hints {
    pub(super) fn listen(&self, name: &Name) -> Ticket {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        let queue = state.lines.entry(name.clone()).or_default();
        queue.line.join(ticket);
        if !queue.subscribed {
            state.touched.insert(name.clone());
            drop(state);
            self.wanted.notify_one();
        }
        ticket
    }

    /// Resolves when messages for this name come, or when it is clear that they cannot come now.
    pub(super) async fn listening(&self, name: &Name) {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                let subscribed = state.lines.get(name).is_none_or(|queue| queue.subscribed);
                if subscribed || state.link == Link::Down || self.is_denied() {
                    return;
                }
            }
            changed.await;
        }
    }

    pub(super) fn poll_hint(&self, name: &Name, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        let Some(queue) = state.lines.get_mut(name) else { return Poll::Ready(()) };
        let (polled, aftermath) = queue.line.poll_hint(ticket, context);
        drop(state);
        aftermath.run();
        polled
    }

    /// Leaves the line. The next one becomes the head, and looks for itself.
    pub(super) fn leave(&self, name: &Name, ticket: Ticket) {
        let mut state = self.state();
        let Some(queue) = state.lines.get_mut(name) else { return };
        let was_head = queue.line.is_head(ticket);
        let mut aftermath = queue.line.leave(ticket, time::now());
        if was_head && aftermath.wake.is_none() {
            aftermath.wake = queue.line.promise(time::now());
        }
        let empty = queue.line.is_empty();
        if empty {
            let State { lines, touched, .. } = &mut *state;
            // A subscription that is on its way finds nobody, and is touched then.
            if lines.remove(name).is_some_and(|queue| queue.subscribed) {
                touched.insert(name.clone());
            } else {
                touched.remove(name);
            }
        }
        drop(state);
        aftermath.run();
        if empty {
            self.wanted.notify_one();
        }
    }

    /// Whether the server may be asked now, or what to do instead.
    pub(super) fn may_ask(&self, name: &Name, ticket: Option<Ticket>, now: Instant) -> MayTake {
        let mut state = self.state();
        let Some(queue) = state.lines.get_mut(name) else { return MayTake::Yes };
        match queue.line.may_take(ticket, now) {
            // A head that sleeps is not late: it knows when to look.
            MayTake::In(_) if !queue.line.is_promised() => MayTake::WhenHinted,
            MayTake::Yes => {
                queue.line.taken(ticket);
                MayTake::Yes
            }
            not_yet => not_yet,
        }
    }

    /// A message has come.
    pub(super) fn message(&self, channel: &str, payload: &[u8]) {
        // Redisson's payloads: 0 frees a lock, 1 frees it for many. Anything else is not for us.
        if payload != b"0" && payload != b"1" {
            return;
        }
        for name in keys::names_of(channel) {
            let woken = {
                let mut state = self.state();
                let queue = Name::new("", name).ok().and_then(|name| state.lines.get_mut(&name));
                queue.map(|queue| queue.line.promise(time::now()))
            };
            Aftermath { wake: woken.flatten(), ..Aftermath::default() }.run();
        }
    }

    /// Lets every head look for itself: after a gap nobody knows what was missed.
    pub(super) fn wake_all(&self) {
        let wakers: Vec<_> = {
            let now = time::now();
            self.state().lines.values_mut().filter_map(|queue| queue.line.promise(now)).collect()
        };
        for waker in wakers {
            waker.wake();
        }
    }

    /// An outage has begun or ended. Everybody looks, not only the heads: each has a limit of its own for outages.
    pub(super) fn outage(&self, outage: bool) {
        self.outage.store(outage, Ordering::SeqCst);
        let wakers: Vec<_> =
            self.state().lines.values_mut().flat_map(|queue| queue.line.hint_all()).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    pub(super) fn is_outage(&self) -> bool {
        self.outage.load(Ordering::SeqCst)
    }

    /// What has to be subscribed and unsubscribed to be in step with the lines. Empties the list.
    pub(super) fn take_changes(&self) -> Changes {
        let mut state = self.state();
        let mut changes = Changes::default();
        for name in std::mem::take(&mut state.touched) {
            match state.lines.get(&name) {
                Some(queue) if queue.subscribed => {}
                Some(_) => changes.subscribe.push(name),
                None => changes.unsubscribe.push(name),
            }
        }
        // `x` and `{x}` share a channel: it stays while either is waited for.
        changes.unsubscribe.retain(|name| {
            let channel = keys::lock_channel(name);
            !keys::names_of(&channel).any(|name| state.is_waited_for(name))
        });
        changes
    }

    pub(super) fn subscribed(&self, names: &[Name]) {
        let mut state = self.state();
        for name in names {
            match state.lines.get_mut(name) {
                Some(queue) => queue.subscribed = true,
                // Everybody left while it was on its way.
                None => drop(state.touched.insert(name.clone())),
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub(super) fn denied(&self) {
        if !self.denied.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the server does not allow SUBSCRIBE: waiters look for freed locks from time to time"
            );
        }
        self.changed.notify_waiters();
    }

    pub(super) fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    /// The connection for messages is there. Nothing is subscribed on it yet.
    pub(super) fn link_up(&self) {
        let mut state = self.state();
        state.link = Link::Up;
        self.denied.store(false, Ordering::Relaxed);
        let State { lines, touched, .. } = &mut *state;
        touched.clear();
        for (name, queue) in lines {
            queue.subscribed = false;
            touched.insert(name.clone());
        }
    }

    pub(super) fn link_down(&self) {
        let mut state = self.state();
        state.link = Link::Down;
        for queue in state.lines.values_mut() {
            queue.subscribed = false;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state().lines.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
