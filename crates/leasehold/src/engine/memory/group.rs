//! A group of values in memory. Each owner can hold a set that does not overlap with the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::held::Held;
use super::primitive::{Exclusive, Holdable, Waited};
use super::tokens::Tokens;
use crate::client_id::ClientId;
use crate::engine::aftermath::Aftermath;
use crate::engine::line::Line;
use crate::engine::{Attempt, Busy, Claim, Holding, Released, Renewed, Spot, Target, Ticket};
use crate::env::{Instant, Now};
use crate::lease::Lease;
use crate::loss::Loss;
use crate::owner::OwnerId;
use crate::term::Term;

/// Values, their holders and their waiters.
#[derive(Debug, Default)]
pub(super) struct Group {
    holds: BTreeMap<Spot, Held>,
    /// The hold that a value belongs to. A broken hold has fewer values than it took.
    taken: BTreeMap<Box<str>, Spot>,
    /// One for each set that has waiters.
    lines: BTreeMap<Target, Line>,
    tokens: Tokens,
}

impl Waited for Group {
    fn is_used(&self) -> bool {
        !self.holds.is_empty() || !self.lines.is_empty()
    }

    fn is_idle(&self) -> bool {
        // Minted tokens are kept for good.
        !self.is_used() && self.token() == 0
    }

    fn line(&mut self, target: &Target) -> &mut Line {
        self.lines.entry(target.clone()).or_default()
    }

    fn line_if_any(&mut self, target: &Target) -> Option<&mut Line> {
        self.lines.get_mut(target)
    }

    fn lines(&mut self) -> Vec<&mut Line> {
        self.lines.values_mut().collect()
    }

    fn leave(&mut self, spot: &Spot, ticket: Ticket) -> Aftermath {
        let Some(line) = self.lines.get_mut(&spot.target) else { return Aftermath::default() };
        // The end that the next waiter saw, if it saw one, was that of earlier holds.
        let after = line.leave(ticket, true);
        if line.is_empty() {
            self.lines.remove(&spot.target);
        }
        after
    }
}

impl Holdable for Group {
    fn attempt(&mut self, claim: &Claim, turn: Option<Ticket>, now: &Now) -> (Attempt, Aftermath) {
        let target = &claim.spot.target;
        let mut after = self.judge(target, now);
        let whole = self.is_whole(claim.spot);
        if let Some(held) = self.holds.get_mut(claim.spot) {
            if held.count != claim.held || !whole {
                return (Attempt::Gone, after);
            }
            let before = held.expires;
            let until = held.reenter(claim, now);
            let sooner = (before, held.expires);
            return (
                Attempt::Granted(Some(until), self.tokens.mint(claim)),
                after.and(self.hint_if_sooner(target, sooner)),
            );
        }
        if claim.held > 0 {
            return (Attempt::Gone, after);
        }
        let others = self.holders(target);
        if claim.steal {
            after = after.and(self.break_off(&others, target, Loss::TakenOver, now));
        } else if let Some(other) = others.first() {
            let ends = others.iter().map(|other| self.holds[other].expires);
            let end: Option<Vec<_>> = ends.collect();
            let end = end.and_then(|ends| ends.into_iter().max());
            let retry_in = end.map(|at| at.saturating_duration_since(now.get()));
            return (Attempt::Busy(Busy { retry_in, holder: Some(other.owner), position: None }), after);
        } else if self.lines.get(target).is_some_and(|line| !line.may_take(turn)) {
            return (Attempt::Busy(Busy::default()), after);
        }
        for (_, line) in self.lines.iter_mut().filter(|(set, _)| set.overlaps(target)) {
            line.withdraw();
        }
        let (held, until) = Held::new(claim, now);
        for value in target.values() {
            self.taken.insert(value.clone(), claim.spot.clone());
        }
        self.holds.insert(claim.spot.clone(), held);
        (Attempt::Granted(Some(until), self.tokens.mint(claim)), after)
    }

    fn release(&mut self, spot: &Spot, from: u32, lease: Lease, now: &Now) -> (Released, Aftermath) {
        let after = self.judge(&spot.target, now);
        let whole = self.is_whole(spot);
        match self.holds.get_mut(spot) {
            Some(held) if whole && held.count == from => {
                held.count -= 1;
                if held.count == 0 {
                    return (Released::Left(0, None), after.and(self.end(spot, Loss::Gone)));
                }
                (Released::Left(held.count, Some(held.extend(lease.length(), now))), after)
            }
            _ => (Released::NotHeld, after.and(self.abandon(spot, from.saturating_sub(1), now))),
        }
    }

    fn renew(&mut self, spot: &Spot, length: Duration, now: &Now) -> (Renewed, Aftermath) {
        let after = self.judge(&spot.target, now);
        let whole = self.is_whole(spot);
        let held = self.holds.get_mut(spot).filter(|_| whole);
        (held.map_or(Renewed::Gone, |held| Renewed::Until(held.extend(length, now))), after)
    }

    fn abandon(&mut self, spot: &Spot, count: u32, now: &Now) -> Aftermath {
        let after = self.judge(&spot.target, now);
        match self.holds.get_mut(spot) {
            Some(_) if count == 0 => after.and(self.end(spot, Loss::Gone)),
            Some(held) => {
                held.count = held.count.min(count);
                after
            }
            None => after,
        }
    }

    fn term(&self, spot: &Spot) -> Option<Arc<Term>> {
        self.holds.get(spot).map(|held| Arc::clone(&held.term))
    }

    fn retire(&mut self, client: ClientId, now: &Now) -> (usize, Aftermath) {
        let mut changed = Vec::new();
        let mut after = Aftermath::default();
        for (spot, held) in self.holds.iter_mut().filter(|(spot, _)| spot.owner.client == client) {
            let before = held.expires;
            held.retire(now);
            changed.push((spot.target.clone(), (before, held.expires)));
            after = after.and(held.lose(Loss::Shutdown));
        }
        for (target, ends) in &changed {
            after = after.and(self.hint_if_sooner(target, *ends));
        }
        (changed.len(), after)
    }
}

impl Exclusive for Group {
    fn force(&mut self, target: &Target, now: &Now) -> (bool, Aftermath) {
        let after = self.judge(target, now);
        let holders = self.holders(target);
        (!holders.is_empty(), after.and(self.break_off(&holders, target, Loss::ForceUnlocked, now)))
    }

    fn query(&mut self, target: &Target, owner: Option<OwnerId>, now: &Now) -> (Option<Holding>, Aftermath) {
        let after = self.judge(target, now);
        let held = |value| self.taken.get(value).map(|spot| self.holds[spot].holding(now));
        let all: Vec<_> = target.values().iter().map(held).collect();
        let remaining = all.iter().flatten().map(|holding| holding.remaining).max();
        let holding = match owner {
            // The queried owner holds all of them, or does not hold the set.
            Some(_) if !all.iter().all(|one| one.is_some_and(|one| one.owner == owner)) => None,
            Some(_) => all.iter().flatten().min_by_key(|holding| holding.count),
            None => all.iter().flatten().next(),
        };
        let holding = holding.map(|one| Holding { remaining: remaining.unwrap_or_default(), ..*one });
        (holding, after)
    }

    fn token(&self) -> u64 {
        self.tokens.last()
    }

    #[cfg(feature = "test-util")]
    fn remove(&mut self, _now: &Now) -> (bool, Aftermath) {
        let spots: Vec<_> = self.holds.keys().cloned().collect();
        let after = spots.iter().fold(Aftermath::default(), |after, spot| {
            let ended = self.end(spot, Loss::Gone);
            after.and(ended)
        });
        (!spots.is_empty(), after)
    }
}

impl Group {
    /// The holders of any of the values, each once.
    fn holders(&self, target: &Target) -> Vec<Spot> {
        let mut holders: Vec<Spot> = Vec::new();
        for spot in target.values().iter().filter_map(|value| self.taken.get(value)) {
            if !holders.contains(spot) {
                holders.push(spot.clone());
            }
        }
        holders
    }

    /// Whether a hold has all the values that it took.
    fn is_whole(&self, spot: &Spot) -> bool {
        spot.target.values().iter().all(|value| self.taken.get(value) == Some(spot))
    }

    /// Removes expired holds of these values. There is no timer: the next request does it.
    fn judge(&mut self, target: &Target, now: &Now) -> Aftermath {
        let is_over = |spot: &Spot| self.holds[spot].expires.is_some_and(|at| now.get() >= at);
        let over: Vec<_> = self.holders(target).into_iter().filter(is_over).collect();
        over.iter().fold(Aftermath::default(), |after, spot| {
            let ended = self.end(spot, Loss::Expired);
            after.and(ended)
        })
    }

    /// Ends a hold. Notifies its guards, if they are not notified yet.
    fn end(&mut self, spot: &Spot, loss: Loss) -> Aftermath {
        let Some(held) = self.holds.remove(spot) else { return Aftermath::default() };
        for value in spot.target.values() {
            if self.taken.get(value) == Some(spot) {
                self.taken.remove(value);
            }
        }
        held.lose(loss).and(self.hint(&spot.target))
    }

    /// Takes some values from their holders. The holders keep their other values until they release them, as on a server,
    /// which does not store which values belong together; but nothing renews them.
    fn break_off(&mut self, holders: &[Spot], target: &Target, loss: Loss, now: &Now) -> Aftermath {
        for value in target.values() {
            self.taken.remove(value);
        }
        let mut after = Aftermath::default();
        for spot in holders {
            let left = spot.target.values().iter().any(|value| self.taken.get(value) == Some(spot));
            match self.holds.get_mut(spot).filter(|_| left) {
                Some(held) => {
                    let before = held.expires;
                    held.retire(now);
                    let (ends, told) = ((before, held.expires), held.lose(loss));
                    after = after.and(told).and(self.hint_if_sooner(&spot.target, ends));
                }
                None => after = after.and(self.end(spot, loss)),
            }
        }
        after.and(self.hint(target))
    }

    /// Reserves free values for the front waiters since these values were freed. The other front waiters retry to learn when
    /// theirs will be free.
    fn hint(&mut self, freed: &Target) -> Aftermath {
        let Self { lines, taken, .. } = self;
        let lines = lines.iter_mut().filter(|(set, _)| set.overlaps(freed));
        Aftermath::waking(lines.filter_map(|(set, line)| {
            if set.values().iter().any(|value| taken.contains_key(value)) {
                line.hint_front()
            } else if line.is_reserved() {
                None
            } else {
                line.reserve()
            }
        }))
    }

    /// Wakes the front waiters if the hold that they saw as lasting until the first of these now ends at the second, sooner.
    fn hint_if_sooner(&mut self, target: &Target, ends: (Option<Instant>, Option<Instant>)) -> Aftermath {
        let lines = self.lines.iter_mut().filter(|(set, _)| set.overlaps(target));
        Aftermath::waking(lines.filter_map(|(_, line)| line.hint_if_sooner(ends.0, ends.1)))
    }
}
