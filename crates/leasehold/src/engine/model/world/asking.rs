//! Attempts to acquire.

use std::time::Duration;

use std::sync::Arc;

use super::super::both::{Side, terms};
use super::super::op::{At, How, KEPT};
use super::super::said;
use super::waking::{Cause, Waiter};
use super::{Hold, Step, World, client};
use crate::engine::{Attempt, Busy, Claim, Family, Kind, Question, Queueing, RwOptions, Spot, Ticket};
use crate::lease::{Bounds, COUNTED, Lease};
use crate::owner::OwnerId;

/// The wait time that waiters for a fair lock declare.
const WAIT: Duration = Duration::from_secs(5);

/// The longest fairness pause of a client.
const COURTESY: Duration = Duration::from_millis(50);

/// The parameters of an attempt, of a waiter or of a caller that does not wait.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) at: At,
    pub(super) how: How,
    pub(super) spot: Spot,
    pub(super) lease: Lease,
    /// Its tickets in the wait queues, in memory and on the server.
    pub(super) tickets: Option<[Ticket; 2]>,
}

impl World<'_> {
    pub(super) fn try_once(&mut self, at: At, how: How) -> Step {
        let Some((spot, lease)) = self.want(at, how) else { return Ok(false) };
        let inside = self.held(at).is_some();
        let kind = spot.target.kind;
        // An upgrade takes nothing over from another owner, and permits are never taken over.
        let asks = matches!(kind, Kind::Semaphore | Kind::Permits) || how.upgrade && kind == Kind::Write;
        let how = How { steal: how.steal && !asks, ..how };
        if !inside && !how.steal && !self.may_try(at, how, &spot) {
            return Ok(false);
        }
        if how.steal {
            // The rest of a broken set ends as if it had been renewed just now.
            self.keep();
        }
        if how.steal || inside && kind.family() == Family::Lock {
            self.comes_nearer(at.name);
        } else if !inside {
            self.cause = Cause::Nothing;
        }
        let told = self.ask(&Wish { at, how, spot, lease, tickets: None })?;
        if let (Attempt::Gone, Some((seat, hold))) = (told, self.held(at)) {
            self.learn_of_loss(at, &seat, &hold);
        }
        self.after(at)
    }

    pub(super) fn wait(&mut self, at: At, how: How) -> Step {
        let kind = self.target(at).kind;
        // No owner waits for an upgrade. On a server the first writer of a client blocks readers, and the waiting-writer
        // flag has room for one of them; memory tracks all. So here only a writer that is the first of all does.
        let bars =
            kind != Kind::Write || !self.waiters.iter().any(|waiter| waiter.spot().target == self.target(at));
        let how = How { steal: false, upgrade: false, prefer_writers: how.prefer_writers && bars, ..how };
        if self.held(at).is_some() || kind == Kind::Spin {
            return Ok(false);
        }
        let wanted = match kind {
            Kind::Latch if self.waits(at) => None,
            Kind::Latch => Some((self.spot(at), Lease::Kept(KEPT))),
            _ => self.want(at, how),
        };
        let Some((spot, lease)) = wanted else { return Ok(false) };
        let tickets = self.both.tell(client(at), |engine, _| engine.listen(&spot, false));
        self.both.ask_server(client(at), |engine| engine.listening(&spot));
        let wish = Wish { at, how, spot, lease, tickets: Some(tickets) };
        self.waiters.push(Waiter::new(wish, self.now()));
        // Every waiter retries once after it has joined, and only then joins the queue of a fair lock.
        self.wake(at.name)?;
        self.after(at)
    }

    /// Whether an attempt without waiting has the same result on both: not where it depends on the waiters of its client.
    fn may_try(&self, at: At, how: How, spot: &Spot) -> bool {
        let kind = spot.target.kind;
        // Unless its hold was taken over and it is not notified yet.
        let beside = self.other_half(at, kind).is_some_and(|half| self.is_still_held(&half.spot));
        if beside || matches!(kind, Kind::Spin | Kind::Fair) {
            return true;
        }
        let mut line = self.waiters.iter().filter(|waiter| waiter.spot().target == spot.target);
        if self.is_free_for(spot, how) {
            // On a server, waiters of other clients are overtaken.
            line.next().is_none()
        } else {
            // A client does not repeat the request of its own waiters.
            !line.any(|waiter| waiter.client() == client(at))
        }
    }

    fn is_still_held(&self, spot: &Spot) -> bool {
        let holder = self
            .both
            .ask_memory(|memory| memory.inspect(&Question::Holder(&spot.target, Some(spot.owner))))
            .holding;
        holder.is_some_and(|holder| holder.owner == Some(spot.owner))
    }

    pub(super) fn waits(&self, at: At) -> bool {
        self.waiters.iter().any(|waiter| waiter.wish.at.who == at.who && waiter.wish.at.name == at.name)
    }

    /// The owner and the lease of an attempt; none where the library would make none.
    fn want(&mut self, at: At, how: How) -> Option<(Spot, Lease)> {
        if self.waits(at) {
            return None;
        }
        let spot = self.spot(at);
        let held = self.held(at).map(|(_, hold)| hold);
        match spot.target.kind.family() {
            Family::Latch => None,
            // None of these is re-entered.
            Family::SetNx | Family::Semaphore | Family::Permits if held.is_some() => None,
            Family::Lock | Family::SetNx => Some((held.map_or(spot, |held| held.spot), how.length.lease())),
            Family::Rw => Some((spot, self.rw_lease(at, how)?)),
            Family::Group => {
                // The sets of one owner are the same or disjoint.
                let theirs =
                    self.holds.iter().filter(|((who, name, _), _)| (*who, *name) == (at.who, at.name));
                let crosses = theirs.into_iter().any(|(_, hold)| {
                    hold.spot.target != spot.target && hold.spot.target.overlaps(&spot.target)
                });
                (!crosses).then(|| (spot, self.lease(at, how)))
            }
            Family::Semaphore | Family::Permits => {
                // Every acquire of permits has a new owner.
                self.drawn += 16;
                let owner = OwnerId { number: self.drawn, ..spot.owner };
                let counted = spot.target.kind == Kind::Semaphore;
                let lease = if counted { Lease::Kept(COUNTED) } else { how.length.lease() };
                Some((Spot { owner, amount: how.amount, ..spot }, lease))
            }
        }
    }

    /// The lease of an entry, or of a re-entry where nothing shortens it.
    fn lease(&self, at: At, how: How) -> Lease {
        let held = self.held(at).map(|(_, hold)| hold);
        match (held, how.length.lease()) {
            (Some(Hold { lease: kept @ Lease::Kept(_), .. }), _) | (_, kept @ Lease::Kept(_)) => kept,
            (Some(Hold { ends, .. }), Lease::Fixed(length)) => {
                Lease::Fixed(length.max(ends.saturating_sub(self.now())))
            }
            (None, fixed @ Lease::Fixed(_)) => fixed,
        }
    }

    /// The lease of a half.
    ///
    /// On a server the whole lock has one time to live. So an owner that writes and reads has both halves for as long as the
    /// longer lease lasts; in memory each half has its own. Here the halves of one owner end together, as they do after an
    /// upgrade or a downgrade.
    fn rw_lease(&self, at: At, how: How) -> Option<Lease> {
        let kind = self.target(at).kind;
        let (held, lease) = (self.held(at), self.lease(at, how));
        let only_looks = kind == Kind::Write && !how.upgrade && held.is_none();
        match self.other_half(at, kind) {
            None => Some(lease),
            Some(Hold { lease: kept @ Lease::Kept(_), .. }) => Some(*kept),
            // Refused, because it reads.
            Some(_) if only_looks => Some(lease),
            Some(Hold { count: 1, ends, .. }) if held.is_none() => {
                let left = ends.saturating_sub(self.now());
                (left > Duration::from_millis(200)).then_some(Lease::Fixed(left))
            }
            Some(_) => None,
        }
    }

    /// Tries on both engines, compares the results, and records the new hold.
    pub(super) fn ask(&mut self, wish: &Wish) -> Result<Attempt, String> {
        let Wish { at, spot, lease, .. } = wish;
        let begun = self.now();
        let memory = self.ask_side(wish, Side::Memory);
        let told = [memory.clone(), self.ask_politely(wish, &memory)];
        self.same(at.name, "attempt", said::attempts(&told, spot))?;
        let [told, _] = told;
        let seat = self.seat(*at);
        match told {
            Attempt::Granted(..) => {
                let count = self.count_of(wish) + 1;
                let ends = begun + lease.length();
                self.holds.insert(seat, Hold { spot: spot.clone(), count, lease: *lease, ends });
            }
            Attempt::Gone if self.count_of(wish) == 0 => {
                self.both.tell(client(*at), |engine, _| engine.abandon(spot, 0, (*lease).into()));
            }
            _ => {}
        }
        Ok(told)
    }

    /// Tries on the server after memory.
    ///
    /// A client that has just released a lock makes a fairness pause if waiters of other clients wait. Here waiters acquire
    /// in the order of memory, so this waits until the pause is over.
    pub(super) fn ask_politely(&self, wish: &Wish, memory: &Attempt) -> Attempt {
        let mut told = self.ask_side(wish, Side::Server);
        for _ in 0..3 {
            match (memory, &told) {
                (Attempt::Busy(Busy { holder: None, .. }), _) => break,
                (_, Attempt::Busy(Busy { retry_in: Some(pause), holder: None, .. }))
                    if *pause <= COURTESY =>
                {
                    self.both.pause(*pause);
                }
                _ => break,
            }
            told = self.ask_side(wish, Side::Server);
        }
        told
    }

    /// Tries on one engine.
    pub(super) fn ask_side(&self, wish: &Wish, side: Side) -> Attempt {
        let Wish { at, how, spot, lease, tickets } = wish;
        let kind = spot.target.kind;
        let held = self.count_of(wish);
        let has_tokens =
            matches!(kind.family(), Family::Lock | Family::SetNx | Family::Group) || kind == Kind::Write;
        // A re-entered hold continues under its term.
        let [memory, server] =
            self.both.tell(client(*at), |engine, _| engine.term(spot).filter(|_| held > 0));
        let running = if side == Side::Memory { memory } else { server };
        let term = &running.unwrap_or_else(|| Arc::clone(&terms()[side as usize]));
        let claim = Claim {
            spot,
            held,
            lease: *lease,
            limit: None,
            steal: how.steal,
            fenced: how.fenced && has_tokens,
            queue: tickets.map(|_| Queueing { wait: WAIT, watched: false }),
            fresh: false,
            rw: RwOptions {
                upgrade: kind == Kind::Write && held == 0 && how.upgrade,
                // A writer that does not wait blocks no readers.
                prefer_writers: how.prefer_writers && (kind == Kind::Read || tickets.is_some()),
            },
            term,
        };
        let turn = tickets.map(|tickets| tickets[side as usize]);
        let told = self.both.ask_side(side, client(*at), |engine| engine.attempt(&claim, turn));
        if let Attempt::Granted(until, _) = told {
            self.both.tell(client(*at), |_, of| {
                if of == side {
                    if let Some(until) = until {
                        term.lasts(until);
                    }
                    term.claim(Bounds { lease: claim.lease, limit: claim.limit });
                }
            });
        }
        told
    }

    fn count_of(&self, wish: &Wish) -> u32 {
        let held = self.held(wish.at).map(|(_, hold)| hold);
        held.filter(|hold| hold.spot.owner == wish.spot.owner).map_or(0, |hold| hold.count)
    }
}
