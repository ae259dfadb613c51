//! Changing a counter.

use std::time::Duration;

use super::super::observed::Observed;
use super::super::op::{At, Count, Length};
use super::inspection::number;
use super::{CaseState, Step, client};
use crate::engine::{Adjust, Change, Family};
use crate::lease::Lease;
use crate::owner::OwnerId;
use crate::permit_id::PermitId;

impl CaseState<'_> {
    pub(super) fn adjust(&mut self, at: At, count: Count) -> Step {
        let Some(adjust) = self.change(at, count) else { return Ok(false) };
        if let Adjust::GiveIds(_) | Adjust::Delete = adjust {
            // The rest of a hold that loses a part ends as if it had been renewed just now.
            self.keep();
        }
        if let Adjust::SetLease(..) = adjust {
            self.comes_nearer(at.name);
        }
        self.drawn += 16;
        let request = OwnerId { client: self.clients[client(at)], number: self.drawn };
        let change = Change { request, adjust, patience: Duration::from_secs(5) };
        let resource = self.resource(at);
        let results = self.engines.call(client(at), |engine| engine.adjust(&resource, &change));
        let observed = results.map(|result| Observed::text(number(&result).to_string()));
        // Setting a number has no result to compare.
        if !matches!(change.adjust, Adjust::Set(_)) {
            self.same(at.name, &change.adjust, observed)?;
        }
        self.after(at)
    }

    /// The change, if such a counter supports it.
    fn change(&self, at: At, count: Count) -> Option<Adjust> {
        let family = self.families[at.name];
        let bare = family == Family::Semaphore;
        let permits = family == Family::LeasedSemaphore;
        match count {
            Count::TrySet(count, _) if family == Family::Latch => {
                Some(Adjust::TrySet { count: count.max(1), ttl: None })
            }
            Count::TrySet(count, ends) if bare || permits => {
                let ttl = (ends && bare).then(|| Length::Middle.time());
                Some(Adjust::TrySet { count, ttl })
            }
            Count::Set(count) if permits => Some(Adjust::Set(count)),
            Count::Add(permits) if bare || family == Family::LeasedSemaphore => Some(Adjust::Add(permits)),
            Count::Give(count, create) if bare => Some(Adjust::Give { count, create }),
            Count::GiveIds(all) if permits => {
                let held = self.held(at).map(|(_, hold)| hold.key);
                let ids = held.map(|key| PermitId::of(key.owner, if all { key.amount } else { 1 }));
                let ids = ids.map(Iterator::collect).or_else(|| Some(vec![self.loose_id(at)?]))?;
                Some(Adjust::GiveIds(ids))
            }
            Count::SetLease(length) if permits => {
                // A kept permit would be renewed at once.
                let held = self.held(at).map(|(_, hold)| hold);
                let id = match held {
                    Some(hold) if matches!(hold.lease, Lease::Fixed(_)) => {
                        PermitId::of(hold.key.owner, 1).next()
                    }
                    _ => self.loose_id(at),
                };
                let length = (length != Length::Kept).then(|| length.time());
                Some(Adjust::SetLease(id?, length))
            }
            Count::Drain if bare => Some(Adjust::Drain),
            Count::Down if family == Family::Latch => Some(Adjust::CountDown),
            Count::Delete
                if matches!(family, Family::Semaphore | Family::LeasedSemaphore | Family::Latch) =>
            {
                Some(Adjust::Delete)
            }
            _ => None,
        }
    }

    /// A permit that belongs to no hold.
    fn loose_id(&self, at: At) -> Option<PermitId> {
        let ids: Vec<_> = self.loose.iter().filter(|(name, _)| *name == at.name).map(|(_, id)| *id).collect();
        (!ids.is_empty()).then(|| ids[at.pick % ids.len()])
    }
}
