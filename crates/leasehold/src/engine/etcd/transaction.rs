//! Transactions: conditions, and what is done if they hold or do not.

use super::calls;
use super::keys::Span;
use super::link::Link;
use super::messages::{
    Against, Compare, Compared, Delete, KeyValue, Operation, Order, Outcome, Put, Range, Relation, Request,
    Response, SortBy, Transacted, Transaction,
};
use crate::engine::remote::store::StoreError;
use crate::error::ServerError;

/// What a transaction has done.
pub(super) struct Done {
    /// Whether its conditions held.
    pub(super) held: bool,
    /// The revision of the store after it.
    pub(super) revision: i64,
    outcomes: Vec<Outcome>,
}

impl Done {
    /// The keys that its reads have found, in the order of the reads.
    pub(super) fn found(&self) -> impl Iterator<Item = &[KeyValue]> {
        read_by(&self.outcomes)
    }

    /// The key that each transaction in it has read, if its conditions held, in their order.
    pub(super) fn found_by_each(&self) -> impl Iterator<Item = Option<&KeyValue>> {
        self.outcomes.iter().filter_map(|outcome| match &outcome.response {
            Some(Response::Transaction(done)) => Some(read_by(&done.outcomes).next().and_then(<[_]>::first)),
            _ => None,
        })
    }

    /// How many keys it has deleted.
    pub(super) fn deleted(&self) -> usize {
        let deleted = |outcome: &Outcome| match &outcome.response {
            Some(Response::Delete(deleted)) => usize::try_from(deleted.count).unwrap_or_default(),
            _ => 0,
        };
        self.outcomes.iter().map(deleted).sum()
    }
}

fn read_by(outcomes: &[Outcome]) -> impl Iterator<Item = &[KeyValue]> {
    outcomes.iter().filter_map(|outcome| match &outcome.response {
        Some(Response::Range(ranged)) => Some(ranged.found.as_slice()),
        _ => None,
    })
}

/// Carries a transaction out.
pub(super) async fn transact(link: &Link, transaction: Transaction) -> Result<Done, StoreError> {
    transact_under(link, link.client.lease, transaction).await
}

/// Carries a transaction out that binds keys to this lease; zero if to several.
pub(super) async fn transact_under(
    link: &Link,
    lease: i64,
    transaction: Transaction,
) -> Result<Done, StoreError> {
    let transacted = link.call_under(lease, calls::TRANSACTION, transaction).await?;
    let Transacted { header, held, outcomes } = transacted;
    let header = header.ok_or_else(|| {
        StoreError::Unknown(ServerError::Unavailable("the reply has no revision: is this etcd?".into()))
    })?;
    Ok(Done { held, revision: header.revision, outcomes })
}

/// Every key of a span, or the only one, was created at this revision; at zero: there is none.
pub(super) fn created(span: &Span, revision: i64) -> Compare {
    Compare {
        relation: Relation::Equal.into(),
        compared: Compared::Created.into(),
        key: span.key.clone(),
        against: Some(Against::Created(revision)),
        end: span.end.clone(),
    }
}

/// The key is there, and has no value.
pub(super) fn has_no_value(key: &[u8]) -> Compare {
    Compare {
        relation: Relation::Equal.into(),
        compared: Compared::Value.into(),
        key: key.to_vec(),
        against: Some(Against::Value(Vec::new())),
        end: Vec::new(),
    }
}

/// No key of a span was written after this revision. Keys may have been deleted.
pub(super) fn not_written_since(span: &Span, revision: i64) -> Compare {
    Compare {
        relation: Relation::Less.into(),
        compared: Compared::Written.into(),
        key: span.key.clone(),
        against: Some(Against::Written(revision + 1)),
        end: span.end.clone(),
    }
}

/// A key was last written at this revision.
pub(super) fn written(key: &[u8], revision: i64) -> Compare {
    Compare {
        relation: Relation::Equal.into(),
        compared: Compared::Written.into(),
        key: key.to_vec(),
        against: Some(Against::Written(revision)),
        end: Vec::new(),
    }
}

pub(super) fn put(key: &[u8], value: Vec<u8>, lease: i64) -> Operation {
    operation(Request::Put(Put { key: key.to_vec(), value, lease, keeps_value: false }))
}

/// Binds a key that is there to this lease.
pub(super) fn put_again(key: &[u8], lease: i64) -> Operation {
    operation(Request::Put(Put { key: key.to_vec(), value: Vec::new(), lease, keeps_value: true }))
}

pub(super) fn delete(key: &[u8]) -> Operation {
    delete_all(&Span::only(key.to_vec()))
}

pub(super) fn delete_all(span: &Span) -> Operation {
    operation(Request::Delete(Delete { key: span.key.clone(), end: span.end.clone() }))
}

pub(super) fn read(range: Range) -> Operation {
    operation(Request::Range(range))
}

/// Reads the only key of a span with its lease, if conditions hold, as a step of another transaction.
pub(super) fn read_if(compare: Vec<Compare>, span: &Span) -> Operation {
    let then = vec![read(Range { keys_only: false, ..oldest(span, 1) })];
    operation(Request::Transaction(Transaction { compare, then, otherwise: Vec::new() }))
}

/// So many keys of a span, in the order of the keys: the server need not sort them, and looks at no others.
pub(super) fn first(span: Span, limit: i64) -> Range {
    Range { key: span.key, end: span.end, limit, keys_only: true, ..Range::default() }
}

/// The oldest keys of a span; all of them without a limit.
pub(super) fn oldest(span: &Span, limit: i64) -> Range {
    Range {
        key: span.key.clone(),
        end: span.end.clone(),
        limit,
        order: Order::Ascending.into(),
        sort_by: SortBy::Created.into(),
        keys_only: true,
        created_until: 0,
    }
}

/// All keys of a span with their values.
pub(super) fn values(span: &Span) -> Range {
    Range { keys_only: false, order: Order::None.into(), sort_by: SortBy::Key.into(), ..oldest(span, 0) }
}

/// The keys of a span that were created no later than this revision, the newest first.
pub(super) fn newest(span: &Span, created_until: i64, limit: i64) -> Range {
    Range { order: Order::Descending.into(), created_until, ..oldest(span, limit) }
}

fn operation(request: Request) -> Operation {
    Operation { request: Some(request) }
}
