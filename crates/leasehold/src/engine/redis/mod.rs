//! The engine on Redis and Valkey: Redisson's keys, fields, channels and payloads.
//!
//! One thread per client owns two connections, one for commands and one for messages. The state of a lock is a hash
//! with one field, the owner, whose value counts its entries; its time to live is the lease.

mod beats;
mod calls;
mod connection;
mod group_calls;
mod hints;
mod io;
mod keeper;
mod keys;
mod lasting;
mod link;
mod marks;
mod rw_calls;
mod scripts;
mod subscriber;
mod supervisor;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::{ConnectionInfo, Value};

use self::beats::Beats;
use self::connection::Settings;
use self::hints::Hints;
use self::io::{Abandon, Pipe, Thread};
use self::keeper::{Keeper, Kept};
use self::lasting::{Lasting, Note};
use self::marks::Marks;
use super::line::MayTake;
use super::{
    Adjust, Adjusted, Attempt, AttemptAll, BARRED, Busy, Change, Claim, Engine, Family, Holding, Kind,
    Released, Renewed, Reply, Spot, Target, Ticket,
};
use crate::client_id::ClientId;
use crate::error::Failure;
use crate::lease::Lease;
use crate::loss::Loss;
use crate::name::Name;
use crate::owner::{Owner, OwnerId};
use crate::term::{Term, Until};
use crate::time::{self, jittered};

/// How to reach the server, beside the URL.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) label: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) linger: Duration,
}

/// The Redis engine of one client.
pub(crate) struct Redis {
    thread: Thread,
    hints: Arc<Hints>,
    keeper: Arc<Keeper>,
    beats: Arc<Beats>,
    marks: Arc<Marks>,
    /// Where it was made. A fork has no thread, but a copy of everything else.
    process: u32,
}

/// How long a waiter for a fair lock stands in its queue without saying that it lives.
const MARK: Duration = Duration::from_secs(3);
/// Where nobody tells that a lock is free, the head of a line looks about this often.
const POLL: Duration = Duration::from_millis(200);

impl Redis {
    pub(crate) async fn connect(info: &ConnectionInfo, options: Options) -> Result<Self, Failure> {
        let Options { label, connect_timeout, response_timeout, linger } = options;
        let settings = Settings::new(info, label, connect_timeout, response_timeout)?;
        let hints = Arc::new(Hints::default());
        let keeper = Arc::new(Keeper::default());
        let beats = Arc::new(Beats::default());
        let parts = (Arc::clone(&hints), Arc::clone(&keeper), Arc::clone(&beats));
        let thread = Thread::start(settings, parts.0, parts.1, parts.2, linger).await?;
        Ok(Self { thread, hints, keeper, beats, marks: Arc::default(), process: std::process::id() })
    }

    fn pipe(&self) -> Pipe {
        self.thread.pipe()
    }

    fn check_process(&self) -> Result<(), Failure> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let text = "this process was forked: make a client of its own in the child";
        Err(Failure::Unavailable(text.into()))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

/// An answer that no script of ours gives.
fn nonsense(value: &Value) -> Failure {
    Failure::Denied(format!("the server answered {value:?}, which means nothing here"))
}

/// Milliseconds as the server counts them: minus one is no limit.
fn milliseconds(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().map(Duration::from_millis)
}

impl Engine for Redis {
    fn attempt(&self, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt> {
        let begun = time::now();
        if let Err(failure) = self.check_process() {
            return Reply::now(Attempt::NotAsked(failure));
        }
        if self.hints.is_outage() {
            return Reply::now(Attempt::NotAsked(Failure::Unavailable("not connected".into())));
        }
        let Target { kind, .. } = claim.spot.target;
        let in_line = claim.held == 0 && !claim.steal && kind != Kind::Spin;
        // Whoever is inside and wants the other half, too, does not wait behind those who wait for it to leave.
        let is_inside = || kind.family() == Family::Rw && self.keeper.is_inside(&claim.spot);
        if in_line && !is_inside() {
            let busy = |retry_in| Reply::now(Attempt::Busy(Busy { retry_in, ..Busy::default() }));
            match self.hints.may_ask(&claim.spot, turn, begun) {
                MayTake::Yes => {}
                MayTake::In(wait) => return busy(Some(wait)),
                MayTake::WhenHinted => return busy(None),
            }
        }
        let before = self.keeper.get(&claim.spot);
        let limit = [before.and_then(|kept| kept.limit), claim.limit].into_iter().flatten().min();
        let kept = Kept::new(claim.spot.clone(), claim.lease, limit, Arc::clone(&claim.term), begun);
        let length = kept.length(begun);
        let answer = self.pipe().step(claim.spot.clone(), calls::acquire(claim, length));
        let (steal, fenced, queue) = (claim.steal, claim.fenced, claim.queue);
        let (keeper, hints, beats, pipe) =
            (Arc::clone(&self.keeper), Arc::clone(&self.hints), Arc::clone(&self.beats), self.pipe());
        let marks = rw_calls::marks(claim).then(|| Arc::clone(&self.marks));
        if let Some(marks) = &marks {
            marks.add(&claim.spot);
        }
        Reply::later(async move {
            let answer = match answer.await? {
                // A `SET … NX` that was refused tells nothing else: only whoever is refused pays for a question.
                Value::Nil => pipe.send(calls::query(&kept.spot.target, None)).await?,
                answer => answer,
            };
            let token = match answer {
                Value::Int(0) => return Ok(Attempt::Gone),
                Value::Int(-1) => return Ok(Attempt::Misfit),
                Value::Int(token @ 1..) => fenced.then_some(token.unsigned_abs()),
                Value::Okay => None,
                busy => {
                    let mut attempt = busy_with(&busy, &kept.spot, &hints)?;
                    if let (Attempt::Busy(Busy { position: Some(position), .. }), Some(queueing)) =
                        (&attempt, queue)
                    {
                        beats.add(&kept.spot, queueing, *position);
                    }
                    if let (Attempt::Busy(Busy { retry_in, .. }), Some(_)) = (&mut attempt, marks) {
                        // To leave the mark again.
                        *retry_in = Some(retry_in.map_or(BARRED / 3, |wait| wait.min(BARRED / 3)));
                    }
                    return Ok(attempt);
                }
            };
            let until = kept.until(begun, length);
            beats.remove(&kept.spot);
            if let Some(marks) = marks {
                // The script took the mark away.
                marks.take(&kept.spot);
            }
            // An answer that is looked at too late says nothing about now: somebody else may have the lock.
            if !matches!(until, Until::Deadline(end, _) if end <= time::now()) {
                keeper.keep(kept, steal);
            }
            Ok(Attempt::Granted(until, token))
        })
    }

    fn attempt_all(&self, claims: &[Claim], turn: Option<(usize, Ticket)>) -> Reply<AttemptAll> {
        let begun = time::now();
        if let Err(failure) = self.check_process() {
            return Reply::now(AttemptAll::NotAsked(failure));
        }
        if self.hints.is_outage() {
            return Reply::now(AttemptAll::NotAsked(Failure::Unavailable("not connected".into())));
        }
        for (number, claim) in claims.iter().enumerate() {
            let turn = turn.filter(|(whose, _)| *whose == number).map(|(_, ticket)| ticket);
            let retry_in = match self.hints.may_ask(&claim.spot, turn, begun) {
                MayTake::Yes => continue,
                MayTake::In(wait) => Some(wait),
                MayTake::WhenHinted => None,
            };
            return Reply::now(AttemptAll::Busy(number, Busy { retry_in, ..Busy::default() }));
        }
        let kept = |claim: &Claim| {
            Kept::new(claim.spot.clone(), claim.lease, claim.limit, Arc::clone(&claim.term), begun)
        };
        let kept: Vec<_> = claims.iter().map(kept).collect();
        let length = kept[0].length(begun);
        let fenced = claims[0].fenced;
        let answer = self.pipe().step(claims[0].spot.clone(), calls::acquire_all(claims, length));
        let (keeper, hints) = (Arc::clone(&self.keeper), Arc::clone(&self.hints));
        Reply::later(async move {
            let answer = answer.await?;
            let Value::Array(parts) = &answer else { return Err(nonsense(&answer)) };
            if let [Value::BulkString(_), Value::Int(number), busy @ ..] = parts.as_slice() {
                let number = usize::try_from(number - 1).unwrap_or_default().min(kept.len() - 1);
                return match busy_with(&Value::Array(busy.to_vec()), &kept[number].spot, &hints)? {
                    Attempt::Busy(busy) => Ok(AttemptAll::Busy(number, busy)),
                    _ => Err(nonsense(&answer)),
                };
            }
            let mut granted = Vec::with_capacity(kept.len());
            for (kept, token) in kept.into_iter().zip(parts) {
                let Value::Int(token) = token else { return Err(nonsense(&answer)) };
                granted.push((kept.until(begun, length), fenced.then_some(token.unsigned_abs())));
                keeper.keep(kept, false);
            }
            Ok(AttemptAll::Granted(granted))
        })
    }

    fn release(&self, spot: &Spot, from: u32, lease: Lease) -> Reply<Released> {
        let begun = time::now();
        let kept = self.keeper.get(spot);
        let length = kept.as_ref().map_or(lease.length(), |kept| kept.length(begun));
        if from <= 1 {
            // Renewal ends before the release is sent.
            self.keeper.forget(spot);
        }
        let answer = self.pipe().step(spot.clone(), calls::release(spot, from, length));
        let kind = spot.target.kind;
        Reply::later(async move {
            match answer.await {
                Ok(Value::Int(answer)) => Ok(match calls::counts_left(kind, answer) {
                    Some(left) => {
                        let until = kept.filter(|_| left > 0).map(|kept| kept.until(begun, length));
                        Released::Left(left, until)
                    }
                    None => Released::NotHeld,
                }),
                Err(Failure::NotALock) => Ok(Released::NotHeld),
                Ok(other) => Err(nonsense(&other)),
                Err(failure) => Err(failure),
            }
        })
    }

    fn force(&self, target: &Target) -> Reply<bool> {
        let answer = self.pipe().send(calls::force(target));
        let (keeper, target) = (Arc::clone(&self.keeper), target.clone());
        Reply::later(async move {
            match answer.await? {
                Value::Int(0) => Ok(false),
                Value::Int(_) => {
                    keeper.lose(&target, Loss::ForceUnlocked);
                    Ok(true)
                }
                other => Err(nonsense(&other)),
            }
        })
    }

    fn renew(&self, spot: &Spot, length: Duration) -> Reply<Renewed> {
        let Some(kept) = self.keeper.get(spot) else { return Reply::now(Renewed::Gone) };
        let begun = time::now();
        let length = kept.limit.map_or(length, |limit| length.min(limit.saturating_duration_since(begun)));
        let call = calls::renew(spot.target.kind, [(spot, length.max(Duration::from_millis(1)))]);
        let answer = self.pipe().send(call);
        Reply::later(async move {
            match answer.await? {
                Value::Array(verdict) if verdict.as_slice() == [Value::Int(1)] => {
                    let extended = kept.until(begun, length);
                    Ok(Renewed::Until(if length > kept.term.remaining() {
                        extended
                    } else {
                        kept.term.until()
                    }))
                }
                Value::Array(_) => Ok(Renewed::Gone),
                other => Err(nonsense(&other)),
            }
        })
    }

    fn abandon(&self, spot: &Spot, count: u32, lease: Lease) {
        if count == 0 {
            self.keeper.forget(spot);
        }
        let until = time::now() + lease.length();
        self.pipe().abandon(Abandon { spot: spot.clone(), count, until });
    }

    fn term(&self, spot: &Spot) -> Option<Arc<Term>> {
        self.keeper.term(spot)
    }

    fn query(&self, target: &Target, owner: Option<OwnerId>) -> Reply<Option<Holding>> {
        let answer = self.pipe().send(calls::query(target, owner));
        let foreign = target.kind == Kind::SetNx;
        Reply::later(async move {
            match answer.await? {
                Value::Nil => Ok(None),
                Value::Array(holding) => match holding.as_slice() {
                    [Value::Int(left), Value::BulkString(owner), Value::BulkString(count)] => {
                        let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
                        match (parse_owner(owner), count) {
                            (owner, Some(count)) if owner.is_some() || foreign => {
                                let remaining = milliseconds(*left).unwrap_or(Duration::MAX);
                                Ok(Some(Holding { owner, count, remaining }))
                            }
                            _ => Err(Failure::NotALock),
                        }
                    }
                    _ => Err(Failure::NotALock),
                },
                other => Err(nonsense(&other)),
            }
        })
    }

    fn token(&self, target: &Target) -> Reply<u64> {
        let answer = self.pipe().send(calls::token(target));
        Reply::later(async move {
            match answer.await? {
                Value::Int(token) => Ok(token.unsigned_abs()),
                other => Err(nonsense(&other)),
            }
        })
    }

    fn uptime(&self) -> Reply<Option<Duration>> {
        let answer = self.pipe().send(calls::uptime());
        Reply::later(async move {
            let answer = answer.await?;
            let text = match &answer {
                Value::BulkString(text) => std::str::from_utf8(text).ok(),
                Value::VerbatimString { text, .. } => Some(text.as_str()),
                _ => None,
            };
            let line = |text: &str| {
                text.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")?.parse().ok())
            };
            text.and_then(line)
                .map(|seconds| Some(Duration::from_secs(seconds)))
                .ok_or_else(|| nonsense(&answer))
        })
    }

    fn queue(&self, target: &Target) -> Reply<Vec<Owner>> {
        let answer = self.pipe().send(calls::queue(target));
        Reply::later(async move {
            match answer.await? {
                Value::Array(owners) => Ok(owners
                    .iter()
                    .filter_map(|owner| match owner {
                        Value::BulkString(owner) => parse_owner(owner).map(Owner::from),
                        _ => None,
                    })
                    .collect()),
                other => Err(nonsense(&other)),
            }
        })
    }

    fn fenced_write(&self, key: &Name, token: u64, value: &[u8]) -> Option<Reply<Option<u64>>> {
        let answer = self.pipe().send(calls::fenced_write(key, token, value));
        Some(Reply::later(async move {
            match answer.await? {
                Value::Nil => Ok(None),
                Value::BulkString(seen) => {
                    let seen = std::str::from_utf8(&seen).ok().and_then(|seen| seen.parse().ok());
                    Ok(Some(seen.unwrap_or(u64::MAX)))
                }
                other => Err(nonsense(&other)),
            }
        }))
    }

    fn adjust(&self, target: &Target, change: &Change) -> Reply<Adjusted> {
        if let Err(failure) = self.check_process() {
            return Reply::now(Adjusted::NotAsked(failure));
        }
        let number = |value| match value {
            Value::Int(number) => Ok(Adjusted::Done(number)),
            other => Err(nonsense(&other)),
        };
        let call = calls::adjust(target, change);
        if change.adjust.is_question() {
            let answer = self.pipe().send(call);
            return Reply::later(async move { number(answer.await?) });
        }
        let until = time::now().checked_add(change.patience);
        let note = Note { record: keys::record(target), field: change.request };
        let answer = self.pipe().last(Lasting::new(call, note, until));
        let (keeper, target) = (Arc::clone(&self.keeper), target.clone());
        let deletes = matches!(change.adjust, Adjust::Delete);
        Reply::later(async move {
            let answer = match answer.await {
                Ok(answer) => answer?,
                Err(not_asked) => return Ok(Adjusted::NotAsked(not_asked)),
            };
            if deletes {
                keeper.lose(&target, Loss::Gone);
            }
            number(answer)
        })
    }

    fn let_go(&self, spot: &Spot) {
        self.keeper.forget(spot);
        if spot.target.kind == Kind::Semaphore {
            self.pipe().forget(Note { record: keys::record(&spot.target), field: spot.owner });
        }
    }

    fn listen(&self, spot: &Spot) -> Ticket {
        self.hints.listen(spot)
    }

    fn listening(&self, spot: &Spot) -> Reply<()> {
        let (hints, spot) = (Arc::clone(&self.hints), spot.clone());
        Reply::later(async move {
            hints.listening(&spot).await;
            Ok(())
        })
    }

    fn poll_hint(&self, spot: &Spot, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        self.hints.poll_hint(spot, ticket, context)
    }

    fn look_every(&self) -> Option<Duration> {
        self.hints.is_denied().then(|| jittered(POLL))
    }

    fn leave(&self, spot: &Spot, ticket: Ticket) {
        self.hints.leave(spot, ticket);
        if self.beats.remove(spot) {
            // It did not get the lock, and must not stand in the queue any more. What the same owner may hold by way of
            // somebody else stays.
            self.abandon(spot, u32::MAX, Lease::Fixed(MARK));
        }
        if spot.target.kind == Kind::Write && self.marks.take(spot) {
            // Nobody waits for the answer: without it the mark goes by itself, a little later.
            drop(self.pipe().send(rw_calls::unmark(spot)));
        }
    }

    fn retire(&self, _client: ClientId) -> usize {
        self.keeper.retire()
    }
}

/// What a claim comes to when `answer` tells how long the lock is held, and by whom.
fn busy_with(answer: &Value, spot: &Spot, hints: &Hints) -> Result<Attempt, Failure> {
    let busy = match answer {
        Value::Array(busy) => busy.as_slice(),
        // Free again since it was refused.
        Value::Nil => return Ok(Attempt::Busy(Busy { retry_in: Some(Duration::ZERO), ..Busy::default() })),
        other => return Err(nonsense(other)),
    };
    let (left, holder, place) = match busy {
        // Of a fair lock.
        [Value::Int(left), Value::BulkString(holder), Value::Int(place)] => {
            (*left, parse_owner(holder), *place)
        }
        [Value::Int(left), Value::BulkString(holder), ..] => (*left, parse_owner(holder), 0),
        [Value::Int(left), ..] => (*left, None, 0),
        _ => return Err(nonsense(answer)),
    };
    if holder == Some(spot.owner) {
        return Ok(Attempt::Gone);
    }
    let position = usize::try_from(place).ok().filter(|place| *place > 0);
    // One more, because the server rounds down. Of a queue only the first has anything to look for then.
    let retry_in = milliseconds(left).map(|left| left + Duration::from_millis(1));
    let retry_in = retry_in.filter(|_| position.is_none_or(|position| position == 1));
    // Others who release such a lock tell nobody.
    let polls = spot.target.kind == Kind::SetNx || hints.is_denied();
    let retry_in = [retry_in, polls.then(|| jittered(POLL))].into_iter().flatten().min();
    Ok(Attempt::Busy(Busy { retry_in, holder, position }))
}

fn parse_owner(field: &[u8]) -> Option<OwnerId> {
    let owner: Owner = std::str::from_utf8(field).ok()?.parse().ok()?;
    owner.full()
}
