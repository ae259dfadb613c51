//! One round of requests to all servers at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::members::missing_vote;
use super::{QuorumGuard, QuorumLock};
use crate::engine::Query;
use crate::env;
use crate::error::{AcquireError, Classified as _, ServerError, Subject};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::operation::Operation;
use crate::owner::Owner;
use crate::race::{First, race};

/// The votes of one round. Dropping it releases granted votes, and rolls back pending requests.
pub(super) struct Round {
    lock: QuorumLock,
    owner: Owner,
    lease: Option<Duration>,
    votes: Vec<Vote>,
}

/// The vote of one server.
enum Vote {
    Pending(Operation<Result<Option<Guard>, AcquireError>>),
    Yes(Guard),
    No(AcquireError),
}

/// Requests the vote of one server, and fails if no reply arrives within the limit: a later grant is rolled back.
pub(super) fn request_vote(
    lock: &QuorumLock,
    number: usize,
    owner: &Owner,
    lease: Option<Duration>,
) -> Operation<Result<Option<Guard>, AcquireError>> {
    let (member, limit, delay) = (lock.members[number].clone(), lock.limit, lock.rejoin_delay);
    let acquire = member.try_acquire().as_owner(owner);
    let acquire = if let Some(lease) = lease { acquire.lease(lease) } else { acquire };
    Operation::new(async move {
        let late = env::sleep_until_or_forever(env::after(limit));
        let vote = async {
            let guard = acquire.await?;
            if guard.is_some() {
                is_old_enough(&member, delay).await?;
            }
            Ok(guard)
        };
        let voted = match race(Box::pin(vote), late).await {
            First::Left(reply) => reply,
            First::Right(()) => Err(ServerError::Unavailable(format!("no reply within {limit:?}")).into()),
        };
        voted.map_err(|error: AcquireError| error.about(&member.shared.subject_of(&member.resource)))
    })
}

/// Whether a server has been up for so long that no owner can still hold a vote that it has lost.
async fn is_old_enough(member: &Lock, delay: Option<Duration>) -> Result<(), AcquireError> {
    let Some(delay) = delay else { return Ok(()) };
    match member.shared.engine.inspect(&Query::Uptime).await?.uptime {
        // The server counts whole seconds, and may have begun to count in the middle of one.
        Some(uptime) if uptime <= delay => {
            let text = format!("the server has been up for {uptime:?} only, and may have forgotten its vote");
            Err(ServerError::Unavailable(text).into())
        }
        _ => Ok(()),
    }
}

impl Round {
    pub(super) fn begin(lock: &QuorumLock, lease: Option<Duration>) -> Self {
        let owner = Owner::unique();
        let votes =
            (0..lock.members.len()).map(|number| Vote::Pending(request_vote(lock, number, &owner, lease)));
        Self { votes: votes.collect(), lock: lock.clone(), owner, lease }
    }

    /// Waits until a majority has granted the lock, or cannot any more.
    pub(super) async fn run(mut self) -> Result<QuorumGuard, AcquireError> {
        poll_fn(|context| self.poll(context)).await?;
        let Self { lock, owner, lease, votes } = self;
        let (mut guards, mut pending) = (Vec::new(), Vec::new());
        for (number, vote) in votes.into_iter().enumerate() {
            guards.push(match vote {
                Vote::Yes(guard) => Some(guard),
                Vote::Pending(request) => {
                    pending.push(missing_vote(number, request));
                    None
                }
                Vote::No(_) => None,
            });
        }
        let guard = QuorumGuard::new(lock, owner, lease, guards, pending);
        if guard.is_held() {
            return Ok(guard);
        }
        Err(ServerError::Unavailable("the replies took longer than the lease".into()).into())
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), AcquireError>> {
        for vote in &mut self.votes {
            if let Vote::Pending(request) = vote
                && let Poll::Ready(reply) = Pin::new(request).poll(context)
            {
                *vote = match reply {
                    Ok(Some(guard)) => Vote::Yes(guard),
                    Ok(None) => Vote::No(contended()),
                    Err(error) => Vote::No(error),
                };
            }
        }
        let count = |is: fn(&Vote) -> bool| self.votes.iter().filter(|vote| is(vote)).count();
        let quorum = self.lock.quorum();
        if count(|vote| matches!(vote, Vote::Yes(_))) >= quorum {
            return Poll::Ready(Ok(()));
        }
        if self.votes.len() - count(|vote| matches!(vote, Vote::No(_))) >= quorum {
            return Poll::Pending;
        }
        Poll::Ready(Err(self.verdict()))
    }

    /// Why there is no majority: too many servers are missing, or other owners hold it on too many.
    fn verdict(&self) -> AcquireError {
        let no = |vote: &Vote| if let Vote::No(error) = vote { Some(error.clone()) } else { None };
        let failed = || self.votes.iter().filter_map(no).filter(|error| !error.is_contended());
        let is_majority = |without: usize| self.votes.len() - without >= self.lock.quorum();
        let refused = || failed().filter(|error| !error.is_transient());
        if is_majority(failed().count()) {
            return contended();
        }
        // Servers that refuse for good do not matter as long as the others can be a majority later.
        let for_now = failed().find(|error| error.is_transient() && is_majority(refused().count()));
        for_now.or_else(|| refused().next()).unwrap_or_else(contended)
    }
}

/// Another owner has the votes.
fn contended() -> AcquireError {
    AcquireError::Timeout {
        waited: Duration::ZERO,
        holder: None,
        client: None,
        lease_left: None,
        is_own: false,
        subject: Subject::default(),
    }
}
