//! The wait queue of one name, in FIFO order.
//!
//! A free lock is reserved for the front waiter, which is notified and woken. It is a future of the caller's, and futures
//! can be left unpolled. So a [sweep](WaitQueue::sweep) checks each queue that has waiters about every [`PERIOD`], and skips a
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
pub(crate) fn pause_after(pass: Duration) -> Duration {
    PERIOD.max(pass * 50)
}

/// Waiters in FIFO order, and whether the lock is reserved for the front waiter: the first that is present.
//
// Invariant: a waiter that is absent has been notified and woken since it was last polled. It retries when it is polled
// next, so it needs no wake-up before.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    /// Sorted by ticket. A waiter that has left from the middle is only marked, so that the others need not be moved: never
    /// the first, and never more than half of them.
    waiters: VecDeque<Waiter>,
    /// How many are marked.
    left: u32,
    /// How many passes the sweep has made.
    passes: u32,
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
    notified_at: u32,
    wake_up: WakeUp,
    presence: Presence,
    /// It can take over the hold of another owner as it is.
    #[cfg(feature = "remote")]
    accepts_handover: bool,
}

/// How far a waiter has processed a wake-up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum WakeUp {
    /// There was none, or the waiter has retried.
    #[default]
    None,
    /// It was notified and has not been polled.
    Notified,
    /// It was polled, and is about to retry.
    Polled,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Presence {
    #[default]
    Present,
    /// It was skipped. Other waiters go first until it is polled again.
    Absent,
    Left,
}

impl WaitQueue {
    /// A strict queue: a front waiter that does not retry is not overtaken but removed.
    pub(crate) fn strict() -> Self {
        Self { strict: true, ..Self::default() }
    }

    /// The position of this ticket, from one.
    pub(crate) fn position(&self, ticket: Ticket) -> Option<usize> {
        let index = self.index_of(ticket)?;
        Some(self.waiters.range(..=index).filter(|waiter| !waiter.has_left()).count())
    }

    pub(crate) fn join(&mut self, ticket: Ticket) {
        self.insert(Waiter { ticket, ..Waiter::default() });
    }

    #[cfg(feature = "remote")]
    pub(crate) fn join_for_handover(&mut self, ticket: Ticket) {
        self.insert(Waiter { ticket, accepts_handover: true, ..Waiter::default() });
    }

    /// Whether the front waiter can take over a hold of another owner as it is.
    #[cfg(feature = "remote")]
    pub(crate) fn front_accepts_handover(&self) -> bool {
        self.front().is_some_and(|front| front.accepts_handover)
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
        self.passes = self.passes.wrapping_add(1);
        let mut wakers = self.skip_late();
        if self.passes.is_multiple_of(ALL) {
            wakers.extend(self.notify_all());
        }
        let removed = if self.strict { self.remove_late() } else { Aftermath::default() };
        Some(removed.also_waking(wakers))
    }

    /// The more waiters were skipped in a row, the more of the next ones are woken: however many futures are left unpolled,
    /// the first that is polled is found soon.
    fn skip_late(&mut self) -> Vec<Waker> {
        let passes = self.passes;
        let mut wakers = Vec::new();
        let skipped = self.skipped;
        for front in self.waiters.iter_mut().filter(|waiter| waiter.is_present()) {
            if !front.is_late(passes) || mutation!("unpolled-waiter-not-skipped") {
                break;
            }
            front.presence = Presence::Absent;
            self.skipped = self.skipped.saturating_add(1);
            // It may sleep again after it was polled, if the reason is outside of this queue.
            wakers.extend(front.notify(passes));
        }
        if self.skipped > skipped {
            let next = self.waiters.iter_mut().filter(|waiter| waiter.is_present());
            wakers.extend(next.take(self.skipped as usize).filter_map(|waiter| waiter.notify(passes)));
        }
        wakers
    }

    /// Removes a waiter that was skipped, is first, and has kept a free lock from all others for long enough.
    fn remove_late(&mut self) -> Aftermath {
        let is_over = self.reserved.is_some_and(|at| self.passes.wrapping_sub(at) >= STRICTLY_LATE);
        match self.waiters.front() {
            Some(first) if is_over && first.presence == Presence::Absent => self.leave(first.ticket, false),
            _ => Aftermath::default(),
        }
    }

    /// A waiter retries, so it is present.
    pub(crate) fn mark_present(&mut self, ticket: Ticket) {
        if let Some(waiter) = self.get_mut(ticket) {
            waiter.presence = Presence::Present;
            waiter.wake_up = WakeUp::None;
        }
    }

    /// Removes a waiter. If it was its turn, the next one is woken, provided that the lock is reserved or that the caller
    /// requests it with `wake_next`.
    pub(crate) fn leave(&mut self, ticket: Ticket, wake_next: bool) -> Aftermath {
        let was_front = self.is_front(ticket);
        let discard = self.remove(ticket);
        let wake = match self.reserved {
            _ if mutation!("next-waiter-not-told") => None,
            Some(_) if was_front => self.reserve_anew(),
            None if was_front && wake_next => self.notify_front(),
            _ => None,
        };
        Aftermath { wake, discard, ..Aftermath::default() }
    }

    /// The lock is free: it is reserved for the front waiter. Wake that with the returned waker.
    pub(crate) fn reserve(&mut self) -> Option<Waker> {
        if self.reserved.is_some() { self.notify_front() } else { self.reserve_anew() }
    }

    fn reserve_anew(&mut self) -> Option<Waker> {
        self.reserved = (!self.is_empty()).then_some(self.passes);
        self.notify_front()
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
    pub(crate) fn notify(&mut self, ticket: Ticket) -> Option<Waker> {
        let passes = self.passes;
        self.get_mut(ticket)?.notify(passes)
    }

    /// Notifies the front waiter to retry when a hold that it sees as lasting until `before` now ends at `after`, which is
    /// sooner.
    pub(crate) fn notify_front_if_sooner(
        &mut self,
        before: Option<Instant>,
        after: Option<Instant>,
    ) -> Option<Waker> {
        let sooner = after.is_some_and(|after| before.is_none_or(|before| after < before));
        if sooner { self.notify_front() } else { None }
    }

    /// Notifies the front waiter to retry. Nothing is reserved for it by that.
    pub(crate) fn notify_front(&mut self) -> Option<Waker> {
        let passes = self.passes;
        self.waiters.iter_mut().find(|waiter| waiter.is_present())?.notify(passes)
    }

    /// Notifies all waiters to retry. Nothing is reserved by that.
    pub(crate) fn notify_all(&mut self) -> Vec<Waker> {
        let passes = self.passes;
        self.waiters.iter_mut().filter_map(|waiter| waiter.notify(passes)).collect()
    }

    /// Whether the waiter with this ticket, or a caller without one, may take a free lock.
    pub(crate) fn may_take(&self, ticket: Option<Ticket>) -> bool {
        let turn = self.turn();
        turn.is_none() || turn == ticket || mutation!("waiters-overtake")
    }

    pub(crate) fn poll_wake_up(
        &mut self,
        ticket: Ticket,
        context: &mut Context<'_>,
    ) -> (Poll<()>, Aftermath) {
        let passes = self.passes;
        let Some(waiter) = self.get_mut(ticket) else {
            return (Poll::Ready(()), Aftermath::default());
        };
        waiter.presence = Presence::Present;
        if waiter.wake_up == WakeUp::Notified {
            (waiter.wake_up, waiter.notified_at) = (WakeUp::Polled, passes);
            return (Poll::Ready(()), Aftermath::default());
        }
        waiter.wake_up = WakeUp::None;
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
        self.waiters.iter().find(|waiter| waiter.is_present())
    }

    fn index_of(&self, ticket: Ticket) -> Option<usize> {
        // Most lookups are for the first or the newest waiter.
        let is_at = |index: usize| self.waiters.get(index).is_some_and(|waiter| waiter.ticket == ticket);
        let last = self.waiters.len().wrapping_sub(1);
        let index = match [0, last].into_iter().find(|index| is_at(*index)) {
            Some(index) => index,
            None => self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()?,
        };
        (!self.waiters[index].has_left()).then_some(index)
    }

    fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        let index = self.index_of(ticket)?;
        self.waiters.get_mut(index)
    }

    fn insert(&mut self, waiter: Waiter) {
        // Tickets are drawn before the queue is locked: another waiter may have joined in between.
        let index = match self.waiters.back() {
            Some(last) if last.ticket > waiter.ticket && !mutation!("line-out-of-order") => {
                self.waiters.partition_point(|other| other.ticket < waiter.ticket)
            }
            _ => self.waiters.len(),
        };
        self.waiters.insert(index, waiter);
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
    fn notify(&mut self, passes: u32) -> Option<Waker> {
        if self.wake_up == WakeUp::None {
            self.notified_at = passes;
        }
        self.wake_up = WakeUp::Notified;
        self.waker.take()
    }

    fn is_late(&self, passes: u32) -> bool {
        self.wake_up != WakeUp::None && passes.wrapping_sub(self.notified_at) >= LATE
    }

    fn is_present(&self) -> bool {
        self.presence == Presence::Present
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
    fn asleep(mut queue: WaitQueue, waiters: Ticket) -> WaitQueue {
        for ticket in 1..=waiters {
            queue.join(ticket);
            assert!(!is_woken(&mut queue, ticket));
        }
        queue
    }

    fn is_woken(queue: &mut WaitQueue, ticket: Ticket) -> bool {
        let (polled, after) = queue.poll_wake_up(ticket, &mut Context::from_waker(Waker::noop()));
        after.run();
        polled.is_ready()
    }

    fn sweep(queue: &mut WaitQueue, passes: u32) {
        (0..passes).filter_map(|_| queue.sweep()).for_each(Aftermath::run);
    }

    #[test]
    fn a_front_waiter_that_is_woken_and_not_polled_is_skipped() {
        let mut queue = asleep(WaitQueue::default(), 3);
        assert!(queue.reserve().is_some());
        sweep(&mut queue, LATE - 1);
        assert!(queue.may_take(Some(1)) && !queue.may_take(Some(2)) && !queue.may_take(None));
        sweep(&mut queue, 1);
        assert!(queue.may_take(Some(2)) && !queue.may_take(Some(1)) && !queue.may_take(None));
        assert!(queue.is_reserved() && is_woken(&mut queue, 2));
        assert!(is_woken(&mut queue, 1), "it was skipped, not forgotten");
        assert!(queue.may_take(Some(1)) && !queue.may_take(Some(2)));
    }

    #[test]
    fn a_front_waiter_that_retries_in_time_is_not_skipped_however_often_woken() {
        let mut queue = asleep(WaitQueue::default(), 2);
        for _ in 0..ALL {
            assert!(queue.reserve().is_some());
            sweep(&mut queue, LATE - 1);
            assert!(is_woken(&mut queue, 1));
            queue.mark_present(1);
            assert!(!is_woken(&mut queue, 1) && queue.is_front(1));
            if is_woken(&mut queue, 2) {
                assert!(!is_woken(&mut queue, 2), "all are woken now and then");
            }
        }
    }

    #[test]
    fn a_front_waiter_that_retries_is_not_late_however_long_the_reply_takes() {
        let mut queue = asleep(WaitQueue::default(), 2);
        queue.reserve();
        sweep(&mut queue, LATE - 1);
        assert!(is_woken(&mut queue, 1));
        sweep(&mut queue, LATE - 1);
        assert!(queue.is_front(1), "it was polled since the last check");
        queue.mark_present(1);
        sweep(&mut queue, 5 * LATE);
        assert!(queue.is_front(1));
        queue.reserve();
        assert!(is_woken(&mut queue, 1) && !is_woken(&mut queue, 1), "it has retried elsewhere, and sleeps");
        sweep(&mut queue, 5 * LATE);
        assert!(queue.is_front(1));
    }

    #[test]
    fn a_front_waiter_that_was_not_woken_is_not_late() {
        let mut queue = asleep(WaitQueue::default(), 2);
        sweep(&mut queue, ALL - 1);
        assert!(queue.is_front(1) && !is_woken(&mut queue, 1) && !is_woken(&mut queue, 2));
        sweep(&mut queue, 1);
        assert!(is_woken(&mut queue, 1) && is_woken(&mut queue, 2), "all are woken now and then");
    }

    #[test]
    fn a_front_waiter_that_is_polled_and_does_not_retry_is_skipped_and_woken_again() {
        let mut queue = asleep(WaitQueue::default(), 2);
        queue.reserve();
        assert!(is_woken(&mut queue, 1));
        sweep(&mut queue, LATE);
        assert!(queue.is_front(2) && is_woken(&mut queue, 2));
        assert!(is_woken(&mut queue, 1), "an absent waiter has been woken");
    }

    #[test]
    fn a_reservation_passes_to_the_next_waiter_when_its_waiter_leaves() {
        let mut queue = asleep(WaitQueue::default(), 3);
        queue.reserve();
        assert!(queue.leave(1, false).wake.is_some());
        assert!(queue.is_reserved() && is_woken(&mut queue, 2));
        queue.withdraw();
        assert!(queue.leave(2, false).wake.is_none(), "the lock is held, and a retry would be in vain");
        assert!(queue.reserve().is_some());
        queue.leave(3, true).run();
        assert!(!queue.is_reserved() && queue.may_take(None));
    }

    #[test]
    fn any_caller_may_acquire_when_all_waiters_are_skipped() {
        let mut queue = asleep(WaitQueue::default(), 2);
        queue.reserve();
        sweep(&mut queue, 2 * LATE);
        assert!(queue.may_take(None));
        queue.withdraw();
        assert!(queue.reserve().is_none() && is_woken(&mut queue, 2) && queue.is_front(2));
        queue.leave(2, false).run();
        queue.leave(1, false).run();
        assert!(!queue.is_reserved(), "there is no waiter any more");
    }

    #[test]
    fn many_unpolled_waiters_are_skipped_within_a_few_sweeps() {
        let mut queue = asleep(WaitQueue::default(), 1_001);
        queue.reserve();
        let mut is_found = || {
            sweep(&mut queue, 1);
            is_woken(&mut queue, 1_001);
            queue.is_front(1_001)
        };
        assert!((1..=12 * LATE).any(|_| is_found()));
    }

    #[test]
    fn a_late_waiter_is_removed_from_a_strict_queue_after_a_second() {
        let mut queue = asleep(WaitQueue::strict(), 3);
        queue.notify_front();
        sweep(&mut queue, LATE);
        assert!(is_woken(&mut queue, 2) && !is_woken(&mut queue, 3), "the next waiter retries in its place");
        queue.mark_present(2);
        sweep(&mut queue, 2 * STRICTLY_LATE);
        assert!(queue.is_front(1), "the lock was not free");
        queue.reserve();
        sweep(&mut queue, STRICTLY_LATE - 1);
        assert!(queue.may_take(Some(1)) && !queue.may_take(Some(2)) && !queue.may_take(None));
        assert!(is_woken(&mut queue, 2));
        queue.mark_present(2);
        sweep(&mut queue, 1);
        assert_eq!((queue.position(1), queue.position(2)), (None, Some(1)));
        assert!(queue.may_take(Some(2)) && is_woken(&mut queue, 2));
    }

    #[test]
    fn a_queue_is_in_ticket_order_whichever_waiter_leaves() {
        let (mut queue, mut there, mut random) = (WaitQueue::default(), BTreeSet::new(), 1_u64);
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The queue grows and shrinks by turns, and tickets arrive a little out of order.
            let ticket = (step + (random >> 40) % 4) * 8 + (random >> 50) % 8;
            if (random >> 33) % 8 < if step / 1_000 % 2 == 0 { 5 } else { 3 } {
                if there.insert(ticket) {
                    queue.join(ticket);
                }
            } else if let Some(index) = ((random >> 20) as usize).checked_rem(there.len()) {
                let ticket = *there.iter().nth(index).unwrap();
                assert_eq!(queue.position(ticket), Some(index + 1));
                there.remove(&ticket);
                queue.leave(ticket, false).run();
                assert_eq!(queue.position(ticket), None);
                queue.leave(ticket, false).run();
            }
            assert_eq!(queue.turn(), there.first().copied());
            assert_eq!((queue.is_empty(), queue.len()), (there.is_empty(), there.len()));
            assert!(queue.waiters.len() <= 2 * there.len());
        }
        for ticket in there {
            queue.leave(ticket, false).run();
        }
        assert_eq!(queue.waiters.capacity(), 0);
    }
}
