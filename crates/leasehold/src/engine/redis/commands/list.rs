//! The requests of a listing: which keys there are, and which of them are locks.
//!
//! A lock is recognised by its shape alone. Every request is bounded, whatever is under a key: a foreign hash may have millions
//! of fields, and a string hundreds of megabytes.

use std::collections::BTreeSet;

use super::{group, is_owner_of_a_port, owner, query};
use crate::engine::redis::net::{Call, Value};
use crate::engine::{Cursor, Kind, Listed, Resource, Shape};
use crate::error::ServerError;
use crate::name::Name;
use crate::pattern::Pattern;

/// How many keys the server looks at for one request: some tenths of a millisecond.
const KEYS: u32 = 300;
/// Up to how many fields of a hash are read. More take a part of a millisecond …
const FIELDS: i64 = 1000;
/// … and of such a hash so many.
const SAMPLE: u32 = 30;
/// An owner has fewer bytes.
const LONGEST_OWNER: usize = 99;

/// The next keys of the type that is searched.
pub(in super::super) fn scan(pattern: &Pattern, cursor: &Cursor) -> Call {
    let call =
        Call::command("SCAN").arg(cursor.at).arg("MATCH").arg(pattern.for_scan()).arg("COUNT").arg(KEYS);
    call.arg("TYPE").arg(if cursor.shape == Shape::Hash { "hash" } else { "string" })
}

/// The keys that match, and where the search continues.
pub(in super::super) fn scanned(
    reply: &Value,
    pattern: &Pattern,
    cursor: &Cursor,
) -> Result<Listed, ServerError> {
    let unexpected = || super::unexpected(reply);
    let Value::Array(parts) = reply else { return Err(unexpected()) };
    let [Value::Text(at), Value::Array(keys)] = parts.as_slice() else { return Err(unexpected()) };
    let at = text(at).and_then(|at| at.parse().ok()).ok_or_else(unexpected)?;
    // A key that no lock can have as its name is none.
    let names = keys.iter().filter_map(|key| if let Value::Text(key) = key { text(key) } else { None });
    let names =
        names.filter_map(|key| Name::new("", key).ok()).filter(|name| pattern.matched(name).is_some());
    let keys = names.map(|name| (name, cursor.shape)).collect();
    let next = match cursor {
        _ if at > 0 => Some(Cursor { at, ..cursor.clone() }),
        Cursor { shape: Shape::Hash, with_strings: true, .. } => {
            Some(Cursor { at, shape: Shape::String, ..cursor.clone() })
        }
        _ => None,
    };
    Ok(Listed { keys, next, ..Listed::default() })
}

/// How many fields a hash has.
pub(in super::super) fn length(name: &Name) -> Call {
    Call::command("HLEN").key(name.as_str())
}

/// The names of the fields of a hash of this length, or of some of them. Values may be large, and are not read.
pub(in super::super) fn fields(name: &Name, length: i64) -> Option<Call> {
    match length {
        ..=0 => None,
        1..=FIELDS => Some(Call::command("HKEYS").key(name.as_str())),
        _ => Some(Call::command("HRANDFIELD").key(name.as_str()).arg(SAMPLE)),
    }
}

/// The beginning of a string.
pub(in super::super) fn beginning(name: &Name) -> Call {
    Call::command("GETRANGE").key(name.as_str()).arg(0).arg(LONGEST_OWNER)
}

/// A lock that a key was recognised as.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Recognised {
    pub(in super::super) kind: Kind,
    pub(in super::super) holders: usize,
    /// The fields of values of a group. The values themselves cannot be read from them.
    values: Vec<Vec<u8>>,
}

impl Recognised {
    fn new(kind: Kind, holders: usize) -> Self {
        Self { kind, holders, values: Vec::new() }
    }

    /// The lock that a hash of this length is, if it is one.
    pub(in super::super) fn by_fields(reply: &Value, length: i64) -> Option<Self> {
        let Value::Array(fields) = reply else { return None };
        let is_writer = |field: &Value| {
            matches!(field, Value::Text(field) if field.strip_suffix(b":write").is_some_and(
                |rest| is_owner(&Value::Text(rest.to_vec()))))
        };
        let owners = fields.iter().filter(|field| is_owner(field)).count();
        if fields.contains(&Value::Text(b"mode".to_vec())) {
            if fields.iter().any(is_writer) {
                return Some(Self::new(Kind::Write, 1));
            }
            return (owners > 0).then_some(Self::new(Kind::Read, owners));
        }
        match fields.as_slice() {
            [field] if is_owner(field) => Some(Self::new(Kind::Lock, 1)),
            // A sample, in which the mode is missing: so many owners can only read.
            _ if length > FIELDS && owners == fields.len() => {
                Some(Self::new(Kind::Read, usize::try_from(length - 1).unwrap_or(owners)))
            }
            _ => Self::group(fields),
        }
    }

    /// The group with these fields: of each value one names its owner, in `VALUE:OWNER:expire_time`.
    fn group(fields: &[Value]) -> Option<Self> {
        let mut owners = BTreeSet::new();
        let mut values = Vec::new();
        for field in fields {
            let Value::Text(field) = field else { continue };
            let Some(rest) = field.strip_suffix(b":expire_time") else { continue };
            let mut colons =
                rest.iter().enumerate().rev().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
            let Some(at) = colons.nth(1) else { continue };
            if let Some(owner) = owner(&Value::Text(rest[at + 1..].to_vec())) {
                owners.insert(owner);
                values.push(rest[..at].to_vec());
            }
        }
        let holders = owners.len();
        (holders > 0).then_some(Self { kind: Kind::Group, holders, values })
    }

    /// The lock that a string is. `is_named`: the caller says that it is one, and another library may have written it, with any
    /// value but a number, which is the count of a semaphore or a latch.
    pub(in super::super) fn by_beginning(reply: &Value, is_named: bool) -> Option<Self> {
        let is_lock = match reply {
            Value::Text(_) if is_named => number(reply).is_none(),
            // It may be longer than what was read.
            Value::Text(text) => text.len() <= LONGEST_OWNER && owner(reply).is_some(),
            _ => false,
        };
        is_lock.then_some(Self::new(Kind::SetNx, 1))
    }

    /// Queries one of the holders.
    pub(in super::super) fn holder(&self, resource: &Resource) -> Call {
        if self.kind == Kind::Group {
            group::holder_of(resource, &self.values)
        } else {
            query(resource, None)
        }
    }
}

fn is_owner(field: &Value) -> bool {
    owner(field).is_some() || is_owner_of_a_port(field)
}

fn number(value: &Value) -> Option<i64> {
    if let Value::Text(value) = value { text(value)?.parse().ok() } else { None }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "1f8e9c8a-6e0f-4c0a-9a55-0d4c1c1f0001:42";

    fn value(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }

    fn by_fields(length: i64, fields: &[&str]) -> Option<(Kind, usize)> {
        let fields = fields.iter().map(|field| value(&field.replace('@', OWNER))).collect();
        Recognised::by_fields(&Value::Array(fields), length).map(|found| (found.kind, found.holders))
    }

    #[test]
    fn a_hash_is_recognised_by_its_fields() {
        let reader = OWNER.replace(":42", ":43");
        for (length, fields, found) in [
            (1, &["@"][..], Some((Kind::Lock, 1))),
            (3, &["mode", "@", &reader], Some((Kind::Read, 2))),
            (2, &["mode", "@:write"], Some((Kind::Write, 1))),
            (3, &["mode", "@:write", "@"], Some((Kind::Write, 1))),
            (5001, &["@", &reader], Some((Kind::Read, 5000))),
            (3, &["F", "F:@:expire_time", "F:@:lock_count"], Some((Kind::Group, 1))),
            (5000, &["F:@:expire_time", "G"], Some((Kind::Group, 1))),
            (0, &[], None),
            (1, &["name"], None),
            (2, &["@", &reader], None),
            (2, &["mode", "name"], None),
            (5000, &["@", "name"], None),
            (1, &["F:expire_time"], None),
            (1, &["F:not:an owner:expire_time"], None),
        ] {
            assert_eq!(by_fields(length, fields), found, "{fields:?}");
        }
    }

    #[test]
    fn values_of_a_hash_are_not_read() {
        let name = Name::new("", "n").unwrap();
        let command = |length| fields(&name, length).map(|call| format!("{call:?}"));
        assert_eq!(command(0), None);
        assert!(command(1000).unwrap().contains("HKEYS") && command(1001).unwrap().contains("HRANDFIELD"));
    }

    #[test]
    fn a_string_is_a_lock_of_ours_or_what_the_caller_calls_one() {
        let is_lock = |text, is_named| Recognised::by_beginning(&value(text), is_named).is_some();
        for (text, alone, named) in [
            (OWNER, true, true),
            ("some token", false, true),
            ("5", false, false),
            ("", false, true),
            (&"x".repeat(100), false, true),
            (&format!("{OWNER}{}", "2".repeat(99)), false, true),
        ] {
            assert_eq!((is_lock(text, false), is_lock(text, true)), (alone, named), "{text}");
        }
    }
}
