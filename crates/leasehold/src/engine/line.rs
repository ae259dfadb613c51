//! The line of those who wait for one name: first come, first served.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::aftermath::Aftermath;
use super::{Busy, Ticket};
use crate::time::Instant;

/// Waiters in the order in which they came, and whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// By ticket. Who has left in the middle is only marked, lest all behind it have to move up: never the first, and never
    /// more than half of them.
    waiters: VecDeque<Waiter>,
    /// How many are marked.
    left: usize,
    /// Since when the head has been told that the lock is free.
    promised: Option<Instant>,
    /// Nobody but the head, until it is thrown out.
    strict: bool,
    /// Somebody looks from time to time whether the head comes when it is called.
    watched: bool,
}

#[derive(Debug, Default)]
struct Waiter {
    ticket: Ticket,
    presence: Presence,
    hinted: bool,
    /// It can have what another waiter gives it.
    #[cfg(feature = "remote")]
    heir: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Presence {
    #[default]
    There,
    /// It did not come when it was its turn. Others go first until it is heard of again.
    Absent,
    Left,
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
        let place = self.place(ticket)?;
        Some(self.waiters.range(..=place).filter(|waiter| !waiter.has_left()).count())
    }

    /// Lets one look.
    pub(crate) fn hint(&mut self, ticket: Ticket) -> Option<Waker> {
        let waiter = self.get_mut(ticket)?;
        waiter.hinted = true;
        waiter.waker.take()
    }

    pub(crate) fn join(&mut self, ticket: Ticket) {
        self.insert(Waiter { ticket, ..Waiter::default() });
    }

    #[cfg(feature = "remote")]
    pub(crate) fn join_as_heir(&mut self, ticket: Ticket) {
        self.insert(Waiter { ticket, heir: true, ..Waiter::default() });
    }

    /// Whether the head is an heir.
    #[cfg(feature = "remote")]
    pub(crate) fn has_heir(&self) -> bool {
        self.first().is_some_and(|head| head.heir)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len() - self.left
    }

    /// The ticket of whoever came first of those who stand here.
    #[cfg(feature = "remote")]
    pub(crate) fn first_ticket(&self) -> Option<Ticket> {
        self.waiters.front().map(|first| first.ticket)
    }

    /// Whether somebody has to begin to watch this line now.
    pub(crate) fn begins_watch(&mut self) -> bool {
        !std::mem::replace(&mut self.watched, true)
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Whether there is nobody to watch any more.
    pub(crate) fn ends_watch(&mut self) -> bool {
        self.watched = !self.is_empty();
        !self.watched
    }

    /// The head, if it was called and has not come.
    pub(crate) fn called(&self) -> Option<Ticket> {
        self.first().filter(|head| head.hinted).map(|head| head.ticket)
    }

    /// The head does not come: everybody looks, and until it is heard of again, others go first. Where order is all that
    /// counts, whoever looks [throws it out](Self::throw_out_late).
    pub(crate) fn pass(&mut self) -> Vec<Waker> {
        if !self.strict
            && let Some(head) = self.head_mut()
        {
            head.presence = Presence::Absent;
        }
        self.hint_all()
    }

    /// Somebody is heard of, so it is there.
    pub(crate) fn hear_of(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.get_mut(ticket) {
            waiter.presence = Presence::There;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Takes a waiter out. If it was its turn, the next one's turn begins.
    pub(crate) fn leave(&mut self, ticket: Ticket, now: impl Into<Instant>) -> Aftermath {
        let was_head = self.is_head(ticket);
        let discard = self.remove(ticket);
        let wake = if was_head && self.promised.take().is_some() { self.promise(now) } else { None };
        Aftermath { wake, discard, ..Aftermath::default() }
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
            .iter_mut()
            .filter_map(|waiter| {
                waiter.hinted = true;
                waiter.waker.take()
            })
            .collect()
    }

    /// The lock is taken by somebody: nobody's turn. A head that was passed has to show itself again, and the next one, who
    /// does not know what there is now, looks. Wake it with what this returns.
    #[must_use = "somebody waits for it"]
    pub(crate) fn taken(&mut self, by: Option<Ticket>) -> Option<Waker> {
        let passed = self.promised.take().is_some() && !by.is_some_and(|ticket| self.is_head(ticket));
        self.head_mut().filter(|_| passed)?.presence = Presence::Absent;
        if by.is_some_and(|ticket| self.is_head(ticket)) { None } else { self.hint_head() }
    }

    /// The lock is taken by somebody who does not stand in this line, or there is too little for the head: nobody's turn,
    /// and nobody's fault.
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
            Some(left) if self.looks_after_head(ticket) => MayTake::In(left),
            Some(_) => MayTake::WhenHinted,
        }
    }

    pub(crate) fn poll_hint(&mut self, ticket: Ticket, context: &mut Context<'_>) -> (Poll<()>, Aftermath) {
        let Some(waiter) = self.get_mut(ticket) else {
            return (Poll::Ready(()), Aftermath::default());
        };
        waiter.presence = Presence::There;
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
        self.first().map(|head| head.ticket)
    }

    fn first(&self) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.is_there())
    }

    fn head_mut(&mut self) -> Option<&mut Waiter> {
        self.waiters.iter_mut().find(|waiter| waiter.is_there())
    }

    /// Whether somebody in line, or who comes to it, is one of those behind the head who look after it.
    fn looks_after_head(&self, ticket: Option<Ticket>) -> bool {
        let Some(ticket) = ticket else { return !self.watched || self.len() <= IMPATIENT };
        let before = self.waiters.iter().take_while(|waiter| waiter.ticket < ticket);
        before.filter(|waiter| !waiter.has_left()).nth(IMPATIENT).is_none()
    }

    fn place(&self, ticket: Ticket) -> Option<usize> {
        // Most who are looked for are the first, or have just come.
        let is_at = |place: usize| self.waiters.get(place).is_some_and(|waiter| waiter.ticket == ticket);
        let last = self.waiters.len().wrapping_sub(1);
        let place = match [0, last].into_iter().find(|place| is_at(*place)) {
            Some(place) => place,
            None => self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?,
        };
        (!self.waiters[place].has_left()).then_some(place)
    }

    fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        let place = self.place(ticket)?;
        self.waiters.get_mut(place)
    }

    fn insert(&mut self, waiter: Waiter) {
        // Tickets are drawn before the line can be seen: somebody may have come in between.
        let place = match self.waiters.back() {
            Some(last) if last.ticket > waiter.ticket => {
                self.waiters.partition_point(|other| other.ticket < waiter.ticket)
            }
            _ => self.waiters.len(),
        };
        self.waiters.insert(place, waiter);
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Waker> {
        let waiter = self.get_mut(ticket)?;
        waiter.presence = Presence::Left;
        let waker = waiter.waker.take();
        self.left += 1;
        while self.waiters.front().is_some_and(Waiter::has_left) {
            self.waiters.pop_front();
            self.left -= 1;
        }
        if self.waiters.is_empty() {
            self.waiters = VecDeque::new();
        } else if self.left > self.waiters.len() / 2 {
            self.waiters.retain(|waiter| !waiter.has_left());
            self.waiters.shrink_to(self.waiters.len() * 2);
            self.left = 0;
        }
        waker
    }
}

impl Waiter {
    fn is_there(&self) -> bool {
        self.presence == Presence::There
    }

    fn has_left(&self) -> bool {
        self.presence == Presence::Left
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::time;

    #[test]
    fn who_is_behind_a_head_that_is_passed_looks() {
        let mut line = Line::default();
        for ticket in 1..=3 {
            line.join(ticket);
            let (polled, after) = line.poll_hint(ticket, &mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            after.run();
        }
        assert!(line.promise(time::now()).is_some());
        assert!(line.taken(None).is_some(), "the second, by somebody who has passed the first");
        assert_eq!((line.head(), line.called()), (Some(2), Some(2)));
        assert!(line.taken(None).is_none(), "nobody is passed if it is nobody's turn");
        line.hear_of(1);
        assert_eq!(line.head(), Some(1));
        line.promise(time::now());
        assert!(line.taken(Some(2)).is_none(), "the second itself");
        assert_eq!(line.head(), Some(2));
    }

    #[test]
    fn the_line_is_in_the_order_of_tickets_whoever_leaves() {
        let (mut line, mut there, mut random) = (Line::default(), BTreeSet::new(), 1_u64);
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // It grows and shrinks by turns, and tickets come a little out of order.
            let ticket = (step + (random >> 40) % 4) * 8 + (random >> 50) % 8;
            if (random >> 33) % 8 < if step / 1_000 % 2 == 0 { 5 } else { 3 } {
                if there.insert(ticket) {
                    line.join(ticket);
                }
            } else if let Some(place) = ((random >> 20) as usize).checked_rem(there.len()) {
                let ticket = *there.iter().nth(place).unwrap();
                assert_eq!(line.position(ticket), Some(place + 1));
                there.remove(&ticket);
                line.leave(ticket, time::now()).run();
                assert_eq!(line.position(ticket), None);
                line.leave(ticket, time::now()).run();
            }
            assert_eq!(line.head(), there.first().copied());
            assert_eq!((line.is_empty(), line.waiters.len() - line.left), (there.is_empty(), there.len()));
            assert!(line.waiters.len() <= 2 * there.len());
        }
        for ticket in there {
            line.leave(ticket, time::now()).run();
        }
        assert_eq!(line.waiters.capacity(), 0);
    }
}
