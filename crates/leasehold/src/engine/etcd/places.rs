//! The places of this client in the queues of the server: one key for each owner that holds a lock or waits for it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::keys;
use super::leases::OwnLease;
use crate::engine::{HoldKey, Kind};
use crate::env::{self, Instant};
use crate::loss::Loss;
use crate::session::Session;

/// For how long a request without a reply may still be carried out.
const LATEST: Duration = Duration::from_secs(90);

/// All places of one session, and those of earlier ones that have leases of their own.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: BTreeMap<HoldKey, Place>,
    owners: HashMap<Vec<u8>, HoldKey>,
    /// Keys without the number of an owner that a request without a reply may still write or delete: no owner gets one again.
    spent: HashSet<Vec<u8>>,
    /// Keys of an owner that such a request may still write, and until when.
    late: HashMap<HoldKey, Vec<(Vec<u8>, Instant)>>,
    repetitions: u64,
}

/// The place of one owner.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) key: Vec<u8>,
    lease: i64,
    /// The revision at which its key was created, if that is known.
    pub(super) created: i64,
    pub(super) state: State,
    /// The watch on what it waits for.
    pub(super) watch: Option<i64>,
    /// The watch on its own key.
    pub(super) own_watch: Option<i64>,
    /// Its turn may have come, which has this number, and its owner has not retried since.
    pub(super) turn: Option<i64>,
    /// It was entered by taking the lock over from its holder, which is not to be done again.
    pub(super) has_taken_over: bool,
    /// This client is about to take it away from its holder, who loses it for this reason.
    pub(super) fate: Option<Loss>,
    /// Its key is bound to one of these leases; if there is none, to that of the client.
    pub(super) leases: Vec<Arc<OwnLease>>,
    /// What its hold lasts as long as, if that is not the session of the client.
    pub(super) session: Option<Arc<Session>>,
    /// Its hold has an end of its own, or none, without such a session.
    pub(super) outlasts: bool,
}

impl Place {
    fn new(key: Vec<u8>, lease: i64) -> Self {
        Self {
            key,
            lease,
            created: 0,
            state: State::New,
            watch: None,
            own_watch: None,
            turn: None,
            has_taken_over: false,
            fate: None,
            leases: Vec::new(),
            session: None,
            outlasts: false,
        }
    }

    /// Its key is bound to this lease, and to no other.
    pub(super) fn bind(&mut self, lease: Arc<OwnLease>) {
        match &self.session {
            Some(session) => session.set_deadline(lease.until),
            None => self.session = Some(Session::new(lease.until)),
        }
        self.leases = vec![lease];
    }

    /// Its key is bound to the lease of the client.
    pub(super) fn unbind(&mut self) {
        self.leases.clear();
        self.session = None;
    }

    /// Its watches, which are to be ended.
    pub(super) fn take_watches(&mut self) -> [Option<i64>; 2] {
        [self.watch.take(), self.own_watch.take()]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing is known of its key.
    New,
    Waiting,
    /// Its key was deleted while it was waiting.
    Removed,
    Held,
    /// Its key is being deleted.
    Leaving,
    /// Its holder is gone, and the lock stays taken for a while.
    Abandoned,
}

impl Places {
    /// The place of an owner, which may be a new one.
    pub(super) fn enter(&mut self, hold_key: &HoldKey, lease: i64) -> &mut Place {
        let of = hold_key.of_hold();
        if self.all.get(&of).is_some_and(|place| place.lease != lease && place.leases.is_empty()) {
            // It has ended with its lease.
            self.remove(&of);
        }
        if !self.all.contains_key(&of) {
            let key = self.new_key(hold_key, lease);
            return self.insert(of, key, lease);
        }
        self.all.get_mut(&of).expect("it was entered before")
    }

    /// The place of an owner that has this key, and holds something by it.
    pub(super) fn hold(&mut self, hold_key: &HoldKey, lease: i64, key: Vec<u8>, created: i64) -> &mut Place {
        self.remove(hold_key);
        let place = self.insert(hold_key.of_hold(), key, lease);
        (place.state, place.created) = (State::Held, created);
        place
    }

    /// The place of an owner that has none.
    fn insert(&mut self, of: HoldKey, key: Vec<u8>, lease: i64) -> &mut Place {
        self.owners.insert(key.clone(), of.clone());
        self.all.entry(of).or_insert_with(|| Place::new(key, lease))
    }

    fn new_key(&mut self, hold_key: &HoldKey, lease: i64) -> Vec<u8> {
        let resource = &hold_key.resource;
        if matches!(resource.kind, Kind::Lock | Kind::Spin) {
            let plain = keys::plain(resource, lease);
            if !self.owners.contains_key(&plain) && !self.spent.contains(&plain) {
                return plain;
            }
        }
        let mut repetition = 0;
        if self.late.contains_key(&hold_key.of_hold()) {
            self.repetitions += 1;
            repetition = self.repetitions;
        }
        keys::owned(resource, lease, hold_key.owner, repetition)
    }

    pub(super) fn get(&mut self, hold_key: &HoldKey) -> Option<&mut Place> {
        self.all.get_mut(&hold_key.of_hold())
    }

    pub(super) fn remove(&mut self, hold_key: &HoldKey) -> Option<Place> {
        let place = self.all.remove(&hold_key.of_hold())?;
        self.owners.remove(&place.key);
        Some(place)
    }

    /// The owner of a key, if it is one of this client.
    pub(super) fn owner(&self, key: &[u8]) -> Option<&HoldKey> {
        self.owners.get(key)
    }

    /// A request that writes or deletes the key of a place has no reply: it may still be carried out.
    pub(super) fn doubt(&mut self, hold_key: &HoldKey) {
        let of = hold_key.of_hold();
        let Some(place) = self.all.get(&of) else { return };
        self.spent.insert(place.key.clone());
        let now = env::now();
        self.late.retain(|_, keys| {
            keys.retain(|(_, until)| *until > now);
            !keys.is_empty()
        });
        self.late.entry(of).or_default().push((place.key.clone(), now + LATEST));
    }

    /// Keys of an owner that may still be written late.
    pub(super) fn late(&self, hold_key: &HoldKey) -> Vec<Vec<u8>> {
        let late = self.late.get(&hold_key.of_hold()).into_iter().flatten();
        late.map(|(key, _)| key.clone()).collect()
    }

    /// The session has ended: places whose keys have leases of their own stay.
    pub(super) fn end_session(&mut self) {
        self.all.retain(|_, place| place.outlasts || !place.leases.is_empty());
        let Self { all, owners, .. } = self;
        owners.retain(|_, of| all.contains_key(of));
        (self.spent, self.late) = Default::default();
    }

    /// All places, whose watches have ended.
    pub(super) fn unwatched(&mut self) -> Vec<(HoldKey, Place)> {
        self.all.values_mut().for_each(|place| (place.watch, place.own_watch) = (None, None));
        self.all.iter().map(|(hold_key, place)| (hold_key.clone(), place.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_id::ClientId;
    use crate::engine::Resource;
    use crate::name::Name;
    use crate::owner::OwnerId;

    fn hold_key(kind: Kind, number: u64) -> HoldKey {
        let resource = Resource::new(kind, Name::new("", "n").unwrap());
        HoldKey { resource, owner: OwnerId { client: ClientId::random(), number }, amount: 1 }
    }

    fn key(places: &mut Places, hold_key: &HoldKey) -> String {
        String::from_utf8(places.enter(hold_key, 31).key.clone()).unwrap()
    }

    #[test]
    fn the_first_owner_has_the_key_of_other_programs_and_each_further_owner_its_own() {
        let mut places = Places::default();
        let [one, two, fair] =
            [(Kind::Lock, 1), (Kind::Spin, 2), (Kind::Fair, 3)].map(|(kind, n)| hold_key(kind, n));
        let expected = ["n/1f".into(), format!("n/1f/{}", two.owner), format!("n/1f/{}", fair.owner)];
        assert_eq!([&one, &two, &fair].map(|of| key(&mut places, of)), expected);
        assert_eq!(key(&mut places, &one), "n/1f", "it stays");
        assert_eq!(places.owner(b"n/1f"), Some(&one));
        places.remove(&one);
        assert_eq!(key(&mut places, &hold_key(Kind::Lock, 4)), "n/1f", "it is free again");
    }

    #[test]
    fn holds_with_an_end_of_their_own_outlast_the_session() {
        let mut places = Places::default();
        let [kept, permanent] = [1, 2].map(|number| hold_key(Kind::LeasedSemaphore, number));
        places.hold(&kept, 31, b"one".to_vec(), 7);
        places.hold(&permanent, 31, b"two".to_vec(), 8).outlasts = true;
        places.end_session();
        assert!(places.get(&kept).is_none() && places.get(&permanent).is_some());
        assert_eq!((places.owner(b"one"), places.owner(b"two")), (None, Some(&permanent)));
    }

    #[test]
    fn no_owner_gets_a_key_that_a_late_request_may_still_change() {
        let mut places = Places::default();
        let one = hold_key(Kind::Lock, 1);
        assert_eq!(key(&mut places, &one), "n/1f");
        places.doubt(&one);
        places.remove(&one);
        let two = hold_key(Kind::Lock, 2);
        assert_eq!(key(&mut places, &two), format!("n/1f/{}", two.owner));
        assert_eq!(key(&mut places, &one), format!("n/1f/{}.1", one.owner), "nor does the same owner");
        assert_eq!(places.late(&one), [b"n/1f".to_vec()]);
    }
}
