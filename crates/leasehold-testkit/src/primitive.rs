//! Whatever one client at a time can have under a name, asked for in one way.

use std::future::Future;
use std::time::Duration;

use leasehold::{AcquireError, Client, Guard, LeasedPermits, Lock, Permits, ReleaseError};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// The plain lock.
    Plain,
    /// The one by `SET … NX`.
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

/// What was got.
#[derive(Debug)]
pub enum Held {
    /// The guard of a lock.
    Lock(Guard),
    /// Permits that are only counted.
    Permits(Permits),
    /// Permits with a lease.
    Leased(LeasedPermits),
}

impl Held {
    /// Gives it back.
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
    /// Those that can be entered again.
    pub const REENTRANT: &[Self] = &[Self::Plain, Self::Group];

    /// The lock, where it is one.
    ///
    /// # Panics
    ///
    /// Where it is not.
    #[must_use]
    pub fn lock(self, client: &Client, name: &str) -> Lock {
        match self {
            Self::Plain => client.lock(name),
            Self::SetNx => client.setnx_lock(name),
            Self::Group => client.group_lock(name, ["a", "b"]),
            Self::Semaphore | Self::Leased => panic!("permits are no lock"),
        }
    }

    /// Makes it, where it has to be made.
    ///
    /// # Panics
    ///
    /// If it is there already, or the server is not.
    pub async fn create(self, client: &Client, name: &str) {
        let made = match self {
            Self::Plain | Self::SetNx | Self::Group => Ok(true),
            Self::Semaphore => client.semaphore(name).try_set_permits(PERMITS).await,
            Self::Leased => client.leased_semaphore(name).try_set_permits(PERMITS).await,
        };
        assert_eq!(made, Ok(true));
    }

    /// Removes what was made.
    ///
    /// # Panics
    ///
    /// If permits are missing, or the server is not there.
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

    /// Waits for it, as long as it takes or for so long.
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
