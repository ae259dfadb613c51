//! A hold: one owner's claim on one resource, however often it is entered.

#[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "inside a process nothing is handed over"))]
mod budget;
mod state;
mod together;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use self::budget::Budget;
use self::state::{HoldState, StepGuard, Undo};
use crate::client::Shared;
use crate::engine::{
    Attempt, Busy, Claim, Feature, HoldKey, Kind, Queueing, Released, Renewed, Reply, Resource, RwOptions,
    Ticket,
};
use crate::env;
use crate::error::{AcquireError, ExtendError, InvalidRequestError, ReleaseError, ServerError, Subject};
use crate::guard::Guard;
use crate::lease::{Bounds, Expiry, Lease, margin};
use crate::limits;
use crate::loss::Loss;
use crate::mutex::Mutex;
use crate::owner::OwnerId;
use crate::term::Term;

/// One owner of one resource, as tracked by this client.
///
/// The engine counts how often the lock was entered. A request changes the count by a step from `k` to `k ± 1`, so that
/// a step whose reply is missing can be rolled back exactly. That works only if steps do not overlap: each is made
/// under the step lock, whose state is the [`HoldState`].
pub(crate) struct Hold {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: HoldKey,
    state: tokio::sync::Mutex<HoldState>,
    // Invariant: a term is here only if its guard was dropped during a step. The task that ends the step releases it, or the
    // dropping thread does if the step has ended meanwhile: both check for it.
    deferred: Mutex<Option<Box<DeferredRelease>>>,
    /// Whether a caller has received the owner, and so can act in its name.
    owner_known: AtomicBool,
    /// A request of the owner may still be executed, so the owner must not be used again.
    spent: AtomicBool,
}

/// The deferred release of a dropped guard, and those before it.
struct DeferredRelease {
    term: Arc<Term>,
    before: Option<Box<Self>>,
}

/// How a hold is to be entered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    /// How long the lock stays taken at least, from the grant on.
    pub(crate) min_hold: Option<Duration>,
    /// How often the work has to report progress.
    pub(crate) progress: Option<Duration>,
    pub(crate) steal: bool,
    pub(crate) fenced: bool,
    pub(crate) access: Access,
    /// Join the queue of a fair lock.
    pub(crate) queue: Option<Queueing>,
    pub(crate) rw: RwOptions,
    /// The owner was created for this acquire, and may be replaced by another fresh one.
    pub(crate) fresh: bool,
}

impl Entry {
    /// The usual way to enter, with this lease.
    pub(crate) fn new(lease: Lease) -> Self {
        Self {
            lease,
            max_hold: None,
            min_hold: None,
            progress: None,
            steal: false,
            fenced: false,
            access: Access::Reentrant,
            queue: None,
            rw: RwOptions::default(),
            fresh: false,
        }
    }
}

/// Which tasks may enter a hold besides the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// None: an owner that holds it may not re-enter.
    Once,
    /// The same owner may re-enter.
    Reentrant,
    /// Besides, the hold may be handed over between tasks of this client without a request to the engine.
    HandOver,
}

/// The result of one attempt.
#[derive(Debug)]
pub(crate) enum Tried<T = Guard> {
    Granted(T),
    Busy(Busy),
    /// It was granted, but its lease had run out when the caller received the reply.
    TooLate,
}

impl<T> Tried<T> {
    /// The result of a grant that was lost before its caller received it: nothing ran under it, and the caller can keep waiting
    /// if another caller ended it. A reply that took longer than the lease leaves the state of the lock unknown.
    fn unseen(loss: Loss) -> Self {
        match loss {
            Loss::TakenOver | Loss::ForceUnlocked | Loss::Gone | Loss::Shutdown => {
                Self::Busy(Busy::default())
            }
            Loss::Expired | Loss::Unreachable | Loss::MaxHold | Loss::NoProgress => Self::TooLate,
        }
    }
}

/// The error of an attempt that was granted [too late](Tried::TooLate).
pub(crate) fn too_late() -> AcquireError {
    ServerError::Unavailable("the reply came after the lease had run out".into()).into()
}

/// The result of a step.
enum Stepped {
    Replied(Attempt),
    /// It was granted, and lost before the caller received it.
    Unseen(Loss),
}

impl Hold {
    /// The hold of an owner that a caller chose.
    pub(crate) fn named(shared: Arc<Shared>, key: HoldKey) -> Self {
        Self::new(shared, key, true)
    }

    /// A hold of a fresh, unique owner.
    pub(crate) fn fresh(shared: Arc<Shared>, resource: Resource) -> Self {
        Self::of_parts(shared, resource, 1)
    }

    /// A hold of an owner that was created for several holds.
    pub(crate) fn drawn(shared: Arc<Shared>, resource: Resource, owner: OwnerId) -> Self {
        Self::new(shared, HoldKey { resource, owner, amount: 1 }, false)
    }

    /// A hold of a fresh owner for so many permits of a resource.
    pub(crate) fn of_parts(shared: Arc<Shared>, resource: Resource, amount: u32) -> Self {
        let owner = OwnerId::fresh(shared.id, amount);
        Self::new(shared, HoldKey { resource, owner, amount }, false)
    }

    fn new(shared: Arc<Shared>, key: HoldKey, named: bool) -> Self {
        let state = HoldState::new(Lease::Kept(shared.watchdog), named);
        let state = tokio::sync::Mutex::new(state);
        let (owner_known, spent) = (AtomicBool::new(named), AtomicBool::new(false));
        Self { shared, key, state, deferred: Mutex::default(), owner_known, spent }
    }

    /// What an error about this hold is about.
    pub(crate) fn subject(&self) -> Subject {
        self.shared.subject(&self.key.resource)
    }

    /// Records that a caller receives the owner: from now on the hold is not handed over to another task.
    pub(crate) fn expose_owner(&self) {
        self.owner_known.store(true, Ordering::SeqCst);
    }

    fn is_owner_known(&self) -> bool {
        self.owner_known.load(Ordering::SeqCst) && !mutation!("named-hold-passed-on")
    }

    /// Whether the last attempt found that the owner must not be used again: a request of it may still be executed.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// A hold of the same resource for another fresh owner.
    pub(crate) fn another(&self) -> Result<Arc<Self>, InvalidRequestError> {
        let HoldKey { resource, amount, .. } = self.key.clone();
        if resource.kind == Kind::Group {
            let owner = OwnerId::fresh(self.shared.id, amount);
            return self.shared.hold_of(HoldKey { resource, owner, amount });
        }
        Ok(Arc::new(Self::of_parts(Arc::clone(&self.shared), resource, amount)))
    }

    /// Tries once to enter, for the first time or again.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        entry: &Entry,
        turn: Option<Ticket>,
    ) -> Result<Tried, AcquireError> {
        let mut state = self.lock_step().await;
        loop {
            state.leave_lost_term();
            if state.count > 0 && entry.access == Access::Once && !mutation!("owner-enters-twice") {
                return Err(InvalidRequestError::NotReentrant.into());
            }
            if state.named
                && state.count == 0
                && let Some(left) = self.shared.holds.abandoned_for(&self.key)
            {
                // It is taken for its own owner, too.
                let holder = Some(self.key.owner);
                return Ok(Tried::Busy(Busy {
                    retry_in: Some(left),
                    holder,
                    not_sent: true,
                    ..Busy::default()
                }));
            }
            let term = state.term.clone().or_else(|| state.unused.take());
            let term = term.unwrap_or_else(|| Term::new(Arc::downgrade(self)));
            let attempt = match self.step_in(&mut state, &term, entry, turn).await? {
                Stepped::Replied(attempt) => attempt,
                Stepped::Unseen(loss) => return Ok(Tried::unseen(loss)),
            };
            match attempt {
                Attempt::Granted(_, token) => {
                    let is_new = state.count == 1;
                    let guard = Guard::new(Arc::clone(self), Arc::clone(&term), token, !is_new);
                    drop(state);
                    if is_new {
                        term.begin_span(&self.key);
                    }
                    return Ok(Tried::Granted(guard));
                }
                Attempt::Busy(busy) => {
                    // One that expects progress is not for another request, or for later.
                    let is_reusable = state.count == 0 && entry.progress.is_none();
                    state.unused = Some(term).filter(|term| is_reusable && term.is_held());
                    return Ok(Tried::Busy(busy));
                }
                Attempt::WouldDeadlock if entry.rw.upgrade => return Err(Loss::Gone.into()),
                Attempt::WouldDeadlock => {
                    if self.key.resource.kind == Kind::Read {
                        // The owner writes, which only an engine without downgrade refuses.
                        self.shared.check(Feature::Upgrade)?;
                    }
                    return Err(InvalidRequestError::OnlyReads.into());
                }
                Attempt::NotSent(failure) => return Err(failure.into()),
                Attempt::OwnerSpent => {
                    self.spent.store(true, Ordering::Relaxed);
                    return Ok(Tried::Busy(Busy::default()));
                }
                Attempt::Gone if state.count == 0 => {
                    self.undo(0, state.expiry(entry.lease));
                    let text = "the server still counts a hold of this owner that was undone here: retry";
                    return Err(ServerError::Unavailable(text.into()).into());
                }
                // The hold to be re-entered is gone: enter as if for the first time.
                Attempt::Gone => {
                    term.lose(Loss::Gone);
                    state.clear();
                }
            }
        }
    }

    /// Enters again for a guard of `term`, with the lease that the hold has.
    pub(crate) async fn reenter(self: &Arc<Self>, term: &Arc<Term>) -> Result<Guard, AcquireError> {
        let mut state = self.lock_step().await;
        if let Some(loss) = state.loss_of(term) {
            return Err(loss.into());
        }
        if !state.reentrant || self.key.resource.kind == Kind::SetNx {
            return Err(InvalidRequestError::NotReentrant.into());
        }
        let lease = match state.lease {
            Lease::Fixed(_) if mutation!("extension-taken-back") => state.lease,
            // An extension is never shortened.
            Lease::Fixed(length) => Lease::Fixed(length.max(term.remaining())),
            kept @ Lease::Kept(_) => kept,
        };
        let entry = Entry { fenced: state.fenced, ..Entry::new(lease) };
        match self.step_in(&mut state, term, &entry, None).await? {
            Stepped::Replied(Attempt::Granted(_, token)) => {
                Ok(Guard::new(Arc::clone(self), Arc::clone(term), token, true))
            }
            Stepped::Replied(Attempt::NotSent(failure)) => Err(failure.into()),
            Stepped::Unseen(loss) if matches!(Tried::<Guard>::unseen(loss), Tried::TooLate) => {
                Err(too_late())
            }
            Stepped::Replied(_) | Stepped::Unseen(_) => {
                term.lose(Loss::Gone);
                state.leave_lost_term();
                Err(term.loss().unwrap_or(Loss::Gone).into())
            }
        }
    }

    /// Requests one more count from the engine. Until the reply arrives, dropping this future rolls the step back.
    async fn step_in(
        &self,
        state: &mut StepGuard<'_>,
        term: &Arc<Term>,
        entry: &Entry,
        turn: Option<Ticket>,
    ) -> Result<Stepped, ServerError> {
        let lease = state.lease_with(entry.lease, &self.key);
        let is_timed = state.term.is_some()
            || entry.max_hold.is_some()
            || entry.access == Access::HandOver
            || self.shared.times_holds();
        let begun = is_timed.then(env::now);
        if let (Some(term), Some(begun)) = (&state.term, begun) {
            // The engine is about to shorten the hold, perhaps without a reply.
            let end = |length| begun + length - margin(length);
            match lease {
                Lease::Fixed(length) => term.shorten_until(end(length), Loss::Expired),
                Lease::Kept(length) if term.has_deadline() => {
                    term.shorten_until(end(length), Loss::Unreachable);
                }
                Lease::Kept(_) => {}
            }
            if let Some(length) = entry.max_hold {
                term.shorten_until(begun + length - margin(length), Loss::MaxHold);
            }
        }
        let limit = begun.zip(entry.max_hold).and_then(|(begun, length)| begun.checked_add(length));
        let limit = [state.limit.filter(|_| state.count > 0), limit].into_iter().flatten().min();
        // A writer that is not queued does not block readers.
        let may_block_readers = turn.is_some() || self.key.resource.kind == Kind::Read;
        let prefer_writers = entry.rw.prefer_writers && may_block_readers;
        let (count, expiry) = (state.count, state.expiry(lease));
        let undo = Undo { hold: self, count, expiry, begins: Some(&**term).filter(|_| count == 0) };
        if let Some(within) = entry.progress.filter(|_| count == 0) {
            // Before the grant: a waiter that comes right after it has to see when the hold may end.
            term.expect_progress(within);
        }
        // In its own block: the claim is not stored in the future during the wait.
        let reply = {
            let claim = Claim {
                key: &self.key,
                held: state.count,
                lease,
                limit,
                steal: entry.steal,
                fenced: entry.fenced,
                queue: entry.queue,
                rw: RwOptions { prefer_writers, ..entry.rw },
                fresh: entry.fresh,
                term,
            };
            self.shared.engine.attempt(&claim, turn)
        };
        let attempt = reply.await?;
        if let Attempt::Granted(until, _) = attempt {
            match (until, lease) {
                // Renewals may have moved the deadline on since the reply was read.
                (Some(until), Lease::Kept(_)) if state.count > 0 => term.extend_until(until),
                (Some(until), _) => term.set_until(until),
                (None, _) => {}
            }
            match term.claim(Bounds { lease, limit }, begun) {
                // A caller that steals the lock has had it, and its guard reports that it is lost again.
                Some(Loss::TakenOver | Loss::ForceUnlocked) if entry.steal => {}
                Some(_) if mutation!("lost-grant-taken") => {}
                Some(loss) => return Ok(Stepped::Unseen(loss)),
                None => {}
            }
            state.entered(entry, lease, begun, limit, term);
            if entry.progress.is_some() && count == 0 {
                term.progress();
                self.shared.engine.expect_progress(term);
            }
        }
        undo.disarm();
        Ok(Stepped::Replied(attempt))
    }

    /// Releases one count for the guard of `term`, and returns the count that is left. Once `armed` is cleared, dropping the
    /// guard does not release it again.
    pub(crate) async fn release(&self, term: &Arc<Term>, armed: &mut bool) -> Result<u32, ReleaseError> {
        let mut state = self.lock_step().await;
        *armed = false;
        if let Some(loss) = state.loss_of(term) {
            state.give_back(term);
            drop(state);
            return Err(not_held(loss, term));
        }
        if state.hand_over(term) {
            return Ok(0);
        }
        self.step_out(&mut state, term, |term| self.end(term)).await
    }

    /// Ends the term of a hold that is released.
    #[inline]
    pub(crate) fn end(&self, term: &Term) {
        let observer = &self.shared.observer;
        if term.release() && observer.is_watched() {
            observer.released(&self.key, term.held_for());
        }
    }

    /// Releases one count in the owner's name, without its guard.
    pub(crate) async fn release_as_owner(&self) -> Result<u32, ReleaseError> {
        let mut state = self.lock_step().await;
        let Some(term) = state.term.clone() else {
            return Err(ReleaseError::NotOwner { owner: self.key.owner.into(), subject: Subject::default() });
        };
        if let Some(loss) = state.loss_of(&term) {
            drop(state);
            return Err(not_held(loss, &term));
        }
        // A guard that still exists protects nothing any more.
        self.step_out(&mut state, &term, |term| term.lose(Loss::Gone)).await
    }

    /// Removes one count, locally first. If the future is dropped or the reply is missing, the release continues in the
    /// background.
    async fn step_out(
        &self,
        state: &mut StepGuard<'_>,
        term: &Arc<Term>,
        end: impl FnOnce(&Term),
    ) -> Result<u32, ReleaseError> {
        let from = state.count;
        state.count -= 1;
        let expiry = state.expiry(state.lease);
        if let Some(rest) = state.rest() {
            state.clear();
            end(term);
            // Boxed because it is rare: otherwise every release would have room for it.
            return Box::pin(self.abandon(term, rest, expiry)).await;
        }
        let undo = Undo { hold: self, count: state.count, expiry, begins: None };
        if state.count == 0 {
            state.clear();
            end(term);
        }
        let released = self.shared.engine.release(&self.key, from, state.lease).await;
        let released = released.map_err(|cause| {
            // Counted permits have no lease on a server.
            let is_leased = state.count == 0 && self.key.resource.kind != Kind::Semaphore;
            let free_within = is_leased.then(|| expiry.within());
            ReleaseError::Unknown { cause, free_within, subject: Subject::default() }
        })?;
        undo.disarm();
        match released {
            Released::Left(left, until) => {
                if let Some(until) = until {
                    term.extend_until(until);
                }
                Ok(left)
            }
            Released::NotHeld => {
                self.found_gone(term);
                state.leave_lost_term();
                Err(Loss::Gone.into())
            }
        }
    }

    /// A release has found that the hold is gone.
    fn found_gone(&self, term: &Term) {
        term.lose(Loss::Gone);
        if term.loss().is_none() {
            // Its last guard has ended it already, so no guard is left that would notice.
            self.shared.observer.lost(&self.key, Loss::Gone, None);
        }
    }

    /// Requests that the lock stays taken for `rest`.
    fn leave_taken(&self, rest: Duration) -> Reply<bool> {
        if self.is_owner_known() {
            self.shared.holds.abandoned(&self.key, rest);
        }
        self.shared.engine.abandon(&self.key, rest)
    }

    /// Leaves the lock taken for `rest`, after its last guard. The request is sent even if the future is dropped.
    async fn abandon(&self, term: &Term, rest: Duration, expiry: Expiry) -> Result<u32, ReleaseError> {
        let was_held = self.leave_taken(rest).await.map_err(|cause| {
            let free_within = Some(expiry.within().max(rest));
            ReleaseError::Unknown { cause, free_within, subject: Subject::default() }
        })?;
        if was_held {
            return Ok(0);
        }
        self.found_gone(term);
        Err(Loss::Gone.into())
    }

    /// Frees the lock if its term is lost, in place of the guard that is still there.
    #[cfg(feature = "remote")]
    pub(crate) async fn leave_lost_term(&self) {
        self.lock_step().await.leave_lost_term();
    }

    /// Stops tracking this hold; it must be released by other means.
    pub(crate) fn let_go(&self, mut guard: Guard) {
        guard.disarm().release();
        self.shared.engine.let_go(&self.key);
    }

    /// Releases the count of a dropped guard, without waiting.
    pub(crate) fn give_back(&self, term: &Arc<Term>) {
        if let Some(mut state) = self.try_lock_step() {
            return state.give_back(term);
        }
        let mut deferred = self.deferred.lock();
        *deferred = Some(Box::new(DeferredRelease { term: Arc::clone(term), before: deferred.take() }));
        drop(deferred);
        // The step may have ended before the deferred release was recorded.
        self.settle();
    }

    fn settle(&self) {
        while self.deferred.lock().is_some() {
            // A step is in progress, and settles when it ends.
            let Some(mut state) = self.try_lock_step() else { return };
            let mut deferred = self.deferred.lock().take();
            while let Some(release) = deferred {
                state.give_back(&release.term);
                deferred = release.before;
            }
        }
    }

    /// Makes the lease last at least `length` from now.
    pub(crate) async fn extend(&self, term: &Arc<Term>, length: Duration) -> Result<Duration, ExtendError> {
        // One step at a time: a late reply must not override a later one.
        let mut state = self.lock_step().await;
        // The guard may be gone by now, and the hold handed over to another task.
        if let Some(loss) = state.loss_of(term) {
            return Err(ExtendError::NotHeld { loss, ago: term.lost_for(), subject: Subject::default() });
        }
        state.extends(length);
        match self.shared.engine.renew(&self.key, length).await? {
            // Renewals may have moved the deadline on since the reply was read.
            Renewed::Until(until) => term.extend_until(until),
            Renewed::Gone if mutation!("lost-hold-extended") => {}
            Renewed::Gone => term.lose(Loss::Gone),
        }
        let Some(loss) = term.loss() else { return Ok(term.remaining()) };
        // The engine may have extended a hold that is already lost here.
        state.leave_lost_term();
        Err(ExtendError::NotHeld { loss, ago: term.lost_for(), subject: Subject::default() })
    }

    /// The entry for the other half of a read-write lock that ends together with the hold of `term`.
    pub(crate) async fn entry_beside(&self, term: &Arc<Term>) -> Result<Entry, Loss> {
        let state = self.lock_step().await;
        if let Some(loss) = state.loss_of(term) {
            return Err(loss);
        }
        let lease = match state.lease {
            Lease::Fixed(_) => Lease::Fixed(term.remaining().max(limits::SHORTEST_LEASE)),
            kept @ Lease::Kept(_) => kept,
        };
        let max_hold = state.limit.map(|limit| limit.saturating_duration_since(env::now()));
        Ok(Entry { max_hold, min_hold: state.taken_for(), ..Entry::new(lease) })
    }

    /// Lets the lock be free as soon as its last guard is gone.
    pub(crate) async fn drop_min_hold(&self) {
        self.lock_step().await.taken_until = None;
    }

    fn try_lock_step(&self) -> Option<StepGuard<'_>> {
        self.state.try_lock().ok().map(|state| StepGuard { hold: self, state: Some(state) })
    }

    async fn lock_step(&self) -> StepGuard<'_> {
        // Created before the lock is taken: a future that gets the step lock and is then dropped must settle, too.
        let mut guard = StepGuard { hold: self, state: None };
        guard.state = Some(match self.state.try_lock() {
            Ok(state) => state,
            // Boxed because it is rare: otherwise every waiter's future would have room for it.
            Err(_) => Box::pin(self.state.lock()).await,
        });
        guard
    }

    fn undo(&self, count: u32, expiry: Expiry) {
        self.shared.engine.undo(&self.key, count, expiry);
    }
}

fn not_held(loss: Loss, term: &Term) -> ReleaseError {
    term.log_loss();
    ReleaseError::NotHeld { loss, ago: term.lost_for(), subject: Subject::default() }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.state.get_mut().named {
            self.shared.holds.forget(&self.key);
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}
