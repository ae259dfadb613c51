//! The wait queue of one name, in FIFO order.
//!
//! A free lock is reserved for the front waiter, which is notified and woken. It is a future of the caller's, and futures
//! can be left unpolled. So a [sweep](Line::sweep) checks each queue that has waiters about every [`PERIOD`], and skips a
//! front waiter that was woken and has not retried. Engines run the sweep on a thread of their own: neither a caller's clock
//! nor a caller's runtime that is not driven any more can delay it.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::Ticket;
use super::aftermath::Aftermath;
use crate::env::Instant;

/// How often the sweep checks a queue.
const PERIOD: Duration = Duration::from_millis(100);

/// A front waiter that has not retried by the second sweep pass after its wake-up is late.
const LATE: u32 = 2;

/// In a strict queue a late front waiter keeps its position for so many passes after its turn began: a second.
const STRICTLY_LATE: u32 = 10;

/// After so many passes every waiter is woken, in case that a wake-up was lost: every 30 s.
const ALL: u32 = 300;

/// How long to pause after a pass over all queues that took so long: however many there are, at most one fiftieth of a
/// thread's time goes into the sweep.
pub(crate) fn pause_after(look: Duration) -> Duration {
    PERIOD.max(look * 50)
}

/// Waiters in FIFO order, and whether the lock is reserved for the front waiter: the first that is present.
//
// Invariant: a waiter that is absent has been notified and woken since it was last polled. It retries when it is polled
// next, so it needs no wake-up before.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// Sorted by ticket. A waiter that has left from the middle is only marked, so that the others need not be moved: never
    /// the first, and never more than half of them.
    waiters: VecDeque<Waiter>,
    /// How many are marked.
    left: u32,
    /// How many passes the sweep has made.
    looks: u32,
    /// At which pass the lock became free for the waiters, if it is.
    reserved: Option<u32>,
    /// How many waiters were skipped in a row.
    skipped: u32,
    /// No waiter is overtaken before it is removed.
    strict: bool,
    /// The sweep has this queue.
    swept: bool,
}

#[derive(Debug, Default)]
struct Waiter {
    ticket: Ticket,
    waker: Option<Waker>,
    /// At which pass of the sweep it was last notified, or polled after that.
    told_at: u32,
    call: Call,
    presence: Presence,
    /// It can take over the hold of another owner as it is.
    #[cfg(feature = "remote")]
    heir: bool,
}

/// How far a waiter has processed a wake-up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// There was none, or the waiter has retried.
    #[default]
    No,
    /// It was notified and has not been polled.
    Told,
    /// It was polled, and is about to retry.
    Heard,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Presence {
    #[default]
    There,
    /// It was skipped. Other waiters go first until it is polled again.
    Absent,
    Left,
}

impl Line {
    /// A strict queue: a front waiter that does not retry is not overtaken but removed.
    pub(crate) fn strict() -> Self {
        Self { strict: true, ..Self::default() }
    }

    /// The position of this ticket, from one.
    pub(crate) fn position(&self, ticket: Ticket) -> Option<usize> {
        let place = self.place(ticket)?;
        Some(self.waiters.range(..=place).filter(|waiter| !waiter.has_left()).count())
    }

    pub(crate) fn join(&mut self, ticket: Ticket) {
        self.insert(Waiter { ticket, ..Waiter::default() });
    }

    #[cfg(feature = "remote")]
    pub(crate) fn join_as_heir(&mut self, ticket: Ticket) {
        self.insert(Waiter { ticket, heir: true, ..Waiter::default() });
    }

    /// Whether the front waiter is an heir.
    #[cfg(feature = "remote")]
    pub(crate) fn has_heir(&self) -> bool {
        self.front().is_some_and(|front| front.heir)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len() - self.left as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The ticket of the waiter that arrived first.
    pub(crate) fn first_ticket(&self) -> Option<Ticket> {
        self.waiters.front().map(|first| first.ticket)
    }

    /// Whether this queue has to be added to the sweep; from then on it counts as added.
    pub(crate) fn begins_sweep(&mut self) -> bool {
        !std::mem::replace(&mut self.swept, true)
    }

    /// One pass of the sweep: skips front waiters that were woken and have not retried, and wakes the next. Every so often
    /// it wakes all waiters, in case that a wake-up was lost. A queue without waiters leaves the sweep.
    pub(crate) fn sweep(&mut self) -> Option<Aftermath> {
        self.swept = !self.is_empty();
        if self.is_empty() {
            return None;
        }
        self.looks = self.looks.wrapping_add(1);
        let mut wakers = self.skip_late();
        if self.looks.is_multiple_of(ALL) {
            wakers.extend(self.hint_all());
        }
        let removed = if self.strict { self.remove_late() } else { Aftermath::default() };
        Some(removed.also_waking(wakers))
    }

    /// The more waiters were skipped in a row, the more of the next ones are woken: however many futures are left unpolled,
    /// the first that is polled is found soon.
    fn skip_late(&mut self) -> Vec<Waker> {
        let looks = self.looks;
        let mut wakers = Vec::new();
        let skipped = self.skipped;
        for front in self.waiters.iter_mut().filter(|waiter| waiter.is_there()) {
            if !front.is_late(looks) || mutation!("unpolled-waiter-not-skipped") {
                break;
            }
            front.presence = Presence::Absent;
            self.skipped = self.skipped.saturating_add(1);
            // It may sleep again after it was polled, if the reason is outside of this queue.
            wakers.extend(front.tell(looks));
        }
        if self.skipped > skipped {
            let next = self.waiters.iter_mut().filter(|waiter| waiter.is_there());
            wakers.extend(next.take(self.skipped as usize).filter_map(|waiter| waiter.tell(looks)));
        }
        wakers
    }

    /// Removes a waiter that was skipped, is first, and has kept a free lock from all others for long enough.
    fn remove_late(&mut self) -> Aftermath {
        let is_over = self.reserved.is_some_and(|at| self.looks.wrapping_sub(at) >= STRICTLY_LATE);
        match self.waiters.front() {
            Some(first) if is_over && first.presence == Presence::Absent => self.leave(first.ticket, false),
            _ => Aftermath::default(),
        }
    }

    /// A waiter retries, so it is present.
    pub(crate) fn came(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.get_mut(ticket) {
            waiter.presence = Presence::There;
            waiter.call = Call::No;
        }
    }

    /// Removes a waiter. If it was its turn, the next one is woken, provided that the lock is reserved or that the caller
    /// requests it with `tell_next`.
    pub(crate) fn leave(&mut self, ticket: Ticket, tell_next: bool) -> Aftermath {
        let was_front = self.is_front(ticket);
        let discard = self.remove(ticket);
        let wake = match self.reserved {
            _ if mutation!("next-waiter-not-told") => None,
            Some(_) if was_front => self.reserve_anew(),
            None if was_front && tell_next => self.hint_front(),
            _ => None,
        };
        Aftermath { wake, discard, ..Aftermath::default() }
    }

    /// The lock is free: it is reserved for the front waiter. Wake that with the returned waker.
    pub(crate) fn reserve(&mut self) -> Option<Waker> {
        if self.reserved.is_some() { self.hint_front() } else { self.reserve_anew() }
    }

    fn reserve_anew(&mut self) -> Option<Waker> {
        self.reserved = (!self.is_empty()).then_some(self.looks);
        self.hint_front()
    }

    /// The lock is taken, or too little is free for the front waiter: it is not reserved any more.
    pub(crate) fn withdraw(&mut self) {
        self.reserved = None;
        self.skipped = 0;
    }

    pub(crate) fn is_reserved(&self) -> bool {
        self.reserved.is_some()
    }

    /// Notifies one waiter to retry.
    pub(crate) fn hint(&mut self, ticket: Ticket) -> Option<Waker> {
        let looks = self.looks;
        self.get_mut(ticket)?.tell(looks)
    }

    /// Notifies the front waiter to retry when a hold that it sees as lasting until `before` now ends at `after`, which is
    /// sooner.
    pub(crate) fn hint_if_sooner(
        &mut self,
        before: Option<Instant>,
        after: Option<Instant>,
    ) -> Option<Waker> {
        let sooner = after.is_some_and(|after| before.is_none_or(|before| after < before));
        if sooner { self.hint_front() } else { None }
    }

    /// Notifies the front waiter to retry. Nothing is reserved for it by that.
    pub(crate) fn hint_front(&mut self) -> Option<Waker> {
        let looks = self.looks;
        self.waiters.iter_mut().find(|waiter| waiter.is_there())?.tell(looks)
    }

    /// Notifies all waiters to retry. Nothing is reserved by that.
    pub(crate) fn hint_all(&mut self) -> Vec<Waker> {
        let looks = self.looks;
        self.waiters.iter_mut().filter_map(|waiter| waiter.tell(looks)).collect()
    }

    /// Whether the waiter with this ticket, or a caller without one, may take a free lock.
    pub(crate) fn may_take(&self, ticket: Option<Ticket>) -> bool {
        let turn = self.turn();
        turn.is_none() || turn == ticket || mutation!("waiters-overtake")
    }

    pub(crate) fn poll_hint(&mut self, ticket: Ticket, context: &mut Context<'_>) -> (Poll<()>, Aftermath) {
        let looks = self.looks;
        let Some(waiter) = self.get_mut(ticket) else {
            return (Poll::Ready(()), Aftermath::default());
        };
        waiter.presence = Presence::There;
        if waiter.call == Call::Told {
            (waiter.call, waiter.told_at) = (Call::Heard, looks);
            return (Poll::Ready(()), Aftermath::default());
        }
        waiter.call = Call::No;
        let known = waiter.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        let discard = if known { None } else { waiter.waker.replace(context.waker().clone()) };
        (Poll::Pending, Aftermath { discard, ..Aftermath::default() })
    }

    pub(crate) fn is_front(&self, ticket: Ticket) -> bool {
        self.turn() == Some(ticket)
    }

    /// The ticket whose turn it is: that of the front waiter; in a strict queue that of the first, present or not.
    fn turn(&self) -> Option<Ticket> {
        let first = if self.strict { self.waiters.front() } else { self.front() };
        first.map(|first| first.ticket)
    }

    fn front(&self) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.is_there())
    }

    fn place(&self, ticket: Ticket) -> Option<usize> {
        // Most lookups are for the first or the newest waiter.
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
        // Tickets are drawn before the queue is locked: another waiter may have joined in between.
        let place = match self.waiters.back() {
            Some(last) if last.ticket > waiter.ticket && !mutation!("line-out-of-order") => {
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
            self.withdraw();
        } else if self.left as usize > self.waiters.len() / 2 {
            self.waiters.retain(|waiter| !waiter.has_left());
            self.waiters.shrink_to(self.waiters.len() * 2);
            self.left = 0;
        }
        waker
    }
}

impl Waiter {
    /// Notifies it to retry, if it has not been notified. Wake it with the returned waker.
    fn tell(&mut self, looks: u32) -> Option<Waker> {
        if self.call == Call::No {
            self.told_at = looks;
        }
        self.call = Call::Told;
        self.waker.take()
    }

    fn is_late(&self, looks: u32) -> bool {
        self.call != Call::No && looks.wrapping_sub(self.told_at) >= LATE
    }

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

    /// A queue of so many waiters, all of which sleep.
    fn asleep(mut line: Line, waiters: Ticket) -> Line {
        for ticket in 1..=waiters {
            line.join(ticket);
            assert!(!is_told(&mut line, ticket));
        }
        line
    }

    fn is_told(line: &mut Line, ticket: Ticket) -> bool {
        let (polled, after) = line.poll_hint(ticket, &mut Context::from_waker(Waker::noop()));
        after.run();
        polled.is_ready()
    }

    fn sweep(line: &mut Line, looks: u32) {
        (0..looks).filter_map(|_| line.sweep()).for_each(Aftermath::run);
    }

    #[test]
    fn a_front_waiter_that_was_told_and_does_not_come_is_skipped() {
        let mut line = asleep(Line::default(), 3);
        assert!(line.reserve().is_some());
        sweep(&mut line, LATE - 1);
        assert!(line.may_take(Some(1)) && !line.may_take(Some(2)) && !line.may_take(None));
        sweep(&mut line, 1);
        assert!(line.may_take(Some(2)) && !line.may_take(Some(1)) && !line.may_take(None));
        assert!(line.is_reserved() && is_told(&mut line, 2));
        assert!(is_told(&mut line, 1), "it was skipped, not forgotten");
        assert!(line.may_take(Some(1)) && !line.may_take(Some(2)));
    }

    #[test]
    fn a_front_waiter_that_comes_is_not_skipped_however_often_it_is_told() {
        let mut line = asleep(Line::default(), 2);
        for _ in 0..ALL {
            assert!(line.reserve().is_some());
            sweep(&mut line, LATE - 1);
            assert!(is_told(&mut line, 1));
            line.came(1);
            assert!(!is_told(&mut line, 1) && line.is_front(1));
            if is_told(&mut line, 2) {
                assert!(!is_told(&mut line, 2), "all are woken now and then");
            }
        }
    }

    #[test]
    fn a_front_waiter_that_looks_is_not_late_however_long_the_answer_takes() {
        let mut line = asleep(Line::default(), 2);
        line.reserve();
        sweep(&mut line, LATE - 1);
        assert!(is_told(&mut line, 1));
        sweep(&mut line, LATE - 1);
        assert!(line.is_front(1), "it was polled since the last check");
        line.came(1);
        sweep(&mut line, 5 * LATE);
        assert!(line.is_front(1));
        line.reserve();
        assert!(is_told(&mut line, 1) && !is_told(&mut line, 1), "it has retried elsewhere, and sleeps");
        sweep(&mut line, 5 * LATE);
        assert!(line.is_front(1));
    }

    #[test]
    fn a_front_waiter_that_was_not_told_is_not_late() {
        let mut line = asleep(Line::default(), 2);
        sweep(&mut line, ALL - 1);
        assert!(line.is_front(1) && !is_told(&mut line, 1) && !is_told(&mut line, 2));
        sweep(&mut line, 1);
        assert!(is_told(&mut line, 1) && is_told(&mut line, 2), "all are woken now and then");
    }

    #[test]
    fn a_front_waiter_that_hears_and_does_not_look_is_skipped_and_told_again() {
        let mut line = asleep(Line::default(), 2);
        line.reserve();
        assert!(is_told(&mut line, 1));
        sweep(&mut line, LATE);
        assert!(line.is_front(2) && is_told(&mut line, 2));
        assert!(is_told(&mut line, 1), "an absent waiter has been woken");
    }

    #[test]
    fn a_reservation_goes_on_to_the_next_when_its_waiter_leaves() {
        let mut line = asleep(Line::default(), 3);
        line.reserve();
        assert!(line.leave(1, false).wake.is_some());
        assert!(line.is_reserved() && is_told(&mut line, 2));
        line.withdraw();
        assert!(line.leave(2, false).wake.is_none(), "the lock is held, and a retry would be in vain");
        assert!(line.reserve().is_some());
        line.leave(3, true).run();
        assert!(!line.is_reserved() && line.may_take(None));
    }

    #[test]
    fn when_no_waiter_is_present_any_caller_may_take() {
        let mut line = asleep(Line::default(), 2);
        line.reserve();
        sweep(&mut line, 2 * LATE);
        assert!(line.may_take(None));
        line.withdraw();
        assert!(line.reserve().is_none() && is_told(&mut line, 2) && line.is_front(2));
        line.leave(2, false).run();
        line.leave(1, false).run();
        assert!(!line.is_reserved(), "there is no waiter any more");
    }

    #[test]
    fn many_waiters_that_do_not_come_are_skipped_in_a_few_looks() {
        let mut line = asleep(Line::default(), 1_001);
        line.reserve();
        let mut is_found = || {
            sweep(&mut line, 1);
            is_told(&mut line, 1_001);
            line.is_front(1_001)
        };
        assert!((1..=12 * LATE).any(|_| is_found()));
    }

    #[test]
    fn in_a_strict_line_a_late_waiter_is_removed_after_a_second() {
        let mut line = asleep(Line::strict(), 3);
        line.hint_front();
        sweep(&mut line, LATE);
        assert!(is_told(&mut line, 2) && !is_told(&mut line, 3), "the next waiter retries in its place");
        line.came(2);
        sweep(&mut line, 2 * STRICTLY_LATE);
        assert!(line.is_front(1), "the lock was not free");
        line.reserve();
        sweep(&mut line, STRICTLY_LATE - 1);
        assert!(line.may_take(Some(1)) && !line.may_take(Some(2)) && !line.may_take(None));
        assert!(is_told(&mut line, 2));
        line.came(2);
        sweep(&mut line, 1);
        assert_eq!((line.position(1), line.position(2)), (None, Some(1)));
        assert!(line.may_take(Some(2)) && is_told(&mut line, 2));
    }

    #[test]
    fn a_line_is_in_the_order_of_tickets_whichever_waiter_leaves() {
        let (mut line, mut there, mut random) = (Line::default(), BTreeSet::new(), 1_u64);
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The queue grows and shrinks by turns, and tickets arrive a little out of order.
            let ticket = (step + (random >> 40) % 4) * 8 + (random >> 50) % 8;
            if (random >> 33) % 8 < if step / 1_000 % 2 == 0 { 5 } else { 3 } {
                if there.insert(ticket) {
                    line.join(ticket);
                }
            } else if let Some(place) = ((random >> 20) as usize).checked_rem(there.len()) {
                let ticket = *there.iter().nth(place).unwrap();
                assert_eq!(line.position(ticket), Some(place + 1));
                there.remove(&ticket);
                line.leave(ticket, false).run();
                assert_eq!(line.position(ticket), None);
                line.leave(ticket, false).run();
            }
            assert_eq!(line.turn(), there.first().copied());
            assert_eq!((line.is_empty(), line.len()), (there.is_empty(), there.len()));
            assert!(line.waiters.len() <= 2 * there.len());
        }
        for ticket in there {
            line.leave(ticket, false).run();
        }
        assert_eq!(line.waiters.capacity(), 0);
    }
}
