//! The time that one hold lasts: until when, and how it ended.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Span;

use crate::engine::HoldKey;
use crate::env::{self, Instant};
use crate::hold::Hold;
use crate::lease::{Bounds, Lease};
use crate::loss::Loss;
use crate::mutex::Mutex;
use crate::race::race;
use crate::session::Session;

/// The term of one outermost hold, shared by all its guards and by every task that may end it.
///
/// It guarantees that a loss is final and follows our own clock: every check after the deadline finds the term
/// lost, and no later reply revives it.
#[derive(Debug)]
pub(crate) struct Term {
    /// The hold that the term belongs to.
    hold: Weak<Hold>,
    state: Mutex<State>,
    /// What is expected of the work, if anything is. Boxed, because of most work nothing is.
    progress: OnceLock<Box<Progress>>,
    /// Notified when the term ends or its deadline moves. Created for the first listener, since most terms have none.
    changed: OnceLock<Box<Notify>>,
    /// Its loss was logged.
    is_logged: AtomicBool,
    /// That it lasts long was logged.
    is_long: AtomicBool,
    /// From the grant to the end, where a subscriber records spans. Boxed, because mostly there is none.
    span: OnceLock<Box<Span>>,
}

/// Invariant: once `end` is set, it and `until` do not change. It is set no later than the first check after the deadline.
#[derive(Debug)]
struct State {
    until: Until,
    end: Option<End>,
    /// The bounds of the request that last claimed the grant. None before that: a grant whose future is never polled again must
    /// not be renewed.
    claimed: Option<Bounds>,
    /// A caller has had it.
    is_seen: bool,
    /// Since when a caller has it, if that is known.
    since: Option<Instant>,
    /// The session that it also depends on, if the engine binds holds to one.
    #[cfg(feature = "remote")]
    session: Option<Arc<Session>>,
}

/// How often the work has to report progress, and when it last has.
#[derive(Debug)]
struct Progress {
    within: Duration,
    last: Mutex<Instant>,
}

impl Progress {
    /// When the lock is lost without another report.
    fn deadline(&self) -> Option<Instant> {
        self.last.lock().checked_add(self.within)
    }
}

impl State {
    /// The session that the term depends on, if any. Memory has none: a build without servers does not check.
    #[cfg_attr(not(feature = "remote"), expect(clippy::unused_self, reason = "memory has no sessions"))]
    fn session(&self) -> Option<&Arc<Session>> {
        #[cfg(feature = "remote")]
        return self.session.as_ref();
        #[cfg(not(feature = "remote"))]
        None
    }
}

/// Until when a term lasts if nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// As long as its guards live; `remaining` returns this duration.
    Kept(Duration),
    /// Up to this moment, then it is lost for this reason. Of a lost term: when the loss was recorded.
    Deadline(Instant, Loss),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Released,
    Lost(Loss),
}

impl Term {
    /// A term that has not begun: it has no deadline until one is set.
    pub(crate) fn new(hold: Weak<Hold>) -> Arc<Self> {
        let state = State {
            until: Until::Kept(Duration::ZERO),
            end: None,
            claimed: None,
            is_seen: false,
            since: None,
            #[cfg(feature = "remote")]
            session: None,
        };
        Arc::new(Self {
            hold,
            state: Mutex::new(state),
            progress: OnceLock::new(),
            changed: OnceLock::new(),
            is_logged: AtomicBool::new(false),
            is_long: AtomicBool::new(false),
            span: OnceLock::new(),
        })
    }

    /// The term of the next local waiter that the hold is handed over to: it lasts as long.
    #[cfg(feature = "remote")]
    pub(crate) fn next(&self) -> Arc<Self> {
        let next = Self::new(self.hold.clone());
        let (until, claimed, session) = {
            let state = self.checked();
            (state.until, state.claimed, state.session.clone())
        };
        next.set_until(until);
        let mut state = next.checked();
        (state.claimed, state.session) = (claimed, session);
        drop(state);
        next
    }

    /// Records that the waiter has it that the hold was handed over to, be it lost meanwhile.
    #[cfg(feature = "remote")]
    pub(crate) fn taken(&self) {
        let mut state = self.checked();
        (state.is_seen, state.since) = (true, Some(env::now()));
    }

    /// Binds the term to a session: it is lost when the session is.
    #[cfg(feature = "remote")]
    pub(crate) fn bind(&self, session: Arc<Session>) {
        self.checked().session = Some(session);
        self.announce();
    }

    /// Whether it is bound to a session.
    #[cfg(feature = "remote")]
    pub(crate) fn has_session(&self) -> bool {
        self.checked().session().is_some()
    }

    /// Whether it is bound to this session.
    #[cfg(feature = "remote")]
    pub(crate) fn is_bound_to(&self, session: &Arc<Session>) -> bool {
        self.checked().session().is_some_and(|of| Arc::ptr_eq(of, session))
    }

    pub(crate) fn hold(&self) -> Option<Arc<Hold>> {
        self.hold.upgrade()
    }

    /// Sets until when the term lasts, unless it has ended or its deadline has passed already.
    pub(crate) fn set_until(&self, until: Until) {
        let mut state = self.checked();
        if state.end.is_none() {
            state.until = until;
            drop(state);
            // A listener that sleeps until a later deadline must set its timer again.
            self.announce();
        }
    }

    /// Moves the deadline to `until` if that is later. For requests that never shorten a hold: their reply may be older than
    /// an extension that is already recorded.
    pub(crate) fn extend_until(&self, until: Until) {
        let is_later = match (self.checked().until, until) {
            (Until::Deadline(before, _), Until::Deadline(after, _)) => after > before,
            (Until::Kept(_), Until::Deadline(..)) => false,
            (_, Until::Kept(_)) => true,
        };
        if is_later {
            self.set_until(until);
        }
    }

    /// Brings the deadline nearer, if `at` is nearer.
    pub(crate) fn shorten_until(&self, at: Instant, loss: Loss) {
        let nearer = match self.checked().until {
            Until::Kept(_) => true,
            Until::Deadline(deadline, _) => at < deadline && !mutation!("nearer-deadline-not-taken"),
        };
        if nearer {
            self.set_until(Until::Deadline(at, loss));
        }
    }

    /// Records that a caller has claimed the grant that it requested at `begun`, if it knows when that was, and returns the loss if there is one already.
    pub(crate) fn claim(&self, bounds: Bounds, begun: Option<Instant>) -> Option<Loss> {
        let mut state = self.checked();
        state.claimed = Some(bounds);
        if state.end.is_none() {
            state.is_seen = true;
            state.since = state.since.or(begun);
        }
        state.end.map(|end| if let End::Lost(loss) = end { loss } else { Loss::Gone })
    }

    /// Whether it is held until its last guard is gone, as far as that depends on its client.
    pub(crate) fn is_endless(&self) -> bool {
        let state = self.checked();
        let is_kept = |bounds: Bounds| matches!(bounds.lease, Lease::Kept(_)) && bounds.limit.is_none();
        state.end.is_none() && state.claimed.is_some_and(is_kept) && self.progress.get().is_none()
    }

    /// The bounds of the request that claimed the grant, if one has.
    #[cfg(feature = "remote")]
    pub(crate) fn claimed(&self) -> Option<Bounds> {
        self.checked().claimed
    }

    /// From now on the work has to report progress at least this often.
    pub(crate) fn expect_progress(&self, within: Duration) {
        let begun = || Box::new(Progress { within, last: Mutex::new(env::now()) });
        *self.progress.get_or_init(begun).last.lock() = env::now();
        // A listener that sleeps until a later deadline must set its timer again.
        self.announce();
    }

    /// The work reports progress. Without effect where none is expected, and after the end.
    pub(crate) fn progress(&self) {
        if let Some(progress) = self.progress.get().filter(|_| self.is_held()) {
            *progress.last.lock() = env::now();
        }
    }

    /// When the lock is lost unless the work reports progress, if it has to.
    #[inline]
    pub(crate) fn stalls_at(&self) -> Option<Instant> {
        self.progress.get().and_then(|progress| progress.deadline())
    }

    /// When the term ends if nothing happens, and why.
    #[inline]
    fn deadline(&self, state: &State) -> Option<(Instant, Loss)> {
        let until = match state.until {
            Until::Kept(_) => None,
            Until::Deadline(at, loss) => Some((at, loss)),
        };
        match (until, self.stalls_at()) {
            (until, None) => until,
            (Some((at, loss)), Some(stalls)) if at <= stalls => Some((at, loss)),
            (_, Some(stalls)) => Some((stalls, Loss::NoProgress)),
        }
    }

    /// Resolves when the term has ended: true if the work made no progress.
    #[cfg(feature = "remote")]
    pub(crate) async fn stalled(self: Arc<Self>) -> bool {
        loop {
            let changed = self.changed.get_or_init(Box::default).notified();
            let (end, deadline) = {
                let state = self.checked();
                (state.end, self.deadline(&state).map(|(at, _)| at))
            };
            match end {
                Some(end) => return end == End::Lost(Loss::NoProgress),
                None => race(pin!(changed), env::sleep_until_or_forever(deadline)).await,
            };
        }
    }

    /// Ends the term because its last guard is gone. Returns whether that ended a hold that a caller had.
    pub(crate) fn release(&self) -> bool {
        let was_held = self.end(End::Released);
        self.announce();
        was_held
    }

    /// Ends the term because the lock is lost.
    pub(crate) fn lose(&self, loss: Loss) {
        self.mark_lost(loss);
        self.announce();
    }

    /// Ends the term because the lock is lost. The caller must [`announce`](Self::announce) it.
    ///
    /// For callers that hold a mutex: waking runs foreign code, which may lock that mutex.
    pub(crate) fn mark_lost(&self, loss: Loss) {
        self.end(End::Lost(loss));
    }

    /// Wakes the listeners for the end.
    pub(crate) fn announce(&self) {
        // A task that subscribes after this reads the state after this, too.
        if let Some(changed) = self.changed.get().filter(|_| !mutation!("loss-not-announced")) {
            changed.notify_waiters();
        }
    }

    /// Returns whether that ended a hold that a caller had.
    fn end(&self, end: End) -> bool {
        let mut state = self.checked();
        let was_held = state.end.is_none() && state.is_seen;
        if let (None, End::Lost(loss)) = (state.end, end) {
            // From now on `until` is the time at which the loss was recorded: see `lost_for`.
            state.until = Until::Deadline(env::now(), loss);
        }
        state.end = state.end.filter(|_| !mutation!("later-end-wins")).or(Some(end));
        was_held
    }

    /// How long a caller has had the lock until now, if it is known since when.
    pub(crate) fn held_for(&self) -> Option<Duration> {
        self.checked().since.map(|since| env::now().saturating_duration_since(since))
    }

    /// Whether the lock is held, by the clock, now.
    pub(crate) fn is_held(&self) -> bool {
        self.checked().end.is_none()
    }

    /// Why the lock is lost, if it is.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match self.checked().end {
            Some(End::Lost(loss)) => Some(loss),
            Some(End::Released) | None => None,
        }
    }

    /// Begins the span of the hold, which lasts as long as the term is there.
    pub(crate) fn begin_span(&self, key: &HoldKey) {
        let HoldKey { resource, owner, .. } = key;
        let span = tracing::debug_span!("hold", lock = %resource, %owner);
        if !span.is_disabled() {
            let _ = self.span.set(Box::new(span));
        }
    }

    /// Logs that the hold lasts longer than is usual; once. To be called where no mutex is held, as [`log_loss`](Self::log_loss).
    pub(crate) fn log_long_hold(&self) {
        let Some(hold) = self.hold() else { return };
        let (Some(limit), Some(held_for)) = (hold.shared.warn.hold, self.held_for()) else { return };
        if held_for >= limit && !self.is_long.swap(true, Ordering::SeqCst) {
            hold.shared.log_long_hold(&hold.key, held_for);
        }
    }

    /// Logs the loss, if there is one and a caller had the lock; once. To be called where no mutex is held: a subscriber to logs is
    /// foreign code.
    pub(crate) fn log_loss(&self) {
        let (loss, held_for) = {
            let state = self.checked();
            let (Some(End::Lost(loss)), true) = (state.end, state.is_seen) else { return };
            let at = if let Until::Deadline(at, _) = state.until { at } else { env::now() };
            (loss, state.since.map(|since| at.saturating_duration_since(since)))
        };
        if !self.is_logged.swap(true, Ordering::SeqCst)
            && let Some(hold) = self.hold()
        {
            hold.shared.log_loss(&hold.key, loss, held_for);
        }
    }

    /// How long ago the lock was lost, if it is and the moment is known. A loss on the server is found later, by a renewal.
    pub(crate) fn lost_for(&self) -> Option<Duration> {
        let state = self.checked();
        match (state.end, state.until) {
            (Some(End::Lost(Loss::Gone | Loss::TakenOver)), _) => None,
            (Some(End::Lost(_)), Until::Deadline(at, _)) => env::now().checked_duration_since(at),
            _ => None,
        }
    }

    /// How long the lock is held from now on if nothing happens; zero once the term has ended.
    pub(crate) fn remaining(&self) -> Duration {
        let state = self.checked();
        if state.end.is_some() {
            return Duration::ZERO;
        }
        let left = self.deadline(&state).map(|(at, _)| at.saturating_duration_since(env::now()));
        let left = match (state.until, left) {
            (Until::Kept(length), left) => left.map_or(length, |left| left.min(length)),
            (Until::Deadline(..), left) => left.unwrap_or_default(),
        };
        state.session().map_or(left, |session| left.min(session.remaining()))
    }

    /// Until when the lock is held if nothing happens.
    #[cfg(feature = "remote")]
    pub(crate) fn until(&self) -> Until {
        self.checked().until
    }

    /// Whether it ends by itself some time.
    pub(crate) fn has_deadline(&self) -> bool {
        matches!(self.checked().until, Until::Deadline(..))
    }

    /// Resolves when the lock is lost, at once if it already is; never after a release.
    pub(crate) async fn lost(self: Arc<Self>) -> Loss {
        loop {
            let changed = self.changed.get_or_init(Box::default).notified();
            let (end, deadline, session) = {
                let state = self.checked();
                (state.end, self.deadline(&state).map(|(at, _)| at), state.session().cloned())
            };
            match end {
                Some(End::Lost(loss)) => {
                    self.log_loss();
                    return loss;
                }
                Some(End::Released) => std::future::pending().await,
                None => {}
            }
            let Some(session) = session else {
                race(pin!(changed), env::sleep_until_or_forever(deadline)).await;
                continue;
            };
            let moved = session.changed.notified();
            if session.loss().is_none() {
                let first = [deadline, session.deadline()].into_iter().flatten().min();
                let sleep = env::sleep_until_or_forever(first);
                race(race(pin!(changed), pin!(moved)), sleep).await;
            }
        }
    }

    /// The state after a check of the clock: a passed deadline is a loss, whichever check finds it first.
    fn checked(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if state.end.is_none()
            && let Some((at, loss)) = self.deadline(&state)
            && env::now() >= at
            && !mutation!("passed-deadline-no-loss")
        {
            // No wake-up is needed: every listener sleeps until this same deadline, or an earlier one.
            state.until = Until::Deadline(at, loss);
            state.end = Some(End::Lost(loss));
        }
        if let (None, Some(session)) = (state.end, state.session()) {
            state.end = session.loss().map(End::Lost);
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn expires_in(length: Duration) -> Until {
        Until::Deadline(env::now() + length, Loss::Expired)
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_past_its_deadline_is_never_revived() {
        let term = Term::new(Weak::new());
        term.set_until(expires_in(SECOND));
        tokio::time::advance(SECOND).await;
        term.set_until(expires_in(SECOND));
        assert!(!term.is_held());
        term.release();
        assert_eq!(term.loss(), Some(Loss::Expired));
        assert_eq!(term.remaining(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_follows_a_deadline_that_is_moved_earlier_or_later() {
        let start = env::now();
        let term = Term::new(Weak::new());
        term.set_until(expires_in(SECOND * 10));
        let listener = tokio::spawn(Arc::clone(&term).lost());
        tokio::task::yield_now().await;
        term.set_until(expires_in(SECOND));
        tokio::time::sleep(SECOND / 2).await;
        term.set_until(expires_in(SECOND * 3));
        assert_eq!(listener.await.unwrap(), Loss::Expired);
        assert_eq!(start.elapsed(), SECOND * 7 / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_nearer_deadline_is_taken_and_a_later_one_is_not() {
        let term = Term::new(Weak::new());
        for (at, left) in [(10, 10), (20, 10), (1, 1)] {
            term.shorten_until(env::now() + SECOND * at, Loss::Expired);
            assert_eq!(term.remaining(), SECOND * left);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_is_not_reported_as_a_loss() {
        let term = Term::new(Weak::new());
        term.set_until(expires_in(SECOND));
        let listener = tokio::spawn(Arc::clone(&term).lost());
        tokio::task::yield_now().await;
        term.release();
        term.lose(Loss::Gone);
        assert!(tokio::time::timeout(SECOND * 60, listener).await.is_err());
        assert_eq!(term.loss(), None);
    }
}
