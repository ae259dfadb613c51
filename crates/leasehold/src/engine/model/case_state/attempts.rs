//! Attempts to acquire.

use std::time::Duration;

use std::sync::Arc;

use super::super::engine_pair::{Side, terms};
use super::super::observed;
use super::super::op::{At, How, KEPT};
use super::wake_ups::{Cause, Waiter};
use super::{CaseState, Hold, Step, client};
use crate::engine::{Attempt, Busy, Claim, Family, HoldKey, Kind, Query, Queueing, RwOptions, Ticket};
use crate::lease::{Bounds, COUNTED, Lease};
use crate::owner::OwnerId;

/// The wait time that waiters for a fair lock declare.
const WAIT: Duration = Duration::from_secs(5);

/// The longest fairness pause of a client.
const FAIRNESS_PAUSE: Duration = Duration::from_millis(50);

/// The parameters of an attempt, of a waiter or of a caller that does not wait.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) at: At,
    pub(super) how: How,
    pub(super) key: HoldKey,
    pub(super) lease: Lease,
    /// Its tickets in the wait queues, in memory and on the server.
    pub(super) tickets: Option<[Ticket; 2]>,
}

impl CaseState<'_> {
    pub(super) fn try_once(&mut self, at: At, how: How) -> Step {
        let Some((key, lease)) = self.want(at, how) else { return Ok(false) };
        let inside = self.held(at).is_some();
        let kind = key.resource.kind;
        // An upgrade takes nothing over from another owner, and permits are never taken over.
        let never_steals =
            matches!(kind, Kind::Semaphore | Kind::LeasedSemaphore) || how.upgrade && kind == Kind::Write;
        let how = How { steal: how.steal && !never_steals, ..how };
        if !inside && !how.steal && !self.may_try(at, how, &key) {
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
        let attempt = self.attempt(&Request { at, how, key, lease, tickets: None })?;
        if let (Attempt::Gone, Some((hold_id, hold))) = (attempt, self.held(at)) {
            self.learn_of_loss(at, &hold_id, &hold);
        }
        self.after(at)
    }

    pub(super) fn wait(&mut self, at: At, how: How) -> Step {
        let kind = self.resource(at).kind;
        // No owner waits for an upgrade. On a server the first writer of a client blocks readers, and the waiting-writer
        // flag has room for one of them; memory tracks all. So here only a writer that is the first of all does.
        let blocks_readers = kind != Kind::Write
            || !self.waiters.iter().any(|waiter| waiter.key().resource == self.resource(at));
        let how =
            How { steal: false, upgrade: false, prefer_writers: how.prefer_writers && blocks_readers, ..how };
        if self.held(at).is_some() || kind == Kind::Spin {
            return Ok(false);
        }
        let wanted = match kind {
            Kind::Latch if self.waits(at) => None,
            Kind::Latch => Some((self.key(at), Lease::Kept(KEPT))),
            _ => self.want(at, how),
        };
        let Some((key, lease)) = wanted else { return Ok(false) };
        let tickets = self.engines.call_without_reply(client(at), |engine, _| engine.enqueue(&key, false));
        self.engines.call_server(client(at), |engine| engine.subscribed(&key));
        let request = Request { at, how, key, lease, tickets: Some(tickets) };
        self.waiters.push(Waiter::new(request, self.now()));
        // Every waiter retries once after it has joined, and only then joins the queue of a fair lock.
        self.wake(at.name)?;
        self.after(at)
    }

    /// Whether an attempt without waiting has the same result on both: not where it depends on the waiters of its client.
    fn may_try(&self, at: At, how: How, key: &HoldKey) -> bool {
        let kind = key.resource.kind;
        // Unless its hold was taken over and it is not notified yet.
        let beside = self.other_half(at, kind).is_some_and(|half| self.is_still_held(&half.key));
        if beside || matches!(kind, Kind::Spin | Kind::Fair) {
            return true;
        }
        let mut queue = self.waiters.iter().filter(|waiter| waiter.key().resource == key.resource);
        if self.is_free_for(key, how) {
            // On a server, waiters of other clients are overtaken.
            queue.next().is_none()
        } else {
            // A client does not repeat the request of its own waiters.
            !queue.any(|waiter| waiter.client() == client(at))
        }
    }

    fn is_still_held(&self, key: &HoldKey) -> bool {
        let holder = self
            .engines
            .call_memory(|memory| memory.inspect(&Query::Holder(&key.resource, Some(key.owner))))
            .holding;
        holder.is_some_and(|holder| holder.owner == Some(key.owner))
    }

    pub(super) fn waits(&self, at: At) -> bool {
        self.waiters.iter().any(|waiter| waiter.request.at.who == at.who && waiter.request.at.name == at.name)
    }

    /// The owner and the lease of an attempt; none where the library would make none.
    fn want(&mut self, at: At, how: How) -> Option<(HoldKey, Lease)> {
        if self.waits(at) {
            return None;
        }
        let key = self.key(at);
        let held = self.held(at).map(|(_, hold)| hold);
        match key.resource.kind.family() {
            Family::Latch => None,
            // None of these is re-entered.
            Family::SetNx | Family::Semaphore | Family::LeasedSemaphore if held.is_some() => None,
            Family::Lock | Family::SetNx => Some((held.map_or(key, |held| held.key), how.length.lease())),
            Family::Rw => Some((key, self.rw_lease(at, how)?)),
            Family::Group => {
                // The sets of one owner are the same or disjoint.
                let theirs =
                    self.holds.iter().filter(|((who, name, _), _)| (*who, *name) == (at.who, at.name));
                let crosses = theirs.into_iter().any(|(_, hold)| {
                    hold.key.resource != key.resource && hold.key.resource.overlaps(&key.resource)
                });
                (!crosses).then(|| (key, self.lease(at, how)))
            }
            Family::Semaphore | Family::LeasedSemaphore => {
                // Every acquire of permits has a new owner.
                self.drawn += 16;
                let owner = OwnerId { number: self.drawn, ..key.owner };
                let counted = key.resource.kind == Kind::Semaphore;
                let lease = if counted { Lease::Kept(COUNTED) } else { how.length.lease() };
                Some((HoldKey { owner, amount: how.amount, ..key }, lease))
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
        let kind = self.resource(at).kind;
        let (held, lease) = (self.held(at), self.lease(at, how));
        let is_refused = kind == Kind::Write && !how.upgrade && held.is_none();
        match self.other_half(at, kind) {
            None => Some(lease),
            Some(Hold { lease: kept @ Lease::Kept(_), .. }) => Some(*kept),
            // Refused, because it reads.
            Some(_) if is_refused => Some(lease),
            Some(Hold { count: 1, ends, .. }) if held.is_none() => {
                let left = ends.saturating_sub(self.now());
                (left > Duration::from_millis(200)).then_some(Lease::Fixed(left))
            }
            Some(_) => None,
        }
    }

    /// Tries on both engines, compares the results, and records the new hold.
    pub(super) fn attempt(&mut self, request: &Request) -> Result<Attempt, String> {
        let Request { at, key, lease, .. } = request;
        let begun = self.now();
        let memory = self.attempt_on(request, Side::Memory);
        let attempts = [memory.clone(), self.attempt_after_pause(request, &memory)];
        self.same(at.name, "attempt", observed::attempts(&attempts, key))?;
        let [attempt, _] = attempts;
        let hold_id = self.hold_id(*at);
        match attempt {
            Attempt::Granted(..) => {
                let count = self.count_of(request) + 1;
                let ends = begun + lease.length();
                self.holds.insert(hold_id, Hold { key: key.clone(), count, lease: *lease, ends });
            }
            Attempt::Gone if self.count_of(request) == 0 => {
                self.engines
                    .call_without_reply(client(*at), |engine, _| engine.undo(key, 0, (*lease).into()));
            }
            _ => {}
        }
        Ok(attempt)
    }

    /// Tries on the server after memory.
    ///
    /// A client that has just released a lock makes a fairness pause if waiters of other clients wait. Here waiters acquire
    /// in the order of memory, so this waits until the pause is over.
    pub(super) fn attempt_after_pause(&self, request: &Request, memory: &Attempt) -> Attempt {
        let mut attempt = self.attempt_on(request, Side::Server);
        for _ in 0..3 {
            match (memory, &attempt) {
                (Attempt::Busy(Busy { holder: None, .. }), _) => break,
                (_, Attempt::Busy(Busy { retry_in: Some(pause), holder: None, .. }))
                    if *pause <= FAIRNESS_PAUSE =>
                {
                    self.engines.pause(*pause);
                }
                _ => break,
            }
            attempt = self.attempt_on(request, Side::Server);
        }
        attempt
    }

    /// Tries on one engine.
    pub(super) fn attempt_on(&self, request: &Request, side: Side) -> Attempt {
        let Request { at, how, key, lease, tickets } = request;
        let kind = key.resource.kind;
        let held = self.count_of(request);
        let has_tokens =
            matches!(kind.family(), Family::Lock | Family::SetNx | Family::Group) || kind == Kind::Write;
        // A re-entered hold continues under its term.
        let [memory, server] =
            self.engines.call_without_reply(client(*at), |engine, _| engine.term(key).filter(|_| held > 0));
        let running = if side == Side::Memory { memory } else { server };
        let term = &running.unwrap_or_else(|| Arc::clone(&terms()[side as usize]));
        let claim = Claim {
            key,
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
        let attempt = self.engines.call_side(side, client(*at), |engine| engine.attempt(&claim, turn));
        if let Attempt::Granted(until, _) = attempt {
            self.engines.call_without_reply(client(*at), |_, of| {
                if of == side {
                    if let Some(until) = until {
                        term.set_until(until);
                    }
                    term.claim(Bounds { lease: claim.lease, limit: claim.limit }, None);
                }
            });
        }
        attempt
    }

    fn count_of(&self, request: &Request) -> u32 {
        let held = self.held(request.at).map(|(_, hold)| hold);
        held.filter(|hold| hold.key.owner == request.key.owner).map_or(0, |hold| hold.count)
    }
}
