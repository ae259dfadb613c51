//! Values of a group: each owner has a key with all values that it has acquired together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::counted::given;
use super::keys::{self, Span};
use super::leases::OwnLease;
use super::link::Link;
use super::locks::Entry;
use super::messages::{KeyValue, LeaseId, Lives};
use super::state::{State, Step, find};
use super::transaction::{delete, put};
use super::view::records_of;
use super::{Cluster, calls};
use crate::engine::remote::store::{Forced, Given, StoreError, Taken, report};
use crate::engine::{Busy, Found, HoldKey, Holding, Kind, Resource};
use crate::identity::ClientInfo;
use crate::loss::Loss;
use crate::name::Name;
use crate::owner::OwnerId;

/// From how many sets one transaction takes values away: etcd allows 128 operations in it.
const AT_ONCE: usize = 40;

/// Values that one owner has acquired together, as their key has them.
struct Set {
    owner: Option<OwnerId>,
    values: BTreeSet<String>,
    key: KeyValue,
}

impl Set {
    fn parse(key: &KeyValue) -> Self {
        let values = String::from_utf8_lossy(&key.value).split('\n').map(str::to_owned).collect();
        let owner = keys::parse_set(&key.key).map(|(_, owner)| owner);
        Self { owner, values, key: key.clone() }
    }

    /// Takes these values away from it, even if it was written again.
    fn without(&self, resource: &Resource, values: &BTreeSet<String>) -> Step {
        let mut step = Step::default();
        self.lose(&mut step, resource, values);
        step
    }

    fn lose(&self, step: &mut Step, resource: &Resource, values: &BTreeSet<String>) {
        step.expect_created(&self.key);
        step.push([delete(&self.key.key)]);
        let left: Vec<_> = self.values.difference(values).cloned().collect();
        if let (Some(first), Some(owner)) = (left.first(), self.owner) {
            let key = keys::set(resource, owner, left.len(), first);
            step.put(&key, keys::lines(left), self.key.lease);
        }
    }
}

fn sets(found: &[KeyValue]) -> Vec<Set> {
    found.iter().map(Set::parse).collect()
}

fn values(resource: &Resource) -> BTreeSet<String> {
    resource.values().iter().map(|value| keys::escaped(value)).collect()
}

/// The key of a hold of all its values.
fn key_of(HoldKey { resource, owner, .. }: &HoldKey) -> Vec<u8> {
    let values = values(resource);
    keys::set(resource, *owner, values.len(), values.first().map_or("", String::as_str))
}

/// The set whose owner has some of these values: this owner, if it has all of them.
fn holder<'a>(sets: &'a [Set], values: &BTreeSet<String>, wanted: Option<OwnerId>) -> Option<&'a Set> {
    let is_of = |set: &&Set| wanted.is_some() && set.owner == wanted;
    let is_held = |value: &String| sets.iter().filter(is_of).any(|set| set.values.contains(value));
    let has_all = values.iter().all(is_held);
    sets.iter().find(|set| !set.values.is_disjoint(values) && is_of(set) == has_all)
}

impl Cluster {
    /// Acquires all values or none.
    pub(super) async fn take_set(self: &Arc<Self>, entry: &Entry) -> Result<Taken, StoreError> {
        let (link, hold_key) = (self.link()?, &entry.hold_key);
        if entry.held > 0 {
            return self.enter_again(&link, entry).await;
        }
        let (resource, span, key) = (&hold_key.resource, keys::all(&hold_key.resource), key_of(hold_key));
        let wanted = values(resource);
        let mut own: Option<Arc<OwnLease>> = None;
        loop {
            let state = State::read(&link, &[&span]).await?;
            let sets = sets(&state.found[0]);
            let others: Vec<_> = sets.iter().filter(|set| !set.values.is_disjoint(&wanted)).collect();
            if others.iter().any(|set| set.owner == Some(hold_key.owner)) {
                return Ok(Taken::CountDiffers);
            }
            if let Some(set) = others.first().filter(|_| !entry.steal) {
                return Ok(Taken::Busy(Busy { holder: set.owner, ..Busy::default() }));
            }
            let mut step = Step::default();
            if others.len() > AT_ONCE {
                self.take_values(&link, hold_key, &others[..AT_ONCE], step).await?;
                continue;
            }
            if let (Some(length), None) = (entry.length, &own) {
                own = Some(self.own_lease(&link, length).await?);
            }
            step.expect_no_writes(&span, state.revision);
            step.put(&key, keys::value(resource), own.as_ref().map_or(link.client.lease, |own| own.id));
            step.push(own.as_ref().map(|own| self.own_record(own.id, hold_key.owner.client)));
            if let Some(revision) = self.take_values(&link, hold_key, &others, step).await? {
                let session = self.holds(&link, hold_key, (key, revision), own);
                let token = entry.fenced.then(|| revision.unsigned_abs());
                return Ok(Taken::Bound(token, session));
            }
        }
    }

    /// Makes a step of a new owner that also takes its values away from these sets, and tells their owners.
    async fn take_values(
        self: &Arc<Self>,
        link: &Arc<Link>,
        HoldKey { resource, owner, .. }: &HoldKey,
        others: &[&Set],
        mut step: Step,
    ) -> Result<Option<i64>, StoreError> {
        let notes: Vec<_> =
            others.iter().map(|set| keys::taken(&set.key.key, set.key.create_revision)).collect();
        let values = values(resource);
        for set in others {
            set.lose(&mut step, resource, &values);
        }
        step.push(self.record(link, owner.client));
        step.push(notes.iter().map(|note| put(note, Vec::new(), link.client.lease)));
        let fate = |fate| -> Vec<_> {
            others.iter().filter_map(|set| self.decide_fate(&set.key.key, fate)).collect()
        };
        let own = fate(Some(Loss::TakenOver));
        let made = step.make_recorded(link).await;
        if !matches!(made, Ok(Some(_))) {
            fate(None);
            return made;
        }
        if !notes.is_empty() {
            self.delete_later(notes);
        }
        for own in own {
            self.lost(link, &own);
            report(&self.events, |events| events.revoked_one(&own, Loss::TakenOver));
        }
        made
    }

    /// Releases what is left of a set. Idempotent.
    pub(super) async fn give_set(&self, hold_key: &HoldKey) -> Result<Given, StoreError> {
        let (link, resource) = (self.link()?, &hold_key.resource);
        // A lease of its own is revoked when all is deleted.
        let _place = self.holds_no_more(&link, hold_key);
        let (values, key, mut was_held) = (values(resource), key_of(hold_key), false);
        loop {
            let found = find(&link, &keys::sets(resource, hold_key.owner)).await?;
            let sets = sets(&found);
            let Some(set) = sets.iter().find(|set| set.values.is_subset(&values)) else {
                return Ok(given(was_held));
            };
            let is_whole = set.key.key == key;
            let made = set.without(resource, &values).make(&link).await?;
            was_held |= is_whole && made.is_some();
        }
    }

    /// Takes values away from their owners. What else these have acquired with them stays until they release that.
    pub(super) async fn force_set(&self, resource: &Resource) -> Result<Forced, StoreError> {
        let (link, wanted) = (self.link()?, values(resource));
        let mut was_held = false;
        let found = find(&link, &keys::all(resource)).await?;
        for set in sets(&found).iter().filter(|set| !set.values.is_disjoint(&wanted)) {
            let own = self.decide_fate(&set.key.key, Some(Loss::ForceUnlocked));
            let made = set.without(resource, &wanted).make(&link).await;
            match (&made, own) {
                (Ok(Some(_)), Some(own)) => self.lost(&link, &own),
                (Ok(Some(_)), None) => {}
                _ => drop(self.decide_fate(&set.key.key, None)),
            }
            was_held |= made?.is_some();
        }
        Ok(Forced { was_held, subscribers: Some(0) })
    }

    /// The groups of these names of which values are held.
    pub(super) async fn groups(
        &self,
        span: Span,
        is_wanted: impl Fn(&Name) -> bool,
    ) -> Result<Vec<Found>, StoreError> {
        let link = self.link()?;
        let mut groups = BTreeMap::<Name, (KeyValue, BTreeSet<OwnerId>)>::new();
        for key in find(&link, &span).await? {
            if let Some((name, owner)) = keys::parse_set(&key.key).filter(|(name, _)| is_wanted(name)) {
                groups.entry(name).or_insert((key, BTreeSet::new())).1.insert(owner);
            }
        }
        let mut all = Vec::new();
        for (name, (key, owners)) in groups {
            let owner = keys::parse_set(&key.key).map(|(_, owner)| owner);
            let holding = Holding { owner, count: 1, remaining: rest(&link, key.lease).await? };
            let record = records_of(&link, &[key.lease]).await?.pop().flatten();
            let info = record.and_then(|record| record.info).unwrap_or_default();
            let client = Some(Box::new(ClientInfo { lease: Some(format!("{:x}", key.lease)), ..info }));
            let (resource, holders) = (Resource::new(Kind::Group, name), owners.len());
            all.push(Found { resource, holding, holders, client, process: None });
        }
        Ok(all)
    }

    /// The owner of some of these values: this one, if it has all of them.
    pub(super) async fn holder_of_set(
        &self,
        resource: &Resource,
        wanted: Option<OwnerId>,
    ) -> Result<Option<Holding>, StoreError> {
        let link = self.link()?;
        let sets = sets(&find(&link, &keys::all(resource)).await?);
        let Some(set) = holder(&sets, &values(resource), wanted) else { return Ok(None) };
        let remaining = rest(&link, set.key.lease).await?;
        Ok(Some(Holding { owner: set.owner, count: 1, remaining }))
    }
}

/// How long a lease lasts if it is not renewed.
async fn rest(link: &Link, lease: i64) -> Result<Duration, StoreError> {
    let lives: Lives = link.call(calls::TIME_TO_LIVE, LeaseId { id: lease }).await?;
    Ok(Duration::from_secs(lives.ttl.max(0).unsigned_abs()))
}
