//! Attempts to acquire several plain locks at once.

use super::super::engine_pair::{Side, terms};
use super::super::observed::{self, Observed};
use super::super::op::{At, How, NAMES};
use super::wake_ups::Cause;
use super::{CaseState, Hold, Step, client};
use crate::engine::{Attempt, AttemptAll, Claim, Family, HoldKey, Kind, RwOptions};
use crate::lease::Bounds;

impl CaseState<'_> {
    pub(super) fn try_all(&mut self, at: At, how: How) -> Step {
        let all: Vec<_> = (0..NAMES).map(|name| At { name, pick: 0, ..at }).collect();
        // The library tries several only where it holds none of them. A client does not repeat the request of its own
        // waiters.
        let is_excluded = |at: &At| {
            let lock = HoldKey { resource: self.resource(*at), ..self.key(*at) };
            self.families[at.name] != Family::Lock
                || self.held(*at).is_some()
                || self.waits(*at)
                || self.waiters.iter().any(|waiter| waiter.key().resource == lock.resource)
        };
        if all.iter().any(is_excluded) {
            return Ok(false);
        }
        self.cause = Cause::Nothing;
        let begun = self.now();
        let lease = how.length.lease();
        let attempts = [Side::Memory, Side::Server].map(|side| self.attempt_all_on(&all, how, side));
        let first = self.key(all[0]);
        let (numbers, observed) = match &attempts {
            [AttemptAll::Busy(memory, one), AttemptAll::Busy(server, other)] => (
                [*memory, *server],
                observed::attempts(&[Attempt::Busy(*one), Attempt::Busy(*other)], &first),
            ),
            attempts => ([0, 0], attempts.each_ref().map(tokens)),
        };
        self.same(at.name, "attempt of all", observed)?;
        self.same(at.name, "which is busy", numbers.map(|number| Observed::text(number.to_string())))?;
        if let [AttemptAll::Granted(_), _] = attempts {
            for at in &all {
                let hold = Hold { key: self.key(*at), count: 1, lease, ends: begun + lease.length() };
                self.holds.insert(self.hold_id(*at), hold);
            }
        }
        for name in 0..NAMES {
            self.check(name, client(at))?;
        }
        Ok(true)
    }

    fn attempt_all_on(&self, all: &[At], how: How, side: Side) -> AttemptAll {
        let wanted: Vec<_> = all.iter().map(|at| (self.key(*at), terms())).collect();
        let claims = wanted.iter().map(|(key, terms)| Claim {
            key,
            held: 0,
            lease: how.length.lease(),
            limit: None,
            steal: false,
            fenced: how.fenced,
            queue: None,
            rw: RwOptions::default(),
            fresh: false,
            term: &terms[side as usize],
        });
        let claims: Vec<_> = claims.collect();
        debug_assert!(claims.iter().all(|claim| claim.key.resource.kind == Kind::Lock));
        let attempt = self.engines.call_side(side, client(all[0]), |engine| {
            engine.attempt_all(&claims, None).expect("both engines take all in one step")
        });
        if let AttemptAll::Granted(granted) = &attempt {
            self.engines.call_without_reply(client(all[0]), |_, of| {
                for (claim, (until, _)) in claims.iter().zip(granted).filter(|_| of == side) {
                    if let Some(until) = until {
                        claim.term.set_until(*until);
                    }
                    claim.term.claim(Bounds { lease: claim.lease, limit: claim.limit }, None);
                }
            });
        }
        attempt
    }
}

fn tokens(attempt: &AttemptAll) -> Observed {
    match attempt {
        AttemptAll::Granted(granted) => {
            let tokens: Vec<_> = granted.iter().map(|(_, token)| token).collect();
            Observed::text(format!("granted, tokens {tokens:?}"))
        }
        AttemptAll::Busy(number, _) => Observed::text(format!("number {number} is busy")),
        AttemptAll::NotSent(failure) => Observed::text(format!("not sent: {failure}")),
    }
}
