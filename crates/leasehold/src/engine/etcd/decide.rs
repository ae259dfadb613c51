//! Whose turn it is, decided from the keys of a name: no request and no state.
//!
//! Each key is a place in the queue of its name, in the order in which the keys were created.

use super::keys;
use super::messages::KeyValue;
use crate::engine::{Kind, Resource};

/// Whether the owner whose key was created at revision `own` holds the lock: `first` is the oldest key that could keep it out.
pub(super) fn holds(first: Option<&KeyValue>, own: i64) -> bool {
    first.is_none_or(|first| first.create_revision >= own)
}

/// The keys that hold a resource. `queue` has all keys of its name, the oldest first.
pub(super) fn holders<'a>(resource: &Resource, queue: &'a [KeyValue]) -> &'a [KeyValue] {
    let is_reader = |place: &KeyValue| keys::kind(resource, &place.key) == Kind::Read;
    let readers = queue.iter().take_while(|place| is_reader(place)).count();
    match resource.kind {
        Kind::Read => &queue[..readers],
        Kind::Write => {
            let is_writer =
                queue.first().is_some_and(|first| keys::kind(resource, &first.key) == Kind::Write);
            &queue[..usize::from(is_writer)]
        }
        _ => &queue[..queue.len().min(1)],
    }
}

/// The keys that wait for the resource: all that hold neither it nor, of a read-write lock, its other half.
pub(super) fn waiters<'a>(resource: &Resource, queue: &'a [KeyValue]) -> &'a [KeyValue] {
    let readers = holders(&resource.of_kind(Kind::Read), queue).len();
    &queue[readers.max(1).min(queue.len())..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::client_id::ClientId;
    use crate::name::Name;
    use crate::owner::OwnerId;

    fn resource(kind: Kind) -> Resource {
        Resource::new(kind, Name::new("", "n").unwrap())
    }

    fn key(kind: Kind, at: i64) -> KeyValue {
        let owner = OwnerId { client: ClientId::random(), number: at.try_into().unwrap() };
        let key = keys::owned(&resource(kind), 1, owner, 0);
        KeyValue { key, create_revision: at, ..KeyValue::default() }
    }

    fn queue(kinds: &[Kind]) -> Vec<KeyValue> {
        kinds.iter().zip(1..).map(|(kind, at)| key(*kind, at)).collect()
    }

    #[test]
    fn the_oldest_key_holds_a_lock_and_readers_hold_together() {
        use Kind::{Lock, Read, Write};
        for (kinds, lock, read, write, waiting) in [
            (&[][..], 0, 0, 0, 0),
            (&[Lock], 1, 0, 0, 0),
            (&[Lock, Lock], 1, 0, 0, 1),
            (&[Read, Read, Write, Read], 1, 2, 0, 2),
            (&[Write, Read], 1, 0, 1, 1),
        ] {
            let queue = queue(kinds);
            let number = |kind| holders(&resource(kind), &queue).len();
            assert_eq!((number(Lock), number(Read), number(Write)), (lock, read, write), "{kinds:?}");
            assert_eq!(waiters(&resource(Read), &queue).len(), waiting, "{kinds:?}");
        }
    }

    proptest! {
        /// The owner of a key decides alone, by the oldest key that could keep it out; all of them together see the whole queue.
        #[test]
        fn what_each_owner_decides_alone_agrees_with_the_whole_queue(
            kinds in proptest::collection::vec(prop_oneof![Just(Kind::Read), Just(Kind::Write)], 0..12),
        ) {
            let queue = queue(&kinds);
            let mut writes = 0;
            for (place, kind) in queue.iter().zip(&kinds) {
                let span = keys::blockers(&resource(*kind));
                let blocks = |other: &&KeyValue| span.key <= other.key && other.key < span.end;
                let decided = holds(queue.iter().find(blocks), place.create_revision);
                prop_assert_eq!(decided, holders(&resource(*kind), &queue).contains(place));
                writes += usize::from(decided && *kind == Kind::Write);
            }
            let reads = holders(&resource(Kind::Read), &queue).len();
            prop_assert!(writes + usize::from(reads > 0) <= 1, "a writer excludes all others");
        }
    }
}
