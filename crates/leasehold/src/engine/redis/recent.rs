//! Holds that were released a short time ago.
//!
//! A failover may lose the last writes of the old primary, releases among them: the new primary still has holds that no one
//! holds any more, and waiters would wait until their leases are over. So what was released last is released again there.

use std::collections::HashSet;
use std::time::Duration;

use super::commands;
use super::net::Call;
use crate::engine::HoldKey;
use crate::env::{self, Instant};
use crate::mutex::Mutex;

/// How many of them are remembered at least, if there were so many …
const AT_LEAST: usize = 5_000;
/// … and for how long at least, if there were not.
const FOR: Duration = Duration::from_secs(15);

/// The holds that a client has released, and has not acquired since.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<State>);

/// Two generations: when the younger one is full or old enough, the older one is forgotten.
#[derive(Debug, Default)]
struct State {
    young: HashSet<HoldKey>,
    old: HashSet<HoldKey>,
    /// When the younger one began.
    since: Option<Instant>,
}

impl Recent {
    /// A hold is released.
    pub(super) fn released(&self, key: &HoldKey) {
        let (now, mut state) = (env::now(), self.0.lock());
        let since = *state.since.get_or_insert(now);
        if state.young.len() >= AT_LEAST || now - since >= FOR {
            state.old = std::mem::take(&mut state.young);
            state.since = Some(now);
        }
        state.young.insert(key.clone());
    }

    /// A hold is granted, perhaps to an owner that had released it.
    pub(super) fn granted(&self, key: &HoldKey) {
        let mut state = self.0.lock();
        state.young.remove(key);
        state.old.remove(key);
    }

    /// The calls that release all of them again, those of one kind in a row.
    pub(super) fn releases(&self) -> Vec<Call> {
        let state = self.0.lock();
        let mut keys: Vec<_> = state.young.iter().chain(&state.old).collect();
        keys.sort_by_key(|key| key.resource.kind);
        keys.into_iter().map(|key| commands::lower(key, 0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_id::ClientId;
    use crate::engine::{Kind, Resource};
    use crate::name::Name;
    use crate::owner::OwnerId;

    /// So many holds, each of another owner.
    fn keys(count: usize) -> Vec<HoldKey> {
        let (resource, client) = (Resource::new(Kind::Lock, Name::new("", "n").unwrap()), ClientId::random());
        let key = |_| HoldKey { resource: resource.clone(), owner: OwnerId::fresh(client, 1), amount: 1 };
        (0..count).map(key).collect()
    }

    #[test]
    fn what_was_released_and_not_acquired_since_is_released_again() {
        let (recent, keys) = (Recent::default(), keys(3));
        for key in &keys {
            recent.released(key);
        }
        recent.granted(&keys[1]);
        assert_eq!(recent.releases().len(), 2);
    }

    #[test]
    fn few_are_remembered_of_many() {
        let (recent, keys) = (Recent::default(), keys(AT_LEAST * 4));
        for key in &keys {
            recent.released(key);
        }
        let remembered = recent.releases().len();
        assert!((AT_LEAST..=AT_LEAST * 2).contains(&remembered), "{remembered}");
        recent.granted(&keys[AT_LEAST * 4 - 1]);
        assert_eq!(recent.releases().len(), remembered - 1, "the last one is among them");
    }

    #[tokio::test(start_paused = true)]
    async fn old_ones_are_forgotten() {
        let recent = Recent::default();
        for key in keys(3) {
            recent.released(&key);
            tokio::time::sleep(FOR).await;
        }
        assert_eq!(recent.releases().len(), 2);
    }
}
