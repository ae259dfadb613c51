//! The line of those who wait for one name: first come, first served.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::aftermath::Aftermath;
use super::{Busy, Ticket};
use crate::time::Instant;

/// Waiters in the order in which they came, and whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiters: BTreeMap<Ticket, Waiter>,
    /// Since when the head has been told that the lock is free.
    promised: Option<Instant>,
    /// Nobody but the head, until it is thrown out.
    strict: bool,
}

#[derive(Debug, Default)]
struct Waiter {
    hinted: bool,
    /// It did not come when it was its turn. Others go first until it is heard of again.
    absent: bool,
    /// It can have what another waiter gives it.
    #[cfg(feature = "redis")]
    heir: bool,
    waker: Option<Waker>,
}

/// How long a free lock is kept for the head of the line.
///
/// The head is somebody's future, and futures can be left lying about unpolled: after this time anybody may pass it.
pub(crate) const PROMISE: Duration = Duration::from_millis(100);

/// The same where order is all that counts: then the head loses its place.
const STRICT_PROMISE: Duration = Duration::from_secs(1);

/// How many behind the head look after it. If all did, a long line would do nothing but look.
const IMPATIENT: usize = 8;

/// Whether a free lock may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MayTake {
    Yes,
    /// It is kept for the head so long.
    In(Duration),
    /// It is the turn of somebody else, and somebody nearer looks after that.
    WhenHinted,
}

impl MayTake {
    /// What to say to somebody whose turn it is not; nothing to somebody whose turn it is.
    pub(crate) fn not_yet(self) -> Option<Busy> {
        match self {
            Self::Yes => None,
            Self::In(wait) => Some(Busy { retry_in: Some(wait), ..Busy::default() }),
            Self::WhenHinted => Some(Busy::default()),
        }
    }
}

impl Line {
    /// A line whose order is kept: a head that does not come is not passed but thrown out.
    pub(crate) fn strict() -> Self {
        Self { strict: true, ..Self::default() }
    }

    /// Throws out a head that did not come in time, and begins the turn of the next one.
    pub(crate) fn throw_out_late(&mut self, now: impl Into<Instant>) -> Aftermath {
        let Some(since) = self.promised else { return Aftermath::default() };
        let now = now.into();
        let late = now.saturating_duration_since(since) >= STRICT_PROMISE;
        match self.head().filter(|_| late) {
            Some(head) => self.leave(head, now),
            None => Aftermath::default(),
        }
    }

    /// Which place this is, from one.
    pub(crate) fn position(&self, ticket: Ticket) -> Option<usize> {
        self.waiters.contains_key(&ticket).then(|| self.waiters.range(..=ticket).count())
    }

    /// Lets one look.
    pub(crate) fn hint(&mut self, ticket: Ticket) -> Option<Waker> {
        let waiter = self.waiters.get_mut(&ticket)?;
        waiter.hinted = true;
        waiter.waker.take()
    }

    pub(crate) fn join(&mut self, ticket: Ticket) {
        self.waiters.insert(ticket, Waiter::default());
    }

    #[cfg(feature = "redis")]
    pub(crate) fn join_as_heir(&mut self, ticket: Ticket) {
        self.waiters.insert(ticket, Waiter { heir: true, ..Waiter::default() });
    }

    /// Whether the head is an heir.
    #[cfg(feature = "redis")]
    pub(crate) fn has_heir(&self) -> bool {
        self.head().is_some_and(|head| self.waiters[&head].heir)
    }

    #[cfg(any(feature = "redis", feature = "test-util"))]
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Takes a waiter out. If it was its turn, the next one's turn begins.
    pub(crate) fn leave(&mut self, ticket: Ticket, now: impl Into<Instant>) -> Aftermath {
        let was_head = self.is_head(ticket);
        let left = self.waiters.remove(&ticket);
        let wake = if was_head && self.promised.take().is_some() { self.promise(now) } else { None };
        Aftermath { wake, discard: left.and_then(|waiter| waiter.waker), ..Aftermath::default() }
    }

    /// The lock is free: it is the head's turn. Wake the head with what this returns.
    pub(crate) fn promise(&mut self, now: impl Into<Instant>) -> Option<Waker> {
        let head = self.head_mut()?;
        head.hinted = true;
        let waker = head.waker.take();
        self.promised = Some(now.into());
        waker
    }

    /// Lets the head look when a hold that it sees as lasting until `before` now ends at `after`, which is sooner.
    pub(crate) fn hint_if_sooner(
        &mut self,
        before: Option<Instant>,
        after: Option<Instant>,
    ) -> Option<Waker> {
        let sooner = after.is_some_and(|after| before.is_none_or(|before| after < before));
        if sooner { self.hint_head() } else { None }
    }

    /// Lets the head look. Its turn does not begin by it.
    pub(crate) fn hint_head(&mut self) -> Option<Waker> {
        let head = self.head_mut()?;
        head.hinted = true;
        head.waker.take()
    }

    /// Lets everybody look. Nobody's turn begins or ends by it.
    pub(crate) fn hint_all(&mut self) -> Vec<Waker> {
        self.waiters
            .values_mut()
            .filter_map(|waiter| {
                waiter.hinted = true;
                waiter.waker.take()
            })
            .collect()
    }

    /// The lock is taken by somebody: nobody's turn. A head that was passed has to show itself again.
    pub(crate) fn taken(&mut self, by: Option<Ticket>) {
        let passed = self.promised.take().is_some() && !by.is_some_and(|ticket| self.is_head(ticket));
        if let Some(head) = self.head_mut().filter(|_| passed) {
            head.absent = true;
        }
    }

    /// The lock is taken by somebody who does not stand in this line: nobody's turn, and nobody's fault.
    pub(crate) fn withdraw(&mut self) {
        self.promised = None;
    }

    pub(crate) fn is_promised(&self) -> bool {
        self.promised.is_some()
    }

    /// Whether somebody with this ticket, or with none, may take the lock that is free.
    pub(crate) fn may_take(&self, ticket: Option<Ticket>, now: impl Into<Instant>) -> MayTake {
        if self.head().is_none() || ticket.is_some_and(|ticket| self.is_head(ticket)) {
            return MayTake::Yes;
        }
        let promised_for =
            self.promised.map_or(Duration::ZERO, |since| now.into().saturating_duration_since(since));
        let promise = if self.strict { STRICT_PROMISE } else { PROMISE };
        match promise.checked_sub(promised_for) {
            None | Some(Duration::ZERO) => MayTake::Yes,
            Some(left)
                if ticket.is_none_or(|ticket| self.waiters.range(..ticket).nth(IMPATIENT).is_none()) =>
            {
                MayTake::In(left)
            }
            Some(_) => MayTake::WhenHinted,
        }
    }

    pub(crate) fn poll_hint(&mut self, ticket: Ticket, context: &mut Context<'_>) -> (Poll<()>, Aftermath) {
        let Some(waiter) = self.waiters.get_mut(&ticket) else {
            return (Poll::Ready(()), Aftermath::default());
        };
        waiter.absent = false;
        if std::mem::take(&mut waiter.hinted) {
            return (Poll::Ready(()), Aftermath::default());
        }
        let known = waiter.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        let discard = if known { None } else { waiter.waker.replace(context.waker().clone()) };
        (Poll::Pending, Aftermath { discard, ..Aftermath::default() })
    }

    pub(crate) fn is_head(&self, ticket: Ticket) -> bool {
        self.head() == Some(ticket)
    }

    /// The first who is there.
    fn head(&self) -> Option<Ticket> {
        self.waiters.iter().find(|(_, waiter)| !waiter.absent).map(|(ticket, _)| *ticket)
    }

    fn head_mut(&mut self) -> Option<&mut Waiter> {
        self.waiters.values_mut().find(|waiter| !waiter.absent)
    }
}
