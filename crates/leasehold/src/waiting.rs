//! The one waiting loop: an attempt, join the wait queue, retry, sleep, retry.
//!
//! A wait has three states. *Trying*: the engine has one attempt, whose undo exists before the request is sent; the loop
//! continues at the reply, or ends at the deadline. *Joining*: the reply was that the lock is busy; the waiter joins the end
//! of the queue of its name, and retries once as soon as the engine can wake it, because it received no wake-ups before.
//! *Sleeping*: the waiter is woken when the lock may be free and it is the front waiter of its queue; when the lease that it
//! saw is over; at its own deadline; when an outage begins or ends; and when the client shuts down.
//!
//! A wake-up guarantees nothing. It may be late, doubled or missing: no waiter sleeps past the retry time of the engine's reply
//! or its own deadline, and the sweep of its engine wakes every waiter from time to time.
//!
//! Dropping the future ends the wait in every state: a pending attempt is rolled back, the waiter leaves the queue, and a
//! wake-up that was meant for it goes to the next one. A grant ends it, too: the waiter leaves the queue after it has the
//! hold, so the next waiter is woken and reads the time that the hold may last.
//!
//! A failed attempt is an outage, and the waiter is queued as if the lock were busy: it retries when the outage is over, and
//! after growing pauses, until its deadline, or without one until the client's limit for outages is over. A single try fails at
//! once, and so does a wait whose request the server refuses for good.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::acquire::HandleOptions;
use crate::client::Shared;
use crate::engine::{Busy, HoldKey, Ticket};
use crate::env::{self, Instant, Sleep};
use crate::error::{AcquireError, InvalidRequestError, Rounded, ServerError, Subject};
use crate::fair::{QueuePosition, Watcher};
use crate::guard::Guard;
use crate::hold::{Access, Entry, Hold, Tried, too_late};
use crate::observe::ObservedWait;
use crate::observer::Outcome;
use crate::outage::{Limit, Outage};
use crate::owner::OwnerId;
use crate::race::{First, race};

/// How long to wait for a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// Try once.
    OneTry,
    Limited(Duration),
    Unlimited,
}

impl Patience {
    pub(crate) fn from_wait(wait: Option<Duration>) -> Self {
        match wait {
            None => Self::Unlimited,
            Some(Duration::ZERO) => Self::OneTry,
            Some(limit) => Self::Limited(limit),
        }
    }
}

/// A wait may be shorter than a round trip. Only a reply that takes longer than this counts as missing.
const SLOW: Duration = Duration::from_millis(500);

/// The goal of a wait: a hold, a set of holds or an open latch.
pub(crate) trait Awaited: Sync {
    type Got: Send;

    fn shared(&self) -> &Shared;

    /// The owner that waits, and the resource in whose queue.
    fn key(&self) -> &HoldKey;

    /// Whether the engine keeps one queue for the waiters of all clients.
    fn queues(&self) -> bool {
        false
    }

    /// Whether its first attempt may leave a place in a queue of the engine, whatever the outcome.
    fn leaves_place(&self) -> bool {
        self.queues()
    }

    /// Whether another task of this client may hand over its hold.
    fn accepts_handover(&self) -> bool {
        false
    }

    /// Tries once.
    fn attempt(
        &self,
        turn: Option<Ticket>,
    ) -> impl Future<Output = Result<Tried<Self::Got>, AcquireError>> + Send;
}

/// A hold to be entered.
pub(crate) struct Entering {
    pub(crate) hold: Arc<Hold>,
    entry: Entry,
    /// The same with another owner, once the owner above must not be used again.
    next: OnceLock<Box<Self>>,
}

impl Entering {
    pub(crate) fn new(hold: Arc<Hold>, entry: Entry) -> Self {
        Self { hold, entry, next: OnceLock::new() }
    }

    /// The entry whose owner is in use.
    fn newest(&self) -> &Self {
        let mut newest = self;
        while let Some(next) = newest.next.get() {
            newest = next;
        }
        newest
    }
}

impl Awaited for Entering {
    type Got = Guard;

    fn shared(&self) -> &Shared {
        &self.hold.shared
    }

    fn key(&self) -> &HoldKey {
        &self.newest().hold.key
    }

    fn queues(&self) -> bool {
        self.entry.queue.is_some()
    }

    fn leaves_place(&self) -> bool {
        self.queues() || self.entry.steal
    }

    fn accepts_handover(&self) -> bool {
        self.entry.access == Access::HandOver
    }

    async fn attempt(&self, turn: Option<Ticket>) -> Result<Tried, AcquireError> {
        let Hold { shared, key, .. } = self.hold.as_ref();
        if let Some(ticket) = turn.filter(|_| self.accepts_handover())
            && let Some(guard) = shared.engine.handover().and_then(|handover| handover.take(key, ticket))
        {
            return Ok(Tried::Granted(guard));
        }
        let mut newest = self.newest();
        loop {
            let tried = newest.hold.enter(&newest.entry, turn).await?;
            if !newest.hold.is_spent() {
                return Ok(tried);
            }
            let hold = newest.hold.another()?;
            newest = newest.next.get_or_init(|| Box::new(Self::new(hold, newest.entry)));
        }
    }
}

/// Waits for the hold, counts how that ends, and leaves nothing behind when dropped.
pub(crate) fn acquire<'a>(
    entering: &'a Entering,
    patience: Patience,
    handle: &'a HandleOptions,
) -> impl Future<Output = Result<Guard, AcquireError>> + Send + 'a {
    let mut wait = Wait::new(entering.shared(), entering.key(), patience, handle.watcher.as_ref());
    wait.is_to_be_counted = true;
    async move {
        let result = keep_trying(entering, &mut wait, handle).await;
        let waited = wait.ended(&result);
        wait.count(&result, waited);
        result
    }
}

/// Waits for `awaited`, and leaves nothing behind when dropped. What it is waited for counts it.
///
/// The size of a waiter is the size of its state while it sleeps. Rare or short-lived parts are boxed. An attempt is not,
/// since every waiter makes one: with a thousand of them pending, a box is one more cache miss at the reply.
pub(crate) fn wait<'a, A: Awaited>(
    awaited: &'a A,
    patience: Patience,
    handle: &'a HandleOptions,
) -> impl Future<Output = Result<A::Got, AcquireError>> + Send + 'a {
    let mut wait = Wait::new(awaited.shared(), awaited.key(), patience, handle.watcher.as_ref());
    async move {
        let result = keep_trying(awaited, &mut wait, handle).await;
        let _ = wait.ended(&result);
        result
    }
}

async fn keep_trying<'a, A: Awaited>(
    awaited: &'a A,
    wait: &mut Wait<'a>,
    handle: &HandleOptions,
) -> Result<A::Got, AcquireError> {
    awaited.shared().check_open()?;
    let mut turn: Option<Turn<'_>> = None;
    let mut failures = 0;
    let mut spin_guard = SpinGuard::default();
    loop {
        let ticket = turn.as_ref().map(|turn| turn.ticket);
        let busy = match wait.bounded(pin!(awaited.attempt(ticket))).await? {
            Ok(Tried::Granted(got)) => {
                // A shutdown may have checked for guards before this one existed.
                awaited.shared().check_open()?;
                return Ok(got);
            }
            Ok(Tried::Busy(mut busy)) => {
                if let Err(over) = wait.busy(&mut busy) {
                    if awaited.leaves_place() {
                        // A waiter that its first attempt has queued must leave the queue, too.
                        let no_task = &mut Context::from_waker(Waker::noop());
                        drop(turn.unwrap_or_else(|| Turn::take(awaited, no_task)));
                    }
                    // A grant that a shutdown has taken back is not contention.
                    awaited.shared().check_open()?;
                    return Err(over);
                }
                let is_anothers = |turn: &Turn<'_>| turn.key.owner != awaited.key().owner;
                if awaited.queues() && (busy.position.is_none() || turn.as_ref().is_some_and(is_anothers)) {
                    // It missed its turn, and later waiters have passed it: its position is gone. Or the position
                    // was that of the previous owner.
                    turn = None;
                }
                busy
            }
            // Not an outage: the server has replied, and the next reply may take as long.
            Ok(Tried::TooLate) => return Err(too_late()),
            Err(AcquireError::Server { cause: failure, .. }) => {
                Busy { retry_in: Some(wait.failed(failure)?), ..Busy::default() }
            }
            Err(error) => return Err(error),
        };
        if let Some(back_off) = &handle.spin {
            spin_guard.pause(Box::pin(wait.pause(back_off.pause(failures)))).await?;
            failures = failures.saturating_add(1);
            continue;
        }
        let place = match turn.take() {
            Some(place) => place,
            None => poll_fn(move |context| Poll::Ready(Turn::take(awaited, context))).await,
        };
        let place = turn.insert(place);
        // In an outage there is nothing to look at. The retry follows the first reply after it.
        if place.next == Next::Retry && wait.outage.is_none() && !mutation!("no-look-after-joining") {
            place.next = Next::Sleep;
            spin_guard.pause(Box::pin(wait.until_subscribed(place))).await?;
        } else {
            let longest = awaited.shared().engine.longest_sleep(place.key, place.ticket);
            let length = [busy.retry_in, longest, wait.observed_sleep()].into_iter().flatten().min();
            let is_registered = place.next == Next::SleepAtOnce;
            if is_registered {
                place.next = Next::Sleep;
            }
            // The wake-up is polled first: if it is there, the clock is not read.
            let awoken = spin_guard.pause(race(place.wake_up(is_registered), wait.timer(length))).await;
            wait.awake(&awoken)?;
        }
    }
}

/// The pause of a waiter between two attempts. Every iteration of its loop passes through here, so no defect elsewhere can
/// make it spin: a waiter whose pauses end at once still yields to the other tasks of its thread.
#[derive(Default)]
struct SpinGuard {
    /// How many pauses in a row ended at once.
    immediate: u8,
}

/// So many attempts without a pause are ordinary: a wake-up that has arrived already, a retry before the first sleep.
const MAX_IMMEDIATE: u8 = 4;

impl SpinGuard {
    fn pause<F: Future<Output: Unpin> + Unpin>(
        &mut self,
        mut pause: F,
    ) -> impl Future<Output = F::Output> + Unpin {
        let (mut has_paused, mut over) = (false, None);
        poll_fn(move |context| {
            let output = match over.take() {
                Some(output) => output,
                None => match Pin::new(&mut pause).poll(context) {
                    Poll::Ready(output) => output,
                    Poll::Pending => {
                        has_paused = true;
                        return Poll::Pending;
                    }
                },
            };
            self.immediate = if has_paused { 0 } else { self.immediate.saturating_add(1) };
            if self.immediate <= MAX_IMMEDIATE {
                return Poll::Ready(output);
            }
            // Only after the pause: a waiter that has just joined the queue must be polled at once.
            (has_paused, over) = (true, Some(output));
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }
}

/// The times of one waiter, and the last replies it received.
struct Wait<'a> {
    shared: &'a Shared,
    key: &'a HoldKey,
    /// When it began, unless it has no limit.
    start: Option<Instant>,
    /// When to time out; the far future counts as never.
    deadline: Option<Instant>,
    one_try: bool,
    /// It is an acquire that has not ended.
    is_to_be_counted: bool,
    /// The holder in the last reply that the lock is busy.
    holder: Option<OwnerId>,
    /// Why there is no reply. Boxed because it is rare.
    outage: Option<Box<Outage>>,
    /// The last known position in the queue of a fair lock.
    position: Option<usize>,
    watcher: Option<&'a Watcher>,
    /// What is logged of it, from the first reply that the lock is busy. Boxed because most acquires are granted at once.
    observed: Option<Box<ObservedWait<'a>>>,
}

impl<'a> Wait<'a> {
    fn new(shared: &'a Shared, key: &'a HoldKey, patience: Patience, watcher: Option<&'a Watcher>) -> Self {
        let (start, one_try) = match patience {
            Patience::OneTry => (Some(env::now()), true),
            Patience::Limited(_) => (Some(env::now()), false),
            Patience::Unlimited => (None, false),
        };
        let deadline = match patience {
            Patience::Limited(limit) => start.and_then(|start| start.checked_add(limit)),
            Patience::OneTry | Patience::Unlimited => None,
        };
        let (holder, outage, position, observed, is_to_be_counted) = (None, None, None, None, false);
        Self {
            shared,
            key,
            start,
            deadline,
            one_try,
            is_to_be_counted,
            holder,
            outage,
            position,
            watcher,
            observed,
        }
    }

    /// The acquire was not granted at once, and goes on.
    fn observe(&mut self) {
        if !self.one_try {
            let (shared, key) = (self.shared, self.key);
            let observed = self.observed.get_or_insert_with(|| Box::new(ObservedWait::begin(shared, key)));
            observed.check(self.holder);
        }
    }

    /// How long the waiter may sleep until there is something to log.
    fn observed_sleep(&self) -> Option<Duration> {
        self.observed.as_ref()?.longest_sleep()
    }

    /// The acquire has ended. Returns how long it has waited, if it had to.
    fn ended<T>(&mut self, result: &Result<T, AcquireError>) -> Option<Duration> {
        self.observed.as_mut().map(|observed| observed.end(result))
    }

    /// Counts how the acquire has ended.
    #[inline]
    fn count(&mut self, result: &Result<Guard, AcquireError>, waited: Option<Duration>) {
        self.is_to_be_counted = false;
        if let Ok(guard) = result {
            return guard.count(waited);
        }
        let outcome = Outcome::of(result, self.one_try);
        self.shared.observer.not_granted(self.key, outcome, waited.unwrap_or_else(|| self.waited()));
    }

    /// When the wait is over: at its deadline, or without a limit when an outage has lasted for the client's.
    fn end(&self) -> Option<Instant> {
        self.outage.as_deref().map_or(self.deadline, Outage::end)
    }

    /// Runs one attempt, but not past the end: a server that has not replied for a while by then is unavailable.
    async fn bounded<T>(&self, work: impl Future<Output = T> + Unpin) -> Result<T, AcquireError> {
        let end = self.end();
        let begun = end.map(|_| env::now());
        match race(work, env::sleep_until_or_forever(end)).await {
            First::Left(done) => Ok(done),
            First::Right(()) if since(begun) < SLOW || self.outage.is_some() => Err(self.timed_out()),
            First::Right(()) => Err(ServerError::Unavailable(self.no_reply()).into()),
        }
    }

    /// Another owner holds the lock. Continues unless the deadline has passed.
    fn busy(&mut self, busy: &mut Busy) -> Result<(), AcquireError> {
        match &mut self.outage {
            // A reply to the front waiter, which ends the outage for this one, too, does not wake it.
            Some(outage) if busy.not_sent && outage.outlasts(busy.heard) => {
                let again = outage.next_pause();
                busy.retry_in = Some(busy.retry_in.map_or(again, |retry_in| retry_in.min(again)));
            }
            _ => self.outage = None,
        }
        self.holder = busy.holder.or(self.holder);
        self.report_position(busy.position);
        self.observe();
        if self.one_try || self.is_over() { Err(self.timed_out()) } else { Ok(()) }
    }

    /// Reports a changed position in the queue to the watcher.
    fn report_position(&mut self, position: Option<usize>) {
        let Some(position) = position.filter(|position| Some(*position) != self.position) else { return };
        let requeued = self.position.is_some_and(|before| before < position);
        self.position = Some(position);
        if requeued {
            let HoldKey { resource, owner, .. } = self.key;
            tracing::warn!(
                lock = %resource, %owner, position,
                "the waiter sent no heartbeat for too long and is queued again at the end"
            );
        }
        if let Some(watcher) = self.watcher {
            watcher(QueuePosition { position, requeued });
        }
    }

    /// There was no usable reply. Continues, after the returned pause, unless the wait is over, or the server has refused the
    /// request for good.
    fn failed(&mut self, failure: ServerError) -> Result<Duration, AcquireError> {
        let ServerError::Unavailable(reason) = failure else { return Err(failure.into()) };
        if self.one_try {
            return Err(ServerError::Unavailable(reason).into());
        }
        self.observe();
        let limit = match self.start {
            Some(begun) => Limit::Wait { begun, deadline: self.deadline },
            None => Limit::OutageLimit(self.shared.outage_limit),
        };
        let outage = self.outage.get_or_insert_with(|| Box::new(Outage::since(env::now(), limit)));
        let pause = outage.failed(reason);
        if self.is_over() { Err(self.timed_out()) } else { Ok(pause) }
    }

    /// Waits until wake-ups can arrive, so that none is missed between the next attempt and the sleep after it.
    async fn until_subscribed(&self, turn: &Turn<'_>) -> Result<(), AcquireError> {
        let closed = pin!(self.shared.closed());
        let over = race(closed, env::sleep_until_or_forever(self.deadline));
        match race(self.shared.engine.subscribed(turn.key), over).await {
            First::Left(_) => Ok(()),
            First::Right(First::Left(())) => Err(InvalidRequestError::ShutDown.into()),
            First::Right(First::Right(())) => Err(self.timed_out()),
        }
    }

    /// Continues after a sleep that a wake-up or the [`timer`](Self::timer) has ended, unless the deadline has passed or the
    /// client closes.
    fn awake(&self, by: &First<(), ()>) -> Result<(), AcquireError> {
        match by {
            First::Left(()) => Ok(self.shared.check_open()?),
            First::Right(()) if !self.is_over() => Ok(()),
            First::Right(()) => Err(self.timed_out()),
        }
    }

    /// Sleeps for `length` without being queued.
    async fn pause(&self, length: Duration) -> Result<(), AcquireError> {
        match race(pin!(self.shared.closed()), self.timer(Some(length))).await {
            First::Left(()) => Err(InvalidRequestError::ShutDown.into()),
            First::Right(()) if !self.is_over() => Ok(()),
            First::Right(()) => Err(self.timed_out()),
        }
    }

    /// Resolves after `length`, if there is one, or at the end of the wait.
    fn timer(&self, length: Option<Duration>) -> Sleep {
        match (length, self.end()) {
            (Some(length), None) => env::sleep_for(length),
            (Some(length), Some(end)) => env::sleep_until(env::after(length).map_or(end, |at| end.min(at))),
            (None, end) => env::sleep_until_or_forever(end),
        }
    }

    fn timed_out(&self) -> AcquireError {
        if let Some(outage) = self.outage.as_deref() {
            return outage.ended_wait().into();
        }
        AcquireError::Timeout {
            waited: self.waited(),
            holder: self.holder.map(Into::into),
            client: None,
            lease_left: None,
            is_own: self.holder.is_some_and(|holder| holder.client == self.shared.id),
            subject: Subject::default(),
        }
    }

    fn no_reply(&self) -> String {
        let waited = Rounded(self.waited());
        if self.shared.engine.profile().real_time && env::clock_has_jumped() {
            return format!(
                "tokio's clock is paused, and has jumped over the wait of {waited} while a reply was on its way: under a \
                 paused clock use `memory:` or the simulated server of `leasehold::test`"
            );
        }
        format!("no reply within the wait of {waited}")
    }

    fn is_over(&self) -> bool {
        self.end().is_some_and(|end| env::now() >= end) && !mutation!("endless-wait")
    }

    fn waited(&self) -> Duration {
        since(self.start)
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.is_to_be_counted {
            self.shared.observer.not_granted(self.key, Outcome::Cancelled, Duration::ZERO);
        }
    }
}

/// The time since `at`; zero without one.
fn since(at: Option<Instant>) -> Duration {
    at.map_or(Duration::ZERO, |at| env::now().saturating_duration_since(at))
}

/// The next step of a queued waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Retry once more, because a wake-up may have been missed.
    Retry,
    Sleep,
    /// Sleep in the same poll in which the waiter joined the queue: its waker is registered already.
    SleepAtOnce,
}

/// A position in the wait queue, left when dropped.
struct Turn<'a> {
    shared: &'a Shared,
    key: &'a HoldKey,
    ticket: Ticket,
    next: Next,
}

impl<'a> Turn<'a> {
    /// Joins the queue after an attempt that found the lock busy, or failed.
    fn take<A: Awaited>(awaited: &'a A, context: &mut Context<'_>) -> Self {
        let (shared, key) = (awaited.shared(), awaited.key());
        let (ticket, must_retry) = shared.engine.join(key, awaited.accepts_handover(), context);
        Self { shared, key, ticket, next: if must_retry { Next::Retry } else { Next::SleepAtOnce } }
    }

    /// Resolves when it may be this waiter's turn, and when the client closes, which wakes all queued waiters.
    fn wake_up(&self, mut is_registered: bool) -> impl Future<Output = ()> + Unpin {
        poll_fn(move |context| {
            let polled = if std::mem::take(&mut is_registered) {
                Poll::Pending
            } else {
                self.shared.engine.poll_wake_up(self.key, self.ticket, context)
            };
            match polled {
                // A shutdown may have woken the queue before this waiter was in it.
                Poll::Pending if self.shared.check_open().is_err() => Poll::Ready(()),
                polled => polled,
            }
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !mutation!("waiter-stays-in-queue") {
            self.shared.engine.leave(self.key, self.ticket);
        }
        if let Some(handover) = self.shared.engine.handover() {
            handover.settle(self.key);
        }
    }
}
