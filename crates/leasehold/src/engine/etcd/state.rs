//! The keys of a number, of permits or of a group: read together, and changed if nothing was changed meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::calls;
use super::keys::Span;
use super::link::Link;
use super::messages::{Compare, KeyValue, Operation, Ranged, Transaction};
use super::transaction::{
    created, delete, not_written_since, put, read, transact, transact_under, values, written,
};
use crate::engine::remote::store::StoreError;
use crate::error::ServerError;

/// How many operations a transaction may have in etcd, unless its administrator has changed that.
pub(super) const MOST: usize = 128;

/// Keys and their values at one revision of the store.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) revision: i64,
    /// What was found in each span, in the order of the spans.
    pub(super) found: Vec<Vec<KeyValue>>,
}

impl State {
    /// Reads all keys of some spans at once.
    pub(super) async fn read(link: &Link, spans: &[&Span]) -> Result<Self, StoreError> {
        let then = spans.iter().map(|span| read(values(span))).collect();
        let done = transact(link, Transaction { then, ..Transaction::default() }).await?;
        let found = done.found().map(<[_]>::to_vec).collect();
        Ok(Self { revision: done.revision, found })
    }
}

/// Reads one span.
pub(super) async fn find(link: &Link, span: &Span) -> Result<Vec<KeyValue>, StoreError> {
    let ranged: Ranged = link.call(calls::RANGE, values(span)).await?;
    Ok(ranged.found)
}

/// A change of keys that were read. It is made if they are still as they were.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Step {
    compare: Vec<Compare>,
    then: Vec<Operation>,
    /// Leases that have no keys after it.
    pub(super) ended: Vec<i64>,
}

impl Step {
    pub(super) fn is_empty(&self) -> bool {
        self.then.is_empty()
    }

    /// No key of this span was written since it was read at `revision`.
    pub(super) fn expect_no_writes(&mut self, span: &Span, revision: i64) {
        self.compare.push(not_written_since(span, revision));
    }

    /// The key is there, and was last written when it was read; or it is not there.
    pub(super) fn expect(&mut self, key: &[u8], before: Option<&KeyValue>) {
        self.compare.push(match before {
            Some(before) => written(key, before.mod_revision),
            None => created(&Span::only(key.to_vec()), 0),
        });
    }

    /// The key is there, whatever its value is now.
    pub(super) fn expect_created(&mut self, key: &KeyValue) {
        self.compare.push(created(&Span::only(key.key.clone()), key.create_revision));
    }

    pub(super) fn put(&mut self, key: &[u8], value: Vec<u8>, lease: i64) {
        self.then.push(put(key, value, lease));
    }

    /// Deletes a key that has to be as it was read.
    pub(super) fn remove(&mut self, key: &KeyValue) {
        self.expect(&key.key, Some(key));
        self.then.push(delete(&key.key));
    }

    pub(super) fn push(&mut self, operation: impl IntoIterator<Item = Operation>) {
        self.then.extend(operation);
    }

    /// Makes the change; `None` if something has changed before.
    pub(super) async fn make(self, link: &Link) -> Result<Option<i64>, StoreError> {
        if self.compare.len().max(self.then.len()) > MOST {
            let text = "etcd changes no more than 128 keys at once: name fewer permits that were acquired one by one";
            return Err(StoreError::Refused(ServerError::Denied(text.into())));
        }
        let Self { compare, then, .. } = self;
        let request = Transaction { compare, then, otherwise: Vec::new() };
        // Its keys may have leases of their own.
        let done = transact_under(link, 0, request).await?;
        Ok(done.held.then_some(done.revision))
    }

    /// The same for a step that also writes who the client is.
    pub(super) async fn make_recorded(self, link: &Arc<Link>) -> Result<Option<i64>, StoreError> {
        let made = self.make(link).await?;
        if made.is_some() {
            link.client.is_recorded.store(true, Ordering::Relaxed);
        }
        Ok(made)
    }
}

#[cfg(test)]
impl Step {
    /// Makes the change to keys in memory.
    pub(super) fn apply(&self, keys: &mut Vec<KeyValue>) {
        use super::messages::Request;
        for request in self.then.iter().filter_map(|operation| operation.request.clone()) {
            match request {
                Request::Put(put) => {
                    keys.retain(|key| key.key != put.key);
                    let (key, value, lease) = (put.key, put.value, put.lease);
                    keys.push(KeyValue { key, value, lease, ..KeyValue::default() });
                }
                Request::Delete(delete) if delete.end.is_empty() => {
                    keys.retain(|key| key.key != delete.key);
                }
                Request::Delete(delete) => keys.retain(|key| key.key < delete.key || key.key >= delete.end),
                Request::Range(_) | Request::Transaction(_) => {}
            }
        }
    }
}
