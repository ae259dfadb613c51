//! Counts that only this client keeps, for stores whose server stores one hold and not how often it was entered.

use std::sync::Arc;

use super::Inner;
use super::attempt::take;
use super::done::step;
use super::ledger::Entry;
use super::store::{By, LeaseOf, Store, StoreError, Taken, Verdict};
use crate::engine::{Attempt, Claim, Family, Holding, Reply, Resource};
use crate::env::{self, Instant};
use crate::lease::{Bounds, Lease};
use crate::owner::OwnerId;

impl<S: Store> Inner<S> {
    /// Re-enters a hold that only the client counts.
    pub(super) fn reenter(self: &Arc<Self>, claim: &Claim) -> Reply<Attempt> {
        let (begun, bounds) = (env::now(), Bounds { lease: claim.lease, limit: claim.limit });
        let Some(hold) = self.renewal.set_count(claim.key, claim.held + 1) else {
            return Reply::now(Attempt::Gone);
        };
        let (length, token, due) = (bounds.length(begun), hold.token.filter(|_| claim.fenced), hold.due());
        let is_fixed =
            [hold.bounds().lease, claim.lease].iter().any(|lease| matches!(lease, Lease::Fixed(_)));
        let hold = Entry::new(hold.key, hold.shard, hold.term, bounds, begun);
        let lease_of = self.store.traits().lease;
        if lease_of != LeaseOf::Hold {
            // The lease of a read-write lock is never shortened.
            let end = hold.end(begun, length);
            let is_rw = claim.key.resource.kind.family() == Family::Rw;
            let end = if is_rw { end.max(due) } else { end };
            if claim.fenced || (is_fixed && lease_of == LeaseOf::SessionOrHold) {
                self.renewal.ends_at(claim.key, end.min(due));
                return self.reenter_there(claim, hold, begun, end);
            }
            self.renewal.ends_at(claim.key, end);
            return Reply::now(Attempt::Granted(Some(hold.requested_until(begun, length)), None));
        }
        let (effects, key, before) = (Arc::clone(self), claim.key.clone(), claim.held);
        let (done, reply) = step(move |verdicts: Result<Vec<Verdict>, StoreError>| {
            let verdicts = verdicts.map_err(|error| effects.explained(hold.shard, error))?;
            if verdicts != [Verdict::Held] {
                effects.renewal.set_count(&key, before);
                return Ok(Attempt::Gone);
            }
            effects.renewal.reschedule(&key, length);
            Ok(Attempt::Granted(Some(hold.requested_until(begun, length)), token))
        });
        self.requesting().renew(claim.key.resource.kind, &[(claim.key, length)], done);
        reply
    }

    /// Requests the token of a re-entry, or the lease that the hold has from then on until `end`. The server knows nothing else of
    /// it.
    fn reenter_there(
        self: &Arc<Self>,
        claim: &Claim,
        hold: Entry,
        begun: Instant,
        end: Instant,
    ) -> Reply<Attempt> {
        let (effects, key, before) = (Arc::clone(self), claim.key.clone(), claim.held);
        let (length, is_fenced) = (hold.requested().length(begun), claim.fenced);
        let (done, reply) = step(move |taken: Result<Taken, StoreError>| {
            let (token, session) = match taken {
                Ok(Taken::Granted(token)) => (token, None),
                Ok(Taken::Bound(token, session)) => (token, Some(session)),
                taken => {
                    effects.renewal.set_count(&key, before);
                    return match taken {
                        Err(error) => Err(effects.explained(hold.shard, error)),
                        Ok(_) => Ok(Attempt::Gone),
                    };
                }
            };
            if let Some(session) = session {
                hold.term.bind(session);
            }
            effects.renewal.ends_at(&key, end);
            Ok(Attempt::Granted(Some(hold.requested_until(begun, length)), token.filter(|_| is_fenced)))
        });
        self.requesting().take(&take(claim, length, None), done);
        reply
    }

    /// Completes the server's data about a holder with this client's, if the holder is one of its own.
    pub(super) fn complete(&self, resource: &Resource, holding: &mut Holding) {
        let owners = self.store.traits().owners;
        let Some(holder) = holding.owner else { return };
        let is_holder =
            |owner: OwnerId| owner == holder || (owners == By::Client && owner.client == holder.client);
        let Some(hold) = self.renewal.holder(resource, is_holder) else { return };
        (holding.owner, holding.count) = (Some(hold.key.owner), hold.count);
        if hold.term.has_session() {
            holding.remaining = hold.term.remaining();
        }
    }
}
