//! Which locks are held, among any number of other keys.
//!
//! A page is a range of a bounded number of keys, without their values; since 3.7 that is without their leases, too. Of each name
//! that may have a place in a queue among them, the server is asked for its oldest key; a lock is found on the page that this key
//! is on. The whole key is read only if it has no value. Who the clients are, and how long their leases last, is asked once for
//! each lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::keys::{self, Span};
use super::link::Link;
use super::messages::{KeyValue, LeaseId, Lives, Ranged, Transaction};
use super::transaction::{created, first, has_no_value, oldest, read, read_if, transact};
use super::view::{AT_ONCE, Record, records_of};
use super::{Cluster, calls, decide};
use crate::engine::remote::store::StoreError;
use crate::engine::{Cursor, Found, Holding, Kind, ListStep, Listed, Resource};
use crate::error::ServerError;
use crate::identity::ClientInfo;
use crate::name::Name;
use crate::owner::OwnerId;
use crate::pattern::Pattern;
use crate::race;

/// How many keys a page has.
const PAGE: i64 = 500;
/// How many readers of one lock are counted.
const READERS: i64 = 100;
/// How many leases are asked for at the same time.
const LEASES: usize = 16;
/// The server tells whole seconds: a lease of which less is left is not over.
const LEAST_LEFT: Duration = Duration::from_millis(1);

/// A lock whose oldest key is a place in a queue.
struct Lock {
    resource: Resource,
    /// That key.
    place: KeyValue,
    /// The lease of its client, if it is in the key.
    client: Option<i64>,
    holders: usize,
}

impl Lock {
    /// The lease of its client.
    fn lease(&self) -> i64 {
        self.client.unwrap_or(self.place.lease)
    }
}

impl Cluster {
    pub(super) async fn list(&self, step: &ListStep) -> Result<Listed, StoreError> {
        match step {
            ListStep::Page(pattern, cursor) => self.page(pattern, cursor).await,
            ListStep::Key(name, _) | ListStep::Name(name) => {
                let mut listed = self.named(name).await?;
                let span = keys::all(&Resource::new(Kind::Group, name.clone()));
                listed.found.extend(self.groups(span, |of| of == name).await?);
                Ok(listed)
            }
        }
    }

    async fn page(&self, pattern: &Pattern, cursor: &Cursor) -> Result<Listed, StoreError> {
        let link = self.link()?;
        let (prefix, is_whole) = pattern.prefix();
        let span = if is_whole { Span::below(format!("{prefix}/")) } else { Span::beginning_with(&prefix) };
        let span = match &cursor.after {
            Some(key) => span.behind(key),
            None => span,
        };
        let Ranged { found: page, .. } = link.call(calls::RANGE, first(span, PAGE)).await?;
        // Of each name whether it has readers.
        let mut names = BTreeMap::<Name, bool>::new();
        for place in &page {
            if let Some(keys::Parsed { name, kind, .. }) = keys::parse(&place.key)
                && pattern.matched(&name).is_some()
            {
                *names.entry(name).or_default() |= kind == Kind::Read;
            }
        }
        let is_here = |key: &[u8]| {
            page.first().is_some_and(|first| first.key.as_slice() <= key)
                && page.last().is_some_and(|last| key <= last.key.as_slice())
        };
        let queues = queues(&link, names.into_iter().collect()).await?;
        let locks = queues.into_iter().filter_map(|(name, queue)| {
            let of = keys::parse(&queue.first()?.key)?;
            (of.name == name && is_here(&queue[0].key)).then(|| lock(name, &of, &queue))
        });
        let mut found = self.held_locks(&link, locks.collect()).await?;
        let is_full = i64::try_from(page.len()).is_ok_and(|length| length >= PAGE);
        let next = page
            .last()
            .filter(|_| is_full)
            .map(|last| Cursor { after: Some(last.key.as_slice().into()), ..cursor.clone() });
        if next.is_none() {
            // All at once, as each acquire reads them.
            let span = keys::groups(&prefix, is_whole);
            found.extend(self.groups(span, |name| pattern.matched(name).is_some()).await?);
        }
        Ok(Listed { found, next, ..Listed::default() })
    }

    /// What keeps others out of a lock, if there is anything. If that is no lock, the lock is not free either.
    async fn named(&self, name: &Name) -> Result<Listed, StoreError> {
        let link = self.link()?;
        let mut before = None;
        loop {
            let queue = queues(&link, vec![(name.clone(), true)]).await?.pop().map(|(_, queue)| queue);
            let queue = queue.unwrap_or_default();
            let Some(first) = queue.first() else { return Ok(Listed::default()) };
            let is_as_before = before.replace(first.create_revision) == before;
            let Some(of) = keys::parse(&first.key).filter(|_| !is_as_before) else {
                return Err(StoreError::Refused(ServerError::NotALock));
            };
            let found = self.held_locks(&link, vec![lock(name.clone(), &of, &queue)]).await?;
            if !found.is_empty() {
                return Ok(Listed { found, ..Listed::default() });
            }
            // It has a value, or is gone since.
        }
    }

    /// Those of the locks that are held, and by which owners.
    async fn held_locks(&self, link: &Link, locks: Vec<Lock>) -> Result<Vec<Found>, StoreError> {
        let locks = whole(link, locks).await?;
        let clients: Vec<_> = locks.iter().map(Lock::lease).collect::<BTreeSet<_>>().into_iter().collect();
        let records = records_of(link, &clients).await?;
        let records: BTreeMap<_, _> = clients.into_iter().zip(records).collect();
        let left = left(link, locks.iter().map(|lock| lock.place.lease).collect()).await?;
        let found = locks.into_iter().filter_map(|lock| {
            let remaining = *left.get(&lock.place.lease)?;
            Some(self.found(records.get(&lock.lease()).and_then(Option::as_ref), lock, remaining))
        });
        Ok(found.collect())
    }

    fn found(&self, record: Option<&Record>, lock: Lock, remaining: Duration) -> Found {
        let lease = lock.lease();
        let Lock { resource, place, holders, .. } = lock;
        let of_client = |record: &Record| OwnerId { client: record.id, number: 0 };
        let owner = self.owner_of(&resource, &place).or_else(|| record.map(of_client));
        let info = record.and_then(|record| record.info.clone()).unwrap_or_default();
        let client = Some(Box::new(ClientInfo { lease: Some(format!("{lease:x}")), ..info }));
        Found { resource, holding: Holding { owner, count: 1, remaining }, holders, client, process: None }
    }
}

/// The oldest keys of each name: one, or of a name that may have readers several.
async fn queues(link: &Link, names: Vec<(Name, bool)>) -> Result<Vec<(Name, Vec<KeyValue>)>, StoreError> {
    let mut queues = Vec::new();
    for some in names.chunks(AT_ONCE) {
        let oldest = |(name, has_readers): &(Name, bool)| {
            let resource = Resource::new(Kind::Lock, name.clone());
            read(oldest(&keys::all(&resource), if *has_readers { READERS } else { 1 }))
        };
        let then = some.iter().map(oldest).collect();
        let done = transact(link, Transaction { then, ..Transaction::default() }).await?;
        queues.extend(some.iter().zip(done.found()).map(|((name, _), found)| (name.clone(), found.to_vec())));
    }
    Ok(queues)
}

/// The lock of a queue whose first place is this one.
fn lock(name: Name, of: &keys::Parsed, queue: &[KeyValue]) -> Lock {
    let resource = Resource::new(if of.name == name { of.kind } else { Kind::Lock }, name);
    let holders = decide::holders(&resource, queue).len();
    Lock { resource, place: queue[0].clone(), client: of.client, holders }
}

/// Those of the locks whose key is still there, has no value and is bound to a lease, with the whole key.
async fn whole(link: &Link, locks: Vec<Lock>) -> Result<Vec<Lock>, StoreError> {
    let mut places = Vec::new();
    for some in locks.chunks(AT_ONCE) {
        let of_lock = |Lock { place, .. }: &Lock| {
            let span = Span::only(place.key.clone());
            read_if(vec![created(&span, place.create_revision), has_no_value(&place.key)], &span)
        };
        let then = some.iter().map(of_lock).collect();
        let done = transact(link, Transaction { then, ..Transaction::default() }).await?;
        places.extend(done.found_by_each().map(|place| place.filter(|place| place.lease != 0).cloned()));
    }
    let is_there = |(lock, place): (Lock, Option<KeyValue>)| Some(Lock { place: place?, ..lock });
    Ok(locks.into_iter().zip(places).filter_map(is_there).collect())
}

/// How long these leases last, as far as they are there.
async fn left(link: &Link, leases: BTreeSet<i64>) -> Result<BTreeMap<i64, Duration>, StoreError> {
    let leases: Vec<_> = leases.into_iter().collect();
    let mut left = BTreeMap::new();
    for some in leases.chunks(LEASES) {
        let asked = some.iter().map(|lease| Box::pin(link.call(calls::TIME_TO_LIVE, LeaseId { id: *lease })));
        for (lease, lives) in some.iter().zip(race::all(asked).await) {
            let Lives { ttl } = lives?;
            if ttl >= 0 {
                left.insert(*lease, Duration::from_secs(ttl.unsigned_abs()).max(LEAST_LEFT));
            }
        }
    }
    Ok(left)
}
