//! Under what the state of one name is found.

use std::hash::{BuildHasher, Hash, Hasher};

use crate::engine::Family;
use crate::name::Name;

/// A family and a name, and the hash of the name: worked out once, it finds the part of the table and the place in it.
/// Hardly any name is used for more than one family.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    hash: u64,
    family: Family,
    name: Name,
}

impl Key {
    pub(super) fn new(family: Family, name: &Name, hasher: &impl BuildHasher) -> Self {
        Self { hash: hasher.hash_one(name), family, name: name.clone() }
    }

    /// In which of so many parts it belongs. A table looks at the lowest and the highest bits: these are others.
    pub(super) fn part_of(&self, parts: usize) -> usize {
        ((self.hash >> 32) % parts as u64) as usize
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Takes a hash as it is.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a key gives its hash, which is a number")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
