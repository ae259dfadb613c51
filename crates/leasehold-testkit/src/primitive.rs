//! All primitives that one client at a time can hold under a name, with one interface.

use std::future::Future;
use std::time::Duration;

use leasehold::{AcquireError, Client, Guard, LeasedPermits, Lock, ReleaseError, SemaphorePermits};

/// The primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// The plain lock.
    Plain,
    /// The lock with `SET … NX`.
    SetNx,
    /// Two values of a group.
    Group,
    /// All permits of a semaphore.
    Semaphore,
    /// The same of one whose permits have a lease.
    Leased,
}

/// How many permits a semaphore has.
pub const PERMITS: u32 = 3;

/// A guard.
#[derive(Debug)]
pub enum Held {
    /// The guard of a lock.
    Lock(Guard),
    /// Permits that are only counted.
    Permits(SemaphorePermits),
    /// Permits with a lease.
    Leased(LeasedPermits),
}

impl Held {
    /// Releases it.
    ///
    /// # Errors
    ///
    /// Those of its own release.
    pub async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Lock(guard) => guard.release().await.map(drop),
            Self::Permits(permits) => permits.release().await,
            Self::Leased(permits) => permits.release().await,
        }
    }
}

impl Primitive {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Plain, Self::SetNx, Self::Group, Self::Semaphore, Self::Leased];
    /// Those that are a lock.
    pub const LOCKS: &[Self] = &[Self::Plain, Self::SetNx, Self::Group];
    /// Those that can be re-entered.
    pub const REENTRANT: &[Self] = &[Self::Plain, Self::Group];

    /// The lock, if it is one.
    ///
    /// # Panics
    ///
    /// If it is not.
    #[must_use]
    pub fn lock(self, client: &Client, name: &str) -> Lock {
        match self {
            Self::Plain => client.lock(name),
            Self::SetNx => client.setnx_lock(name),
            Self::Group => client.group_lock(name, ["a", "b"]),
            Self::Semaphore | Self::Leased => panic!("permits are no lock"),
        }
    }

    /// Creates it, where it has to be created.
    ///
    /// # Panics
    ///
    /// If it exists already, or the server cannot be reached.
    pub async fn create(self, client: &Client, name: &str) {
        let made = match self {
            Self::Plain | Self::SetNx | Self::Group => Ok(true),
            Self::Semaphore => client.semaphore(name).try_set_permits(PERMITS).await,
            Self::Leased => client.leased_semaphore(name).try_set_permits(PERMITS).await,
        };
        assert_eq!(made, Ok(true));
    }

    /// Removes what `create` made.
    ///
    /// # Panics
    ///
    /// If permits are missing, or the server cannot be reached.
    pub async fn remove(self, client: &Client, name: &str) {
        let (free, removed) = match self {
            Self::Plain | Self::SetNx | Self::Group => return,
            Self::Semaphore => {
                let semaphore = client.semaphore(name);
                (semaphore.available().await, semaphore.delete().await)
            }
            Self::Leased => {
                let semaphore = client.leased_semaphore(name);
                (semaphore.available().await, semaphore.delete().await)
            }
        };
        assert_eq!((free, removed), (Ok(PERMITS.into()), Ok(true)), "{self:?}");
    }

    /// Acquires it, without a limit or within this time.
    ///
    /// # Errors
    ///
    /// Those of its own acquire.
    pub fn acquire(
        self,
        client: &Client,
        name: &str,
        wait: Option<Duration>,
    ) -> impl Future<Output = Result<Held, AcquireError>> + Send + use<> {
        let (client, name) = (client.clone(), name.to_owned());
        async move {
            match self {
                Self::Plain | Self::SetNx | Self::Group => {
                    let acquire = self.lock(&client, &name).acquire();
                    let acquire = if let Some(wait) = wait { acquire.wait(wait) } else { acquire };
                    acquire.await.map(Held::Lock)
                }
                Self::Semaphore => {
                    let acquire = client.semaphore(name).acquire(PERMITS);
                    let acquire = if let Some(wait) = wait { acquire.wait(wait) } else { acquire };
                    acquire.await.map(Held::Permits)
                }
                Self::Leased => {
                    let acquire = client.leased_semaphore(name).acquire(PERMITS);
                    let acquire = if let Some(wait) = wait { acquire.wait(wait) } else { acquire };
                    acquire.await.map(Held::Leased)
                }
            }
        }
    }

    /// Tries once.
    ///
    /// # Errors
    ///
    /// Those of its own try.
    pub fn try_acquire(
        self,
        client: &Client,
        name: &str,
    ) -> impl Future<Output = Result<Option<Held>, AcquireError>> + Send + use<> {
        let (client, name) = (client.clone(), name.to_owned());
        async move {
            Ok(match self {
                Self::Plain | Self::SetNx | Self::Group => {
                    self.lock(&client, &name).try_acquire().await?.map(Held::Lock)
                }
                Self::Semaphore => client.semaphore(name).try_acquire(PERMITS).await?.map(Held::Permits),
                Self::Leased => client.leased_semaphore(name).try_acquire(PERMITS).await?.map(Held::Leased),
            })
        }
    }
}
