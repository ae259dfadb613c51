//! Which types may cross threads, and which cannot be cloned.

use std::ops::Deref;
use std::time::Duration;

use leasehold::{
    Acquire, AcquireAll, AcquireError, AcquirePermits, AcquireQuorum, AnyAcquire, AnyGuard, AnyLock,
    AnyTryAcquire, BackOff, ChangeError, Client, ClientInfo, Config, ConfigError, ConnectError,
    ConnectOptions, Credentials, Diagnosis, Error, Event, EventLock, Events, ExtendError, Fact, FairLock,
    Fence, FencedGuard, FencedLock, Finding, Guard, HeldLock, HoldView, Holder, Interrupt,
    InvalidRequestError, Latch, LatchOpened, LeasedPermits, LeasedSemaphore, List, Listing, Lock, LockKind,
    Loss, LostError, MultiGuard, MultiLock, Operation, Owner, OwnerLock, OwnerParseError, PermitId,
    PermitIdParseError, PingError, QueryError, QueuePosition, QuorumGuard, QuorumLock, ReadGuard, ReadLock,
    ReleaseError, Released, RwLock, Semaphore, SemaphorePermits, ServerError, Severity, ShutdownReport,
    StaleTokenError, Stats, Status, Subject, TimeParseError, TryAcquire, TryAcquirePermits, TrySetPermits,
    UrlError, WaitError, Waiter, Waiters, WriteError, WriteGuard, WriteLock,
};

fn free<T: Send + Sync + Unpin + 'static>() {}
fn sendable<T: Send + Unpin + 'static>(_: T) {}

/// Handles and their operations: shared, cloned and sent between threads.
#[test]
fn handles_are_send_sync_static_and_clone() {
    fn handle<T: Clone + std::fmt::Debug + Send + Sync + Unpin + 'static>() {}
    handle::<Client>();
    handle::<Config>();
    handle::<ConnectOptions>();
    handle::<Credentials>();
    handle::<Lock>();
    handle::<OwnerLock>();
    handle::<FencedLock>();
    handle::<FairLock>();
    handle::<RwLock>();
    handle::<ReadLock>();
    handle::<WriteLock>();
    handle::<MultiLock>();
    handle::<QuorumLock>();
    handle::<Semaphore>();
    handle::<LeasedSemaphore>();
    handle::<Latch>();
    handle::<Acquire>();
    handle::<Acquire<FencedGuard>>();
    handle::<Acquire<ReadGuard>>();
    handle::<Acquire<WriteGuard>>();
    handle::<TryAcquire>();
    handle::<TryAcquire<FencedGuard>>();
    handle::<TryAcquire<ReadGuard>>();
    handle::<TryAcquire<WriteGuard>>();
    handle::<AnyAcquire>();
    handle::<AnyTryAcquire>();
    handle::<List>();
    handle::<AcquireAll>();
    handle::<AcquireQuorum>();
    handle::<AcquirePermits>();
    handle::<AcquirePermits<LeasedPermits>>();
    handle::<AcquirePermits<Vec<PermitId>>>();
    handle::<TryAcquirePermits>();
    handle::<TryAcquirePermits<LeasedPermits>>();
    handle::<TryAcquirePermits<Vec<PermitId>>>();
    handle::<TrySetPermits>();
    handle::<LatchOpened>();
    handle::<HoldView>();
    handle::<Interrupt>();
}

/// A lock whose type is not known is shared like any other.
#[test]
fn a_lock_of_any_type_is_send_and_sync() {
    free::<Box<dyn AnyLock>>();
    free::<std::sync::Arc<dyn AnyLock>>();
}

#[test]
fn values_are_send_sync_and_static() {
    free::<BackOff>();
    free::<ClientInfo>();
    free::<Diagnosis>();
    free::<Event>();
    free::<EventLock>();
    free::<Events>();
    free::<Fact>();
    free::<Fence>();
    free::<Finding>();
    free::<HeldLock>();
    free::<Holder>();
    free::<Listing>();
    free::<LockKind>();
    free::<Loss>();
    free::<Owner>();
    free::<PermitId>();
    free::<QueuePosition>();
    free::<Waiter>();
    free::<Waiters>();
    free::<Released>();
    free::<Severity>();
    free::<ShutdownReport>();
    free::<Stats>();
    free::<Status>();
    free::<Subject>();
}

/// Compiles for types that are not `Clone`: for those that are, both impls fit, and the call is ambiguous.
trait Single<Why> {
    fn there_is_only_one() {}
}
struct NotSingle;
impl<T> Single<()> for T {}
impl<T: Clone> Single<NotSingle> for T {}

/// A guard moves to where it is needed, and stays the only proof of its hold.
#[test]
fn guards_are_send_sync_static_and_not_clone() {
    free::<Guard>();
    free::<FencedGuard>();
    free::<ReadGuard>();
    free::<WriteGuard>();
    free::<AnyGuard>();
    free::<MultiGuard>();
    free::<QuorumGuard>();
    free::<SemaphorePermits>();
    free::<LeasedPermits>();
    <Guard as Single<_>>::there_is_only_one();
    <FencedGuard as Single<_>>::there_is_only_one();
    <ReadGuard as Single<_>>::there_is_only_one();
    <WriteGuard as Single<_>>::there_is_only_one();
    <AnyGuard as Single<_>>::there_is_only_one();
    <MultiGuard as Single<_>>::there_is_only_one();
    <QuorumGuard as Single<_>>::there_is_only_one();
    <SemaphorePermits as Single<_>>::there_is_only_one();
    <LeasedPermits as Single<_>>::there_is_only_one();
}

/// Compiles for types that neither become a plain lock nor dereference to one, in the same way.
trait Fenced<Why> {
    fn is_no_plain_lock() {}
}
struct Converted;
struct Dereferenced;
impl<T> Fenced<()> for T {}
impl<T: Into<Lock>> Fenced<Converted> for T {}
impl<T: Deref<Target = Lock>> Fenced<Dereferenced> for T {}

/// A plain lock can be acquired without a token.
#[test]
fn a_fenced_lock_is_no_plain_lock() {
    <FencedLock as Fenced<_>>::is_no_plain_lock();
}

/// A hold is released once: the release consumes the guard, and there is no second one.
#[test]
fn a_release_consumes_the_guard() {
    fn taken<G, T>(_release: fn(G) -> Operation<T>) {}
    taken::<Guard, _>(Guard::release);
    taken::<FencedGuard, _>(FencedGuard::release);
    taken::<ReadGuard, _>(ReadGuard::release);
    taken::<WriteGuard, _>(WriteGuard::release);
    taken::<WriteGuard, _>(WriteGuard::downgrade);
    taken::<AnyGuard, _>(AnyGuard::release);
    taken::<MultiGuard, _>(MultiGuard::release);
    taken::<QuorumGuard, _>(QuorumGuard::release);
    taken::<SemaphorePermits, _>(SemaphorePermits::release);
    taken::<LeasedPermits, _>(LeasedPermits::release);
}

#[test]
fn errors_are_send_sync_and_static() {
    fn error<T: std::error::Error + Clone + Eq + Send + Sync + 'static>() {}
    error::<AcquireError>();
    error::<ChangeError>();
    error::<ConfigError>();
    error::<ConnectError>();
    error::<Error>();
    error::<ExtendError>();
    error::<ServerError>();
    error::<InvalidRequestError>();
    error::<Loss>();
    error::<LostError>();
    error::<OwnerParseError>();
    error::<PermitIdParseError>();
    error::<PingError>();
    error::<QueryError>();
    error::<ReleaseError>();
    error::<StaleTokenError>();
    error::<TimeParseError>();
    error::<UrlError>();
    error::<WaitError>();
    error::<WriteError>();
}

/// Every public type has to be named in this file.
#[test]
fn every_public_type_is_checked_for_its_bounds() {
    let exports = include_str!("../../../leasehold/src/lib.rs").split("pub use crate::").skip(1);
    let names = exports.filter_map(|export| export.split(';').next()?.split("::").nth(1));
    let names = names.flat_map(|names| names.split(|c: char| !c.is_alphanumeric() && c != '_'));
    // Functions are no types.
    let names: Vec<_> = names.filter(|name| name.starts_with(char::is_uppercase)).collect();
    assert!(names.len() > 40, "{names:?}");
    let here = include_str!("bounds.rs");
    let missing: Vec<_> = names.into_iter().filter(|name| !is_used(here, name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Whether a name appears as the first one between angle brackets, as a trait there, or is the type that all calls return.
fn is_used(text: &str, name: &str) -> bool {
    [format!("<{name}>"), format!("<{name}<"), format!("<dyn {name}>")].iter().any(|used| text.contains(used))
        || name == "Operation"
}

#[tokio::test]
async fn futures_are_send_and_static_and_the_work_of_run_needs_neither() {
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.lock("a");
    sendable(lock.acquire().into_future());
    sendable(lock.try_acquire().into_future());
    sendable(lock.force_unlock());
    sendable(client.fair_lock("a").queue());
    sendable(client.fenced_lock("a").acquire().into_future());
    sendable(client.rw_lock("b").read().acquire().into_future());
    sendable(client.rw_lock("b").write().try_acquire().into_future());
    sendable(AnyLock::acquire(&lock).into_future());
    sendable(AnyLock::try_acquire(&lock).into_future());
    sendable(client.multi_lock(["c", "d"]).acquire().into_future());
    sendable(client.multi_lock(["c", "d"]).try_acquire());
    sendable(client.group_lock("e", ["1", "2"]).acquire().into_future());
    sendable(QuorumLock::new([&client], "f").acquire().into_future());
    sendable(QuorumLock::new([&client], "f").try_acquire());
    sendable(client.semaphore("g").acquire(1).into_future());
    sendable(client.semaphore("g").try_set_permits(1).into_future());
    sendable(client.leased_semaphore("h").try_acquire(1).into_future());
    sendable(client.leased_semaphore("h").acquire(1).permanent().into_future());
    sendable(client.latch("i").opened().into_future());
    sendable(client.fenced_write("j", 1, "value"));
    sendable(client.shutdown(Duration::ZERO));

    let guard = lock.acquire().await.unwrap();
    sendable(guard.extend(Duration::from_secs(1)));
    sendable(guard.reenter());
    // `run` borrows the guard and the work: neither has to be Send or 'static.
    let local = std::rc::Rc::new(1);
    assert_eq!(guard.run(async { *local }).await, Ok(1));
    let lost: Operation<Loss> = guard.lost();
    drop(guard);
    sendable(lost);

    let write = client.rw_lock("b").write().acquire().await.unwrap();
    sendable(write.reenter());
    sendable(write.downgrade());
    let read = client.rw_lock("b").read().acquire().await.unwrap();
    sendable(read.try_upgrade());
    let several = client.multi_lock(["c", "d"]).acquire().await.unwrap();
    sendable(several.lost());
    assert_eq!(several.run(async { *local }).await, Ok(1));
    sendable(several.release());
    let quorum = QuorumLock::new([&client], "f").acquire().await.unwrap();
    sendable(quorum.lost());
    assert_eq!(quorum.run(async { *local }).await, Ok(1));
    sendable(quorum.release());
}
