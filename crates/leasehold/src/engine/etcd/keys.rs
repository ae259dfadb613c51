//! The keys of a lock: those of `etcdctl lock` and of Go's packages `concurrency` and `recipes`.
//!
//! | what | key |
//! |---|---|
//! | a place in the queue of a lock, or the lock itself | `NAME/LEASE`, the lease in hexadecimal digits |
//! | the same, where several owners of one client are in the queue, or for a fair lock | `NAME/LEASE/NUMBER` |
//! | a reader, a writer | `NAME/read/LEASE-NUMBER`, `NAME/write/LEASE-NUMBER` |
//! | a client | `_leasehold/clients/LEASE` |
//!
//! Each key is bound to the lease of its client, and has no value but for the last one.

use crate::engine::{Kind, Resource};

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
pub(super) fn numbered(resource: &Resource, lease: i64, number: u64, repetition: u64) -> Vec<u8> {
    let name = &resource.name;
    let again = if repetition == 0 { String::new() } else { format!(".{repetition}") };
    match resource.kind {
        Kind::Read => format!("{name}/read/{lease:x}-{number}{again}"),
        Kind::Write => format!("{name}/write/{lease:x}-{number}{again}"),
        _ => format!("{name}/{lease:x}/{number}{again}"),
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

/// The number of the owner in a key, if it has one.
pub(super) fn number(resource: &Resource, key: &[u8]) -> Option<u64> {
    let (_, number) = rest(resource, key)?.rsplit_once(['/', '-'])?;
    number.split('.').next()?.parse().ok()
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
    use crate::name::Name;

    fn resource(kind: Kind) -> Resource {
        Resource::new(kind, Name::new("", "stock").unwrap())
    }

    #[test]
    fn the_keys_of_locks_are_those_of_other_programs() {
        let text = |key: Vec<u8>| String::from_utf8(key).unwrap();
        assert_eq!(text(plain(&resource(Kind::Lock), 0x694d_8f6a_1f00)), "stock/694d8f6a1f00");
        assert_eq!(text(numbered(&resource(Kind::Fair), 31, 7, 0)), "stock/1f/7");
        assert_eq!(text(numbered(&resource(Kind::Lock), 31, 7, 2)), "stock/1f/7.2");
        assert_eq!(text(numbered(&resource(Kind::Read), 31, 7, 0)), "stock/read/1f-7");
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
    fn the_kind_and_the_number_of_a_key_are_read_back() {
        let lock = resource(Kind::Lock);
        for (of, repetition) in [(Kind::Fair, 0), (Kind::Read, 0), (Kind::Write, 3)] {
            let key = numbered(&resource(of), 31, 7, repetition);
            assert_eq!((kind(&lock, &key), number(&lock, &key)), (of.of_hold(), Some(7)));
        }
        assert_eq!(number(&lock, &plain(&lock, 31)), None);
    }
}
