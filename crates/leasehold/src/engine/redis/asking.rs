//! Asking the server for holds.

use std::sync::Arc;
use std::time::Duration;

use super::resp::Value;

use super::answers::{milliseconds, nonsense, owner};
use super::book::Kept;
use super::hints::{Hints, is_silent};
use super::request::{InOrder, Step};
use super::{Parts, Redis, calls, rw_calls};
use crate::engine::{Attempt, AttemptAll, BARRED, Busy, Claim, Family, Kind, Reply, Spot, Target, Ticket};
use crate::error::Failure;
use crate::time;

impl Redis {
    /// Whether there is any use in asking.
    fn can_ask(&self) -> Result<(), Failure> {
        self.check_process()?;
        if self.parts.hints.is_outage() { Err(self.parts.hints.not_connected()) } else { Ok(()) }
    }

    /// Takes or re-enters one.
    pub(super) fn ask_for(&self, claim: &Claim, turn: Option<Ticket>) -> Reply<Attempt> {
        let begun = time::now();
        if let Err(failure) = self.can_ask() {
            return Reply::now(Attempt::NotAsked(failure));
        }
        let Target { kind, .. } = claim.spot.target;
        let in_line = claim.held == 0 && !claim.steal && kind != Kind::Spin;
        // Whoever is inside and wants the other half, too, does not wait behind those who wait for it to leave.
        let is_inside = || kind.family() == Family::Rw && self.parts.keeper.is_inside(claim.spot);
        if in_line
            && !is_inside()
            && let Some(busy) = self.parts.hints.may_ask(claim.spot, turn, begun).not_yet()
        {
            return Reply::now(Attempt::Busy(busy));
        }
        let before = if claim.held > 0 { self.parts.keeper.get(claim.spot) } else { None };
        let limit = [before.and_then(|kept| kept.limit), claim.limit].into_iter().flatten().min();
        let kept = Kept::new(claim.spot.clone(), claim.lease, limit, Arc::clone(claim.term), begun);
        let length = kept.length(begun);
        let steal = claim.steal;
        // A hold that is entered again is known already, and stays as it is until the caller has its new guard.
        let (reentered, in_order) = if claim.held > 0 {
            (Some(kept), None)
        } else {
            let parts = Arc::clone(&self.parts);
            let in_order: InOrder = Box::new(move |answer| {
                if matches!(answer, Value::Int(1..) | Value::Okay) {
                    parts.keeper.granted(kept, begun, length, steal);
                }
            });
            (None, Some(in_order))
        };
        let step = Step::new(claim.spot, Vec::new());
        let answer = self.pipe().step(step, calls::acquire(claim, length), in_order);
        let (spot, fenced, queue) = (claim.spot.clone(), claim.fenced, claim.queue);
        let parts = Arc::clone(&self.parts);
        let marks = rw_calls::marks(claim);
        if marks {
            parts.marks.add(claim.spot);
        }
        Reply::later(async move {
            let Parts { hints, keeper, beats, pipe, .. } = parts.as_ref();
            let answer = match answer.await? {
                // A `SET … NX` that was refused tells nothing else: only whoever is refused pays for a question.
                Value::Nil => pipe.send(calls::query(&spot.target, None)).await?,
                answer => answer,
            };
            let token = match answer {
                Value::Int(0) => return Ok(Attempt::Gone),
                Value::Int(-1) => return Ok(Attempt::Misfit),
                Value::Int(token @ 1..) => fenced.then_some(token.unsigned_abs()),
                Value::Okay => None,
                busy => {
                    let mut attempt = busy_with(&busy, &spot, hints)?;
                    if let (Attempt::Busy(Busy { position: Some(position), .. }), Some(queueing)) =
                        (&attempt, queue)
                    {
                        beats.add(&spot, queueing, *position);
                    }
                    if let (Attempt::Busy(Busy { retry_in, .. }), true) = (&mut attempt, marks) {
                        // To leave the mark again.
                        *retry_in = Some(retry_in.map_or(BARRED / 3, |wait| wait.min(BARRED / 3)));
                    }
                    return Ok(attempt);
                }
            };
            beats.remove(&spot);
            if marks {
                // The script took the mark away.
                parts.marks.take(&spot);
            }
            if steal && spot.target.kind == Kind::Read {
                // Others can read now, too, and need not have heard of it.
                hints.unheard(&spot.target);
            }
            let until = reentered.as_ref().map(|kept| kept.until(begun, length));
            if let Some(kept) = reentered {
                keeper.reentered(kept);
            }
            Ok(Attempt::Granted(until, token))
        })
    }

    /// Takes several or none.
    pub(super) fn ask_for_all(&self, claims: &[Claim], turn: Option<(usize, Ticket)>) -> Reply<AttemptAll> {
        let begun = time::now();
        if let Err(failure) = self.can_ask() {
            return Reply::now(AttemptAll::NotAsked(failure));
        }
        for (number, claim) in claims.iter().enumerate() {
            let turn = turn.filter(|(whose, _)| *whose == number).map(|(_, ticket)| ticket);
            if let Some(busy) = self.parts.hints.may_ask(claim.spot, turn, begun).not_yet() {
                return Reply::now(AttemptAll::Busy(number, busy));
            }
        }
        let kept = |claim: &Claim| {
            Kept::new(claim.spot.clone(), claim.lease, claim.limit, Arc::clone(claim.term), begun)
        };
        let kept: Vec<_> = claims.iter().map(kept).collect();
        let length = kept[0].length(begun);
        let fenced = claims[0].fenced;
        let parts = Arc::clone(&self.parts);
        let in_order = Box::new(move |answer: &Value| {
            if tokens(answer, kept.len()).is_some() {
                for kept in kept {
                    parts.keeper.granted(kept, begun, length, false);
                }
            }
        });
        let spots: Vec<_> = claims.iter().map(|claim| claim.spot.clone()).collect();
        let step = Step::new(&spots[0], spots[1..].to_vec());
        let answer = self.pipe().step(step, calls::acquire_all(claims, length), Some(in_order));
        let parts = Arc::clone(&self.parts);
        Reply::later(async move {
            let answer = answer.await?;
            if let Some(tokens) = tokens(&answer, spots.len()) {
                let granted = tokens.map(|token| (None, fenced.then_some(token)));
                return Ok(AttemptAll::Granted(granted.collect()));
            }
            let Value::Array(told) = &answer else { return Err(nonsense(&answer)) };
            let [Value::Text(_), Value::Int(number), busy @ ..] = told.as_slice() else {
                return Err(nonsense(&answer));
            };
            let number = usize::try_from(number - 1).unwrap_or_default().min(spots.len() - 1);
            match busy_with(&Value::Array(busy.to_vec()), &spots[number], &parts.hints)? {
                Attempt::Busy(busy) => Ok(AttemptAll::Busy(number, busy)),
                _ => Err(nonsense(&answer)),
            }
        })
    }
}

/// The tokens of several locks that were all granted, if that is what the answer says.
fn tokens(answer: &Value, locks: usize) -> Option<impl Iterator<Item = u64>> {
    let Value::Array(told) = answer else { return None };
    let all = told.len() == locks && told.iter().all(|token| matches!(token, Value::Int(_)));
    let token = |token: &Value| if let Value::Int(token) = token { token.unsigned_abs() } else { 0 };
    all.then(|| told.iter().map(token))
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
        [Value::Int(left), holder, Value::Int(place)] => (*left, owner(holder), *place),
        [Value::Int(left), holder, ..] => (*left, owner(holder), 0),
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
    let polls = is_silent(spot) || hints.is_denied();
    let retry_in = [retry_in, polls.then(|| hints.next_look())].into_iter().flatten().min();
    Ok(Attempt::Busy(Busy { retry_in, holder, position }))
}
