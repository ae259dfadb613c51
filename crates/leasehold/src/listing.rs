//! Which locks are held.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Client, Shared};
use crate::client_id::ClientId;
use crate::engine::{Cursor, Feature, Found, Kind, ListStep, Listed, Query, Reply};
use crate::env;
use crate::error::{Classified as _, QueryError, ServerError, Subject};
use crate::identity::ClientInfo;
use crate::lock::Holder;
use crate::name::Name;
use crate::operation::Operation;
use crate::pattern::Pattern;

/// The locks that are held, from [`Client::list`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The locks in the order of their names.
    pub locks: Vec<HeldLock>,
    /// Whether all keys were looked at. False if the [limit](List::limit) or the [time](List::within) was over before, or if
    /// the user of the server may not read some of the keys that match.
    ///
    /// A lock that was acquired or released meanwhile may be among the locks or not.
    pub is_complete: bool,
}

/// A lock that is held, from [`Client::list`] and [`Client::find`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// The name, without the namespace of the client.
    pub name: String,
    /// Which lock it is.
    pub kind: LockKind,
    /// The holder; one of them, if there are several. Its client is looked up for the first thousand clients only.
    pub holder: Holder,
    /// How many holders there are at least: several may read, or hold different values of a group.
    pub holders: usize,
}

/// Which lock a [`HeldLock`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// The plain, fair, spin or fenced lock, which are the same once they are held. On `file:` also the write half of a read-write
    /// lock.
    Lock,
    /// The read half of a read-write lock.
    Read,
    /// Its write half.
    Write,
    /// Values of a [group](Client::group_lock).
    Group,
    /// A [`setnx_lock`](Client::setnx_lock).
    SetNx,
}

impl LockKind {
    fn of(kind: Kind) -> Option<Self> {
        Some(match kind {
            Kind::Lock | Kind::Spin | Kind::Fair => Self::Lock,
            Kind::Read => Self::Read,
            Kind::Write => Self::Write,
            Kind::Group => Self::Group,
            Kind::SetNx => Self::SetNx,
            Kind::Semaphore | Kind::LeasedSemaphore | Kind::Latch => return None,
        })
    }
}

impl fmt::Display for LockKind {
    /// One word, such as `lock` or `read`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lock => "lock",
            Self::Read => "read",
            Self::Write => "write",
            Self::Group => "group",
            Self::SetNx => "setnx",
        })
    }
}

/// How many locks are returned unless a limit is given.
const LIMIT: usize = 100_000;
/// … and for how long the keys are searched.
const WITHIN: Duration = Duration::from_secs(10);
/// How many clients are looked up, and for how long.
const CLIENTS: usize = 1000;
const CLIENTS_WITHIN: Duration = Duration::from_millis(500);

/// A listing of the locks that are held, from [`Client::list`]: options, then `.await` or [`block`](List::block).
#[derive(Debug, Clone)]
#[must_use = "an operation does nothing until it is awaited or `.block()` is called"]
pub struct List {
    shared: Arc<Shared>,
    pattern: String,
    setnx: bool,
    limit: usize,
    within: Duration,
}

impl List {
    pub(crate) fn new(shared: Arc<Shared>, pattern: String) -> Self {
        Self { shared, pattern, setnx: false, limit: LIMIT, within: WITHIN }
    }

    /// Lists locks by `SET … NX`, too, if their holders are clients of this library.
    ///
    /// On a server such a lock is a string among others, and differs from them in its value alone. So the beginning of every
    /// string whose name matches is read: give a narrow pattern. A lock of another library cannot be told from any other
    /// string.
    pub fn setnx(mut self) -> Self {
        self.setnx = true;
        self
    }

    /// Returns this many locks at most: 100 000 unless given.
    pub fn limit(mut self, locks: usize) -> Self {
        self.limit = locks;
        self
    }

    /// Searches for this long, and then returns what was found: 10 s unless given.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// Runs the operation on this thread, as [`Operation::block`] does.
    ///
    /// # Errors
    ///
    /// As for [`Client::list`].
    #[track_caller]
    pub fn block(self) -> Result<Listing, QueryError> {
        self.into_future().block()
    }
}

impl IntoFuture for List {
    type Output = Result<Listing, QueryError>;
    type IntoFuture = Operation<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Operation::new(async move {
            let listing = list(&self).await;
            listing.map_err(|error| error.about(&Subject::locks_of(self.shared.server().map(Into::into))))
        })
    }
}

impl Client {
    /// Lists the locks that are held and whose name matches a pattern: which they are, who holds them, and how long their leases
    /// last. Options are set on the returned [`List`], before `.await` or `.block()`.
    ///
    /// In the pattern `*` is any text and `?` one character; a backslash before either is that character. It is matched against
    /// names without the namespace, and names outside of it are not found.
    ///
    /// | Engine | Found by |
    /// |---|---|
    /// | Redis, Valkey | `SCAN` in small steps, none of which occupies the server for more than a fraction of a millisecond, and the fields of the hashes that match: those of Redisson, too. Keys of other programs are not shown |
    /// | `file:` | the files of the directory, and the kernel, which knows who has locked them. Not found is a lock whose name does not fit in a file name: longer than 200 bytes |
    /// | etcd | ranges of 500 keys each, and of a name that has the key of a lock the oldest key: those of `etcdctl lock` and Go, too. Values of other programs are not read |
    /// | `memory:` | the locks of the process |
    ///
    /// Semaphores and latches are no locks: their own methods tell what is free.
    ///
    /// # Errors
    ///
    /// [`QueryError::Server`] if there was no usable reply, or if the user of the server may not search or read the keys;
    /// [`InvalidRequestError::Unsupported`](crate::InvalidRequestError::Unsupported) on an engine that lists nothing.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.lock("stock:7").acquire().await?;
    /// let listing = client.list("stock:*").await?;
    /// for lock in &listing.locks {
    ///     println!("{} {} {:?}", lock.kind, lock.name, lock.holder.client);
    /// }
    /// assert!(listing.is_complete && listing.locks.len() == 1);
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self, pattern: impl Into<String>) -> List {
        List::new(Arc::clone(self.shared()), pattern.into())
    }

    /// Finds out which lock is held under a name, and its holder, without knowing its kind; `None` if none is.
    ///
    /// A string whose value is no number is taken for a lock by `SET … NX` of some library, with a holder that is not known.
    /// Otherwise it finds what [`list`](Client::list) finds.
    ///
    /// # Errors
    ///
    /// As for [`list`](Client::list), [`QueryError::Invalid`] if the name is invalid, and [`QueryError::Server`] with
    /// [`ServerError::NotALock`] if the key of that name on a server holds something else, such as a semaphore, a latch or the lock
    /// of a library that is not known.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.rw_lock("prices").write().acquire().await?;
    /// let found = client.find("prices").await?.expect("it is held");
    /// assert_eq!(found.kind, leasehold::LockKind::Write);
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn find(&self, name: impl AsRef<str>) -> Operation<Result<Option<HeldLock>, QueryError>> {
        let shared = Arc::clone(self.shared());
        let name = Name::new(&shared.namespace, name.as_ref());
        Operation::new(async move {
            let name = name?;
            let find = async {
                shared.check(Feature::List)?;
                let listed = shared.engine.list(&ListStep::Name(name.clone())).await?;
                Ok(held(&shared, listed.found).await.into_iter().next())
            };
            find.await.map_err(|error: QueryError| {
                error.about(&Subject::new("lock", name.clone(), shared.server().map(Into::into)))
            })
        })
    }
}

async fn list(list: &List) -> Result<Listing, QueryError> {
    let shared = &list.shared;
    shared.check(Feature::List)?;
    let pattern = Arc::new(Pattern::new(&shared.namespace, &list.pattern));
    let end = env::after(list.within);
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut denied = None;
    let mut is_complete = true;
    let mut page = Some(request(shared, &pattern, Cursor { with_strings: list.setnx, ..Cursor::default() }));
    while let Some(reply) = page.take() {
        let listed = reply.await?;
        let is_over = end.is_some_and(|end| env::now() >= end);
        if let Some(next) = listed.next {
            if is_over || found.len() >= list.limit {
                is_complete = false;
            } else {
                // The next page is on its way while this one is examined.
                page = Some(request(shared, &pattern, next));
            }
        }
        found.extend(listed.found);
        // All are sent before a reply is awaited. A server may return a key more than once.
        let keys = listed.keys.into_iter().filter(|(name, _)| seen.insert(name.clone()));
        let asked: Vec<_> =
            keys.map(|(name, shape)| shared.engine.list(&ListStep::Key(name, shape))).collect();
        for reply in asked {
            match reply.await {
                Ok(listed) => found.extend(listed.found),
                Err(error @ ServerError::Denied(_)) => denied = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
    }
    if let Some(error) = denied {
        if found.is_empty() {
            return Err(error.into());
        }
        is_complete = false;
    }
    if found.len() > list.limit {
        is_complete = false;
        found.truncate(list.limit);
    }
    found.sort_by(|one, other| {
        one.resource.name.cmp(&other.resource.name).then(one.resource.kind.cmp(&other.resource.kind))
    });
    // A lock that went to another owner meanwhile may be on two pages.
    found.dedup_by(|one, other| one.resource == other.resource);
    Ok(Listing { locks: held(shared, found).await, is_complete })
}

fn request(shared: &Shared, pattern: &Arc<Pattern>, cursor: Cursor) -> Reply<Listed> {
    shared.engine.list(&ListStep::Page(Arc::clone(pattern), cursor))
}

/// The locks as callers see them, with what is known of their holders' clients.
async fn held(shared: &Arc<Shared>, found: Vec<Found>) -> Vec<HeldLock> {
    let clients = clients(shared, &found).await;
    let held = found.into_iter().filter_map(|Found { resource, holding, holders, client, process }| {
        let name = resource.name.as_str().strip_prefix(&*shared.namespace)?.to_owned();
        let kind = LockKind::of(resource.kind)?;
        if let Some(owner) = holding.owner {
            shared.expose_owner(&resource, owner);
        }
        let asked = || holding.owner.and_then(|owner| clients.get(&owner.client).cloned());
        let client = client.map(|client| *client).or_else(asked);
        let client =
            client.or_else(|| process.map(|pid| ClientInfo { pid: Some(pid), ..ClientInfo::default() }));
        Some(HeldLock { name, kind, holder: Holder::new(holding, client), holders })
    });
    held.collect()
}

/// What is known of the clients of the holders.
async fn clients(shared: &Shared, found: &[Found]) -> BTreeMap<ClientId, ClientInfo> {
    let mut asked = BTreeMap::new();
    for Found { resource, holding, client, .. } in found {
        if let Some(owner) = holding.owner
            && client.is_none()
            && asked.len() < CLIENTS
        {
            let query = Query::Client(resource, owner.client);
            asked.entry(owner.client).or_insert_with(|| shared.engine.inspect(&query));
        }
    }
    let mut known = BTreeMap::new();
    let replies = async {
        for (client, reply) in asked {
            known.extend(reply.await.ok().and_then(|result| result.client).map(|info| (client, *info)));
        }
    };
    let _ = env::within(CLIENTS_WITHIN, replies).await;
    known
}
