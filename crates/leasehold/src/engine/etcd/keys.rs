//! The keys of a lock: those of `etcdctl lock` and of Go's packages `concurrency` and `recipes`.
//!
//! | what | key |
//! |---|---|
//! | a place in the queue of a lock, or the lock itself | `NAME/LEASE`, the lease in hexadecimal digits |
//! | the same, where several owners of one client are in the queue, or for a fair lock | `NAME/LEASE/OWNER` |
//! | a reader, a writer | `NAME/read/OWNER`, `NAME/write/OWNER` |
//! | a client | `_leasehold/clients/LEASE` |
//!
//! Each key is bound to the lease of its client, and has no value but for the last one.

use crate::engine::{Kind, Resource};
use crate::owner::{Owner, OwnerId};

const CLIENTS: &str = "_leasehold/clients/";

/// The keys between two bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) key: Vec<u8>,
    /// The first key behind them; empty if `key` is the only one.
    pub(super) end: Vec<u8>,
}

impl Span {
    pub(super) fn only(key: Vec<u8>) -> Self {
        Self { key, end: Vec::new() }
    }

    fn below(prefix: String) -> Self {
        let key = prefix.into_bytes();
        let mut end = key.clone();
        // The prefix ends with a slash.
        end.pop();
        end.push(b'/' + 1);
        Self { key, end }
    }
}

/// All keys of a name.
pub(super) fn all(resource: &Resource) -> Span {
    Span::below(format!("{}/", resource.name))
}

/// The keys that keep an owner out if they are older than its own: a reader waits for writers only.
pub(super) fn blockers(resource: &Resource) -> Span {
    match resource.kind {
        Kind::Read => Span::below(format!("{}/write/", resource.name)),
        _ => all(resource),
    }
}

/// The key of the one owner of a client at a lock, as other programs write it.
pub(super) fn plain(resource: &Resource, lease: i64) -> Vec<u8> {
    format!("{}/{lease:x}", resource.name).into_bytes()
}

/// The key of one of several owners, or of a reader or a writer. A `repetition` distinguishes attempts of the same owner.
pub(super) fn owned(resource: &Resource, lease: i64, owner: OwnerId, repetition: u64) -> Vec<u8> {
    let name = &resource.name;
    let again = if repetition == 0 { String::new() } else { format!(".{repetition}") };
    match resource.kind {
        Kind::Read => format!("{name}/read/{owner}{again}"),
        Kind::Write => format!("{name}/write/{owner}{again}"),
        _ => format!("{name}/{lease:x}/{owner}{again}"),
    }
    .into_bytes()
}

/// Which half of a read-write lock a key stands for; a lock for any other.
pub(super) fn kind(resource: &Resource, key: &[u8]) -> Kind {
    match rest(resource, key) {
        Some(rest) if rest.starts_with("read/") => Kind::Read,
        Some(rest) if rest.starts_with("write/") => Kind::Write,
        _ => Kind::Lock,
    }
}

/// The owner in a key, if it has one.
pub(super) fn owner(resource: &Resource, key: &[u8]) -> Option<OwnerId> {
    let (_, owner) = rest(resource, key)?.rsplit_once('/')?;
    owner.split('.').next()?.parse::<Owner>().ok()?.full()
}

fn rest<'a>(resource: &Resource, key: &'a [u8]) -> Option<&'a str> {
    let key = std::str::from_utf8(key).ok()?;
    key.strip_prefix(resource.name.as_str())?.strip_prefix('/')
}

/// The key that tells who the client with this lease is.
pub(super) fn client(lease: i64) -> Vec<u8> {
    format!("{CLIENTS}{lease:x}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_id::ClientId;
    use crate::name::Name;

    fn resource(kind: Kind) -> Resource {
        Resource::new(kind, Name::new("", "stock").unwrap())
    }

    #[test]
    fn the_keys_of_locks_are_those_of_other_programs() {
        let text = |key: Vec<u8>| String::from_utf8(key).unwrap();
        assert_eq!(text(plain(&resource(Kind::Lock), 0x694d_8f6a_1f00)), "stock/694d8f6a1f00");
        let id = "71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:7";
        let owner = id.parse::<Owner>().unwrap().full().unwrap();
        assert_eq!(text(owned(&resource(Kind::Fair), 31, owner, 0)), format!("stock/1f/{id}"));
        assert_eq!(text(owned(&resource(Kind::Lock), 31, owner, 2)), format!("stock/1f/{id}.2"));
        assert_eq!(text(owned(&resource(Kind::Read), 31, owner, 0)), format!("stock/read/{id}"));
        assert_eq!(text(client(31)), "_leasehold/clients/1f");
    }

    #[test]
    fn a_span_has_the_keys_below_a_name_and_no_others() {
        let Span { key, end } = all(&resource(Kind::Lock));
        let has = |other: &[u8]| key.as_slice() <= other && other < end.as_slice();
        assert!(has(b"stock/") && has(b"stock/1f") && has(b"stock/\xff\xff"));
        assert!(!has(b"stock") && !has(b"stock0") && !has(b"stocks/1f"));
        assert_eq!(blockers(&resource(Kind::Read)).key, b"stock/write/");
        assert_eq!(blockers(&resource(Kind::Write)).key, b"stock/");
    }

    #[test]
    fn the_kind_and_the_owner_of_a_key_are_read_back() {
        let lock = resource(Kind::Lock);
        for (of, repetition) in [(Kind::Fair, 0), (Kind::Read, 0), (Kind::Write, 3)] {
            let me = OwnerId { client: ClientId::random(), number: 7 };
            let key = owned(&resource(of), 31, me, repetition);
            assert_eq!((kind(&lock, &key), owner(&lock, &key)), (of.of_hold(), Some(me)));
        }
        assert_eq!(owner(&lock, &plain(&lock, 31)), None);
    }
}
