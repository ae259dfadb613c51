//! Counts that only this client keeps, for stores whose server stores one hold and not how often it was entered.

use std::sync::Arc;
use std::time::Duration;

use super::Inner;
use super::attempt::take;
use super::done::step;
use super::ledger::Entry;
use super::store::{By, LeaseOf, Store, StoreError, Taken, Verdict};
use crate::engine::{Attempt, Claim, Family, Holding, Reply, Resource};
use crate::env::{self, Instant};
use crate::lease::Bounds;
use crate::owner::OwnerId;

impl<S: Store> Inner<S> {
    /// Re-enters a hold that only the client counts.
    pub(super) fn reenter(self: &Arc<Self>, claim: &Claim) -> Reply<Attempt> {
        let (begun, bounds) = (env::now(), Bounds { lease: claim.lease, limit: claim.limit });
        let Some(hold) = self.renewal.set_count(claim.key, claim.held + 1) else {
            return Reply::now(Attempt::Gone);
        };
        let (length, token, due) = (bounds.length(begun), hold.token.filter(|_| claim.fenced), hold.due());
        let hold = Entry::new(hold.key, hold.shard, hold.term, bounds, begun);
        if self.store.traits().lease == LeaseOf::Session {
            // The lease of a read-write lock is never shortened.
            let end = hold.end(begun, length);
            let is_rw = claim.key.resource.kind.family() == Family::Rw;
            self.renewal.ends_at(claim.key, if is_rw { end.max(due) } else { end });
            if claim.fenced {
                return self.mint(claim, hold, begun, length);
            }
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

    /// Requests the token of a re-entry, of which the server knows nothing else.
    fn mint(
        self: &Arc<Self>,
        claim: &Claim,
        hold: Entry,
        begun: Instant,
        length: Duration,
    ) -> Reply<Attempt> {
        let (effects, key, before) = (Arc::clone(self), claim.key.clone(), claim.held);
        let (done, reply) = step(move |taken: Result<Taken, StoreError>| {
            let Ok(Taken::Granted(token) | Taken::Bound(token, _)) = taken else {
                effects.renewal.set_count(&key, before);
                return match taken {
                    Err(error) => Err(effects.explained(hold.shard, error)),
                    Ok(_) => Ok(Attempt::Gone),
                };
            };
            Ok(Attempt::Granted(Some(hold.requested_until(begun, length)), token))
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
