//! Changes of the number of a semaphore, a latch or a leased semaphore.
//!
//! A change that is sent again is recognised by the key of its request, which is written with the change and keeps its result. That
//! key has a lease of its own, because the session may be lost before there is a reply.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::keys::{self, Span};
use super::link::Link;
use super::messages::KeyValue;
use super::numbers::{Next, Until, changed};
use super::permits::Permits;
use super::state::{State, Step, find};
use super::timed::Unused;
use super::transaction::{delete, delete_all};
use crate::engine::remote::store::StoreError;
use crate::engine::{Adjust, Change, Kind, Resource};
use crate::env::{self, Instant};
use crate::error::ServerError;

/// A change is recognised for at least this long after it was sent first …
const SHORTEST_MEMORY: Duration = Duration::from_secs(60);
/// … and at the longest for this, however long it is sent again.
const LONGEST_MEMORY: Duration = Duration::from_secs(24 * 60 * 60);

/// The lease of the results that this client keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    lease: i64,
    /// When it ends by itself.
    until: Instant,
}

impl Cluster {
    /// Changes or reads a number.
    pub(super) async fn change(
        self: &Arc<Self>,
        resource: &Resource,
        change: &Change,
    ) -> Result<i64, StoreError> {
        let (link, begun) = (self.link()?, env::now());
        if change.adjust.is_query() {
            return self.query(&link, resource, &change.adjust).await;
        }
        let request = Span::only(keys::change(change.request));
        let is_leased = resource.kind == Kind::LeasedSemaphore;
        let span = if is_leased { keys::all(resource) } else { Span::only(keys::number(resource)) };
        let memory = self.memory(&link, change.patience).await?;
        let mut unused = match change.adjust {
            Adjust::TrySet { ttl: Some(length), .. } | Adjust::SetLease(_, Some(length)) => {
                Some(self.grant(&link, begun, length).await?)
            }
            _ => None,
        };
        let lease = unused.as_ref().map_or(0, Unused::id);
        loop {
            let state = State::read(&link, &[&span, &request]).await?;
            if let Some(kept) = state.found[1].first() {
                return number(kept);
            }
            let (result, mut step) = if is_leased {
                Permits::parse(resource, &state)?.change(&change.adjust, lease)
            } else {
                change_number(resource, &change.adjust, state.found[0].first(), lease)?
            };
            if step.is_empty() {
                return Ok(result);
            }
            step.expect(&request.key, None);
            step.put(&request.key, result.to_string().into_bytes(), memory);
            let ended = std::mem::take(&mut step.ended);
            match step.make(&link).await {
                Ok(None) => {}
                Ok(Some(_)) => {
                    unused.take().into_iter().for_each(Unused::keep);
                    self.end_leases(ended);
                    return Ok(result);
                }
                Err(error) => {
                    match error {
                        // It may have been made, or may still be.
                        StoreError::Unknown(_) => unused.take().into_iter().for_each(Unused::keep),
                        // Perhaps its lease is gone.
                        StoreError::Refused(ServerError::Unavailable(_)) => *self.memory.lock() = None,
                        _ => {}
                    }
                    return Err(error);
                }
            }
        }
    }

    /// A change of this client is over, and is not sent again.
    pub(super) async fn forget_change(&self, change: &Change) -> Result<(), StoreError> {
        let mut step = Step::default();
        step.push([delete(&keys::change(change.request))]);
        step.make(&*self.link()?).await.map(drop)
    }

    async fn query(&self, link: &Link, resource: &Resource, query: &Adjust) -> Result<i64, StoreError> {
        if resource.kind != Kind::LeasedSemaphore {
            let found = find(link, &Span::only(keys::number(resource))).await?;
            let count = found.first().map(number).transpose()?;
            return Ok(match query {
                Adjust::Exists => count.is_some().into(),
                _ => count.unwrap_or_default(),
            });
        }
        let state = State::read(link, &[&keys::all(resource)]).await?;
        let permits = Permits::parse(resource, &state)?;
        match query {
            Adjust::LeaseOf(id) => self.rest_of(link, permits.of(*id)).await,
            query => Ok(permits.query(query)),
        }
    }

    /// The lease of a result that has to be kept for as long as its change may be sent again.
    async fn memory(&self, link: &Link, patience: Duration) -> Result<i64, StoreError> {
        let (now, needed) = (env::now(), patience.clamp(SHORTEST_MEMORY, LONGEST_MEMORY));
        if let Some(memory) = self.memory.lock().filter(|memory| memory.until >= now + needed) {
            return Ok(memory.lease);
        }
        let length = needed * 2;
        let (lease, _) = link.grant(length).await?;
        *self.memory.lock() = Some(Memory { lease, until: now + length });
        Ok(lease)
    }
}

/// A change of a number that is all there is of its resource, but for the permits that guards hold of a semaphore.
fn change_number(
    resource: &Resource,
    adjust: &Adjust,
    before: Option<&KeyValue>,
    lease: i64,
) -> Result<(i64, Step), StoreError> {
    let count = before.map(number).transpose()?;
    let (result, next) = changed(resource.kind, adjust, count);
    let (mut step, key) = (Step::default(), keys::number(resource));
    let lease_before = before.map_or(0, |before| before.lease);
    let lease = match next {
        Next::Same => return Ok((result, step)),
        Next::Gone => {
            before.inspect(|before| step.remove(before));
            0
        }
        Next::Is(count, until) => {
            let lease = match until {
                Until::Same => lease_before,
                Until::Deleted => 0,
                Until::After(_) => lease,
            };
            step.expect(&key, before);
            step.put(&key, count.to_string().into_bytes(), lease);
            lease
        }
    };
    if lease_before != lease && lease_before != 0 {
        step.ended.push(lease_before);
    }
    if resource.kind == Kind::Semaphore && (before.is_none() || next == Next::Gone) {
        // Permits of an earlier semaphore are not returned to the next one.
        step.push([delete_all(&keys::all_counted(resource))]);
    }
    Ok((result, step))
}

/// The number in a key.
pub(super) fn number(key: &KeyValue) -> Result<i64, StoreError> {
    let number = std::str::from_utf8(&key.value).ok().and_then(|text| text.parse().ok());
    number.ok_or(StoreError::Refused(ServerError::NotALock))
}
