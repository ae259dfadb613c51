//! The clients of a round, and the operations of tasks on them.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{AcquireError, Client, Owner};
use tokio::time::{Instant, sleep, timeout};

use super::checker::{Checker, Grant, Identity, RequestTimes};
use super::environment::Environment;
use super::held::Held;
use super::history::{History, Who};
use super::invariant::Invariant;
use super::polling::Polling;
use super::request::Request;
use super::resource::{Kind, NAMES, PERMITS, Resource};
use crate::server::Flavour;

/// How many clients there are.
pub(super) const CLIENTS: usize = 3;

/// An operation that exceeds its own limit by this does not end.
const SLACK: Duration = Duration::from_secs(8);
/// How long after the last fault everything has been released. Leases that would hide a leak are longer.
const GIVEN_BACK: Duration = Duration::from_secs(6);

/// How long clients of real servers tolerate an outage.
pub(super) const OUTAGE_LIMIT: Duration = Duration::from_secs(1);

/// How a round is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// Which server.
    pub(super) flavour: Flavour,
    /// How long a hold without a lease lasts unrenewed.
    pub(super) watchdog: Duration,
    /// After how long without a reply a connection is replaced.
    pub(super) response: Duration,
    /// The commands that the server denies to the clients.
    pub(super) denied: &'static [&'static str],
}

impl Setting {
    /// A client of the round. Its time-outs are short, so the first connection may need more than one try on a busy machine.
    pub(super) async fn connect(self, url: String) -> Client {
        let connect = Client::connect(url)
            .watchdog(self.watchdog)
            .response_timeout(self.response)
            .connect_timeout(self.response)
            .outage_limit(OUTAGE_LIMIT)
            .linger(Duration::from_millis(10));
        let begun = Instant::now();
        loop {
            match connect.clone().await {
                Ok(client) => return client,
                Err(error) => assert!(begun.elapsed() < SLACK, "no connection: {error}"),
            }
        }
    }
}

/// The state of one round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) clients: Vec<Client>,
    /// A client without faults on a real server.
    pub(super) observer: Client,
    pub(super) history: Arc<History>,
    pub(super) checker: Arc<Checker>,
    watchdog: Duration,
    /// How long a wait without a limit may take.
    endless: Duration,
    /// How long the clients tolerate an outage at most.
    outage_limit: Duration,
    /// Whether guards are queried for their owners. A hold whose owner was queried is not handed over to another task.
    queries_owners: AtomicBool,
    // Dropped after the clients.
    pub(super) environment: Environment,
}

/// The times of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// How long to wait.
    pub(super) wait: Duration,
    /// For how long to hold it.
    pub(super) lease: Option<Duration>,
    /// How long to hold it at most.
    pub(super) max_hold: Option<Duration>,
}

/// A former owner, and whether everything that it held is known to be released.
#[derive(Clone, Debug)]
pub(super) struct Former {
    /// As the guard reported it.
    pub(super) owner: Owner,
    /// The identity that used it.
    pub(super) identity: Identity,
    /// Whether every release of it got a reply.
    pub(super) is_settled: bool,
}

impl Round {
    /// The clients in their environment, with their watchdog, how long a wait of theirs without a limit may take, and their
    /// limit for outages.
    pub(super) fn new(
        (clients, observer): (Vec<Client>, Client),
        [watchdog, endless, outage_limit]: [Duration; 3],
        history: Arc<History>,
        environment: Environment,
    ) -> Self {
        let checker = Arc::new(Checker::new(Arc::clone(&history), environment.clone()));
        Self {
            clients,
            observer,
            history,
            checker,
            watchdog,
            endless,
            outage_limit,
            queries_owners: AtomicBool::new(true),
            environment,
        }
    }

    /// Sets whether guards are queried for their owners.
    pub(super) fn query_owners(&self, queries_owners: bool) {
        self.queries_owners.store(queries_owners, Ordering::Relaxed);
    }

    /// The owner of a grant, if guards are queried for that.
    pub(super) fn owner_of(&self, held: &Held) -> Option<Owner> {
        if self.queries_owners.load(Ordering::Relaxed) { held.owner() } else { None }
    }

    /// Creates the semaphores.
    pub(super) async fn create(&self) {
        for number in 0..NAMES {
            let name = |kind| Resource::name_of(kind, number);
            let set = self.observer.semaphore(name(Kind::Semaphore)).try_set_permits(PERMITS).await;
            assert_eq!(set, Ok(true));
            let set = self.observer.leased_semaphore(name(Kind::Leased)).try_set_permits(PERMITS).await;
            assert_eq!(set, Ok(true));
        }
    }

    /// Removes the semaphores.
    pub(super) async fn remove(&self) {
        for number in 0..NAMES {
            let name = |kind| Resource::name_of(kind, number);
            let removed = self.observer.semaphore(name(Kind::Semaphore)).delete().await;
            assert_eq!(removed, Ok(true));
            let removed = self.observer.leased_semaphore(name(Kind::Leased)).delete().await;
            assert_eq!(removed, Ok(true));
        }
    }

    /// Runs one operation, and records it. None if it was dropped or does not end.
    async fn operate<T>(
        &self,
        who: Who,
        what: &str,
        limit: Duration,
        polling: Polling,
        work: impl Future<Output = T>,
        outcome: impl FnOnce(&T) -> String,
    ) -> Option<T> {
        self.history.begun(who, format!("{what}, {polling:?}"));
        let begun = Instant::now();
        let mut work = pin!(polling.run(work));
        let mut most = limit + SLACK;
        let done = loop {
            if let Ok(done) = timeout(most, work.as_mut()).await {
                break done;
            }
            // The time during which a machine was stopped does not count.
            let had = begun.elapsed().saturating_sub(self.environment.stopped(who.client, begun));
            most = (limit + SLACK).saturating_sub(had);
            if most.is_zero() {
                let what = format!("{who} has not ended within {limit:?} and {SLACK:?}: {what}");
                self.checker.violation(Invariant::Ends, &what);
                return None;
            }
        };
        let result = done.as_ref().map_or_else(|| "dropped".to_owned(), outcome);
        self.history.step(who, format!("{what}: {result}"));
        done
    }

    /// Acquires. The identity is that of the named owner, or a new one.
    pub(super) async fn acquire(
        &self,
        who: Who,
        request: &Request,
        identity: Option<Identity>,
        polling: Polling,
    ) -> Result<Arc<Grant>, Option<AcquireError>> {
        let Request { resource, wait, lease, max_hold, owner, steal } = request;
        let max_hold = max_hold.map_or_else(String::new, |most| format!(", max_hold {most:?}"));
        let owner = owner.as_ref().map_or_else(String::new, |owner| format!(", as {owner}"));
        let (thief, work) = (if *steal { ", steal" } else { "" }, request.of(&self.clients[who.client]));
        let what = format!("acquire{max_hold}{owner}{thief}");
        let disturbing = steal.then(|| self.checker.disturb(who, *resource));
        let work = async {
            let done = work.await;
            if let (Some(disturbing), Ok(_)) = (disturbing, &done) {
                self.checker.disturbed(disturbing);
            }
            done
        };
        let terms = Terms { wait: wait.unwrap_or(self.endless), lease: *lease, max_hold: request.max_hold };
        let done = self.grant(who, *resource, identity, terms, polling, &what, work).await;
        if let (Some(disturbing), Err(_)) = (disturbing, &done) {
            self.checker.may_have_disturbed(disturbing);
        }
        done
    }

    /// Runs a request.
    #[expect(clippy::too_many_arguments, reason = "each describes another property of one request")]
    pub(super) async fn grant(
        &self,
        who: Who,
        resource: Resource,
        identity: Option<Identity>,
        Terms { wait, lease, max_hold }: Terms,
        polling: Polling,
        what: &str,
        work: impl Future<Output = Result<Held, AcquireError>>,
    ) -> Result<Arc<Grant>, Option<AcquireError>> {
        let identity = identity.unwrap_or_else(|| self.checker.identity());
        let at = Instant::now();
        let (kind, parts) = (resource.kind, resource.parts);
        let what = format!("{kind:?} {parts:#b} {what}, wait {wait:?}, lease {lease:?}");
        let done = self.operate(who, &what, wait, polling, work, |done| match done {
            Ok(held) => self
                .owner_of(held)
                .map_or_else(|| "granted".to_owned(), |owner| format!("granted as {owner}")),
            Err(error) => error.to_string(),
        });
        match done.await {
            Some(Ok(held)) => {
                let times = RequestTimes { at, watchdog: self.watchdog, lease, max_hold };
                Ok(self.checker.granted(who, resource, identity, times, held))
            }
            Some(Err(error)) => Err(Some(error)),
            None => Err(None),
        }
    }

    /// Re-enters by the guard.
    pub(super) async fn reenter(&self, who: Who, grant: &Arc<Grant>, polling: Polling) -> Option<Arc<Grant>> {
        let at = Instant::now();
        let work = grant.with_guard(Held::reenter)??;
        let what = format!("reenter {:?} {:#b}", grant.resource.kind, grant.resource.parts);
        let outcome = |done: &Result<_, AcquireError>| {
            done.as_ref().err().map_or("granted".to_owned(), ToString::to_string)
        };
        let held = self.operate(who, &what, Duration::ZERO, polling, work, outcome).await?.ok()?;
        let times = RequestTimes { at, watchdog: self.watchdog, lease: None, max_hold: None };
        Some(self.checker.granted(who, grant.resource, grant.identity, times, held))
    }

    /// Extends the lease.
    pub(super) async fn extend(&self, who: Who, grant: &Grant, length: Duration, polling: Polling) -> bool {
        let Some(work) = grant.with_guard(|held| held.extend(length)).flatten() else { return false };
        self.checker.may_last(grant, length);
        let what = format!("extend {:?} {:#b} to {length:?}", grant.resource.kind, grant.resource.parts);
        let done = self.operate(who, &what, Duration::ZERO, polling, work, |done| format!("{done:?}")).await;
        done.is_some_and(|done| done.is_ok())
    }

    /// Releases it; true if the server has confirmed it.
    pub(super) async fn release(&self, who: Who, grant: &Arc<Grant>, polling: Polling) -> bool {
        let Some(held) = self.checker.take(grant) else { return false };
        let what = format!("release {:?} {:#b}", grant.resource.kind, grant.resource.parts);
        let done = self
            .operate(who, &what, Duration::ZERO, polling, held.release(), |done| format!("{done:?}"))
            .await;
        matches!(done, Some(Ok(())))
    }

    /// Drops the guard.
    pub(super) fn let_go(&self, who: Who, grant: &Arc<Grant>) {
        let Some(held) = self.checker.take(grant) else { return };
        let lost = held.loss().map_or_else(String::new, |loss| format!(", lost before: {loss:?}"));
        drop(held);
        self.history.begun(who, format!("drop {:?} {:#b}{lost}", grant.resource.kind, grant.resource.parts));
    }

    /// Drops all guards.
    pub(super) fn let_all_go(&self) {
        for grant in self.checker.all() {
            let held = self.checker.take(&grant);
            self.environment.by_clock_of(grant.client(), || drop(held));
        }
    }

    /// Unlocks by force.
    pub(super) async fn force(&self, who: Who, resource: Resource, polling: Polling) {
        let Some(lock) = resource.lock(&self.clients[who.client]) else { return };
        let what = format!("force_unlock {:?} {:#b}", resource.kind, resource.parts);
        let disturbing = self.checker.disturb(who, resource);
        let work = lock.force_unlock();
        let done = self.operate(who, &what, Duration::ZERO, polling, work, |done| format!("{done:?}")).await;
        if let Some(Ok(freed)) = done {
            self.checker.disturbed(disturbing);
            if freed {
                self.checker.forced(disturbing);
            }
        } else {
            self.checker.may_have_disturbed(disturbing);
        }
    }

    /// Releases as an owner that holds nothing any more, which must be refused.
    pub(super) async fn release_as_former(&self, who: Who, resource: Resource, former: &Former) {
        let Some(lock) = resource.lock(&self.clients[who.client]) else { return };
        let what = format!("release {:?} {:#b} as {}", resource.kind, resource.parts, former.owner);
        let work = lock.as_owner(&former.owner).release();
        let done =
            self.operate(who, &what, Duration::ZERO, Polling::Whole, work, |done| format!("{done:?}")).await;
        if former.is_settled && matches!(done, Some(Ok(_))) {
            let owner = &former.owner;
            let what = format!("{who} has released a hold of {owner}, which held nothing");
            self.checker.violation(Invariant::Owner, &what);
        }
    }

    /// Runs an operation that returns no guard.
    pub(super) async fn count<T: Debug>(&self, who: Who, what: &str, work: impl Future<Output = T>) {
        self.operate(who, what, self.outage_limit, Polling::Whole, work, |done| format!("{done:?}")).await;
    }

    /// Shuts a client down, and returns how many locks are left to expire.
    pub(super) async fn shut_down(&self, who: Who, grace: Duration) -> Option<usize> {
        let work = self.clients[who.client].shutdown(grace);
        let what = format!("shutdown, grace {grace:?}");
        let done = self.operate(who, &what, grace, Polling::Whole, work, |done| format!("{done:?}")).await;
        done.map(|done| {
            self.checker.shut_down(who.client);
            done.left_to_expire
        })
    }

    /// Waits until a client has a connection.
    pub(super) async fn connected(&self, client: usize) {
        let begun = Instant::now();
        while self.clients[client].lock("lock:question").is_locked().await.is_err() {
            if begun.elapsed() > SLACK {
                let what = format!("client {client} has no connection for {SLACK:?}");
                return self.checker.violation(Invariant::Ends, &what);
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// All faults are over and no request is in flight: guards and clients agree, and when the guards are dropped, nothing is
    /// left.
    pub(super) async fn end(&self) {
        self.environment.heal();
        self.history.note("the end: no faults any more".to_owned());
        self.checker.quiet(&self.observer).await;
        drop(self.observer.latch("lock:latch").delete().await);
        self.let_all_go();
        self.history.note("no guards any more".to_owned());
        let begun = Instant::now();
        for number in (0..NAMES).filter(|_| self.environment.has_kind(Kind::Fair)) {
            // A fair waiter that could not leave the queue stays in it until another one arrives.
            let lock = self.observer.fair_lock(Resource::name_of(Kind::Fair, number));
            match lock.acquire().wait(GIVEN_BACK).await {
                Ok(guard) => {
                    drop(guard.release().await);
                    self.history.note(format!("the fair lock {number} can be had"));
                }
                Err(error) => {
                    let what = format!("the fair lock {number} cannot be had: {error}");
                    self.checker.violation(Invariant::Stranded, &what);
                }
            }
        }
        loop {
            let left = self.left().await;
            if left.is_empty() {
                return self.history.note("nothing is left".to_owned());
            }
            if begun.elapsed() > GIVEN_BACK {
                let what = format!("{GIVEN_BACK:?} after the end: {}", left.join("; "));
                return self.checker.violation(Invariant::Left, &what);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// The state that is left without any guard: by queries of a client, and then by the server's own lists.
    async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        let spaces = [Kind::Plain, Kind::Fair, Kind::SetNx, Kind::Group, Kind::Read, Kind::Write];
        let spaces = spaces.into_iter().filter(|kind| self.environment.has_kind(*kind));
        for (kind, number) in spaces.flat_map(|kind| (0..NAMES).map(move |number| (kind, number))) {
            let Some(lock) = Resource::new(kind, number).lock(&self.observer) else { continue };
            match lock.holder().await {
                Ok(None) => {}
                Ok(Some(holder)) => left.push(format!(
                    "{kind:?} {number} is held for {:?} by {:?}",
                    holder.remaining,
                    holder.owner.map(|owner| owner.to_string())
                )),
                Err(error) => left.push(error.to_string()),
            }
        }
        for number in 0..NAMES {
            let counted =
                self.observer.semaphore(Resource::name_of(Kind::Semaphore, number)).available().await;
            let leased =
                self.observer.leased_semaphore(Resource::name_of(Kind::Leased, number)).available().await;
            for (what, free) in [("counted", counted), ("leased", leased)] {
                if free != Ok(PERMITS.into()) {
                    left.push(format!("{free:?} of {PERMITS} permits are free: {what} {number}"));
                }
            }
        }
        left.extend(self.environment.left());
        left
    }
}
