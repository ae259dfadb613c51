//! Values of a group, each of which has a single holder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::names::encode;
use crate::client_id::ClientId;
use crate::engine::{HoldKey, Resource};
use crate::owner::{Owner, OwnerId};

/// The sets of values that are held.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    sets: Vec<(OwnerId, BTreeSet<String>)>,
}

impl Group {
    /// The sets in the content of a table. The error: it is something else.
    pub(super) fn parse(content: &str) -> Result<Self, ()> {
        let sets = content.lines().map(|line| {
            let (owner, values) = line.strip_prefix("set ").and_then(|set| set.split_once(' ')).ok_or(())?;
            let owner: Owner = owner.parse().map_err(drop)?;
            // Each value has a sign before it, because it may be empty.
            let values = values.split(' ').filter_map(|value| value.strip_prefix('=')).map(str::to_owned);
            Ok((owner.full().ok_or(())?, values.collect()))
        });
        Ok(Self { sets: sets.collect::<Result<_, _>>()? })
    }

    pub(super) fn format(&self) -> String {
        let mut content = String::new();
        for (owner, values) in &self.sets {
            // Writing to a string cannot fail.
            let _ = write!(content, "set {owner}");
            for value in values {
                let _ = write!(content, " ={value}");
            }
            content.push('\n');
        }
        content
    }

    /// Removes the sets of dead clients.
    pub(super) fn expire(&mut self, mut is_alive: impl FnMut(ClientId) -> bool) {
        let mut known: BTreeMap<ClientId, bool> = BTreeMap::new();
        let mut is_alive = |client| *known.entry(client).or_insert_with(|| is_alive(client));
        self.sets.retain(|(owner, _)| is_alive(owner.client));
    }

    /// The owners that have a set, each once.
    pub(super) fn owners(&self) -> Vec<OwnerId> {
        let owners: BTreeSet<_> = self.sets.iter().map(|(owner, _)| *owner).collect();
        owners.into_iter().collect()
    }

    /// Acquires a set, or returns the owner of one of its values.
    pub(super) fn take(&mut self, key: &HoldKey) -> Result<(), OwnerId> {
        let values = values(&key.resource);
        if let Some(holder) = self.holder(&values, None) {
            return Err(holder);
        }
        self.sets.push((key.owner, values));
        Ok(())
    }

    /// Releases a set; false if it is not held.
    pub(super) fn give(&mut self, key: &HoldKey) -> bool {
        let (before, values) = (self.sets.len(), values(&key.resource));
        self.sets.retain(|(owner, held)| *owner != key.owner || *held != values);
        self.sets.len() < before
    }

    pub(super) fn has(&self, key: &HoldKey) -> bool {
        let values = values(&key.resource);
        self.sets.iter().any(|(owner, held)| *owner == key.owner && *held == values)
    }

    /// The owner of one of these values: this one, if it has all of them.
    pub(super) fn holder(&self, values: &BTreeSet<String>, wanted: Option<OwnerId>) -> Option<OwnerId> {
        let all = wanted.filter(|wanted| {
            let has = |value| self.sets.iter().any(|(owner, held)| owner == wanted && held.contains(value));
            values.iter().all(has)
        });
        let any = || self.sets.iter().find(|(_, held)| !held.is_disjoint(values));
        all.or_else(|| any().map(|(owner, _)| *owner).filter(|owner| wanted != Some(*owner)))
    }
}

/// The values of a resource, as they are written.
pub(super) fn values(resource: &Resource) -> BTreeSet<String> {
    resource.values().iter().map(|value| encode(value)).collect()
}
