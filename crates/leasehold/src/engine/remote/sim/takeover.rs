//! A lock held by a client that the code under test does not know of.

use std::fmt;
use std::sync::Arc;

use super::SimServer;
use super::server::OwnedTake;
use crate::client_id::ClientId;
use crate::engine::remote::store::Take;
use crate::engine::{HoldKey, Kind, Resource, RwOptions};
use crate::lease::Lease;
use crate::limits;
use crate::name::Name;
use crate::owner::Owner;

/// A lock that another client has taken over and holds until this is dropped.
#[must_use = "the lock is free again when this is dropped"]
pub struct Takeover {
    server: Arc<SimServer>,
    key: HoldKey,
}

impl Takeover {
    pub(super) fn new(server: &Arc<SimServer>, name: Name) -> Self {
        let owner = Owner::unique().at(ClientId::random());
        let key = HoldKey { resource: Resource::new(Kind::Lock, name), owner, amount: 1 };
        let take = Take {
            hold_key: &key,
            held: 0,
            lease: Lease::Fixed(limits::LONGEST_LEASE),
            steal: true,
            fenced: false,
            queue: None,
            rw: RwOptions::default(),
            waits: false,
        };
        server.take(&OwnedTake::new(&take)).expect("a lock can be taken by force");
        Self { server: Arc::clone(server), key }
    }
}

impl Drop for Takeover {
    fn drop(&mut self) {
        self.server.lower(&self.key, 0);
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover").field("name", &self.key.resource.name).finish_non_exhaustive()
    }
}
