//! What is held under a key: each request is sent where the reply to the one before is read.

use std::sync::Arc;

use super::commands::{self, Recognised};
use super::net::{Reply, Value};
use super::{Parts, completed};
use crate::engine::remote::store::{Done, StoreError};
use crate::engine::{Found, Listed, Resource};
use crate::error::ServerError;
use crate::name::Name;

/// The lock that a hash is, if it is one. `is_named`: the key need not be a hash.
pub(super) fn hash(parts: &Arc<Parts>, name: Name, is_named: bool, done: impl Done<Listed>) {
    let (call, of) = (commands::length(&name), Arc::clone(parts));
    let on_reply = completed(done, move |done, reply: Reply| match reply {
        Err(StoreError::Refused(ServerError::NotALock)) if is_named => string(&of, name, true, done),
        Err(StoreError::Refused(ServerError::NotALock)) => done.done(Ok(Listed::default())),
        Ok(Value::Int(length)) => fields(&of, name, length, done),
        Ok(other) => done.done(Err(StoreError::Refused(commands::unexpected(&other)))),
        Err(error) => done.done(Err(error)),
    });
    parts.topology.any().send(call, on_reply);
}

/// The same, with the number of its fields.
fn fields(parts: &Arc<Parts>, name: Name, length: i64, done: impl Done<Listed>) {
    let Some(call) = commands::fields(&name, length) else { return done.done(Ok(Listed::default())) };
    let of = Arc::clone(parts);
    let on_reply = completed(done, move |done, reply: Reply| {
        recognised(&of, name, reply, done, |reply| Recognised::by_fields(reply, length));
    });
    parts.topology.any().send(call, on_reply);
}

/// The lock that a string is, if it is one. `is_named`: the caller says that it is one.
pub(super) fn string(parts: &Arc<Parts>, name: Name, is_named: bool, done: impl Done<Listed>) {
    let (call, of) = (commands::beginning(&name), Arc::clone(parts));
    let on_reply = completed(done, move |done, reply: Reply| {
        recognised(&of, name, reply, done, |reply| Recognised::by_beginning(reply, is_named));
    });
    parts.topology.any().send(call, on_reply);
}

/// Queries the holder of a lock that was recognised by a reply.
fn recognised(
    parts: &Arc<Parts>,
    name: Name,
    reply: Reply,
    done: impl Done<Listed>,
    recognise: impl FnOnce(&Value) -> Option<Recognised>,
) {
    let found = match reply {
        Ok(reply) => recognise(&reply),
        Err(StoreError::Refused(ServerError::NotALock)) => None,
        Err(error) => return done.done(Err(error)),
    };
    let Some(found) = found else { return done.done(Ok(Listed::default())) };
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
                    process: None,
                });
                Ok(Listed { found: found.into_iter().collect(), ..Listed::default() })
            }
            // It has changed since.
            Err(StoreError::Refused(ServerError::NotALock)) => Ok(Listed::default()),
            Err(error) => Err(error),
        });
    });
    parts.topology.any().send(call, on_reply);
}
