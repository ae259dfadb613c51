//! Whether guards tell the truth, judged by nothing but what guards and clients say.
//!
//! At each grant every other guard is asked. Loss is final, so all guards that were there at one moment and say "held"
//! later were held at that moment together; if they exclude each other, one of them was wrong. What is asked needs no
//! pause and no clock for that.
//!
//! Two things are documented exceptions, and nothing else is:
//!
//! - A guard whose lock another client has stolen or forced learns of it at its next look: after a third of its lease, or
//!   when its lease is over if it cannot look. The same holds for a lock that was granted and taken before the reply was
//!   seen. So it is not believed from the beginning of such an operation until one
//!   lease after its end; and for the rest of the round if the end is not known, because the operation failed or was
//!   dropped, and may reach the server at any time. If it is of the guard's own client, the loss is known when the
//!   operation returns.
//! - Guards of one identity re-enter. An identity is that of one plain acquire, or of one owner that was named. It is not
//!   the owner as text: two plain acquires are never the same, whatever their guards say.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::{Client, Loss, Owner};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::held::Held;
use super::history::{History, Who};
use super::thing::{Kind, PERMITS, Thing};

/// The guards of a round, and what was wrong with them.
#[derive(Debug)]
pub(super) struct Checker {
    history: Arc<History>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    grants: Vec<Arc<Grant>>,
    disturbances: Vec<Disturbance>,
    identities: u64,
    violations: Vec<String>,
}

/// On whose behalf something is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64);

/// A guard that is out.
#[derive(Debug)]
pub(super) struct Grant {
    who: Who,
    pub(super) thing: Thing,
    pub(super) identity: Identity,
    /// When it was asked for. The server may have granted it at any time since.
    asked: Instant,
    /// When it was granted, as far as its task knows.
    at: Instant,
    /// The longest lease it has had.
    lease: Mutex<Duration>,
    /// Empty when it is being given back.
    held: Mutex<Option<Held>>,
    /// The task that records its loss.
    watcher: Option<AbortHandle>,
}

/// A steal or a `force_unlock`.
#[derive(Debug)]
struct Disturbance {
    who: Who,
    thing: Thing,
    begun: Instant,
    end: Option<Instant>,
}

/// Which disturbance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disturbing(usize);

/// A look that is due may be late by this, on a machine that has much to do.
const LATE: Duration = Duration::from_millis(500);
/// For how long a guard must be wrong about a loss: until then something may still be under way.
const STUBBORN: Duration = Duration::from_millis(300);

impl Grant {
    /// What is known of the guard, as long as it is out.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Held) -> T) -> Option<T> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(look)
    }

    fn says_held(&self) -> bool {
        self.look(Held::is_held).unwrap_or(false)
    }

    fn lease(&self) -> Duration {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It may last so long from now on.
    pub(super) fn may_last(&self, length: Duration) {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        *lease = length.max(*lease);
    }

    fn describe(&self) -> String {
        let owner = self.look(Held::owner).flatten().map_or_else(String::new, |owner| format!(" as {owner}"));
        format!("{:?} {:#b} of {}{owner}", self.thing.kind, self.thing.parts, self.who)
    }
}

impl Checker {
    pub(super) fn new(history: Arc<History>) -> Self {
        Self { history, state: Mutex::default() }
    }

    /// An identity that nothing else has.
    pub(super) fn identity(&self) -> Identity {
        let mut state = self.state();
        state.identities += 1;
        Identity(state.identities)
    }

    pub(super) fn violation(&self, what: String) {
        self.history.violation(&what);
        self.state().violations.push(what);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// There is one more guard. All others are asked.
    pub(super) fn granted(
        &self,
        who: Who,
        thing: Thing,
        identity: Identity,
        asked: Instant,
        lease: Duration,
        held: Held,
    ) -> Arc<Grant> {
        let at = Instant::now();
        let watcher = held.lost().map(|lost| {
            let history = Arc::clone(&self.history);
            let recorded = async move {
                let loss = lost.await;
                history.step(who, format!("{:?} {:#b} is lost: {loss:?}", thing.kind, thing.parts));
            };
            tokio::spawn(recorded).abort_handle()
        });
        let (lease, held) = (Mutex::new(lease), Mutex::new(Some(held)));
        let new;
        let there = {
            let mut state = self.state();
            // Who enters again has what was there before.
            let same = state.grants.iter().filter(|grant| grant.identity == identity);
            let asked = same.map(|grant| grant.asked).fold(asked, Instant::min);
            new = Arc::new(Grant { who, thing, identity, asked, at, lease, held, watcher });
            state.grants.push(Arc::clone(&new));
            state.grants.clone()
        };
        if thing.kind.counts() {
            self.count(thing, &there);
        } else {
            self.ask(&new, &there);
        }
        new
    }

    /// Counts the permits that were out together.
    fn count(&self, thing: Thing, there: &[Arc<Grant>]) {
        let out = there.iter().filter(|grant| grant.thing.touches(thing) && grant.says_held());
        let out: u32 = out.map(|grant| grant.thing.permits).sum();
        if out > PERMITS {
            self.violation(format!(
                "{out} of {PERMITS} permits are out: {:?} {:#b}",
                thing.kind, thing.parts
            ));
        }
    }

    /// Asks the guards that the new one excludes.
    fn ask(&self, new: &Grant, there: &[Arc<Grant>]) {
        for other in there {
            if other.identity == new.identity || !other.thing.excludes(new.thing) {
                continue;
            }
            // The new one last: if it still is held, it was while the other was.
            if other.says_held() && new.says_held() && !self.is_excused(other) && !self.is_excused(new) {
                let (new, other) = (new.describe(), other.describe());
                self.violation(format!("two hold at once: {new} was granted beside {other}"));
            }
        }
    }

    /// Whether a guard may not know yet that its lock was taken.
    fn is_excused(&self, grant: &Grant) -> bool {
        let now = Instant::now();
        self.state().disturbances.iter().any(|disturbance| {
            let elsewhere = disturbance.who.client != grant.who.client;
            disturbance.thing.touches(grant.thing)
                && disturbance
                    .end
                    .is_none_or(|end| elsewhere && end >= grant.asked && now < end + grant.lease() + LATE)
        })
    }

    /// The guard is given back from now on, and not asked any more.
    pub(super) fn take(&self, grant: &Arc<Grant>) -> Option<Held> {
        self.state().grants.retain(|other| !Arc::ptr_eq(other, grant));
        if let Some(watcher) = &grant.watcher {
            watcher.abort();
        }
        grant.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// All guards that are out.
    pub(super) fn all(&self) -> Vec<Arc<Grant>> {
        self.state().grants.clone()
    }

    /// A steal or a `force_unlock` begins.
    pub(super) fn disturb(&self, who: Who, thing: Thing) -> Disturbing {
        let mut state = self.state();
        state.disturbances.push(Disturbance { who, thing, begun: Instant::now(), end: None });
        Disturbing(state.disturbances.len() - 1)
    }

    /// It has ended, and it is known how.
    pub(super) fn disturbed(&self, Disturbing(number): Disturbing) {
        self.state().disturbances[number].end = Some(Instant::now());
    }

    /// A `force_unlock` has freed something: the guards of its own client that were there before it know.
    pub(super) fn forced(&self, Disturbing(number): Disturbing) {
        let (who, thing, begun) = {
            let Disturbance { who, thing, begun, .. } = &self.state().disturbances[number];
            (*who, *thing, *begun)
        };
        for grant in self.all() {
            // A half of a read-write lock is forced alone.
            let is_same = grant.thing.kind == thing.kind || !matches!(thing.kind, Kind::Read | Kind::Write);
            if is_same
                && grant.who.client == who.client
                && grant.at < begun
                && grant.thing.touches(thing)
                && grant.says_held()
            {
                self.violation(format!("still says held after {who} has forced it: {}", grant.describe()));
            }
        }
    }

    /// A client was shut down: its guards know.
    pub(super) fn shut_down(&self, client: usize) {
        for grant in self.all() {
            if grant.who.client == client && grant.thing.kind != Kind::Semaphore && grant.says_held() {
                self.violation(format!("still says held after a shutdown: {}", grant.describe()));
            }
        }
    }

    /// Nothing is under way: what guards say is what another client learns.
    ///
    /// A guard that says held before and after the question is held in between, and so is its lock. A guard that was told
    /// that its lock is gone has none, unless another guard of the same owner has it.
    pub(super) async fn quiet(&self, observer: &Client) {
        for grant in self.all() {
            let begun = Instant::now();
            loop {
                let held = grant.says_held();
                let loss = grant.look(Held::loss).flatten();
                let Some(asked) = grant.look(|held| held.asked_elsewhere(grant.thing, observer)).flatten()
                else {
                    break;
                };
                let Some(there) = asked.await else { break };
                if held && grant.says_held() && !there && !self.is_excused(&grant) {
                    self.violation(format!("says held and is not: {}", grant.describe()));
                    break;
                }
                let denied = matches!(loss, Some(Loss::Gone | Loss::TakenOver | Loss::ForceUnlocked));
                if !denied || !there || self.is_held_by_another(&grant) {
                    break;
                }
                if begun.elapsed() > STUBBORN {
                    let loss = loss.map_or_else(String::new, |loss| format!("{loss:?}"));
                    self.violation(format!("was told {loss} and is held: {}", grant.describe()));
                    break;
                }
                sleep(STUBBORN / 10).await;
            }
        }
    }

    fn is_held_by_another(&self, grant: &Arc<Grant>) -> bool {
        let owner = |grant: &Grant| -> Option<Owner> { grant.look(Held::owner).flatten() };
        let mine = owner(grant);
        self.all().iter().any(|other| {
            !Arc::ptr_eq(other, grant)
                && other.thing.touches(grant.thing)
                && (owner(other) == mine || other.thing.kind == Kind::Multi)
                && other.says_held()
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::Ask;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn who(client: usize) -> Who {
        Who { client, task: 0 }
    }

    fn checker() -> Checker {
        Checker::new(Arc::new(History::new()))
    }

    /// A client with an engine of its own: two such clients grant the same lock twice.
    async fn client() -> Client {
        Client::connect("memory:").await.unwrap()
    }

    async fn held(client: &Client, thing: Thing) -> Held {
        Ask::new(thing, Duration::ZERO).of(client).await.unwrap()
    }

    async fn granted(checker: &Checker, number: usize, client: &Client, thing: Thing) -> Arc<Grant> {
        let (identity, held) = (checker.identity(), held(client, thing).await);
        checker.granted(who(number), thing, identity, Instant::now(), LONG, held)
    }

    #[tokio::test]
    async fn two_holders_are_noticed() {
        for kind in Kind::LOCKS.iter().copied().filter(|kind| *kind != Kind::Read) {
            let (checker, thing) = (checker(), Thing::new(kind, 0));
            granted(&checker, 0, &client().await, thing).await;
            granted(&checker, 1, &client().await, Thing::new(kind, 1)).await;
            assert_eq!(checker.violations(), [""; 0]);
            granted(&checker, 1, &client().await, thing).await;
            assert_eq!(checker.violations().len(), 1, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn too_many_permits_are_noticed() {
        for kind in [Kind::Semaphore, Kind::Leased] {
            let (checker, thing) = (checker(), Thing { permits: 2, ..Thing::new(kind, 0) });
            for out in 0..2 {
                assert_eq!(checker.violations().len(), 0, "{out}");
                let client = client().await;
                let set = match kind {
                    Kind::Leased => client.leased_semaphore(thing.name()).try_set_permits(PERMITS).await,
                    _ => client.semaphore(thing.name()).try_set_permits(PERMITS).await,
                };
                assert_eq!(set, Ok(true));
                granted(&checker, out, &client, thing).await;
            }
            assert_eq!(checker.violations().len(), 1);
        }
    }

    #[tokio::test]
    async fn readers_and_guards_given_back_are_nobodys_rivals() {
        let (checker, read) = (checker(), Thing::new(Kind::Read, 0));
        let readers = [
            granted(&checker, 0, &client().await, read).await,
            granted(&checker, 1, &client().await, read).await,
        ];
        for reader in &readers {
            drop(checker.take(reader));
        }
        granted(&checker, 0, &client().await, Thing::new(Kind::Write, 0)).await;
        assert_eq!(checker.violations(), [""; 0]);
    }

    #[tokio::test]
    async fn the_victim_of_another_client_is_excused_and_no_other() {
        let (checker, thing) = (checker(), Thing::new(Kind::Plain, 0));
        granted(&checker, 0, &client().await, thing).await;
        let stealing = checker.disturb(who(1), thing);
        let thief = granted(&checker, 1, &client().await, thing).await;
        checker.disturbed(stealing);
        assert_eq!(checker.violations(), [""; 0]);
        drop(checker.take(&thief));
        let forcing = checker.disturb(who(0), thing);
        checker.forced(forcing);
        assert_eq!(checker.violations().len(), 1);
    }

    #[tokio::test]
    async fn a_guard_without_a_lock_is_noticed() {
        let (checker, thing) = (checker(), Thing::new(Kind::Fair, 0));
        let (client, other) = (client().await, client().await);
        granted(&checker, 0, &client, thing).await;
        checker.quiet(&client).await;
        assert_eq!(checker.violations(), [""; 0]);
        checker.quiet(&other).await;
        assert_eq!(checker.violations().len(), 1);
    }
}
