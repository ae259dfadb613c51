//! The interface that an engine on a server implements: requests, their outcomes, and events from its server.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

#[cfg(feature = "etcd")]
use crate::engine::Survey;
use crate::engine::{
    Busy, Change, HoldKey, Kind, ListStep, Listed, Profile, Query, QueryResult, Queueing, Resource, RwOptions,
};
#[cfg(feature = "redis")]
use crate::engine::{Probe, Probed};
use crate::error::ServerError;
use crate::lease::Lease;
use crate::loss::Loss;
use crate::name::Name;
use crate::owner::OwnerId;
use crate::session::Session;

/// A lock service: the state on a server, and nothing about guards, waiters, clocks or retries.
///
/// # Contract
///
/// 1. A request is issued when the method is called. Requests about one hold take effect in the order of the calls.
/// 2. Each request is completed once, by [`Done::done`], when its outcome is read, in the order in which the server gave
///    the outcomes for that name; but never inside the call that issues it, because the caller may have a mutex. Only
///    [`take`](Self::take) and [`give`](Self::give) may be completed inside the call, by a store whose outcomes are never
///    [unknown](StoreError::Unknown), and [`is_there`](Self::is_there) by any store. A request that is dropped without an outcome belongs to a client that is gone.
/// 3. Nothing is sent twice, except where the store knows that nothing was done; then it calls [`Done::is_wanted`] before.
/// 4. A caller that has gone away does not cancel its request.
/// 5. An error specifies whether there may be something to undo.
///
/// A store with fewer features than this client needs declares so in its [`Traits`], and has no other operations than
/// [`take`](Self::take), [`give`](Self::give) and [`lower`](Self::lower): features that its [profile](Traits::profile) lacks
/// are never requested.
pub(crate) trait Store: fmt::Debug + Send + Sync + 'static {
    /// How it keeps holds.
    fn traits(&self) -> &'static Traits;

    /// How the waiters for this kind are woken to retry.
    fn wake(&self, kind: Kind) -> Wake;

    /// Requests about one shard can share a batch, and fail together.
    fn shard(&self, _resource: &Resource) -> Shard {
        Shard::ONLY
    }

    /// Acquires or re-enters a lock. Where the client counts, a re-entry is requested only to mint a token.
    fn take(&self, take: &Take<'_>, done: impl Done<Taken>);

    /// Acquires several plain locks of one owner on one shard, or none, if the traits declare it. The owner is a new one.
    fn take_all(&self, _takes: &[Take<'_>], _done: impl Done<TakenAll>) {}

    /// Releases one count of a hold that has `from`. If any is left, a lease of `length` begins anew.
    fn give(&self, key: &HoldKey, from: u32, length: Duration, done: impl Done<Given>);

    /// Lowers a hold to at most `to` counts, and removes its owner from any queue on the server. Idempotent.
    fn lower(&self, key: &HoldKey, to: u32, done: impl Done<Given>);

    /// The same, sent so that the server need not request it again: a step of the same hold follows it at once. False if it
    /// could not be sent; then there is no outcome. Called only for stores whose steps are not sent one at a time.
    fn lower_first(&self, _key: &HoldKey, _to: u32, _done: impl Done<Given>) -> bool {
        false
    }

    /// Sets the end of a hold to `rest` from now, be that sooner or later, and wakes its waiters; false if it was gone. The store
    /// ends it then if its server does not. Called only where a hold can have a lease.
    fn abandon(&self, _key: &HoldKey, _rest: Duration, _done: impl Done<bool>) {}

    /// Renews holds of one kind on one shard for so long each, or only checks those with zero. One verdict for each. Called
    /// only where each hold has a lease.
    fn renew(&self, _kind: Kind, _holds: &[(&HoldKey, Duration)], _done: impl Done<Vec<Verdict>>) {}

    /// Whether a hold under a session is still there. The session itself is not asked. A hold with a fixed lease lasts for at
    /// least `length` from then on, if that is given.
    fn is_there(&self, _key: &HoldKey, _length: Option<Duration>, done: impl Done<bool>) {
        done.done(Ok(true));
    }

    /// Replaces the connection of a shard if its server has been silent for so long although a reply is due.
    fn doubt(&self, _shard: Shard, _silence: Duration) {}

    /// Frees a resource in place of its holder.
    fn force(&self, _resource: &Resource, _done: impl Done<Forced>) {}

    /// Replies to a query about a resource, without changing it.
    fn inspect(&self, query: &Query<'_>, done: impl Done<QueryResult>);

    /// A part of a listing of what is held. Never requested from a store whose profile lacks it.
    fn list(&self, _step: &ListStep, done: impl Done<Listed>) {
        done.done(Err(StoreError::Refused(ServerError::Denied("this engine lists no locks".into()))));
    }

    /// Changes or reads a counter. A change that is sent again is recognised by its number and counts once.
    fn change(&self, _resource: &Resource, _change: &Change, _done: impl Done<i64>) {}

    /// Deletes the result that is kept to recognise a change, since its outcome is known.
    fn forget_change(&self, _resource: &Resource, _change: &Change, _done: impl Done<()>) {}

    /// Writes a value of the user's own, unless the stored token is greater, which it then returns.
    fn write_fenced(&self, _key: &Name, _token: u64, _value: &[u8], _done: impl Done<Option<u64>>) {}

    /// From now on call [`Events::freed`] when this topic may be free. Called under a mutex: the store only notes it.
    fn watch(&self, _topic: &Topic) -> Watch {
        Watch::Unavailable
    }

    /// Ends [`watch`](Self::watch). Called under the same mutex.
    fn unwatch(&self, _topic: &Topic) {}

    /// A waiter goes to sleep: something must read what is to wake it. A thread that [blocks](crate::block) may read that by itself,
    /// if it is the front waiter of its queue.
    fn sleeps(&self, _is_front: impl FnOnce() -> bool) {}

    /// A waiter is gone. Returns how long the entries of its attempts would stay on the server, if there are any that
    /// [`lower`](Self::lower) removes.
    fn left(&self, _key: &HoldKey) -> Option<Duration> {
        None
    }

    /// A hold is no longer tracked, and stays as it is: server data that exists only for tracking can be deleted.
    fn detach(&self, _key: &HoldKey, _done: impl Done<()>) {}

    /// A copy of the open file to which a hold is bound, where it is bound to one.
    #[cfg(feature = "file")]
    fn lock_file(&self, _key: &HoldKey) -> std::io::Result<Option<std::fs::File>> {
        Ok(None)
    }

    /// The server of a shard, for log lines: the address of its connection, or of the next one.
    fn server(&self, _shard: Shard) -> String {
        String::new()
    }

    /// What an operator should know about the server.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// The shards that it connects to.
    fn shards(&self) -> Vec<Shard> {
        vec![Shard::ONLY]
    }

    /// A round trip to the server that changes nothing.
    fn ping(&self, done: impl Done<()>);

    /// A question of a diagnosis.
    #[cfg(feature = "redis")]
    fn probe(&self, _probe: Probe, done: impl Done<Probed>) {
        done.done(Err(StoreError::Refused(ServerError::Denied(
            "this engine replies to no such question".into(),
        ))));
    }

    /// What a cluster says about itself.
    #[cfg(feature = "etcd")]
    fn survey(&self, done: impl Done<Survey>) {
        done.done(Err(StoreError::Refused(ServerError::Denied("this engine has no cluster".into()))));
    }

    /// Connects, reports the result to `opened`, and if connected, reconnects and reports until [`close`](Self::close).
    /// Without `opened` it begins as in an outage of [all shards](Self::shards), which it reports as over when it is connected.
    /// Called on the I/O thread.
    fn run(
        &self,
        opened: Option<impl FnOnce(Result<(), ServerError>) + Send>,
    ) -> impl Future<Output = ()> + Send;

    /// Sends nothing any more, and drops requests that have no outcome yet.
    fn close(&self);
}

/// How a store keeps holds. [`Remote`](super::Remote) does the rest for it.
#[derive(Debug)]
pub(crate) struct Traits {
    pub(crate) profile: &'static Profile,
    pub(crate) lease: LeaseOf,
    /// Where re-entries are counted. By the client: a re-entry renews the hold at most, and only the first entry and the
    /// last exit are steps on the server.
    pub(crate) counts: By,
    /// Where the owners of one client are distinguished. By the client: the server would grant the lock to all of them.
    pub(crate) owners: By,
    /// Whether requests about one hold take effect in the order in which they are issued. If not, they are issued one at a
    /// time.
    pub(crate) ordered: bool,
    /// How many locks [`Store::take_all`] takes at most; zero where there is no such request.
    pub(crate) takes_all: usize,
}

/// What ends a hold that is not released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseOf {
    /// A lease of its own on the server, which is renewed.
    Hold,
    /// A session or connection that all holds share, which the store keeps alive: [`Taken::Bound`]. The server has no fixed
    /// leases and no limits, so the client releases holds that have expired.
    Session,
    /// The same; but a hold with a fixed lease has one on the server, and a session of its own that lasts as long. The server
    /// ends it later than its lease is over, so the client does here, too. A [`take`](Store::take) for a re-entry sets it anew.
    SessionOrHold,
}

/// Which side does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Server,
    Client,
}

/// The completion of one request.
pub(crate) trait Done<T>: Send + 'static {
    /// Whether a caller waits for the outcome, and has to be notified if it is late.
    fn is_awaited(&self) -> bool {
        false
    }

    /// Whether a request that was not carried out may be sent again.
    fn is_wanted(&self) -> bool {
        true
    }

    /// Notifies the caller that the outcome is late; to be called when no mutex is held. The outcome still takes effect when
    /// it arrives.
    fn late(&mut self) -> Option<LateNotice> {
        None
    }

    /// The outcome takes effect, and then the caller is notified.
    fn done(self, outcome: Result<T, StoreError>);
}

impl<T, F: FnOnce(Result<T, StoreError>) + Send + 'static> Done<T> for F {
    fn done(self, outcome: Result<T, StoreError>) {
        self(outcome);
    }
}

/// Notifies a caller why there is no outcome yet.
pub(crate) type LateNotice = Box<dyn FnOnce(ServerError) + Send>;

/// Why a request has no result, and whether there may be something to undo.
#[derive(Debug, Clone)]
pub(crate) enum StoreError {
    /// It was not sent, so there is nothing to undo.
    NotSent(ServerError),
    /// The server has refused it. A retry may succeed.
    Refused(ServerError),
    /// It may have been carried out, or may still be.
    Unknown(ServerError),
}

impl From<StoreError> for ServerError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotSent(failure) | StoreError::Refused(failure) | StoreError::Unknown(failure) => {
                failure
            }
        }
    }
}

/// A part of a service that is reached, and can fail, independently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Shard(pub(crate) u32);

impl Shard {
    pub(crate) const ONLY: Self = Self(0);
}

/// How the waiters for a kind are woken to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// By a message.
    Message,
    /// Not every holder publishes one: the front waiter polls about this often, besides.
    Poll(Duration),
}

/// How often to poll for a lock that other libraries release without a message.
pub(crate) const UNPUBLISHED_POLL: Duration = Duration::from_millis(200);

/// The subject of a message: a resource and, for a fair lock, where each waiter has its own messages, its owner.
pub(crate) type Topic = (Resource, Option<OwnerId>);

/// Whether the messages of a topic arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// They arrive.
    Active,
    /// Not yet: [`Events::watching`] reports when, or [`Events::unwatched`] that they cannot for now.
    Pending,
    /// They cannot for now.
    Unavailable,
}

/// The parameters of [`Store::take`].
#[derive(Debug)]
pub(crate) struct Take<'a> {
    pub(crate) hold_key: &'a HoldKey,
    /// How many counts the owner has before.
    pub(crate) held: u32,
    /// Where it lasts as long as its guard, its length is that of one renewal.
    pub(crate) lease: Lease,
    pub(crate) steal: bool,
    pub(crate) fenced: bool,
    pub(crate) queue: Option<Queueing>,
    pub(crate) rw: RwOptions,
    /// Its caller waits if the lock is busy: a server with a queue may keep a position for it.
    pub(crate) waits: bool,
}

/// The result of [`Store::take`].
#[derive(Debug, Clone)]
pub(crate) enum Taken {
    /// With its token, if one was requested.
    Granted(Option<u64>),
    /// The same, for as long as this session lasts.
    Bound(Option<u64>, Arc<Session>),
    Busy(Busy),
    /// The server's count for this owner differs from the request's.
    CountDiffers,
    /// The owner reads the lock that it wants to write; or it wants to upgrade and does not read.
    WouldDeadlock,
}

#[derive(Debug, Clone)]
pub(crate) enum TakenAll {
    /// All, with their tokens, if they were requested.
    Granted(Vec<Option<u64>>),
    /// The same, each for as long as its session lasts.
    #[cfg_attr(not(feature = "etcd"), expect(dead_code, reason = "only etcd has both"))]
    Bound(Vec<(Option<u64>, Arc<Session>)>),
    /// None, because of this one.
    Busy(usize, Busy),
}

/// The result of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Given {
    /// How many counts are left; `None` if there were none.
    pub(crate) left: Option<u32>,
    /// How many clients were notified that the lock is free; `None` if nothing was published.
    pub(crate) subscribers: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forced {
    pub(crate) was_held: bool,
    /// As in [`Given`].
    pub(crate) subscribers: Option<usize>,
}

/// The server's verdict on a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Held,
    Gone,
    TakenOver,
}

/// Events that a store reports.
pub(crate) trait Events: Send + Sync {
    /// The topic may be free. Late, duplicate and missing calls do no harm.
    fn freed(&self, topic: &Topic);

    /// The messages of these topics arrive from now on.
    fn watching(&self, topics: &[Topic]);

    /// No messages arrive for now.
    fn unwatched(&self);

    /// Messages arrive again, and those of the time between were missed.
    fn rewatched(&self);

    /// The server does not allow watching (`true`), or may do so again.
    fn watch_denied(&self, denied: bool);

    /// A waiter of this hold key should retry: its own state has changed.
    fn wake_waiter(&self, key: &HoldKey);

    /// The holds of a resource were taken away, for this reason.
    fn revoked(self: Arc<Self>, resource: &Resource, loss: Loss);

    /// The store sends one more request for the operation that it was called for.
    #[cfg(feature = "redis")]
    fn requesting(&self);

    /// One hold was taken away, for this reason.
    #[cfg(any(feature = "etcd", feature = "file"))]
    fn revoked_one(self: Arc<Self>, key: &HoldKey, loss: Loss);

    /// A session is lost, and all holds under it.
    fn session_lost(&self, session: &Arc<Session>, loss: Loss);

    /// An outage of this shard has begun.
    fn down(&self, shard: Shard);

    /// It continues, for this reason.
    fn still_down(&self, shard: Shard, reason: ServerError);

    /// The outage is over. `stale`: earlier requests may still be carried out.
    fn up(self: Arc<Self>, shard: Shard, stale: bool);
}

/// Reports an event, unless the client is gone.
pub(crate) fn report(events: &Weak<dyn Events>, report: impl FnOnce(Arc<dyn Events>)) {
    events.upgrade().map(report);
}
