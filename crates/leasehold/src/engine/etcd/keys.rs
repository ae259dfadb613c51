//! The keys of a lock: those of `etcdctl lock` and of Go's packages `concurrency` and `recipes`. All other keys are this library's own.
//!
//! | what | key |
//! |---|---|
//! | a place in the queue of a lock, or the lock itself | `NAME/LEASE`, the lease in hexadecimal digits |
//! | the same, where several owners of one client are in the queue, or for a fair lock | `NAME/LEASE/OWNER` |
//! | a reader, a writer | `NAME/read/OWNER`, `NAME/write/OWNER` |
//! | a client, beside each lease that it has | `_leasehold/clients/LEASE` |
//! | a key that was deleted by a takeover | `_leasehold/taken/REVISION/KEY` |
//! | the number of free permits of a semaphore | `_leasehold/semaphore/NAME/free` |
//! | the permits that a guard holds of it, and that are not free | `_leasehold/semaphore/NAME/held/OWNER` |
//! | the count of a latch | `_leasehold/latch/NAME/count` |
//! | the number of all permits of a leased semaphore | `_leasehold/permits/NAME/total` |
//! | so many taken permits of it, whose ids follow each other | `_leasehold/permits/NAME/FIRST-COUNT` |
//! | so many values of a group | `_leasehold/group/NAME/OWNER/COUNT-VALUE`, the first of them |
//! | a change of a number that may be sent again | `_leasehold/changes/REQUEST` |
//!
//! The keys of locks and groups are bound to the lease of their client or of their hold; those of taken permits, too, unless these
//! have none. A semaphore may have a lease of its own. A change is kept for some time after it was made. Numbers and the
//! permits of a semaphore, which are only counted, have no lease. Keys of locks have no value; [`escaped`] is how `NAME` is written
//! below `_leasehold/`, and values are in the value of a group's key.

use crate::engine::{HoldKey, Kind, Resource};
use crate::name::Name;
use crate::owner::{Owner, OwnerId};

/// What this library writes besides locks.
const OURS: &str = "_leasehold/";
const CLIENTS: &str = "_leasehold/clients/";
const CHANGES: &str = "_leasehold/changes/";
const GROUPS: &str = "_leasehold/group/";
const TAKEN: &str = "_leasehold/taken/";

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

    pub(super) fn below(prefix: String) -> Self {
        let key = prefix.into_bytes();
        let mut end = key.clone();
        // The prefix ends with a slash.
        end.pop();
        end.push(b'/' + 1);
        Self { key, end }
    }

    /// The keys that begin with a text; all keys if it is empty.
    pub(super) fn beginning_with(text: &str) -> Self {
        let mut end = text.as_bytes().to_vec();
        match end.last_mut() {
            // No byte of a text is the greatest one.
            Some(last) => *last += 1,
            None => return Self { key: vec![0], end: vec![0] },
        }
        Self { key: text.into(), end }
    }

    /// Those of the keys that are behind this one.
    pub(super) fn behind(self, key: &[u8]) -> Self {
        Self { key: [key, &[0]].concat(), ..self }
    }
}

/// All keys of a name.
pub(super) fn all(resource: &Resource) -> Span {
    Span::below(if is_lock(resource.kind) { format!("{}/", resource.name) } else { own(resource) })
}

/// Whether the keys of a kind are those of a queue for a lock.
pub(super) fn is_lock(kind: Kind) -> bool {
    !matches!(kind, Kind::Semaphore | Kind::Latch | Kind::LeasedSemaphore | Kind::Group)
}

/// What all keys of a semaphore, a latch or a group begin with, which no key of a lock does.
fn own(resource: &Resource) -> String {
    let kind = match resource.kind {
        Kind::LeasedSemaphore => "permits",
        kind => kind.label(),
    };
    format!("_leasehold/{kind}/{}/", escaped(resource.name.as_str()))
}

/// A name or a value without slashes and line ends.
pub(super) fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2F").replace('\n', "%0A")
}

/// The key with the number of a semaphore or a latch.
pub(super) fn number(resource: &Resource) -> Vec<u8> {
    let number = match resource.kind {
        Kind::LeasedSemaphore => "total",
        Kind::Latch => "count",
        _ => "free",
    };
    (own(resource) + number).into_bytes()
}

/// The keys of the permits that guards hold of a semaphore.
pub(super) fn all_counted(resource: &Resource) -> Span {
    Span::below(own(resource) + "held/")
}

/// The key of the permits that this guard holds.
pub(super) fn counted(hold_key: &HoldKey) -> Vec<u8> {
    format!("{}held/{}", own(&hold_key.resource), hold_key.owner).into_bytes()
}

/// The key of permits of a leased semaphore whose ids follow each other.
pub(super) fn run(resource: &Resource, first: u128, count: u32) -> Vec<u8> {
    format!("{}{first:032x}-{count}", own(resource)).into_bytes()
}

/// The first id and the number of the permits of a key, if it is one of permits.
pub(super) fn parse_run(resource: &Resource, key: &[u8]) -> Option<(u128, u32)> {
    let (first, count) = std::str::from_utf8(key).ok()?.strip_prefix(&own(resource))?.split_once('-')?;
    Some((u128::from_str_radix(first, 16).ok()?, count.parse().ok()?))
}

/// The keys of permits with these ids, both included, that begin there.
pub(super) fn runs(resource: &Resource, first: u128, last: u128) -> Span {
    let at = |id: u128| format!("{}{id:032x}", own(resource)).into_bytes();
    // The first sign after the one behind an id.
    let mut end = at(last);
    end.push(b'-' + 1);
    Span { key: at(first), end }
}

/// All values of a group that an owner has.
pub(super) fn sets(resource: &Resource, owner: OwnerId) -> Span {
    Span::below(format!("{}{owner}/", own(resource)))
}

/// The key of values of a group, which are [escaped]. The sets of one owner have no value in common, so the first value tells them
/// apart; and the count tells a set from what is left of it when others were taken away.
pub(super) fn set(resource: &Resource, owner: OwnerId, count: usize, first: &str) -> Vec<u8> {
    format!("{}{owner}/{count}-{first}", own(resource)).into_bytes()
}

/// The value of the key of a hold: the values of a group, one in each line. That of a lock has none.
pub(super) fn value(resource: &Resource) -> Vec<u8> {
    lines(resource.values().iter().map(|value| escaped(value)))
}

/// Values of a group that are [escaped], one in each line.
pub(super) fn lines(values: impl IntoIterator<Item = String>) -> Vec<u8> {
    values.into_iter().collect::<Vec<_>>().join("\n").into_bytes()
}

/// The keys of all groups whose name is this one, or begins so.
pub(super) fn groups(prefix: &str, is_whole: bool) -> Span {
    let prefix = format!("{GROUPS}{}", escaped(prefix));
    if is_whole { Span::below(prefix + "/") } else { Span::beginning_with(&prefix) }
}

/// The name and the owner of the key of a group.
pub(super) fn parse_set(key: &[u8]) -> Option<(Name, OwnerId)> {
    let (name, rest) = std::str::from_utf8(key).ok()?.strip_prefix(GROUPS)?.split_once('/')?;
    let name = name.replace("%0A", "\n").replace("%2F", "/").replace("%25", "%");
    let (owner, _) = rest.split_once('/')?;
    Some((Name::new("", &name).ok()?, owner.parse::<Owner>().ok()?.full()?))
}

/// The key that keeps the result of a change.
pub(super) fn change(request: OwnerId) -> Vec<u8> {
    format!("{CHANGES}{request}").into_bytes()
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
    parsed_owner(owner)
}

fn parsed_owner(text: &str) -> Option<OwnerId> {
    text.split('.').next()?.parse::<Owner>().ok()?.full()
}

/// A key as a place in the queue of a lock, whichever program has written it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) name: Name,
    /// Which half of a read-write lock it stands for; a lock for any other.
    pub(super) kind: Kind,
    /// The lease of its client, if it is in the key; otherwise that is the one that the key is bound to.
    pub(super) client: Option<i64>,
}

/// Parses a key; `None` if it has not the form of a place in a queue. Whether it is one, its value and its lease tell.
pub(super) fn parse(key: &[u8]) -> Option<Parsed> {
    let key = std::str::from_utf8(key).ok().filter(|key| !key.starts_with(OURS))?;
    let (before, last) = key.rsplit_once('/')?;
    let is_owned = parsed_owner(last).is_some();
    // Go's readers and writers have a decimal number, which is longer than any lease.
    let is_half = is_owned || last.len() > LONGEST_LEASE && last.bytes().all(|byte| byte.is_ascii_digit());
    let half = [("/read", Kind::Read), ("/write", Kind::Write)].iter().find_map(|(half, kind)| {
        let name = before.strip_suffix(half).filter(|_| is_half)?;
        Some((name, *kind, None))
    });
    let (name, kind, client) = match (half, is_owned) {
        (Some(half), _) => half,
        (None, true) => {
            let (name, hex) = before.rsplit_once('/')?;
            (name, Kind::Lock, Some(parsed_lease(hex)?))
        }
        (None, false) => (before, Kind::Lock, Some(parsed_lease(last)?)),
    };
    Some(Parsed { name: Name::new("", name).ok()?, kind, client })
}

/// How many hexadecimal digits a lease has at most.
const LONGEST_LEASE: usize = 16;

/// A lease as a key has it: in lower-case hexadecimal digits without leading zeros.
fn parsed_lease(text: &str) -> Option<i64> {
    let lease = i64::from_str_radix(text, 16).ok().filter(|lease| *lease > 0)?;
    (format!("{lease:x}") == text).then_some(lease)
}

fn rest<'a>(resource: &Resource, key: &'a [u8]) -> Option<&'a str> {
    let key = std::str::from_utf8(key).ok()?;
    key.strip_prefix(resource.name.as_str())?.strip_prefix('/')
}

/// The key that tells that another one, which was created at this revision, was deleted by a takeover.
pub(super) fn taken(key: &[u8], created: i64) -> Vec<u8> {
    [format!("{TAKEN}{created:x}/").as_bytes(), key].concat()
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
    fn the_keys_of_numbers_permits_and_groups_are_below_a_prefix_of_their_own() {
        let text = |key: Vec<u8>| String::from_utf8(key).unwrap();
        let of = |kind| Resource::new(kind, Name::new("", "a/b%").unwrap());
        let [semaphore, leased, latch] = [Kind::Semaphore, Kind::LeasedSemaphore, Kind::Latch].map(of);
        assert_eq!(text(number(&semaphore)), "_leasehold/semaphore/a%2Fb%25/free");
        assert_eq!(text(number(&leased)), "_leasehold/permits/a%2Fb%25/total");
        assert_eq!(text(number(&latch)), "_leasehold/latch/a%2Fb%25/count");
        let id = "71b96ce8-2746-4f0e-9d1a-0f0d5a3b8c11:7";
        let owner = id.parse::<Owner>().unwrap().full().unwrap();
        let held = HoldKey { resource: semaphore, owner, amount: 2 };
        assert_eq!(text(counted(&held)), format!("_leasehold/semaphore/a%2Fb%25/held/{id}"));
        assert_eq!(text(run(&leased, 255, 3)), format!("_leasehold/permits/a%2Fb%25/{:0>32}-3", "ff"));
        assert_eq!(text(change(owner)), format!("_leasehold/changes/{id}"));
        let resource = Resource::group(leased.name.clone(), ["d\n", "c/", ""]).unwrap();
        let key = set(&resource, owner, 3, "");
        assert_eq!(text(key.clone()), format!("_leasehold/group/a%2Fb%25/{id}/3-"));
        assert_eq!(text(value(&resource)), "\nc%2F\nd%0A");
        assert_eq!(parse_set(&key), Some((resource.name, owner)));
    }

    #[test]
    fn permits_are_found_by_the_ids_that_they_may_have() {
        let leased = Resource::new(Kind::LeasedSemaphore, Name::new("", "n").unwrap());
        let Span { key, end } = runs(&leased, 16, 31);
        let has = |other: Vec<u8>| key <= other && other < end;
        assert!(
            [16, 20, 31].into_iter().all(|first| has(run(&leased, first, 1)) && has(run(&leased, first, 99)))
        );
        assert!(!has(run(&leased, 15, 9)) && !has(run(&leased, 32, 1)) && !has(number(&leased)));
        assert_eq!(parse_run(&leased, &run(&leased, 16, 7)), Some((16, 7)));
        assert_eq!(parse_run(&leased, &number(&leased)), None);
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

    #[test]
    fn a_key_is_parsed_as_a_place_in_a_queue_if_it_has_the_form_of_one() {
        let lock = resource(Kind::Lock);
        let me = OwnerId { client: ClientId::random(), number: 7 };
        let place =
            |name: &str, kind, client| Some(Parsed { name: Name::new("", name).unwrap(), kind, client });
        let own = |kind, repetition| owned(&lock.of_kind(kind), 31, me, repetition);
        assert_eq!(parse(&plain(&lock, 31)), place("stock", Kind::Lock, Some(31)));
        assert_eq!(parse(&own(Kind::Fair, 2)), place("stock", Kind::Lock, Some(31)));
        for half in [Kind::Read, Kind::Write] {
            assert_eq!(parse(&own(half, 0)), place("stock", half, None));
        }
        assert_eq!(parse(b"stock/read/1700000000000000001"), place("stock", Kind::Read, None), "Go");
        assert_eq!(
            parse(b"stock/read/31"),
            place("stock/read", Kind::Lock, Some(0x31)),
            "a name as any other"
        );
        assert_eq!(parse(b"a/b/1f"), place("a/b", Kind::Lock, Some(31)));
        for other in [
            &b"stock/001f"[..],
            b"stock/1F",
            b"stock/-1f",
            b"stock/",
            b"stock",
            b"/1f",
            b"stock/value",
            b"stock/1f/value",
            b"\xff/1f",
            b"_leasehold/clients/1f",
        ] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_keys_that_begin_with_a_text_are_a_span() {
        let has = |span: &Span, key: &[u8]| span.key.as_slice() <= key && key < span.end.as_slice();
        let span = Span::beginning_with("st좌");
        assert!(has(&span, "st좌".as_bytes()) && has(&span, "st좌x/1f".as_bytes()));
        assert!(!has(&span, b"st") && !has(&span, "st죄".as_bytes()) && !has(&span, b"su"));
        let rest = span.behind("st좌a".as_bytes());
        assert!(!has(&rest, "st좌a".as_bytes()) && has(&rest, "st좌a/".as_bytes()));
        // etcd's way to say: all keys.
        assert_eq!(Span::beginning_with(""), Span { key: vec![0], end: vec![0] });
        assert_eq!(Span::beginning_with("").behind(b"a"), Span { key: b"a\0".to_vec(), end: vec![0] });
    }
}
