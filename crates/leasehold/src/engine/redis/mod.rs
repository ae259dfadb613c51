//! The engine on Redis and Valkey: Redisson's keys, fields, channels and payloads.
//!
//! One thread per client owns two connections, one for commands and one for messages. The state of a lock is a hash
//! with one field, the owner, whose value counts its entries; its time to live is the lease.

mod address;
mod answers;
mod asking;
mod beats;
mod book;
mod calls;
mod connection;
mod courtesy;
mod desk;
mod group_calls;
mod hello;
mod hints;
mod home;
mod io;
mod keeper;
mod keys;
mod lasting;
mod link;
mod marks;
mod pipeline;
mod reader;
mod reconnect;
mod request;
mod resp;
mod rw_calls;
mod scripts;
mod stream;
mod subscriber;
mod supervisor;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;

pub(crate) use self::address::Address;
use self::answers::nonsense;
use self::beats::Beats;
use self::connection::Settings;
use self::desk::Abandon;
use self::hints::Hints;
use self::io::{Pipe, Thread};
use self::keeper::Keeper;
use self::lasting::{Effect, Lasting, Note};
use self::marks::Marks;
use self::request::{InOrder, Step};
use self::resp::Value;
use super::{
    Adjust, Adjusted, Aftermath, Attempt, AttemptAll, Change, Claim, Engine, Holding, Kind, Released,
    Renewed, Reply, Spot, Target, Ticket,
};
use crate::client_id::ClientId;
use crate::error::Failure;
use crate::lease::{Lapse, Lease};
use crate::loss::Loss;
use crate::name::Name;
use crate::owner::{Owner, OwnerId};
use crate::term::Term;
use crate::time;

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
    parts: Arc<Parts>,
    /// Where it was made. A fork has no thread, but a copy of everything else.
    process: u32,
}

/// What answers are noted in. Together, because every request shares all of it with all others, and to count that for each
/// part takes more time than to note the answer.
struct Parts {
    hints: Arc<Hints>,
    keeper: Arc<Keeper>,
    beats: Arc<Beats>,
    marks: Marks,
    pipe: Pipe,
}

/// How long a waiter for a fair lock stands in its queue without saying that it lives.
const MARK: Duration = Duration::from_secs(3);
impl Redis {
    pub(crate) async fn connect(address: Address, options: Options) -> Result<Self, Failure> {
        let Options { label, connect_timeout, response_timeout, linger } = options;
        let callers = Handle::try_current().ok();
        let demotions = Arc::default();
        let settings = Settings { address, label, connect_timeout, response_timeout, callers, demotions };
        let hints = Arc::new(Hints::default());
        let keeper = Arc::new(Keeper::new(Arc::clone(&hints)));
        let beats = Arc::new(Beats::default());
        let shared = (Arc::clone(&hints), Arc::clone(&keeper), Arc::clone(&beats));
        let thread = Thread::start(settings, shared.0, shared.1, shared.2, linger).await?;
        let pipe = thread.pipe().clone();
        let parts = Arc::new(Parts { hints, keeper, beats, marks: Marks::default(), pipe });
        Ok(Self { thread, parts, process: std::process::id() })
    }

    fn pipe(&self) -> &Pipe {
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

impl Engine for Redis {
    fn attempt(&self, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt> {
        self.ask_for(claim, turn)
    }

    fn attempt_all(&self, claims: &[Claim], turn: Option<(usize, Ticket)>) -> Reply<AttemptAll> {
        self.ask_for_all(claims, turn)
    }

    fn release(&self, spot: &Spot, from: u32, lease: Lease) -> Reply<Released> {
        let begun = time::now();
        let kept = if from <= 1 {
            self.parts.hints.releasing(spot);
            // Renewal ends before the release is sent.
            self.parts.keeper.forget(spot)
        } else {
            self.parts.keeper.get(spot)
        };
        let length = kept.as_ref().map_or(lease.length(), |kept| kept.length(begun));
        let call = calls::release(spot, from, length);
        // Of those that stay out for a moment the undo of a release that was dropped sees to the next waiter.
        let is_courteous = matches!(spot.target.kind, Kind::Lock | Kind::Spin | Kind::SetNx);
        let in_order = (!is_courteous).then(|| -> InOrder {
            let (spot, parts) = (spot.clone(), Arc::clone(&self.parts));
            Box::new(move |answer| {
                parts.hints.released(&spot, calls::heard_by(spot.target.kind, answer), begun);
            })
        });
        let answer = self.pipe().step(Step::new(spot, Vec::new()), call, in_order);
        let (spot, parts) = (spot.clone(), Arc::clone(&self.parts));
        Reply::later(async move {
            let answer = answer.await;
            if is_courteous {
                parts.hints.released(&spot, answer.as_ref().ok().and_then(calls::listeners), begun);
            }
            match answer {
                Ok(Value::Int(answer)) => Ok(match calls::counts_left(spot.target.kind, answer) {
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
        let (parts, freed) = (Arc::clone(&self.parts), target.clone());
        let in_order = Box::new(move |answer: &Value| {
            if matches!(answer, Value::Int(answer) if *answer != 0) {
                parts.keeper.lose(&freed, Loss::ForceUnlocked);
                if calls::listeners(answer) == Some(0) {
                    parts.hints.unheard(&freed);
                }
            }
        });
        let answer = self.pipe().send_in_order(calls::force(target), in_order);
        Reply::later(async move {
            match answer.await? {
                Value::Int(freed) => Ok(freed != 0),
                other => Err(nonsense(&other)),
            }
        })
    }

    fn renew(&self, spot: &Spot, length: Duration) -> Reply<Renewed> {
        let Some(kept) = self.parts.keeper.get(spot) else { return Reply::now(Renewed::Gone) };
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

    fn abandon(&self, spot: &Spot, count: u32, lapse: Lapse) {
        if count == 0 {
            self.parts.keeper.forget(spot);
            self.parts.hints.releasing(spot);
        }
        self.pipe().abandon(Abandon { spot: spot.clone(), count, until: lapse.at() });
    }

    fn term(&self, spot: &Spot) -> Option<Arc<Term>> {
        self.parts.keeper.term(spot)
    }

    fn query(&self, target: &Target, owner: Option<OwnerId>) -> Reply<Option<Holding>> {
        let answer = self.pipe().send(calls::query(target, owner));
        let foreign = target.kind == Kind::SetNx;
        Reply::later(async move {
            match answer.await? {
                Value::Nil => Ok(None),
                holding => answers::holding(&holding, foreign).map(Some),
            }
        })
    }

    fn token(&self, target: &Target) -> Reply<u64> {
        let answer = self.pipe().send(calls::token(target));
        Reply::later(async move {
            match answer.await? {
                Value::Int(token @ 0..) => Ok(token.unsigned_abs()),
                other => Err(nonsense(&other)),
            }
        })
    }

    fn uptime(&self) -> Reply<Option<Duration>> {
        let answer = self.pipe().send(calls::uptime());
        Reply::later(async move { answers::uptime(&answer.await?).map(Some) })
    }

    fn queue(&self, target: &Target) -> Reply<Vec<Owner>> {
        let answer = self.pipe().send(calls::queue(target));
        Reply::later(async move {
            match answer.await? {
                Value::Array(owners) => {
                    Ok(owners.iter().filter_map(answers::owner).map(Owner::from).collect())
                }
                other => Err(nonsense(&other)),
            }
        })
    }

    fn fenced_write(&self, key: &Name, token: u64, value: &[u8]) -> Option<Reply<Option<u64>>> {
        let answer = self.pipe().send(calls::fenced_write(key, token, value));
        Some(Reply::later(async move {
            match answer.await? {
                Value::Nil => Ok(None),
                Value::Text(seen) => {
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
            Value::Int(number) => Ok(number),
            other => Err(nonsense(&other)),
        };
        let call = calls::adjust(target, change);
        if change.adjust.is_question() {
            let answer = self.pipe().send(call);
            return Reply::later(async move { Ok(Adjusted::Done(number(answer.await?)?)) });
        }
        let until = time::after(change.patience);
        let note = Note { record: keys::requests(target), field: change.request };
        let (parts, target, adjust) = (Arc::clone(&self.parts), target.clone(), change.adjust.clone());
        let effect: Effect = Arc::new(move |answer| {
            if let Adjust::Delete = adjust {
                parts.keeper.lose(&target, Loss::Gone);
            }
            if matches!(answer, Value::Int(told) if adjust.frees(*told)) {
                // The result does not say whether anybody heard of it.
                parts.hints.unheard(&target);
            }
        });
        let answer = self.pipe().last(Lasting::new(call, effect, note, until));
        let parts = Arc::clone(&self.parts);
        Reply::later(async move {
            let told = match answer.await {
                Ok(answer) => number(answer?)?,
                // The last reason says more than that the time is over.
                Err(_) if parts.hints.is_outage() => {
                    return Ok(Adjusted::NotAsked(parts.hints.not_connected()));
                }
                Err(not_asked) => return Ok(Adjusted::NotAsked(not_asked)),
            };
            Ok(Adjusted::Done(told))
        })
    }

    fn let_go(&self, spot: &Spot) {
        self.parts.keeper.forget(spot);
        if spot.target.kind == Kind::Semaphore {
            self.pipe().forget(Note { record: keys::record(&spot.target), field: spot.owner });
        }
    }

    fn listen(&self, spot: &Spot, heir: bool) -> Ticket {
        self.parts.hints.listen(spot, heir)
    }

    fn listening(&self, spot: &Spot) -> Reply<()> {
        let (hints, spot) = (Arc::clone(&self.parts.hints), spot.clone());
        Reply::later(async move {
            hints.listening(&spot).await;
            Ok(())
        })
    }

    fn poll_hint(&self, spot: &Spot, ticket: Ticket, context: &mut Context<'_>) -> Poll<()> {
        self.parts.hints.poll_hint(spot, ticket, context)
    }

    fn hint_all(&self) {
        self.parts.hints.hint_all();
    }

    fn look_every(&self) -> Option<Duration> {
        self.parts.hints.is_denied().then(|| self.parts.hints.next_look())
    }

    fn leave(&self, spot: &Spot, ticket: Ticket) {
        self.parts.hints.leave(spot, ticket);
        if self.parts.beats.remove(spot) {
            // It did not get the lock, and must not stand in the queue any more. What the same owner may hold by way of
            // somebody else stays.
            self.abandon(spot, u32::MAX, Lease::Fixed(MARK).into());
        }
        if spot.target.kind == Kind::Write && self.parts.marks.take(spot) {
            // Nobody waits for the answer: without it the mark goes by itself, a little later.
            self.pipe().post(rw_calls::unmark(spot));
        }
    }

    fn relays(&self) -> bool {
        true
    }

    fn heirs(&self, spot: &Spot) -> usize {
        self.parts.hints.heirs(spot)
    }

    fn entrust(&self, spot: &Spot, term: &Arc<Term>) -> bool {
        self.parts.keeper.entrust(spot, term)
    }

    fn call_heir(&self, spot: &Spot) {
        self.parts.hints.hint(spot);
    }

    fn inherits(&self, spot: &Spot, ticket: Ticket) -> Option<Aftermath> {
        self.parts.hints.inherits(spot, ticket)
    }

    fn retire(&self, _client: ClientId) -> usize {
        self.parts.keeper.retire()
    }
}
