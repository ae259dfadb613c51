//! All primitives that can be held, behind one type.

use std::time::Duration;

use leasehold::{
    AcquireError, Client, FencedGuard, FencedLock, Guard, LeasedPermits, LeasedSemaphore, Lock, MultiGuard,
    MultiLock, Owner, ReadGuard, ReadLock, ReleaseError, Semaphore, SemaphorePermits, WriteGuard, WriteLock,
};

/// A primitive that has one holder, or several.
pub(super) enum Primitive {
    Lock(Lock),
    /// With the plain lock of the same name, which answers the questions.
    Fenced(FencedLock, Lock),
    Read(ReadLock),
    Write(WriteLock),
    Multi(MultiLock),
    Semaphore(Semaphore),
    Permits(LeasedSemaphore),
}

/// A hold of one.
pub(super) enum Held {
    Lock(Guard),
    Fenced(FencedGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Multi(MultiGuard),
    Semaphore(SemaphorePermits),
    Permits(LeasedPermits),
}

impl Primitive {
    /// The names are those of `interop/java`.
    pub(super) fn new(client: &Client, kind: &str, name: &str) -> Self {
        match kind {
            "plain" => Self::Lock(client.lock(name)),
            "spin" => Self::Lock(client.spin_lock(name)),
            "fair" => Self::Lock(client.fair_lock(name).into()),
            "once" => Self::Lock(client.lock(name).non_reentrant()),
            "once-fair" => Self::Lock(client.fair_lock(name).non_reentrant().into()),
            "fenced" => Self::Fenced(client.fenced_lock(name), client.lock(name)),
            "read" => Self::Read(client.rw_lock(name).read()),
            "write" => Self::Write(client.rw_lock(name).write()),
            "multi" => Self::Multi(client.multi_lock(name.split(','))),
            "group" => {
                let (group, values) = name.split_once('/').expect("a group and its values");
                Self::Lock(client.group_lock(group, values.split(',')))
            }
            "semaphore" => Self::Semaphore(client.semaphore(name)),
            "permits" => Self::Permits(client.leased_semaphore(name)),
            _ => panic!("no such kind of lock: {kind}"),
        }
    }

    /// The lock, if this is one.
    pub(super) fn lock(&self) -> Option<Lock> {
        match self {
            Self::Lock(lock) | Self::Fenced(_, lock) => Some(lock.clone()),
            Self::Read(lock) => Some(lock.clone().into()),
            Self::Write(lock) => Some(lock.clone().into()),
            Self::Multi(_) | Self::Semaphore(_) | Self::Permits(_) => None,
        }
    }

    pub(super) async fn enter(
        &self,
        owner: &Owner,
        wait: Option<Duration>,
        lease: Option<Duration>,
    ) -> Result<Held, AcquireError> {
        // The same options of operations that have no type in common.
        macro_rules! acquire {
            ($acquire:expr, $($owner:ident)?) => {{
                let mut acquire = $acquire $(.as_owner($owner))?;
                if let Some(wait) = wait {
                    acquire = acquire.wait(wait);
                }
                acquire
            }};
        }
        macro_rules! leased {
            ($acquire:expr) => {{
                let acquire = $acquire;
                if let Some(lease) = lease { acquire.lease(lease).await } else { acquire.await }
            }};
        }
        match self {
            Self::Lock(lock) => leased!(acquire!(lock.acquire(), owner)).map(Held::Lock),
            Self::Fenced(lock, _) => leased!(acquire!(lock.acquire(), owner)).map(Held::Fenced),
            Self::Read(lock) => leased!(acquire!(lock.acquire(), owner)).map(Held::Read),
            Self::Write(lock) => leased!(acquire!(lock.acquire(), owner)).map(Held::Write),
            Self::Multi(lock) => leased!(acquire!(lock.acquire(), owner)).map(Held::Multi),
            Self::Semaphore(semaphore) => acquire!(semaphore.acquire(1),).await.map(Held::Semaphore),
            Self::Permits(semaphore) => leased!(acquire!(semaphore.acquire(1),)).map(Held::Permits),
        }
    }
}

impl Held {
    pub(super) async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Lock(guard) => guard.release().await.map(drop),
            Self::Fenced(guard) => guard.release().await.map(drop),
            Self::Read(guard) => guard.release().await.map(drop),
            Self::Write(guard) => guard.release().await.map(drop),
            Self::Multi(guard) => guard.release().await,
            Self::Semaphore(permits) => permits.release().await,
            Self::Permits(permits) => permits.release().await,
        }
    }
}
