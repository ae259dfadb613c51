//! What is held under a key: each request is sent where the reply to the one before is read.

use std::sync::Arc;

use super::commands::{self, Recognised};
use super::net::{Call, OnReply, Reply, Value};
use super::{Parts, completed};
use crate::engine::remote::store::{Done, StoreError, report};
use crate::engine::{Found, Listed, Resource};
use crate::error::ServerError;
use crate::name::Name;

/// The lock that a hash is, if it is one. `is_named`: a caller has named the key, which need not be a hash; if there is one and it
/// is no lock, that is an error, because the caller would take the lock to be free.
pub(super) fn hash(parts: &Arc<Parts>, name: Name, is_named: bool, done: impl Done<Listed>) {
    let (call, of) = (commands::length(&name), Arc::clone(parts));
    let on_reply = completed(done, move |done, reply: Reply| match reply {
        Err(StoreError::Refused(ServerError::NotALock)) if is_named => {
            report(&of.events, |events| events.requesting());
            string(&of, name, true, done);
        }
        Err(StoreError::Refused(ServerError::NotALock)) => done.done(Ok(Listed::default())),
        Ok(Value::Int(length)) => fields(&of, name, length, is_named, done),
        Ok(other) => done.done(Err(StoreError::Refused(commands::unexpected(&other)))),
        Err(error) => done.done(Err(error)),
    });
    parts.topology.any().send(call, on_reply);
}

/// The same, with the number of its fields.
fn fields(parts: &Arc<Parts>, name: Name, length: i64, is_named: bool, done: impl Done<Listed>) {
    let Some(call) = commands::fields(&name, length) else { return done.done(Ok(Listed::default())) };
    let of = Arc::clone(parts);
    let on_reply = completed(done, move |done, reply: Reply| {
        if matches!(&reply, Ok(Value::Array(fields)) if fields.is_empty()) {
            // It is gone since.
            return done.done(Ok(Listed::default()));
        }
        recognised(&of, name, reply, is_named, done, |reply| Recognised::by_fields(reply, length));
    });
    further(parts, call, on_reply);
}

/// The lock that a string is, if it is one. `is_named`: as for a hash; the caller says that it is one.
pub(super) fn string(parts: &Arc<Parts>, name: Name, is_named: bool, done: impl Done<Listed>) {
    let (call, of) = (commands::beginning(&name), Arc::clone(parts));
    let on_reply = completed(done, move |done, reply: Reply| {
        recognised(&of, name, reply, is_named, done, |reply| Recognised::by_beginning(reply, is_named));
    });
    parts.topology.any().send(call, on_reply);
}

/// Queries the holder of a lock that was recognised by a reply.
fn recognised(
    parts: &Arc<Parts>,
    name: Name,
    reply: Reply,
    is_named: bool,
    done: impl Done<Listed>,
    recognise: impl FnOnce(&Value) -> Option<Recognised>,
) {
    let no_lock = move || {
        if is_named { Err(StoreError::Refused(ServerError::NotALock)) } else { Ok(Listed::default()) }
    };
    let found = match reply {
        Ok(reply) => recognise(&reply),
        Err(StoreError::Refused(ServerError::NotALock)) => None,
        Err(error) => return done.done(Err(error)),
    };
    let Some(found) = found else { return done.done(no_lock()) };
    let resource = Resource::new(found.kind, name);
    let call = found.holder(&resource);
    let on_reply = completed(done, move |done, reply: Reply| {
        let holder =
            reply.and_then(|reply| commands::decode_holder(&reply, true).map_err(StoreError::Refused));
        done.done(match holder {
            Ok(result) => {
                let found = result.holding.map(|holding| Found {
                    resource,
                    holding,
                    holders: found.holders,
                    client: None,
                    process: None,
                });
                Ok(Listed { found: found.into_iter().collect(), ..Listed::default() })
            }
            // It has changed since, or has no count.
            Err(StoreError::Refused(ServerError::NotALock)) => no_lock(),
            Err(error) => Err(error),
        });
    });
    further(parts, call, on_reply);
}

/// Sends a request that follows from the reply to another one.
fn further(parts: &Arc<Parts>, call: Call, on_reply: Box<dyn OnReply>) {
    report(&parts.events, |events| events.requesting());
    parts.topology.any().send(call, on_reply);
}
