//! Every kind of wait of one client, with one interface.

use std::future::{Future, IntoFuture as _};
use std::pin::Pin;
use std::thread;
use std::time::Duration;

use leasehold::{Client, Error, MultiLock, Operation};
use tokio::sync::oneshot;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The plain lock.
    Plain,
    /// The same with a fencing token.
    Fenced,
    /// The lock with `SET … NX`.
    SetNx,
    /// The fair lock.
    Fair,
    /// The lock that is polled.
    Spin,
    /// The read half of a read-write lock.
    Read,
    /// The write half of one.
    Write,
    /// Two values of a group.
    Group,
    /// Two plain locks in one step.
    Multi,
    /// Two locks, one after the other, with a fixed lease.
    OneByOne,
    /// A permit of a semaphore.
    Semaphore,
    /// A permit with a lease.
    Leased,
    /// A latch that is open.
    Latch,
}

/// How long the leases of [`Wait::OneByOne`] are.
const LEASE: Duration = Duration::from_secs(3);

/// The result of a wait. What was acquired is released.
pub type Waiting = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

impl Wait {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Plain,
        Self::Fenced,
        Self::SetNx,
        Self::Fair,
        Self::Spin,
        Self::Read,
        Self::Write,
        Self::Group,
        Self::Multi,
        Self::OneByOne,
        Self::Semaphore,
        Self::Leased,
        Self::Latch,
    ];

    /// The name that it has, unlike all others.
    #[must_use]
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// Creates it, where it has to be created.
    ///
    /// # Panics
    ///
    /// If the server cannot be reached.
    pub async fn create(self, client: &Client) {
        let made = match self {
            Self::Semaphore => client.semaphore(self.name()).try_set_permits(1).await,
            Self::Leased => client.leased_semaphore(self.name()).try_set_permits(1).await,
            _ => Ok(true),
        };
        assert_eq!(made, Ok(true));
    }

    /// Waits without a limit, or within this time, on this task or on a thread of its own.
    #[must_use]
    pub fn begin(self, client: &Client, limit: Option<Duration>, blocks: bool) -> Waiting {
        macro_rules! ended {
            ($wait:expr) => {{
                let wait = $wait;
                let wait = if let Some(limit) = limit { wait.wait(limit) } else { wait };
                ended(wait.into_future(), blocks)
            }};
        }
        let name = self.name();
        match self {
            Self::Plain => ended!(client.lock(name).acquire()),
            Self::Fenced => ended!(client.fenced_lock(name).acquire()),
            Self::SetNx => ended!(client.setnx_lock(name).acquire()),
            Self::Fair => ended!(client.fair_lock(name).acquire()),
            Self::Spin => ended!(client.spin_lock(name).acquire()),
            Self::Read => ended!(client.rw_lock(name).read().acquire()),
            Self::Write => ended!(client.rw_lock(name).write().acquire()),
            Self::Group => ended!(client.group_lock(name, ["a", "b"]).acquire()),
            Self::Multi => ended!(client.multi_lock([&name, "other"]).acquire()),
            Self::OneByOne => {
                let next = format!("{name}, next");
                let locks = [client.fair_lock(name).into(), client.rw_lock(next).write().into()];
                ended!(MultiLock::new(locks).acquire().lease(LEASE))
            }
            Self::Semaphore => ended!(client.semaphore(name).acquire(1)),
            Self::Leased => ended!(client.leased_semaphore(name).acquire(1)),
            Self::Latch => ended!(client.latch(name).opened()),
        }
    }
}

fn ended<T, E>(operation: Operation<Result<T, E>>, blocks: bool) -> Waiting
where
    T: Send + 'static,
    E: Into<Error> + Send + 'static,
{
    Box::pin(async move {
        let done = if blocks { on_a_thread(|| operation.block()).await } else { operation.await };
        done.map(drop).map_err(Into::into)
    })
}

/// The result of work that blocks, on a thread of its own.
///
/// The end of a runtime waits for its own blocking threads: on one of those, a wait that never ends would keep a test that has
/// failed from ending.
///
/// # Panics
///
/// If the work panics.
pub async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = oneshot::channel();
    thread::spawn(|| drop(sender.send(work())));
    done.await.expect("no panic")
}
