//! Attempts to acquire several plain locks at once.

use super::super::both::{Side, terms};
use super::super::op::{At, How, NAMES};
use super::super::said::{self, Said};
use super::waking::Cause;
use super::{Hold, Step, World, client};
use crate::engine::{Attempt, AttemptAll, Claim, Family, Kind, RwOptions, Spot};
use crate::lease::Bounds;

impl World<'_> {
    pub(super) fn try_all(&mut self, at: At, how: How) -> Step {
        let all: Vec<_> = (0..NAMES).map(|name| At { name, pick: 0, ..at }).collect();
        // The library tries several only where it holds none of them. A client does not repeat the request of its own
        // waiters.
        let is_asked = |at: &At| {
            let lock = Spot { target: self.target(*at), ..self.spot(*at) };
            self.families[at.name] != Family::Lock
                || self.held(*at).is_some()
                || self.waits(*at)
                || self.waiters.iter().any(|waiter| waiter.spot().target == lock.target)
        };
        if all.iter().any(is_asked) {
            return Ok(false);
        }
        self.cause = Cause::Nothing;
        let begun = self.now();
        let lease = how.length.lease();
        let told = [Side::Memory, Side::Server].map(|side| self.ask_all_side(&all, how, side));
        let first = self.spot(all[0]);
        let (numbers, said) = match &told {
            [AttemptAll::Busy(memory, one), AttemptAll::Busy(server, other)] => {
                ([*memory, *server], said::attempts(&[Attempt::Busy(*one), Attempt::Busy(*other)], &first))
            }
            told => ([0, 0], told.each_ref().map(tokens)),
        };
        self.same(at.name, "attempt of all", said)?;
        self.same(at.name, "which is busy", numbers.map(|number| Said::words(number.to_string())))?;
        if let [AttemptAll::Granted(_), _] = told {
            for at in &all {
                let hold = Hold { spot: self.spot(*at), count: 1, lease, ends: begun + lease.length() };
                self.holds.insert(self.seat(*at), hold);
            }
        }
        for name in 0..NAMES {
            self.check(name, client(at))?;
        }
        Ok(true)
    }

    fn ask_all_side(&self, all: &[At], how: How, side: Side) -> AttemptAll {
        let wanted: Vec<_> = all.iter().map(|at| (self.spot(*at), terms())).collect();
        let claims = wanted.iter().map(|(spot, terms)| Claim {
            spot,
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
        debug_assert!(claims.iter().all(|claim| claim.spot.target.kind == Kind::Lock));
        let told = self.both.ask_side(side, client(all[0]), |engine| {
            engine.attempt_all(&claims, None).expect("both engines take all in one step")
        });
        if let AttemptAll::Granted(granted) = &told {
            self.both.tell(client(all[0]), |_, of| {
                for (claim, (until, _)) in claims.iter().zip(granted).filter(|_| of == side) {
                    if let Some(until) = until {
                        claim.term.lasts(*until);
                    }
                    claim.term.claim(Bounds { lease: claim.lease, limit: claim.limit });
                }
            });
        }
        told
    }
}

fn tokens(told: &AttemptAll) -> Said {
    match told {
        AttemptAll::Granted(granted) => {
            let tokens: Vec<_> = granted.iter().map(|(_, token)| token).collect();
            Said::words(format!("granted, tokens {tokens:?}"))
        }
        AttemptAll::Busy(number, _) => Said::words(format!("number {number} is busy")),
        AttemptAll::NotAsked(failure) => Said::words(format!("not sent: {failure}")),
    }
}
