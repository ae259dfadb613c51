//! The one waiting loop: try, join the queue, try again, sleep, try again.
//!
//! A wait has three states. *Trying*: one attempt is with the engine, and its undo exists before the request does; the loop
//! goes on when the attempt is answered, or ends when the time is over. *Joining*: the attempt was told that the lock is busy;
//! the waiter takes the last place in the queue of its name, and tries once more as soon as the engine can wake it, because
//! what happened before was not announced to it. *Sleeping*: the waiter is woken when the lock may be free and it is at the
//! front of its queue; when the lease that it saw is over; when its own time is over; when an outage begins or ends; and when
//! the client shuts down.
//!
//! A wake-up is only a hint. It may be late, doubled or missing: no waiter sleeps past the time that the engine told it or its
//! own deadline, and the sweep of its engine wakes every waiter now and then.
//!
//! Dropping the future ends the wait in every state: an attempt that is under way is undone, the place in the queue is given
//! up, and a wake-up that was meant for this waiter goes to the next one. A grant ends it, too: the place is given up after
//! the hold is in hand, so the next waiter is woken and sees how long that may take.
//!
//! An attempt that fails is an outage. The first attempt of a wait fails at once; a waiter that has seen the lock busy goes on
//! trying with growing pauses until its time, or without one the client's limit for outages, is over.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::acquire::Way;
use crate::client::Shared;
use crate::engine::{Busy, Spot, Ticket};
use crate::env::{self, Instant, Sleep};
use crate::error::{AcquireError, Failure, Invalid};
use crate::fair::{Queued, Watcher};
use crate::guard::Guard;
use crate::hold::{Access, Entry, Hold, Tried};
use crate::owner::OwnerId;
use crate::race::{First, race};

/// How long to wait for a lock.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// Try once and see.
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

/// A wait may be shorter than a round trip. Only an answer that takes longer than this is missing.
const SLOW: Duration = Duration::from_millis(500);

/// What somebody waits for.
pub(crate) trait Awaited: Sync {
    type Got: Send;

    fn shared(&self) -> &Shared;

    /// Whose place in which line.
    fn spot(&self) -> &Spot;

    /// Whether it has a queue that everybody stands in.
    fn queues(&self) -> bool {
        false
    }

    /// Whether it can come from others of this client as they have it.
    fn relays(&self) -> bool {
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
    /// The same by another owner, once the one above is not to be used again.
    next: OnceLock<Box<Self>>,
}

impl Entering {
    pub(crate) fn new(hold: Arc<Hold>, entry: Entry) -> Self {
        Self { hold, entry, next: OnceLock::new() }
    }

    /// By the owner that is in use.
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

    fn spot(&self) -> &Spot {
        &self.newest().hold.spot
    }

    fn queues(&self) -> bool {
        self.entry.queue.is_some()
    }

    fn relays(&self) -> bool {
        self.entry.access == Access::Relayed
    }

    async fn attempt(&self, turn: Option<Ticket>) -> Result<Tried, AcquireError> {
        let Hold { shared, spot, .. } = self.hold.as_ref();
        if let Some(ticket) = turn.filter(|_| self.relays())
            && let Some(guard) = shared.engine.handover().and_then(|handover| handover.take(spot, ticket))
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

/// Waits for anything, and leaves nothing behind when dropped.
///
/// A waiter is as large as what it keeps while it sleeps. What is seldom there or soon over is in boxes; but not a try, which
/// everybody makes: with a thousand of them under way, a box is one more place that is in no cache when the answer comes.
pub(crate) fn wait<'a, A: Awaited>(
    awaited: &'a A,
    patience: Patience,
    way: &'a Way,
) -> impl Future<Output = Result<A::Got, AcquireError>> + Send + 'a {
    let mut wait = Wait::new(awaited.shared(), awaited.spot(), patience, way.watcher.as_ref());
    async move {
        awaited.shared().check_open()?;
        let mut turn: Option<Turn<'_>> = None;
        let mut failures = 0;
        let mut rest = Rest::default();
        loop {
            let ticket = turn.as_ref().map(|turn| turn.ticket);
            let told = match wait.bounded(pin!(awaited.attempt(ticket))).await? {
                Ok(Tried::Granted(got)) => {
                    // Whoever shuts down may have looked for guards before this one was there.
                    awaited.shared().check_open()?;
                    return Ok(got);
                }
                Ok(Tried::Busy(busy)) => {
                    if let Err(over) = wait.busy(busy) {
                        if awaited.queues() {
                            // Whoever was queued by its first try has a place to give up, too.
                            let nobody = &mut Context::from_waker(Waker::noop());
                            drop(turn.unwrap_or_else(|| Turn::take(awaited, nobody).0));
                        }
                        // What a client that shuts down takes back was not another holder's.
                        awaited.shared().check_open()?;
                        return Err(over);
                    }
                    let is_anothers = |turn: &Turn<'_>| turn.spot.owner != awaited.spot().owner;
                    if awaited.queues() && (busy.position.is_none() || turn.as_ref().is_some_and(is_anothers))
                    {
                        // It was not there when its turn came, and others have passed: the place is gone. Or it was the
                        // place of the owner before.
                        turn = None;
                    }
                    busy
                }
                Err(AcquireError::Failure(failure)) => {
                    Busy { retry_in: Some(wait.failed(failure)?), ..Busy::default() }
                }
                Err(error) => return Err(error),
            };
            if let Some(back_off) = &way.spin {
                rest.of(Box::pin(wait.pause(back_off.pause(failures)))).await?;
                failures = failures.saturating_add(1);
                continue;
            }
            let (place, next) = match turn.take() {
                Some(place) => (place, Next::Sleep),
                None => poll_fn(move |context| Poll::Ready(Turn::take(awaited, context))).await,
            };
            let place = turn.insert(place);
            if next == Next::Look && !mutation!("no-look-after-joining") {
                rest.of(Box::pin(wait.listening(place))).await?;
            } else {
                let longest = awaited.shared().engine.longest_sleep(place.spot, place.ticket);
                let length = [told.retry_in, longest].into_iter().flatten().min();
                // The hint is asked first: if it is there, nobody need look at the clock.
                let awoken = rest.of(race(place.hint(next), wait.timer(length))).await;
                wait.awake(&awoken)?;
            }
        }
    }
}

/// What a waiter does between two tries. Every way round its loop leads through here, so no defect elsewhere can make
/// it spin: a waiter whose rests are over before they begin lets the other tasks of its thread run, too.
#[derive(Default)]
struct Rest {
    /// How many rests in a row were over at once.
    restless: u8,
}

/// So many tries without a rest are ordinary: a hint that has come already, a look before the first sleep.
const RESTLESS: u8 = 4;

impl Rest {
    fn of<F: Future<Output: Unpin> + Unpin>(
        &mut self,
        mut rest: F,
    ) -> impl Future<Output = F::Output> + Unpin {
        let (mut has_rested, mut over) = (false, None);
        poll_fn(move |context| {
            let output = match over.take() {
                Some(output) => output,
                None => match Pin::new(&mut rest).poll(context) {
                    Poll::Ready(output) => output,
                    Poll::Pending => {
                        has_rested = true;
                        return Poll::Pending;
                    }
                },
            };
            self.restless = if has_rested { 0 } else { self.restless.saturating_add(1) };
            if self.restless <= RESTLESS {
                return Poll::Ready(output);
            }
            // Once it is over, and not before: a place in line that was just taken is only good if it is polled at once.
            (has_rested, over) = (true, Some(output));
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }
}

/// One waiter's clock and what it has seen.
struct Wait<'a> {
    shared: &'a Shared,
    spot: &'a Spot,
    /// When it began, unless it goes on until it has what it waits for.
    start: Option<Instant>,
    /// When to give up; the far future counts as never.
    deadline: Option<Instant>,
    one_try: bool,
    /// Whether the engine has told us that the lock is busy.
    seen_busy: bool,
    /// Who had it then.
    holder: Option<OwnerId>,
    /// Boxed because there seldom is one.
    outage: Option<Box<Outage>>,
    /// Where in the queue of a fair lock we stood when we last looked.
    position: Option<usize>,
    watcher: Option<&'a Watcher>,
}

/// A server that was there and is not.
struct Outage {
    since: Instant,
    pause: Duration,
}

impl<'a> Wait<'a> {
    fn new(shared: &'a Shared, spot: &'a Spot, patience: Patience, watcher: Option<&'a Watcher>) -> Self {
        let (start, one_try) = match patience {
            Patience::OneTry => (Some(env::now()), true),
            Patience::Limited(_) => (Some(env::now()), false),
            Patience::Unlimited => (None, false),
        };
        let deadline = match patience {
            Patience::Limited(limit) => start.and_then(|start| start.checked_add(limit)),
            Patience::OneTry | Patience::Unlimited => None,
        };
        let (seen_busy, holder, outage, position) = (false, None, None, None);
        Self { shared, spot, start, deadline, one_try, seen_busy, holder, outage, position, watcher }
    }

    /// Runs one try, but not past the deadline: a server that has not answered for a while by then is not there.
    async fn bounded<T>(&self, work: impl Future<Output = T> + Unpin) -> Result<T, AcquireError> {
        let asked = self.deadline.map(|_| env::now());
        match race(work, env::sleep_until_or_forever(self.deadline)).await {
            First::Left(done) => Ok(done),
            First::Right(()) if since(asked) < SLOW => Err(self.timed_out()),
            First::Right(()) => {
                Err(Failure::Unavailable(format!("no answer within the wait of {:?}", self.waited())).into())
            }
        }
    }

    /// The lock is somebody else's. Goes on unless the time is over.
    fn busy(&mut self, busy: Busy) -> Result<(), AcquireError> {
        self.outage = None;
        self.seen_busy = true;
        self.holder = busy.holder.or(self.holder);
        self.tell(busy.position);
        if self.one_try || self.is_over() { Err(self.timed_out()) } else { Ok(()) }
    }

    /// Tells whoever wants to know where in the queue we stand.
    fn tell(&mut self, position: Option<usize>) {
        let Some(position) = position.filter(|position| Some(*position) != self.position) else { return };
        let requeued = self.position.is_some_and(|before| before < position);
        self.position = Some(position);
        if requeued {
            tracing::warn!(lock = %self.spot.target, position, "silent for too long: at the end of the queue again");
        }
        if let Some(watcher) = self.watcher {
            watcher(Queued { position, requeued });
        }
    }

    /// There was no answer. Goes on, after the returned pause, only if this is an outage that began while we waited.
    fn failed(&mut self, failure: Failure) -> Result<Duration, AcquireError> {
        let now = env::now();
        let outage = self.outage.get_or_insert_with(|| Box::new(Outage { since: now, pause: FIRST_PAUSE }));
        let pause = env::jittered(outage.pause);
        outage.pause = (outage.pause * 2).min(LONGEST_PAUSE);
        let limit = match self.deadline {
            None => self.shared.outage_limit.saturating_sub(now.saturating_duration_since(outage.since)),
            Some(deadline) => deadline.saturating_duration_since(now),
        };
        if !self.seen_busy || limit.is_zero() || matches!(failure, Failure::Denied(_)) {
            return Err(failure.into());
        }
        Ok(pause.min(limit))
    }

    /// Waits until hints can come, so that nothing is missed between the next try and the sleep after it.
    async fn listening(&self, turn: &Turn<'_>) -> Result<(), AcquireError> {
        let closed = pin!(self.shared.closed());
        let over = race(closed, env::sleep_until_or_forever(self.deadline));
        match race(self.shared.engine.listening(turn.spot), over).await {
            First::Left(_) => Ok(()),
            First::Right(First::Left(())) => Err(Invalid::ShutDown.into()),
            First::Right(First::Right(())) => Err(self.timed_out()),
        }
    }

    /// Goes on after a sleep that was ended by a hint or by the [`timer`](Self::timer), unless the time is over or the
    /// client closes.
    fn awake(&self, by: &First<(), ()>) -> Result<(), AcquireError> {
        match by {
            First::Left(()) => Ok(self.shared.check_open()?),
            First::Right(()) if !self.is_over() => Ok(()),
            First::Right(()) => Err(self.timed_out()),
        }
    }

    /// Sleeps for `length` without standing in any line.
    async fn pause(&self, length: Duration) -> Result<(), AcquireError> {
        match race(pin!(self.shared.closed()), self.timer(Some(length))).await {
            First::Left(()) => Err(Invalid::ShutDown.into()),
            First::Right(()) if !self.is_over() => Ok(()),
            First::Right(()) => Err(self.timed_out()),
        }
    }

    /// Rings after `length`, if there is one, or when the time is over.
    fn timer(&self, length: Option<Duration>) -> Sleep {
        match (length, self.deadline) {
            (Some(length), None) => env::sleep_for(length),
            (Some(length), Some(deadline)) => {
                env::sleep_until(env::after(length).map_or(deadline, |at| deadline.min(at)))
            }
            (None, deadline) => env::sleep_until_or_forever(deadline),
        }
    }

    fn timed_out(&self) -> AcquireError {
        if self.outage.is_some() {
            return Failure::Unavailable(format!("the wait of {:?} ended in an outage", self.waited()))
                .into();
        }
        AcquireError::Timeout { waited: self.waited(), holder: self.holder.map(Into::into) }
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| env::now() >= deadline) && !mutation!("endless-wait")
    }

    fn waited(&self) -> Duration {
        since(self.start)
    }
}

/// How long ago that was, if it was.
fn since(at: Option<Instant>) -> Duration {
    at.map_or(Duration::ZERO, |at| env::now().saturating_duration_since(at))
}

/// The pauses between two tries during an outage grow from here …
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// … to here.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What somebody in line does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Look once more before the first sleep.
    Look,
    Sleep,
    /// The same in the very poll in which the place was taken: whoever hints knows already whom to wake.
    SleepAtOnce,
}

/// A place in the line, given up when dropped.
struct Turn<'a> {
    shared: &'a Shared,
    spot: &'a Spot,
    ticket: Ticket,
}

impl<'a> Turn<'a> {
    /// Takes a place after a try that was told that the lock is busy.
    fn take<A: Awaited>(awaited: &'a A, context: &mut Context<'_>) -> (Self, Next) {
        let (shared, spot) = (awaited.shared(), awaited.spot());
        let (ticket, looks) = shared.engine.join(spot, awaited.relays(), context);
        (Self { shared, spot, ticket }, if looks { Next::Look } else { Next::SleepAtOnce })
    }

    /// Resolves when it may be our turn, and when the client closes: then everybody in a line is hinted.
    fn hint(&self, mut next: Next) -> impl Future<Output = ()> + Unpin {
        poll_fn(move |context| {
            let is_known = std::mem::replace(&mut next, Next::Sleep) == Next::SleepAtOnce;
            let polled = if is_known {
                Poll::Pending
            } else {
                self.shared.engine.poll_hint(self.spot, self.ticket, context)
            };
            match polled {
                // Whoever closed may have looked for us before we could be found.
                Poll::Pending if self.shared.check_open().is_err() => Poll::Ready(()),
                polled => polled,
            }
        })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !mutation!("waiter-stays-in-queue") {
            self.shared.engine.leave(self.spot, self.ticket);
        }
        if let Some(handover) = self.shared.engine.handover() {
            handover.settle(self.spot);
        }
    }
}
