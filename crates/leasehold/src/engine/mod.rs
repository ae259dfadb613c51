//! What an engine does for the faces: six verbs, and nothing about waiting loops, guards or options.

mod adjust;
mod aftermath;
mod inspect;
mod line;
pub(crate) mod memory;
#[cfg(all(test, feature = "remote"))]
mod model;
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
    expect(dead_code, reason = "only the simulation binds holds to sessions")
)]
pub(crate) mod remote;
pub(crate) mod schemes;
mod target;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) use self::adjust::{Adjust, Adjusted, Change};
#[cfg(feature = "remote")]
pub(crate) use self::aftermath::Aftermath;
pub(crate) use self::inspect::{Facts, Question};
pub(crate) use self::profile::{Feature, Profile};
pub(crate) use self::target::{Family, Kind, Spot, Target};
#[cfg(feature = "remote")]
use tokio::sync::oneshot;

use crate::client_id::ClientId;
use crate::env::Instant;
use crate::error::Failure;
use crate::guard::Guard;
use crate::hold::{Budget, Hold};
use crate::lease::{Lapse, Lease};
use crate::name::Name;
use crate::owner::OwnerId;
use crate::term::{Term, Until};

/// The state of all locks, somewhere.
pub(crate) trait Engine: fmt::Debug + Send + Sync + 'static {
    /// What it is called, and what it cannot do. What it lacks is not asked of it.
    fn profile(&self) -> &'static Profile;

    /// Tries once to take or re-enter a lock. `turn` is the caller's place in its line, if it has one.
    ///
    /// A free lock goes to the head of the line; whoever comes without a turn does not overtake those who have one.
    fn attempt(&self, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt>;

    /// Tries once to take several plain locks that their owner does not hold, all or none. `turn` is the caller's place in
    /// the line of one of them. Nothing if these cannot be taken in one step.
    fn attempt_all(&self, claims: &[Claim], turn: Option<(usize, Ticket)>) -> Option<Reply<AttemptAll>>;

    /// Gives back one count of a hold that has `from`. If any is left, `lease` begins anew.
    fn release(&self, spot: &Spot, from: u32, lease: Lease) -> Reply<Released>;

    /// Frees a target, whoever holds it; false if nobody does.
    fn force(&self, target: &Target) -> Reply<bool>;

    /// Sets the time of a hold to at least `length` from now; never shortens it.
    fn renew(&self, spot: &Spot, length: Duration) -> Reply<Renewed>;

    /// Sees to it that a hold has at most `count`, without anybody waiting for the answer.
    ///
    /// For dropped guards, cancelled attempts and releases whose answer is missing. It never fails: what cannot
    /// be done now is repeated by the engine until the hold lapses by itself.
    fn abandon(&self, spot: &Spot, count: u32, lapse: Lapse);

    /// The term of a hold, if it is one of ours.
    fn term(&self, spot: &Spot) -> Option<Arc<Term>>;

    /// Answers a question without changing anything.
    fn inspect(&self, question: &Question<'_>) -> Reply<Facts>;

    /// Writes a value of the user's own, or tells the token that was there before and is greater.
    fn fenced_write(&self, _key: &Name, _token: u64, _value: &[u8]) -> Reply<Option<u64>> {
        Reply::Now(Some(Err(Failure::Denied("this engine keeps no values".into()))))
    }

    /// Counts up, down or anew, or tells a count. What is repeated because its answer is missing counts once.
    fn adjust(&self, target: &Target, change: &Change) -> Reply<Adjusted>;

    /// Stops looking after a hold and leaves it as it is.
    fn let_go(&self, spot: &Spot);

    /// Joins the line of this target, at its end, after a try that was told [`Attempt::Busy`]; and tells whether the waiter has
    /// to look once more, because something may have changed before it joined and have been hinted to others. If not, the
    /// next hint wakes the task of `context`. An `heir` can have a hold as it is, of whatever owner.
    fn join(&self, spot: &Spot, heir: bool, context: &mut Context<'_>) -> (Ticket, bool);

    /// Joins the line without a try before it.
    #[cfg(test)]
    fn listen(&self, spot: &Spot, heir: bool) -> Ticket {
        self.join(spot, heir, &mut Context::from_waker(std::task::Waker::noop())).0
    }

    /// Resolves when hints for this target can come, or cannot for now: what happens from then on is not missed.
    fn listening(&self, spot: &Spot) -> Reply<()>;

    /// Ready when this place in the line should try again.
    fn poll_hint(&self, spot: &Spot, ticket: Ticket, context: &mut Context<'_>) -> Poll<()>;

    /// The longest that a waiter at this spot may sleep where no message may tell it to look; nothing where one does, or the
    /// sweep of the engine, which wakes every waiter now and then.
    fn longest_sleep(&self, _spot: &Spot, _ticket: Ticket) -> Option<Duration> {
        None
    }

    /// Lets every waiter in every line try again.
    fn hint_all(&self);

    /// Leaves the line. A hint that was meant for this place goes to the next one.
    fn leave(&self, spot: &Spot, ticket: Ticket);

    /// How a hold goes from one task to the next of a client as it is, where that spares a request.
    fn handover(&self) -> Option<&dyn Handover> {
        None
    }

    /// Lets every hold of this client that still has a guard run out, tells its guards, and counts them.
    fn retire(&self, client: ClientId) -> usize;
}

/// Holds that go from one task to the next of a client as they are, without a request.
pub(crate) trait Handover: Send + Sync {
    /// Gives a hold whose last guard is gone to the front waiter of its target, if there is one that can have it as it is.
    /// The hold then goes on under the term that this returns.
    fn pass(&self, hold: &Arc<Hold>, budget: &mut Budget, term: &Term) -> Option<Arc<Term>>;

    /// What was passed to the waiter of this ticket, if it is its turn. Only a waiter that gets it leaves the line: one that
    /// left and got nothing would wait where no wake-up comes.
    fn take(&self, spot: &Spot, ticket: Ticket) -> Option<Guard>;

    /// Gives back what was passed to a waiter that has left, if no other can have it now.
    fn settle(&self, spot: &Spot);

    /// Gives back what was passed of this hold and no waiter has come for.
    #[cfg(feature = "remote")]
    fn recall(&self, hold: &Arc<Hold>);
}

/// A place in the line of one target. Smaller came earlier.
pub(crate) type Ticket = u64;

/// What matters to a read-write lock only.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RwOptions {
    /// The write half is for an owner that reads, and only if nobody else does.
    pub(crate) upgrade: bool,
    /// A writer: bar new readers while this is not granted. A reader: let such a writer bar us.
    pub(crate) prefer_writers: bool,
}

/// How long a writer that waits bars new readers if nothing more is heard of it. It is heard of three times as often.
pub(crate) const BARRED: Duration = Duration::from_secs(2);

/// What an attempt asks for.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) spot: &'a Spot,
    /// How often the owner holds the lock before this attempt; one more if it is granted.
    pub(crate) held: u32,
    pub(crate) lease: Lease,
    /// When the hold must end at the latest, however often it is renewed.
    pub(crate) limit: Option<Instant>,
    /// Take the lock from whoever holds it.
    pub(crate) steal: bool,
    /// Mint a token with it.
    pub(crate) fenced: bool,
    /// Stand in the queue of a fair lock if it is not to be had now.
    pub(crate) queue: Option<Queueing>,
    pub(crate) rw: RwOptions,
    /// The owner was drawn for this acquire, so another one is as good.
    pub(crate) fresh: bool,
    /// Whom to tell when the hold is lost.
    pub(crate) term: &'a Arc<Term>,
}

#[derive(Debug, Clone)]
pub(crate) enum Attempt {
    /// The lock is ours; with its token, if one was asked for. Until when by our own clock, unless the engine has told
    /// the term so itself.
    Granted(Option<Until>, Option<u64>),
    /// Somebody else has it, or is next. It may be worth trying again after this time.
    Busy(Busy),
    /// The engine does not count this owner as often as the claim says: what it meant to re-enter is not there.
    Gone,
    /// The owner reads what it wants to write; or it wants to upgrade and does not read.
    Misfit,
    /// There was no way to ask, so there is nothing to undo.
    NotAsked(Failure),
    /// The server was not asked: a request of this fresh owner may still be carried out, and would end its next hold.
    OwnerSpent,
}

#[derive(Debug, Clone)]
pub(crate) enum AttemptAll {
    /// All are ours, each as [`Attempt::Granted`] says.
    Granted(Vec<(Option<Until>, Option<u64>)>),
    /// None is, because of this one.
    Busy(usize, Busy),
    /// There was no way to ask, so there is nothing to undo.
    NotAsked(Failure),
}

/// How to stand in the queue of a fair lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queueing {
    /// For how long we are thought to be alive by those who know nothing else of us.
    pub(crate) wait: Duration,
    /// Whether to hint when the place has changed.
    pub(crate) watched: bool,
}

/// What is known of a lock that is not to be had now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Busy {
    /// When it may be worth trying again, without a hint.
    pub(crate) retry_in: Option<Duration>,
    pub(crate) holder: Option<OwnerId>,
    /// Our place in the queue of a fair lock, from one.
    pub(crate) position: Option<usize>,
}

impl Busy {
    /// Makes a writer that waits try again in time to go on barring new readers.
    pub(crate) fn go_on_barring(&mut self) {
        let again = BARRED / 3;
        self.retry_in = Some(self.retry_in.map_or(again, |wait| wait.min(again)));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// Done. The owner still holds it this often, now until then.
    Left(u32, Option<Until>),
    NotHeld,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Renewed {
    Until(Until),
    Gone,
}

/// A hold as anybody can see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holding {
    /// Unless it is somebody whose name is no owner.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) count: u32,
    pub(crate) remaining: Duration,
}

/// The answer of an engine, at once or later.
pub(crate) enum Reply<T> {
    Now(Option<Result<T, Failure>>),
    /// When it is read; never if the client is closed before.
    #[cfg(feature = "remote")]
    Soon(oneshot::Receiver<Result<T, Failure>>),
    #[cfg(feature = "remote")]
    Later(Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>),
}

impl<T> Reply<T> {
    pub(crate) fn now(answer: T) -> Self {
        Self::Now(Some(Ok(answer)))
    }

    #[cfg(feature = "remote")]
    pub(crate) fn later(answer: impl Future<Output = Result<T, Failure>> + Send + 'static) -> Self {
        Self::Later(Box::pin(answer))
    }
}

impl<T: Unpin> Future for Reply<T> {
    type Output = Result<T, Failure>;

    #[cfg_attr(
        not(feature = "remote"),
        expect(unused_variables, reason = "inside a process nothing answers later")
    )]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(answer) => Poll::Ready(answer.take().expect("a reply is taken once")),
            #[cfg(feature = "remote")]
            Self::Soon(answer) => Pin::new(answer).poll(context).map(|answer| {
                answer.unwrap_or_else(|_| Err(Failure::Unavailable("the client is closed".into())))
            }),
            #[cfg(feature = "remote")]
            Self::Later(answer) => answer.as_mut().poll(context),
        }
    }
}
