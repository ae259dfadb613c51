//! The engine interface that the public primitives use. Waiting loops, guards and options are not part of it.

mod adjust;
mod aftermath;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(feature = "file")]
#[expect(
    clippy::disallowed_methods,
    clippy::iter_over_hash_type,
    reason = "below the seam: files have the clock and the threads of the system"
)]
pub(crate) mod file;
mod inspect;
mod listing;
pub(crate) mod memory;
#[cfg(all(test, feature = "remote"))]
mod model;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "redis")]
pub(crate) mod probe;
mod profile;
#[cfg(feature = "redis")]
#[expect(
    clippy::disallowed_methods,
    clippy::iter_over_hash_type,
    reason = "below the seam: sockets have the clock and the tasks of their thread"
)]
pub(crate) mod redis;
#[cfg(feature = "remote")]
#[cfg_attr(
    not(feature = "test-util"),
    expect(dead_code, reason = "some events are only those of the simulation")
)]
pub(crate) mod remote;
mod resource;
pub(crate) mod schemes;
mod wait_queue;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) use self::adjust::{Adjust, Adjusted, Change};
#[cfg(feature = "remote")]
pub(crate) use self::aftermath::Aftermath;
pub(crate) use self::inspect::{Query, QueryResult};
#[cfg(feature = "redis")]
pub(crate) use self::listing::Shape;
pub(crate) use self::listing::{Cursor, Found, ListStep, Listed};
#[cfg(feature = "redis")]
pub(crate) use self::probe::{Probe, Probed};
pub(crate) use self::profile::{Feature, Profile};
pub(crate) use self::resource::{Family, HoldKey, Kind, Resource};
#[cfg(feature = "remote")]
use tokio::sync::oneshot;

use crate::client_id::ClientId;
use crate::env::Instant;
use crate::error::ServerError;
use crate::guard::Guard;
use crate::hold::{Budget, Hold};
use crate::lease::{Expiry, Lease};
use crate::name::Name;
use crate::observer::Observer;
use crate::owner::OwnerId;
use crate::term::{Term, Until};

/// The state of all locks, in this process or on a server.
pub(crate) trait Engine: fmt::Debug + Send + Sync + 'static {
    /// The engine's name and the features that it lacks. Unsupported operations are never requested.
    fn profile(&self) -> &'static Profile;

    /// Tries once to acquire or re-enter a lock. `turn` is the caller's position in the wait queue, if it has one.
    ///
    /// A free lock goes to the front waiter; a caller without a turn does not overtake queued waiters.
    fn attempt(&self, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt>;

    /// Tries once to acquire several plain locks that their owner does not hold, all or none. `turn` is the caller's
    /// position in the wait queue of one of them. `None` if these locks cannot be acquired in one step.
    fn attempt_all(&self, claims: &[Claim], turn: Option<(usize, Ticket)>) -> Option<Reply<AttemptAll>>;

    /// Releases one count of a hold that has `from`. If any is left, `lease` begins anew.
    fn release(&self, key: &HoldKey, from: u32, lease: Lease) -> Reply<Released>;

    /// Ends a hold for its client, and leaves the lock taken for `rest` from now; false if the hold was gone.
    fn abandon(&self, key: &HoldKey, rest: Duration) -> Reply<bool>;

    /// Frees a resource in place of its holder; false if it has none.
    fn force(&self, resource: &Resource) -> Reply<bool>;

    /// Extends a hold to at least `length` from now; never shortens it.
    fn renew(&self, key: &HoldKey, length: Duration) -> Reply<Renewed>;

    /// Lowers a hold to at most `count`. No caller waits for the result.
    ///
    /// For dropped guards, cancelled attempts and releases whose reply is missing. It never fails: the engine retries until
    /// the hold expires by itself.
    fn undo(&self, key: &HoldKey, count: u32, expiry: Expiry);

    /// The work under a granted hold has to report progress from now on: if it does not, the engine frees the hold. Inside a process
    /// each waiter sees when that is.
    fn expect_progress(&self, _term: &Arc<Term>) {}

    /// The term of a hold, if this client has it.
    fn term(&self, key: &HoldKey) -> Option<Arc<Term>>;

    /// Replies to a query without changing anything.
    fn inspect(&self, query: &Query<'_>) -> Reply<QueryResult>;

    /// A part of a listing of what is held. Never requested from an engine that lacks [`Feature::List`].
    fn list(&self, _step: &ListStep) -> Reply<Listed> {
        Reply::Now(Some(Err(ServerError::Denied("this engine lists no locks".into()))))
    }

    /// Writes a value of the user's own, or returns the stored token if that is greater.
    fn fenced_write(&self, _key: &Name, _token: u64, _value: &[u8]) -> Reply<Option<u64>> {
        Reply::Now(Some(Err(ServerError::Denied("this engine stores no values".into()))))
    }

    /// Changes or reads a counter. A change that is retried because its reply is missing counts once.
    fn adjust(&self, resource: &Resource, change: &Change) -> Reply<Adjusted>;

    /// Stops tracking a hold and leaves it as it is.
    fn let_go(&self, key: &HoldKey);

    /// Joins the end of the wait queue of this resource after an attempt that returned [`Attempt::Busy`]. Also returns whether
    /// the waiter has to retry, because the state may have changed, and the wake-up gone to other waiters, before it joined.
    /// If not, the next wake-up wakes the task of `context`. A waiter that `accepts_handover` can take over a hold of any owner
    /// as it is.
    fn join(&self, key: &HoldKey, accepts_handover: bool, context: &mut Context<'_>) -> (Ticket, bool);

    /// Joins the wait queue without an attempt before it.
    #[cfg(test)]
    fn enqueue(&self, key: &HoldKey, accepts_handover: bool) -> Ticket {
        self.join(key, accepts_handover, &mut Context::from_waker(std::task::Waker::noop())).0
    }

    /// Resolves when wake-ups for this resource can arrive, or cannot for now: no later change is missed.
    fn subscribed(&self, key: &HoldKey) -> Reply<()>;

    /// Ready when the waiter with this ticket should retry.
    fn poll_wake_up(&self, key: &HoldKey, ticket: Ticket, context: &mut Context<'_>) -> Poll<()>;

    /// The longest that a waiter of this hold key may sleep where no message may wake it; `None` where a message does, or the
    /// sweep of the engine, which wakes every waiter now and then.
    fn longest_sleep(&self, _key: &HoldKey, _ticket: Ticket) -> Option<Duration> {
        None
    }

    /// Wakes every waiter in every wait queue to retry.
    fn wake_all(&self);

    /// Leaves the wait queue. A wake-up that was meant for this waiter goes to the next one.
    fn leave(&self, key: &HoldKey, ticket: Ticket);

    /// Hands a hold over from one task of a client to the next, where that saves a request.
    fn handover(&self) -> Option<&dyn Handover> {
        None
    }

    /// A copy of the open file to which a hold is bound, where it is bound to one.
    #[cfg(feature = "file")]
    fn lock_file(&self, _key: &HoldKey) -> std::io::Result<Option<std::fs::File>> {
        Ok(None)
    }

    /// A round trip to the server that changes nothing.
    fn ping(&self) -> Reply<()> {
        Reply::now(())
    }

    /// A question of a diagnosis. Refused by engines without a server that could reply.
    #[cfg(feature = "redis")]
    fn probe(&self, _probe: Probe) -> Reply<Probed> {
        Reply::Now(Some(Err(ServerError::Denied("this engine replies to no such question".into()))))
    }

    /// Whether the server is reachable, as far as it is known; `None` for an engine inside the process.
    fn connection(&self) -> Option<Connection> {
        None
    }

    /// What an operator should know about the engine.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// From now on requests, renewals and connections are counted there. An engine inside the process has none.
    fn observe(&self, _observer: &Arc<Observer>) {}

    /// Lets every hold of this client that still has a guard expire, notifies its guards, and counts them.
    fn retire(&self, client: ClientId) -> usize;
}

/// Hands holds over from one task of a client to the next, as they are and without a request.
pub(crate) trait Handover: Send + Sync {
    /// Hands a hold whose last guard is gone over to the front waiter of its resource, if that can take it as it is. The hold
    /// then continues under the returned term, and the one before has ended.
    fn hand_over(&self, hold: &Arc<Hold>, budget: &mut Budget, term: &Term) -> Option<Arc<Term>>;

    /// The guard that was handed over to the waiter of this ticket, if it is its turn. A waiter leaves the queue only with a
    /// guard: if it left without one, no wake-up would reach it.
    fn take(&self, key: &HoldKey, ticket: Ticket) -> Option<Guard>;

    /// Releases a hold that was handed over to a waiter that has left, if no other waiter can take it now.
    fn settle(&self, key: &HoldKey);

    /// Releases this hold if it was handed over and no waiter has taken it.
    #[cfg(feature = "remote")]
    fn recall(&self, hold: &Arc<Hold>);
}

/// A position in the wait queue of one resource. Smaller tickets arrived earlier.
pub(crate) type Ticket = u64;

/// Options of read-write locks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RwOptions {
    /// The write half is for an owner that reads, and only if it is the only reader.
    pub(crate) upgrade: bool,
    /// A writer: block new readers while this is not granted. A reader: respect such a writer.
    pub(crate) prefer_writers: bool,
}

/// How long a waiting writer blocks new readers after its last attempt. It retries three times as often.
pub(crate) const WRITER_PREFERENCE: Duration = Duration::from_secs(2);

/// The parameters of an attempt.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) key: &'a HoldKey,
    /// How many counts the owner has before this attempt; one more if it is granted.
    pub(crate) held: u32,
    pub(crate) lease: Lease,
    /// When the hold must end at the latest, however often it is renewed.
    pub(crate) limit: Option<Instant>,
    /// Take the lock over from its holder.
    pub(crate) steal: bool,
    /// Mint a token with it.
    pub(crate) fenced: bool,
    /// Join the queue of a fair lock if the lock is busy.
    pub(crate) queue: Option<Queueing>,
    pub(crate) rw: RwOptions,
    /// The owner was drawn for this acquire, so another one can replace it.
    pub(crate) fresh: bool,
    /// Notified when the hold is lost.
    pub(crate) term: &'a Arc<Term>,
}

#[derive(Debug, Clone)]
pub(crate) enum Attempt {
    /// Granted, with a token if the claim requests one. The deadline is by our own clock; `None` if the engine has set it in
    /// the term.
    Granted(Option<Until>, Option<u64>),
    /// Another owner holds it, or is next. It may be worth retrying after this time.
    Busy(Busy),
    /// The engine's count for this owner differs from the claim's: the hold to re-enter is gone.
    Gone,
    /// The owner reads the lock that it wants to write; or it wants to upgrade and does not read.
    WouldDeadlock,
    /// The request could not be sent, so there is nothing to undo.
    NotSent(ServerError),
    /// No request was sent: an earlier request of this fresh owner may still be carried out, and would end its next hold.
    OwnerSpent,
}

#[derive(Debug, Clone)]
pub(crate) enum AttemptAll {
    /// All are granted, each as in [`Attempt::Granted`].
    Granted(Vec<(Option<Until>, Option<u64>)>),
    /// None is granted, because of this one.
    Busy(usize, Busy),
    /// The request could not be sent, so there is nothing to undo.
    NotSent(ServerError),
}

/// How to join the queue of a fair lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queueing {
    /// How long other clients presume this waiter alive if they receive nothing else from it.
    pub(crate) wait: Duration,
    /// Whether to wake the waiter when its position has changed.
    pub(crate) watched: bool,
}

/// The state of a lock that is busy.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Busy {
    /// When it may be worth retrying without a wake-up.
    pub(crate) retry_in: Option<Duration>,
    pub(crate) holder: Option<OwnerId>,
    /// The waiter's position in the queue of a fair lock, from one.
    pub(crate) position: Option<usize>,
    /// Nothing was sent, because others are to go first: this tells nothing of the server …
    pub(crate) not_sent: bool,
    /// … but for when that last replied to one of them, if it has.
    pub(crate) heard: Option<Instant>,
}

impl Busy {
    /// Makes a waiting writer retry in time to keep blocking new readers.
    pub(crate) fn keep_blocking_readers(&mut self) {
        let again = WRITER_PREFERENCE / 3;
        self.retry_in = Some(self.retry_in.map_or(again, |wait| wait.min(again)));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// Released. The owner still has this many counts, now until this deadline.
    Left(u32, Option<Until>),
    NotHeld,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Renewed {
    Until(Until),
    Gone,
}

/// A hold as any client sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holding {
    /// `None` if the stored value is no owner id.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) count: u32,
    pub(crate) remaining: Duration,
}

/// Whether the server of an engine is reachable.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) is_up: bool,
    pub(crate) since: Instant,
    /// Why the last attempt to connect has failed, if it is not reachable.
    pub(crate) error: Option<ServerError>,
}

/// The reply of an engine, at once or later.
pub(crate) enum Reply<T> {
    Now(Option<Result<T, ServerError>>),
    /// Resolves when the reply is read; fails if the client is closed before.
    #[cfg(feature = "remote")]
    Soon(oneshot::Receiver<Result<T, ServerError>>),
    #[cfg(feature = "remote")]
    Later(Pin<Box<dyn Future<Output = Result<T, ServerError>> + Send>>),
}

impl<T> Reply<T> {
    pub(crate) fn now(value: T) -> Self {
        Self::Now(Some(Ok(value)))
    }

    #[cfg(feature = "remote")]
    pub(crate) fn later(reply: impl Future<Output = Result<T, ServerError>> + Send + 'static) -> Self {
        Self::Later(Box::pin(reply))
    }
}

impl<T: Unpin> Future for Reply<T> {
    type Output = Result<T, ServerError>;

    #[cfg_attr(
        not(feature = "remote"),
        expect(unused_variables, reason = "inside a process there are no later replies")
    )]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(reply) => Poll::Ready(reply.take().expect("a reply is taken once")),
            #[cfg(feature = "remote")]
            Self::Soon(reply) => Pin::new(reply).poll(context).map(|reply| {
                reply.unwrap_or_else(|_| Err(ServerError::Unavailable("the client is closed".into())))
            }),
            #[cfg(feature = "remote")]
            Self::Later(reply) => reply.as_mut().poll(context),
        }
    }
}
