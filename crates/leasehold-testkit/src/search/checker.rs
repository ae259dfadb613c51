//! Whether guards report the truth, judged only by the reports of guards and clients.
//!
//! At each grant all other guards are queried. Loss is final, so all guards that existed at one moment and report "held" later
//! were held together at that moment; if they exclude each other, one of them was wrong. This needs no pause and no clock.
//!
//! Three things are documented exceptions, and nothing else is:
//!
//! - A guard whose lock another client has stolen or forced learns of it at its next renewal: after a third of its lease, or when
//!   its lease is over if it cannot renew. The same holds for a lock that was granted and taken over before the reply was read.
//!   So the guard is excused from the beginning of such an operation until one lease after its end; and for the rest of the round
//!   if the end is not known, because the operation failed or was dropped, and may reach the server at any time. If the operation
//!   is of the guard's own client, the loss is known when it returns.
//! - A hold is handed over from task to task of a client for 50 ms after the server granted it. So a task may get one that was
//!   stolen before its request.
//! - Guards of one identity re-enter. An identity is that of one plain acquire, or of one named owner. It is not the owner as
//!   text: two plain acquires are never the same, whatever their guards report.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::{Client, Loss, Owner};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::causes::Limits;
use super::environment::Environment;
use super::held::Held;
use super::history::{History, Who};
use super::invariant::Invariant;
use super::resource::{Kind, PERMITS, Resource};
use super::tokens::Tokens;
use crate::bench::VIEW;

/// The guards of a round, and their violations.
#[derive(Debug)]
pub(super) struct Checker {
    history: Arc<History>,
    environment: Environment,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    grants: Vec<Arc<Grant>>,
    disturbances: Vec<Disturbance>,
    limits: Limits,
    tokens: Tokens,
    identities: u64,
    violations: Vec<String>,
}

/// The identity of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64);

/// A guard that is not released.
#[derive(Debug)]
pub(super) struct Grant {
    who: Who,
    pub(super) resource: Resource,
    pub(super) identity: Identity,
    /// When it was requested. The server may have granted it at any time since.
    requested: Instant,
    /// When it was granted, as far as its task knows.
    at: Instant,
    /// How long it lasts without renewal, if it is renewed.
    watchdog: Duration,
    /// The longest lease it has had.
    lease: Mutex<Duration>,
    /// Empty when it is being released.
    held: Mutex<Option<Held>>,
    /// Ends the task that records its loss.
    unwatched: Mutex<Option<oneshot::Sender<()>>>,
}

/// The times of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTimes {
    /// When it was made.
    pub(super) at: Instant,
    /// How long the hold lasts without renewal, if it has no fixed lease.
    pub(super) watchdog: Duration,
    /// Its fixed lease.
    pub(super) lease: Option<Duration>,
    /// How long the hold may last at most.
    pub(super) max_hold: Option<Duration>,
}

/// A steal, a `force_unlock`, or a loss of state on the server.
#[derive(Debug)]
struct Disturbance {
    /// The task whose client knows of it when it has ended.
    who: Option<Who>,
    /// None means everything.
    resource: Option<Resource>,
    begun: Instant,
    end: Option<Instant>,
}

impl Disturbance {
    fn concerns(&self, resource: Resource) -> bool {
        self.resource.is_none_or(|of| of.touches(resource))
    }
}

/// Which disturbance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disturbing(usize);

/// A renewal that is due may be late by this, on a busy machine.
const LATE: Duration = Duration::from_millis(500);
/// A request without an outcome is carried out within this time, or never.
const LATEST: Duration = Duration::from_secs(10);
/// For how long a hold is handed over from task to task of its client.
const HANDED_OVER: Duration = Duration::from_millis(50);
/// For how long a guard must be wrong about a loss: until then a request may still be in flight.
const STUBBORN: Duration = Duration::from_millis(300);

impl Grant {
    /// Queries the guard, as long as it is not released.
    pub(super) fn with_guard<T>(&self, query: impl FnOnce(&Held) -> T) -> Option<T> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(query)
    }

    /// The client that has it.
    pub(super) fn client(&self) -> usize {
        self.who.client
    }

    fn lease(&self) -> Duration {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(&self) -> String {
        let owner =
            self.with_guard(Held::owner).flatten().map_or_else(String::new, |owner| format!(" as {owner}"));
        format!("{:?} {:#b} of {}{owner}", self.resource.kind, self.resource.parts, self.who)
    }
}

impl Checker {
    pub(super) fn new(history: Arc<History>, environment: Environment) -> Self {
        Self { history, environment, state: Mutex::default() }
    }

    /// Whether the guard reports that it is held, by the clock of its client.
    fn says_held(&self, grant: &Grant) -> bool {
        self.environment.by_clock_of(grant.who.client, || grant.with_guard(Held::is_held).unwrap_or(false))
    }

    /// Raises how long a guard may last.
    pub(super) fn may_last(&self, grant: &Grant, length: Duration) {
        let mut state = self.state();
        state.limits.lease(grant.identity, Instant::now(), length);
        // They are one hold.
        for same in state.grants.iter().filter(|other| other.identity == grant.identity) {
            let mut lease = same.lease.lock().unwrap_or_else(PoisonError::into_inner);
            *lease = length.max(*lease);
        }
    }

    /// A new, unique identity.
    pub(super) fn identity(&self) -> Identity {
        let mut state = self.state();
        state.identities += 1;
        Identity(state.identities)
    }

    pub(super) fn violation(&self, of: Invariant, what: &str) {
        let what = format!("{of}: {what}");
        self.history.violation(&what);
        self.state().violations.push(what);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Adds a guard. All others are queried.
    pub(super) fn granted(
        self: &Arc<Self>,
        who: Who,
        resource: Resource,
        identity: Identity,
        times: RequestTimes,
        held: Held,
    ) -> Arc<Grant> {
        let (lost, token) = (held.lost(), held.token());
        let (unwatched, given_back) = oneshot::channel();
        let (held, unwatched) = (Mutex::new(Some(held)), Mutex::new(Some(unwatched)));
        let new;
        let (there, older) = {
            let mut state = self.state();
            let older = token.and_then(|token| state.tokens.granted(&resource.name(), times.at, token));
            state.limits.requested(identity, times);
            // A re-entry continues the existing hold.
            let same = state.grants.iter().filter(|grant| grant.identity == identity);
            let first = same.clone().map(|grant| grant.requested).fold(times.at, Instant::min);
            let lease = times.lease.unwrap_or(times.watchdog);
            let lease = Mutex::new(same.map(|grant| grant.lease()).fold(lease, Duration::max));
            let (at, watchdog) = (Instant::now(), times.watchdog);
            new = Arc::new(Grant {
                who,
                resource,
                identity,
                requested: first,
                at,
                watchdog,
                lease,
                held,
                unwatched,
            });
            state.grants.push(Arc::clone(&new));
            // A re-entry has the token of the existing hold.
            (state.grants.clone(), older.filter(|_| first == times.at))
        };
        if let Some(lost) = lost {
            let (checker, grant) = (Arc::clone(self), Arc::clone(&new));
            self.environment.spawn(who.client, async move {
                tokio::select! {
                    biased;
                    _ = given_back => {}
                    loss = lost => checker.lost(&grant, loss),
                }
            });
        }
        if let (Some(older), Some(token)) = (older, token) {
            let what = format!("{token} comes after {older}: {}", new.describe());
            self.violation(Invariant::Tokens, &what);
        }
        if resource.kind.counts() {
            self.count(resource, &there);
        } else {
            self.query_all(&new, &there);
        }
        new
    }

    /// A guard reports that it is lost.
    fn lost(&self, grant: &Grant, loss: Loss) {
        let Grant { who, resource, .. } = grant;
        self.history.step(*who, format!("{:?} {:#b} is lost: {loss:?}", resource.kind, resource.parts));
        // Behind real servers and proxies, a cause is not always known.
        if matches!(self.environment, Environment::Servers(_)) {
            return;
        }
        let now = Instant::now();
        let state = self.state();
        let is_explained = match loss {
            Loss::Expired => state.limits.has_expired(grant.identity, now),
            Loss::MaxHold => state.limits.is_at_most(grant.identity, now),
            Loss::Unreachable | Loss::Shutdown => match &self.environment {
                Environment::Simulated(network) if loss == Loss::Shutdown => network.is_shut_down(who.client),
                Environment::Simulated(network) => network.was_disrupted(who.client, grant.watchdog, now),
                _ => false,
            },
            _ => state.disturbances.iter().any(|disturbance| {
                let is_over = |end: Instant| end + grant.lease() + LATE < grant.requested;
                disturbance.concerns(*resource) && !disturbance.end.is_some_and(is_over)
            }),
        };
        drop(state);
        if !is_explained {
            self.violation(Invariant::Loss, &format!("{loss:?} without a cause: {}", grant.describe()));
        }
    }

    /// Counts the permits that were held together.
    fn count(&self, resource: Resource, there: &[Arc<Grant>]) {
        let is_out = |grant: &&Arc<Grant>| {
            grant.resource.touches(resource) && self.says_held(grant) && !self.is_excused(grant)
        };
        let out: u32 = there.iter().filter(is_out).map(|grant| grant.resource.permits).sum();
        if out > PERMITS {
            let what = format!("{out} of {PERMITS} are out: {:?} {:#b}", resource.kind, resource.parts);
            self.violation(Invariant::Permits, &what);
        }
    }

    /// Queries the guards that the new one excludes.
    fn query_all(&self, new: &Grant, there: &[Arc<Grant>]) {
        for other in there {
            if other.identity == new.identity || !other.resource.excludes(new.resource) {
                continue;
            }
            // The new one last: if it is still held then, it was while the other was.
            if self.says_held(other)
                && self.says_held(new)
                && !self.is_excused(other)
                && !self.is_excused(new)
            {
                let (new, other) = (new.describe(), other.describe());
                self.violation(Invariant::Exclusion, &format!("{new} was granted beside {other}"));
            }
        }
    }

    /// Whether a guard may not know yet that its lock was taken over.
    fn is_excused(&self, grant: &Grant) -> bool {
        let now = Instant::now();
        self.state().disturbances.iter().any(|disturbance| {
            let elsewhere = disturbance.who.is_none_or(|who| who.client != grant.who.client);
            // Counted permits are never notified.
            let is_told = |end| grant.resource.kind != Kind::Semaphore && now >= end + grant.lease() + LATE;
            let is_handed_on = matches!(grant.resource.kind, Kind::Plain | Kind::SetNx);
            let since = if is_handed_on { HANDED_OVER } else { Duration::ZERO };
            disturbance.concerns(grant.resource)
                && disturbance
                    .end
                    .is_none_or(|end| elsewhere && end + since >= grant.requested && !is_told(end))
        })
    }

    /// The guard is being released, and is not queried any more.
    pub(super) fn take(&self, grant: &Arc<Grant>) -> Option<Held> {
        self.state().grants.retain(|other| !Arc::ptr_eq(other, grant));
        grant.unwatched.lock().unwrap_or_else(PoisonError::into_inner).take();
        grant.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// All guards that are not released.
    pub(super) fn all(&self) -> Vec<Arc<Grant>> {
        self.state().grants.clone()
    }

    /// A steal or a `force_unlock` begins.
    pub(super) fn disturb(&self, who: Who, resource: Resource) -> Disturbing {
        let mut state = self.state();
        let (who, resource) = (Some(who), Some(resource));
        state.disturbances.push(Disturbance { who, resource, begun: Instant::now(), end: None });
        Disturbing(state.disturbances.len() - 1)
    }

    /// It has failed or was dropped. It may reach the server later; without real servers it is known until when.
    pub(super) fn may_have_disturbed(&self, Disturbing(number): Disturbing) {
        let Environment::Simulated(_) = self.environment else { return };
        let disturbance = &mut self.state().disturbances[number];
        disturbance.who = None;
        disturbance.end = Some(Instant::now() + LATEST);
    }

    /// The server has lost the holds of this, or all.
    pub(super) fn forgotten(&self, resource: Option<Resource>) {
        let now = Instant::now();
        let mut state = self.state();
        state.disturbances.push(Disturbance { who: None, resource, begun: now, end: Some(now) });
        if resource.is_none() {
            state.tokens.begin_anew(now);
        }
    }

    /// No earlier operation is in flight any more, and no guard exists: past disturbances excuse nothing from now on.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        state.disturbances.clear();
        state.limits = Limits::default();
    }

    /// It has ended with a known outcome.
    pub(super) fn disturbed(&self, Disturbing(number): Disturbing) {
        self.state().disturbances[number].end = Some(Instant::now());
    }

    /// A `force_unlock` has freed a lock: the earlier guards of its own client know.
    pub(super) fn forced(&self, Disturbing(number): Disturbing) {
        let (who, resource, begun) = {
            let Disturbance { who, resource, begun, .. } = &self.state().disturbances[number];
            let (Some(who), Some(resource)) = (*who, *resource) else { return };
            (who, resource, *begun)
        };
        for grant in self.all() {
            // A half of a read-write lock is forced alone.
            let is_same =
                grant.resource.kind == resource.kind || !matches!(resource.kind, Kind::Read | Kind::Write);
            if is_same
                && grant.who.client == who.client
                && grant.at < begun
                && grant.resource.touches(resource)
                && self.says_held(&grant)
            {
                let what = format!("still reports held after {who} has forced it: {}", grant.describe());
                self.violation(Invariant::Told, &what);
            }
        }
    }

    /// A client was shut down: its guards know.
    pub(super) fn shut_down(&self, client: usize) {
        for grant in self.all() {
            if grant.who.client == client && grant.resource.kind != Kind::Semaphore && self.says_held(&grant)
            {
                let what = format!("still reports held after a shutdown: {}", grant.describe());
                self.violation(Invariant::Told, &what);
            }
        }
    }

    /// No request is in flight: guards report the same as another client's queries.
    ///
    /// A guard that reports held before and after the query is held in between, and so is its lock. A guard that was notified
    /// that its lock is gone has none, unless another guard of the same owner has it.
    pub(super) async fn quiet(&self, observer: &Client) {
        for grant in self.all() {
            let begun = Instant::now();
            loop {
                let held = self.says_held(&grant);
                let client = grant.who.client;
                let loss = self.environment.by_clock_of(client, || grant.with_guard(Held::loss).flatten());
                // Only the client of a reader knows its owner there.
                if grant.resource.kind == Kind::Read && !self.environment.has(VIEW) {
                    break;
                }
                let Some(query) =
                    grant.with_guard(|held| held.queried_elsewhere(grant.resource, observer)).flatten()
                else {
                    break;
                };
                let Some(there) = query.await else { break };
                if held && self.says_held(&grant) && !there && !self.is_excused(&grant) {
                    self.violation(
                        Invariant::Truth,
                        &format!("reports held and is not: {}", grant.describe()),
                    );
                    break;
                }
                let denied = matches!(loss, Some(Loss::Gone | Loss::TakenOver | Loss::ForceUnlocked));
                if !denied || !there || self.is_held_by_another(&grant) {
                    break;
                }
                if begun.elapsed() > STUBBORN {
                    let loss = loss.map_or_else(String::new, |loss| format!("{loss:?}"));
                    let what = format!("was notified of {loss} and is held: {}", grant.describe());
                    self.violation(Invariant::Truth, &what);
                    break;
                }
                sleep(STUBBORN / 10).await;
            }
        }
    }

    fn is_held_by_another(&self, grant: &Arc<Grant>) -> bool {
        let owner = |grant: &Grant| -> Option<Owner> { grant.with_guard(Held::owner).flatten() };
        let mine = owner(grant);
        self.all().iter().any(|other| {
            !Arc::ptr_eq(other, grant)
                && other.resource.touches(grant.resource)
                && (owner(other) == mine || other.resource.kind == Kind::Multi)
                && self.says_held(other)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use leasehold::test::Schedule;

    use super::super::request::Request;
    use super::super::simulated::SimulatedNetwork;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn who(client: usize) -> Who {
        Who { client, task: 0 }
    }

    /// Clients that differ only in their numbers.
    fn in_a_round(test: impl AsyncFnOnce(Arc<Checker>)) {
        Schedule::run(1, async |schedule| {
            let environment = Environment::Simulated(Arc::new(SimulatedNetwork::new(&schedule)));
            test(Arc::new(Checker::new(Arc::new(History::new()), environment))).await;
        });
    }

    /// A client with an engine of its own: two such clients grant the same lock twice.
    async fn client() -> Client {
        Client::connect("memory:").await.unwrap()
    }

    async fn held(client: &Client, resource: Resource) -> Held {
        Request::new(resource, Duration::ZERO).of(client).await.unwrap()
    }

    async fn granted(
        checker: &Arc<Checker>,
        number: usize,
        client: &Client,
        resource: Resource,
    ) -> Arc<Grant> {
        let (identity, held) = (checker.identity(), held(client, resource).await);
        // Events of the same moment have no order.
        sleep(Duration::from_millis(1)).await;
        let times = RequestTimes { at: Instant::now(), watchdog: LONG, lease: None, max_hold: None };
        checker.granted(who(number), resource, identity, times, held)
    }

    #[test]
    fn two_holders_at_once_are_reported_as_a_violation() {
        for kind in Kind::LOCKS.iter().copied().filter(|kind| *kind != Kind::Read) {
            in_a_round(async |checker| {
                let resource = Resource::new(kind, 0);
                granted(&checker, 0, &client().await, resource).await;
                granted(&checker, 1, &client().await, Resource::new(kind, 1)).await;
                assert_eq!(checker.violations(), [""; 0]);
                granted(&checker, 1, &client().await, resource).await;
                let found = checker.violations();
                assert!(
                    found.last().is_some_and(|found| found.starts_with("exclusion: ")),
                    "{kind:?}: {found:?}"
                );
            });
        }
    }

    #[test]
    fn a_token_that_does_not_rise_is_reported_as_a_violation() {
        in_a_round(async |checker| {
            let resource = Resource::new(Kind::Fenced, 0);
            for number in 0..2 {
                assert_eq!(checker.violations(), [""; 0]);
                let grant = granted(&checker, number, &client().await, resource).await;
                drop(checker.take(&grant));
            }
            assert!(
                checker.violations()[0].starts_with("tokens: 1 comes after 1"),
                "{:?}",
                checker.violations()
            );
        });
    }

    #[test]
    fn too_many_permits_are_reported_as_a_violation() {
        for kind in [Kind::Semaphore, Kind::Leased] {
            in_a_round(async |checker| {
                let resource = Resource { permits: 2, ..Resource::new(kind, 0) };
                for out in 0..2 {
                    assert_eq!(checker.violations().len(), 0, "{out}");
                    let client = client().await;
                    let set = match kind {
                        Kind::Leased => {
                            client.leased_semaphore(resource.name()).try_set_permits(PERMITS).await
                        }
                        _ => client.semaphore(resource.name()).try_set_permits(PERMITS).await,
                    };
                    assert_eq!(set, Ok(true));
                    granted(&checker, out, &client, resource).await;
                }
                assert_eq!(checker.violations().len(), 1);
            });
        }
    }

    #[test]
    fn readers_and_released_guards_are_not_reported_as_violations() {
        in_a_round(async |checker| {
            let read = Resource::new(Kind::Read, 0);
            let readers = [
                granted(&checker, 0, &client().await, read).await,
                granted(&checker, 1, &client().await, read).await,
            ];
            for reader in &readers {
                drop(checker.take(reader));
            }
            granted(&checker, 0, &client().await, Resource::new(Kind::Write, 0)).await;
            assert_eq!(checker.violations(), [""; 0]);
        });
    }

    #[test]
    fn only_a_take_over_by_another_client_excuses_a_guard_that_still_reports_held() {
        in_a_round(async |checker| {
            let resource = Resource::new(Kind::Plain, 0);
            granted(&checker, 0, &client().await, resource).await;
            let stealing = checker.disturb(who(1), resource);
            let thief = granted(&checker, 1, &client().await, resource).await;
            checker.disturbed(stealing);
            assert_eq!(checker.violations(), [""; 0]);
            drop(checker.take(&thief));
            sleep(Duration::from_millis(1)).await;
            let forcing = checker.disturb(who(0), resource);
            checker.forced(forcing);
            assert_eq!(checker.violations().len(), 1);
        });
    }

    #[test]
    fn a_guard_without_a_lock_on_the_server_is_reported_as_a_violation() {
        in_a_round(async |checker| {
            let resource = Resource::new(Kind::Fair, 0);
            let (client, other) = (client().await, client().await);
            granted(&checker, 0, &client, resource).await;
            checker.quiet(&client).await;
            assert_eq!(checker.violations(), [""; 0]);
            checker.quiet(&other).await;
            assert_eq!(checker.violations().len(), 1);
        });
    }
}
