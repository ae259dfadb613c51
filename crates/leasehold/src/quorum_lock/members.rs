//! The members of a lock on several servers, and whether they are a majority.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use super::QuorumLock;
use super::round::request_vote;
use crate::env::{self, Instant};
use crate::error::{AcquireError, Classified as _, ExtendError, LostError, ReleaseError, ServerError};
use crate::guard::Guard;
use crate::limits;
use crate::loss::Loss;
use crate::mutex::Mutex;
use crate::operation::Operation;
use crate::owner::Owner;
use crate::race::{First, all, first, race};

/// The holds of one quorum guard, and how they ended.
///
/// Loss is final here as it is for a single lock: the first check that finds no majority ends the guard, and no later
/// grant changes that. A majority must have been held without a gap. A check counts the members that are held now,
/// so a gap between two checks is found from the times of the members that ended: see [`State::check`].
#[derive(Debug)]
pub(crate) struct Members {
    lock: QuorumLock,
    owner: Owner,
    state: Mutex<State>,
    /// Notified when a member joins and when the guard ends.
    changed: Notify,
}

/// Invariant: once `end` is set, it stays, and there are no members. Guards and requests that are taken out are dropped when the
/// mutex is free again, because that wakes tasks.
#[derive(Debug)]
struct State {
    /// In the order of the servers; `None` for a missing member.
    members: Vec<Option<Member>>,
    /// Empty once the guard has ended.
    pending: Pending,
    end: Option<End>,
}

/// Pending requests, and grants that do not count yet. Dropping it rolls back the former and releases the latter.
#[derive(Debug, Default)]
struct Pending {
    requests: Vec<Operation<MemberReply>>,
    replies: Vec<MemberReply>,
}

/// The reply of a server.
#[derive(Debug)]
pub(super) enum MemberReply {
    /// A missing vote was granted.
    Granted(usize, Guard),
    /// A vote is still held.
    Held(usize),
    /// A refusal, or no reply in time.
    Nothing,
}

/// A request for the vote of a server.
pub(super) fn missing_vote(
    number: usize,
    request: Operation<Result<Option<Guard>, AcquireError>>,
) -> Operation<MemberReply> {
    Operation::new(async move {
        request.await.ok().flatten().map_or(MemberReply::Nothing, |guard| MemberReply::Granted(number, guard))
    })
}

#[derive(Debug)]
struct Member {
    guard: Guard,
    /// It has been held since then at the latest.
    since: Instant,
    /// It was certainly held at this moment: the server has confirmed it later.
    seen: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Released,
    Lost(Loss),
}

/// The loss that broke the majority, if one did: there must be a majority that was held when a member ended and has been
/// held since.
fn broken_by(quorum: usize, held_since: &[Instant], ended: &[(Instant, Loss)]) -> Option<Loss> {
    let covers = |at: Instant| held_since.iter().filter(|since| **since <= at).count() >= quorum;
    ended.iter().find(|(at, _)| !covers(*at)).map(|(_, loss)| *loss)
}

/// Whether a member with this loss was held up to that moment. Other losses are reported by the server some time after
/// they have happened.
fn is_by_clock(loss: Loss) -> bool {
    matches!(loss, Loss::Expired | Loss::Unreachable | Loss::MaxHold | Loss::NoProgress | Loss::Shutdown)
}

impl State {
    /// Ends the guard if a majority is not held any more, or was not at some moment since the last check. Returns the requests
    /// and guards to be dropped.
    fn check(&mut self, quorum: usize) -> (Pending, Vec<Guard>) {
        let (now, mut ended, mut spent) = (env::now(), Vec::new(), Vec::new());
        let mut undone = Pending::default();
        for slot in &mut self.members {
            if let Some(member) = slot.take_if(|member| !member.guard.is_held()) {
                let loss = member.guard.loss().unwrap_or(Loss::Gone);
                ended.push((if is_by_clock(loss) { now } else { member.seen }, loss));
                spent.push(member.guard);
            }
        }
        // If one check finds several, a loss reported by a server takes precedence over a passed deadline.
        ended.sort_by_key(|(_, loss)| is_by_clock(*loss));
        let held_since: Vec<_> = self.members.iter().flatten().map(|member| member.since).collect();
        if let (None, Some(loss)) = (self.end, broken_by(quorum, &held_since, &ended)) {
            let (pending, members) = self.finish(End::Lost(loss));
            undone = pending;
            spent.extend(members.into_iter().map(|member| member.guard));
        }
        (undone, spent)
    }

    fn finish(&mut self, end: End) -> (Pending, Vec<Member>) {
        self.end.get_or_insert(end);
        (std::mem::take(&mut self.pending), self.members.iter_mut().filter_map(Option::take).collect())
    }
}

impl Members {
    pub(super) fn new(
        lock: QuorumLock,
        owner: Owner,
        guards: Vec<Option<Guard>>,
        requests: Vec<Operation<MemberReply>>,
    ) -> Arc<Self> {
        // The guarantee begins here, and all of these are granted.
        let now = env::now();
        let member = |guard| Member { guard, since: now, seen: now };
        let members = guards.into_iter().map(|guard| guard.map(member)).collect();
        let pending = Pending { requests, replies: Vec::new() };
        let state = Mutex::new(State { members, pending, end: None });
        Arc::new(Self { lock, owner, state, changed: Notify::new() })
    }

    /// Updates the state by the clock and the losses of the members, then calls `read`.
    fn checked<T>(&self, read: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let had_ended = state.end.is_some();
        let spent = state.check(self.lock.quorum());
        let ends = state.end.is_some() && !had_ended;
        let seen = read(&mut state);
        drop(state);
        // Not under the mutex: both wake other tasks.
        drop(spent);
        if ends {
            self.changed.notify_waiters();
        }
        seen
    }

    pub(super) fn end(&self) -> Option<End> {
        self.checked(|state| state.end)
    }

    /// An error if it is not held on a majority any more.
    pub(crate) fn check(&self) -> Result<(), LostError> {
        match self.end() {
            None => Ok(()),
            Some(End::Lost(loss)) => Err(self.lost_error(loss)),
            Some(End::Released) => Err(self.lost_error(Loss::Gone)),
        }
    }

    /// Resolves with the cause when the guard is lost, and never after a release.
    pub(crate) fn lost(members: Arc<Self>) -> Operation<Loss> {
        Operation::new(async move {
            match members.ended().await {
                End::Lost(loss) => loss,
                End::Released => std::future::pending().await,
            }
        })
    }

    /// The error of work under the guard, which is lost.
    pub(super) fn lost_error(&self, loss: Loss) -> LostError {
        LostError::from(loss).about(&self.lock.subject())
    }

    pub(super) fn votes(&self) -> usize {
        self.checked(|state| state.members.iter().flatten().count())
    }

    /// How long a majority is held: the remaining time of the member at the quorum's position, longest first.
    pub(crate) fn remaining(&self) -> Duration {
        let mut remaining: Vec<_> = self
            .checked(|state| state.members.iter().flatten().map(|member| member.guard.remaining()).collect());
        remaining.sort_unstable_by(|one: &Duration, other| other.cmp(one));
        remaining.get(self.lock.quorum() - 1).copied().unwrap_or_default()
    }

    /// Resolves when the guard has ended, by a release or a loss.
    pub(super) async fn ended(&self) -> End {
        loop {
            let changed = self.changed.notified();
            let (end, losses): (_, Vec<_>) = self.checked(|state| {
                (state.end, state.members.iter().flatten().map(|member| member.guard.lost()).collect())
            });
            if let Some(end) = end {
                return end;
            }
            race(pin!(first(losses)), pin!(changed)).await;
        }
    }

    /// Ends it because the guard is gone, and returns the held members; the cause if it was lost before.
    fn finish(&self) -> Result<Vec<Member>, Loss> {
        let (before, (pending, members)) = self.checked(|state| (state.end, state.finish(End::Released)));
        // First: a pending request to a member delays its release.
        drop(pending);
        self.changed.notify_waiters();
        if let Some(End::Lost(loss)) = before { Err(loss) } else { Ok(members) }
    }

    /// Releases the held members, without waiting.
    pub(super) fn give_back(&self) {
        drop(self.finish());
    }

    pub(super) fn release(&self) -> Operation<Result<(), ReleaseError>> {
        let (quorum, subject) = (self.lock.quorum(), self.lock.subject());
        let members = self.finish();
        Operation::new(async move {
            let lost = |loss| ReleaseError::from(loss).about(&subject);
            let members = members.map_err(lost)?;
            let (times, guards): (Vec<_>, Vec<_>) =
                members.into_iter().map(|member| ((member.since, member.seen), member.guard)).unzip();
            let (mut held_since, mut ended, mut released, mut failed) = (Vec::new(), Vec::new(), 0, None);
            for ((since, seen), reply) in
                times.into_iter().zip(all(guards.into_iter().map(Guard::release)).await)
            {
                match reply {
                    Err(ReleaseError::NotHeld { loss, .. }) => ended.push((seen, loss)),
                    // Without a reply it is held as far as is known.
                    Err(error) => {
                        failed.get_or_insert(error);
                        held_since.push(since);
                    }
                    Ok(_) => {
                        released += 1;
                        held_since.push(since);
                    }
                }
            }
            match (broken_by(quorum, &held_since, &ended), failed) {
                (Some(loss), _) => Err(lost(loss)),
                (None, Some(error)) if released < quorum => Err(error),
                (None, _) => Ok(()),
            }
        })
    }

    pub(super) async fn extend(&self, length: Duration) -> Result<Duration, ExtendError> {
        let extensions: Vec<_> = self.checked(|state| {
            state.members.iter().flatten().map(|member| member.guard.extend(length)).collect()
        });
        let (extended, failed): (Vec<_>, Vec<_>) = all(extensions).await.into_iter().partition(Result::is_ok);
        match self.end() {
            Some(End::Lost(loss)) => return Err(ExtendError::from(loss).about(&self.lock.subject())),
            Some(End::Released) => return Err(ExtendError::from(Loss::Gone).about(&self.lock.subject())),
            None if extended.len() >= self.lock.quorum() => return Ok(self.remaining()),
            None => {}
        }
        // A lost member is not a lost lock.
        let failed = failed.into_iter().filter_map(Result::err);
        let failure = failed.into_iter().find(|error| !matches!(error, ExtendError::NotHeld { .. }));
        Err(failure.unwrap_or_else(|| {
            let text = "the lease was extended on fewer than a majority of the servers";
            ExtendError::from(ServerError::Unavailable(text.into())).about(&self.lock.subject())
        }))
    }

    /// Adds the votes that are still pending, and then requests missing votes again from time to time, until the guard ends.
    ///
    /// The runtime of this task may stop before the guard is dropped. So the task does not own requests or grants.
    pub(super) async fn heal(self: Arc<Self>, every: Option<Duration>) {
        let healing = async {
            loop {
                self.wait_for_replies().await;
                self.join().await;
                env::sleep_until_or_forever(every.and_then(env::after)).await;
                self.checked(|state| {
                    let missing = state.members.iter().enumerate().filter(|(_, member)| member.is_none());
                    let vote = |(number, _)| {
                        missing_vote(number, request_vote(&self.lock, number, &self.owner, None))
                    };
                    if state.end.is_none() {
                        state.pending.requests = missing.map(vote).collect();
                    }
                });
            }
        };
        race(pin!(self.ended()), pin!(healing)).await;
    }

    /// Waits until all requests have a reply.
    fn wait_for_replies(&self) -> impl Future<Output = ()> {
        poll_fn(|context| {
            // Not under the mutex: a request wakes other tasks.
            let mut requests = std::mem::take(&mut self.state.lock().pending.requests);
            let mut replies = Vec::new();
            requests.retain_mut(|request| match Pin::new(request).poll(context) {
                Poll::Ready(reply) => {
                    replies.push(reply);
                    false
                }
                Poll::Pending => true,
            });
            let is_done = requests.is_empty();
            let late = {
                let mut state = self.state.lock();
                if state.end.is_some() {
                    Some((requests, replies))
                } else {
                    state.pending.requests = requests;
                    state.pending.replies.extend(replies);
                    None
                }
            };
            drop(late);
            if is_done { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// Counts new grants as held from now on.
    ///
    /// If a server reports later that a member is gone, the time of the loss is unknown. So the present members are checked
    /// once more: from then on their loss can be no older than the grant.
    async fn join(&self) {
        let now = env::now();
        self.checked(|state| {
            let members =
                || state.members.iter().enumerate().filter_map(|(at, slot)| Some((at, slot.as_ref()?)));
            let latest = members().map(|(_, member)| member.since).max();
            let is_granted = |reply: &MemberReply| matches!(reply, MemberReply::Granted(..));
            let latest = if state.pending.replies.iter().any(is_granted) { Some(now) } else { latest };
            let unproven = members().filter(|(_, member)| Some(member.seen) < latest);
            let proofs = unproven.map(|(number, member)| self.prove(number, &member.guard)).collect();
            state.pending.requests = proofs;
        });
        self.wait_for_replies().await;
        self.checked(|state| {
            for reply in std::mem::take(&mut state.pending.replies) {
                match reply {
                    MemberReply::Granted(number, guard) => {
                        state.members[number] = Some(Member { guard, since: now, seen: now });
                    }
                    MemberReply::Held(number) => {
                        if let Some(member) = &mut state.members[number] {
                            member.seen = now;
                        }
                    }
                    MemberReply::Nothing => {}
                }
            }
        });
        self.changed.notify_waiters();
    }

    /// Checks with the server whether a member is held. If not, its guard is lost.
    fn prove(&self, number: usize, guard: &Guard) -> Operation<MemberReply> {
        // Extends nothing, unless the lease is almost over.
        let extension = guard.extend(limits::SHORTEST_LEASE);
        let limit = env::after(self.lock.limit);
        Operation::new(async move {
            match race(extension, env::sleep_until_or_forever(limit)).await {
                First::Left(Ok(_)) => MemberReply::Held(number),
                First::Left(Err(_)) | First::Right(()) => MemberReply::Nothing,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_that_may_have_had_a_gap_is_broken() {
        let start = env::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let broken = |held: &[u64], ended: &[(u64, Loss)]| {
            let held: Vec<_> = held.iter().map(|since| at(*since)).collect();
            let ended: Vec<_> = ended.iter().map(|(seen, loss)| (at(*seen), *loss)).collect();
            broken_by(2, &held, &ended)
        };
        assert_eq!(broken(&[0, 0], &[(0, Loss::Gone)]), None);
        assert_eq!(broken(&[0, 5], &[(5, Loss::Gone)]), None, "it was seen when the other joined");
        assert_eq!(broken(&[0, 5], &[(4, Loss::Gone)]), Some(Loss::Gone), "or it was not");
        assert_eq!(broken(&[0, 0, 5], &[(4, Loss::Gone)]), None, "others were there");
        assert_eq!(broken(&[0], &[(9, Loss::Unreachable)]), Some(Loss::Unreachable));
        assert_eq!(broken(&[0], &[]), None, "the loss of nothing breaks nothing");
    }
}
