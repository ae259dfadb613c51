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
const KEYS: u32 = 500;
/// How many fields of a large hash are read. The server returns a small one as a whole.
const FIELDS: u32 = 30;
/// The last byte of a string that is read: an owner is shorter.
const LAST_BYTE: u32 = 99;

/// The next keys of the type that is searched.
pub(in super::super) fn scan(pattern: &Pattern, cursor: Cursor) -> Call {
    let call =
        Call::command("SCAN").arg(cursor.at).arg("MATCH").arg(pattern.for_scan()).arg("COUNT").arg(KEYS);
    call.arg("TYPE").arg(if cursor.shape == Shape::Hash { "hash" } else { "string" })
}

/// The keys that match, and where the search continues.
pub(in super::super) fn scanned(
    reply: &Value,
    pattern: &Pattern,
    cursor: Cursor,
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
        _ if at > 0 => Some(Cursor { at, ..cursor }),
        Cursor { shape: Shape::Hash, with_strings: true, .. } => {
            Some(Cursor { at, shape: Shape::String, ..cursor })
        }
        _ => None,
    };
    Ok(Listed { keys, next, ..Listed::default() })
}

/// Some fields of a hash, which are all of a small one.
pub(in super::super) fn fields(name: &Name) -> Call {
    Call::command("HSCAN").key(name.as_str()).arg(0).arg("COUNT").arg(FIELDS)
}

/// The beginning of a string.
pub(in super::super) fn beginning(name: &Name) -> Call {
    Call::command("GETRANGE").key(name.as_str()).arg(0).arg(LAST_BYTE)
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

    /// The lock that fields are of, if it is one.
    pub(in super::super) fn by_fields(reply: &Value) -> Option<Self> {
        let Value::Array(parts) = reply else { return None };
        let [Value::Text(cursor), Value::Array(fields)] = parts.as_slice() else { return None };
        let (is_whole, fields) = (cursor == b"0", fields.as_chunks().0);
        let mode =
            fields.iter().find_map(|[field, mode]| (*field == Value::Text(b"mode".to_vec())).then_some(mode));
        let owners =
            || fields.iter().filter(|[field, count]| is_owner(field) && number(count).is_some()).count();
        match mode {
            Some(Value::Text(mode)) if mode == b"write" => return Some(Self::new(Kind::Write, 1)),
            Some(Value::Text(mode)) if mode == b"read" => return Some(Self::new(Kind::Read, owners())),
            Some(_) => return None,
            None => {}
        }
        match fields {
            [[field, count]] if is_whole && is_owner(field) && number(count).is_some() => {
                Some(Self::new(Kind::Lock, 1))
            }
            // So many owners, each with a count, can only read.
            _ if !is_whole && owners() == fields.len() => Some(Self::new(Kind::Read, owners())),
            _ => Self::group(fields),
        }
    }

    /// The group with these fields: of each value one names its owner, in `VALUE:OWNER:expire_time`.
    fn group(fields: &[[Value; 2]]) -> Option<Self> {
        let mut owners = BTreeSet::new();
        let mut values = Vec::new();
        for [field, _] in fields {
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

    /// The lock that a string is. `is_named`: the caller says that it is one, and another library may have written it. A number
    /// is the count of a semaphore or a latch.
    pub(in super::super) fn by_beginning(reply: &Value, is_named: bool) -> Option<Self> {
        let is_lock = match reply {
            Value::Text(text) if text.is_empty() => false,
            Value::Text(_) => owner(reply).is_some() || (is_named && number(reply).is_none()),
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

    fn by_fields(cursor: &str, fields: &[&str]) -> Option<(Kind, usize)> {
        let fields = fields.iter().map(|field| value(&field.replace('@', OWNER))).collect();
        let reply = Value::Array(vec![value(cursor), Value::Array(fields)]);
        Recognised::by_fields(&reply).map(|found| (found.kind, found.holders))
    }

    #[test]
    fn a_hash_is_recognised_by_its_fields() {
        let writer = format!("{OWNER}:write");
        let reader = OWNER.replace(":42", ":43");
        for (cursor, fields, found) in [
            ("0", &["@", "1"][..], Some((Kind::Lock, 1))),
            ("0", &["mode", "read", "@", "1", &reader, "2"], Some((Kind::Read, 2))),
            ("0", &["mode", "write", &writer, "1"], Some((Kind::Write, 1))),
            ("7", &["@", "1", &reader, "1"], Some((Kind::Read, 2))),
            ("0", &["F", "@", "F:@:expire_time", "99", "F:@:lock_count", "1"], Some((Kind::Group, 1))),
            ("7", &["F:@:expire_time", "99"], Some((Kind::Group, 1))),
            ("0", &[], None),
            ("0", &["name", "Ann"], None),
            ("0", &["@", "Ann"], None),
            ("0", &["@", "1", &reader, "1"], None),
            ("0", &["mode", "dark", "@", "1"], None),
            ("7", &["@", "1", "name", "Ann"], None),
            ("0", &["F:expire_time", "1"], None),
        ] {
            assert_eq!(by_fields(cursor, fields), found, "{fields:?}");
        }
    }

    #[test]
    fn a_string_is_a_lock_of_ours_or_what_the_caller_calls_one() {
        let is_lock = |text, is_named| Recognised::by_beginning(&value(text), is_named).is_some();
        for (text, alone, named) in
            [(OWNER, true, true), ("some token", false, true), ("5", false, false), ("", false, false)]
        {
            assert_eq!((is_lock(text, false), is_lock(text, true)), (alone, named), "{text}");
        }
    }
}
