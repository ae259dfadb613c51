//! The key of the state of one name.

use std::hash::{Hash, Hasher};

use crate::engine::Family;
use crate::name::Name;

/// A family and a name. Hardly any name is used for more than one family, so the hash is that of the name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    name: Name,
    family: Family,
}

impl Key {
    pub(super) fn new(family: Family, name: &Name) -> Self {
        Self { name: name.clone(), family }
    }

    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    /// Which of so many shards it belongs to. A hash map uses the lowest and the highest bits: these are others.
    pub(super) fn part_of(&self, parts: usize) -> usize {
        ((self.name.hash() >> 32) % parts as u64) as usize
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Hash::hash(&self.name, state);
    }
}
