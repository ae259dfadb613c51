//! Plain locks of one client, acquired in one step.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::AcquireAll;
use crate::acquire::HandleOptions;
use crate::client::Shared;
use crate::engine::{Busy, Feature, HoldKey, Kind, Resource, Ticket};
use crate::env::{self, Instant};
use crate::error::{AcquireError, Classified as _, InvalidRequestError};
use crate::guard::Guard;
use crate::hold::{Entry, Hold, Tried};
use crate::lease::{self, Lease};
use crate::observer::{Acquiring, Outcome};
use crate::owner::OwnerId;
use crate::waiting::{Awaited, Patience, wait};

/// Locks that one request acquires, all or none. While it waits for one of them it holds none.
pub(super) struct Together {
    shared: Arc<Shared>,
    resources: Vec<Resource>,
    entry: Entry,
    /// The resource in whose wait queue it is.
    key: HoldKey,
    number: usize,
    /// An attempt has found that resource busy, and moved the wait to its queue.
    is_sent: bool,
    /// When one of them was first found busy.
    waits_since: OnceLock<Instant>,
}

/// The result of an attempt that ends the wait in one queue.
pub(super) enum Step {
    All(Vec<Guard>),
    /// Another resource is busy.
    Elsewhere(usize),
    /// The engine cannot acquire these in one step.
    OneByOne,
}

impl Together {
    /// Some if these locks may be acquired in one step.
    pub(super) fn new(acquire: &AcquireAll) -> Result<Option<Self>, InvalidRequestError> {
        let shared = Arc::clone(&acquire.locks[0].shared);
        let mut resources = Vec::new();
        for lock in acquire.locks.iter() {
            let resource = lock.resource.clone()?;
            let is_plain = lock.options.spin.is_none() && resource.kind == Kind::Lock;
            if !is_plain || acquire.owner.is_some() || !Arc::ptr_eq(&shared, &lock.shared) {
                return Ok(None);
            }
            resources.push(resource);
        }
        if acquire.fenced {
            shared.check(Feature::Fenced)?;
            let ends = [("lease", acquire.lease), ("max_hold", acquire.max_hold)];
            lease::outlived(shared.token_retention, &ends)?;
        }
        let lease = match acquire.lease {
            Some(length) => Lease::Fixed(lease::checked("lease", length)?),
            None => Lease::Kept(shared.watchdog),
        };
        let max_hold = acquire.max_hold.map(|length| lease::checked("max_hold", length)).transpose()?;
        let entry = Entry { max_hold, fenced: acquire.fenced, ..Entry::new(lease) };
        let owner = OwnerId::fresh(shared.id, 1);
        let key = HoldKey { resource: resources[0].clone(), owner, amount: 1 };
        Ok(Some(Self {
            shared,
            resources,
            entry,
            key,
            number: 0,
            is_sent: false,
            waits_since: OnceLock::new(),
        }))
    }

    /// The guards; `None` if the engine cannot acquire these locks in one step.
    pub(super) async fn run(mut self, limit: Option<Duration>) -> Result<Option<Vec<Guard>>, AcquireError> {
        let acquiring = Acquiring::new(&self.shared, &self.key);
        let result = self.keep_trying(limit).await;
        let waited = self.waits_since.get().map(|since| env::now().saturating_duration_since(*since));
        match &result {
            Ok(Some(guards)) => acquiring.granted(guards, waited),
            Ok(None) => acquiring.forget(),
            Err(_) => {
                let outcome = Outcome::of(&result, limit.is_some_and(|limit| limit.is_zero()));
                acquiring.not_granted(&self.key, outcome, waited);
            }
        }
        result
    }

    async fn keep_trying(&mut self, limit: Option<Duration>) -> Result<Option<Vec<Guard>>, AcquireError> {
        let begun = env::now();
        loop {
            let waited = env::now().saturating_duration_since(begun);
            let left = limit.map(|limit| limit.saturating_sub(waited));
            let subject = || self.shared.subject(&self.key.resource);
            let late = || AcquireError::Timeout {
                waited,
                holder: None,
                client: None,
                lease_left: None,
                is_own: false,
                subject: subject(),
            };
            if self.number > 0 && left.is_some_and(|left| left.is_zero()) {
                return Err(late());
            }
            let step = wait(&*self, Patience::from_wait(left), &HandleOptions::DEFAULT).await;
            self.shared.expose_holder(&self.key.resource, &step);
            match step {
                Ok(Step::All(guards)) => return Ok(Some(guards)),
                Ok(Step::OneByOne) => return Ok(None),
                Ok(Step::Elsewhere(_)) if limit.is_some_and(|limit| limit.is_zero()) => {
                    return Err(late());
                }
                Ok(Step::Elsewhere(number)) => {
                    (self.number, self.is_sent) = (number, true);
                    self.key.resource = self.resources[number].clone();
                }
                Err(error) => return Err(error.of_wait_since(begun).about(&subject())),
            }
        }
    }
}

impl Awaited for Together {
    type Got = Step;

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn key(&self) -> &HoldKey {
        &self.key
    }

    async fn attempt(&self, turn: Option<Ticket>) -> Result<Tried<Step>, AcquireError> {
        if self.is_sent && turn.is_none() {
            // The last reply was that it is busy. Another attempt would check the queues of all, and be moved back to one of them.
            return Ok(Tried::Busy(Busy::default()));
        }
        // A new owner for every attempt: the rollback of one attempt does not affect the next.
        let owner = OwnerId::fresh(self.shared.id, 1);
        let hold =
            |resource: &Resource| Arc::new(Hold::drawn(Arc::clone(&self.shared), resource.clone(), owner));
        let holds: Vec<_> = self.resources.iter().map(hold).collect();
        let turn = turn.map(|ticket| (self.number, ticket));
        let Some((tried, number)) = Hold::enter_all(&holds, &self.entry, turn).await? else {
            return Ok(Tried::Granted(Step::OneByOne));
        };
        if let Tried::Busy(_) = tried {
            self.waits_since.get_or_init(env::now);
        }
        Ok(match tried {
            Tried::Granted(guards) => Tried::Granted(Step::All(guards)),
            Tried::Busy(busy) if number == self.number => Tried::Busy(busy),
            Tried::Busy(_) => Tried::Granted(Step::Elsewhere(number)),
            Tried::TooLate => Tried::TooLate,
        })
    }
}
