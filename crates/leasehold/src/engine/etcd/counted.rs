//! Permits of a semaphore that guards hold. They are only counted: they have no lease, and no session ends them.

use std::sync::Arc;

use super::Cluster;
use super::changes::number;
use super::keys::{self, Span};
use super::link::Link;
use super::messages::KeyValue;
use super::state::{State, Step};
use super::transaction::delete;
use crate::engine::remote::store::{Given, StoreError, Taken, Verdict};
use crate::engine::{Busy, HoldKey};

/// The number of free permits, and what one guard holds of them.
struct Counted {
    free: Option<KeyValue>,
    held: Option<KeyValue>,
}

impl Counted {
    async fn read(link: &Link, hold_key: &HoldKey) -> Result<Self, StoreError> {
        let free = Span::only(keys::number(&hold_key.resource));
        let held = Span::only(keys::counted(hold_key));
        let mut found = State::read(link, &[&free, &held]).await?.found.into_iter();
        let mut next = || found.next().and_then(|keys| keys.into_iter().next());
        Ok(Self { free: next(), held: next() })
    }

    /// Whether the permits are of this semaphore, and not of an earlier one of its name.
    fn is_held(&self) -> bool {
        let created = |key: &Option<KeyValue>| key.as_ref().map(|key| key.create_revision);
        created(&self.free).zip(created(&self.held)).is_some_and(|(free, held)| held > free)
    }
}

impl Cluster {
    pub(super) async fn take_counted(self: &Arc<Self>, hold_key: &HoldKey) -> Result<Taken, StoreError> {
        let link = self.link()?;
        loop {
            let counted = Counted::read(&link, hold_key).await?;
            if counted.is_held() {
                return Ok(Taken::CountDiffers);
            }
            let free = counted.free.as_ref().map(number).transpose()?.unwrap_or_default();
            let left = free - i64::from(hold_key.amount);
            let Some(before) = counted.free.filter(|_| left >= 0) else {
                return Ok(Taken::Busy(Busy::default()));
            };
            let mut step = Step::default();
            if let Some(earlier) = &counted.held {
                // Permits of an earlier semaphore of this name.
                step.remove(earlier);
                step.make(&link).await?;
                continue;
            }
            let key = keys::counted(hold_key);
            step.expect(&before.key, Some(&before));
            step.expect(&key, None);
            step.put(&before.key, left.to_string().into_bytes(), before.lease);
            step.put(&key, hold_key.amount.to_string().into_bytes(), 0);
            if step.make(&link).await?.is_some() {
                return Ok(Taken::Granted(None));
            }
        }
    }

    /// Returns the permits of a guard to the semaphore that they were taken from, once.
    pub(super) async fn give_counted(&self, hold_key: &HoldKey) -> Result<Given, StoreError> {
        let link = self.link()?;
        loop {
            let counted = Counted::read(&link, hold_key).await?;
            let is_held = counted.is_held();
            let Counted { free, held: Some(held) } = counted else { return Ok(given(false)) };
            let mut step = Step::default();
            step.remove(&held);
            if let Some(free) = free.filter(|_| is_held) {
                let sum = number(&free)?.saturating_add(number(&held)?);
                step.expect(&free.key, Some(&free));
                step.put(&free.key, sum.to_string().into_bytes(), free.lease);
            }
            if step.make(&link).await?.is_some() {
                return Ok(given(is_held));
            }
        }
    }

    /// Whether a guard still holds its permits.
    pub(super) async fn has_counted(&self, hold_key: &HoldKey) -> Result<Verdict, StoreError> {
        let counted = Counted::read(&*self.link()?, hold_key).await?;
        Ok(if counted.is_held() { Verdict::Held } else { Verdict::Gone })
    }

    /// The permits of a guard stay taken, as a bare number.
    pub(super) async fn forget_counted(&self, hold_key: &HoldKey) -> Result<(), StoreError> {
        let mut step = Step::default();
        step.push([delete(&keys::counted(hold_key))]);
        step.make(&*self.link()?).await.map(drop)
    }
}

/// The outcome of a release.
pub(super) fn given(was_held: bool) -> Given {
    Given { left: was_held.then_some(0), subscribers: Some(0) }
}
