//! Who holds a lock and who waits for it, as far as the keys tell.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::link::Link;
use super::messages::{KeyValue, LeaseId, Lives, Operation, Range, Ranged, Transaction};
use super::transaction::{oldest, put, read, transact};
use super::{Cluster, calls, decide, keys};
use crate::client_id::ClientId;
use crate::engine::remote::store::StoreError;
use crate::engine::{Holding, QueryResult, Resource};
use crate::identity::{ClientInfo, from_json, to_json};
use crate::owner::{Owner, OwnerId};

/// How many clients are looked up at once; a transaction has at most 128 operations.
pub(super) const AT_ONCE: usize = 100;

/// What a client writes about itself: its id, and in the next line who it is, unless it is anonymous.
pub(super) struct Record {
    pub(super) id: ClientId,
    pub(super) info: Option<ClientInfo>,
}

impl Record {
    fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let (id, info) = text.split_once('\n').unwrap_or((text, ""));
        Some(Self { id: ClientId::parse(id)?, info: from_json(info.as_bytes()) })
    }
}

impl Cluster {
    /// The operation that writes who this client is, if it is not written yet. It goes with the first lock.
    pub(super) fn record(&self, link: &Link, id: ClientId) -> Option<Operation> {
        let client = &link.client;
        if client.is_recorded.load(Ordering::Relaxed) {
            return None;
        }
        Some(self.own_record(client.lease, id))
    }

    /// The operation that writes who this client is beside another lease of it: the hold may outlast the client.
    pub(super) fn own_record(&self, lease: i64, id: ClientId) -> Operation {
        let info = self.identity.as_ref().map(|identity| format!("\n{}", to_json(&identity.info)));
        let value = format!("{id}{}", info.unwrap_or_default()).into_bytes();
        put(&keys::client(lease), value, lease)
    }

    /// The holder of a resource: this owner, if it is one of several.
    pub(super) async fn holder(
        &self,
        resource: &Resource,
        wanted: Option<OwnerId>,
    ) -> Result<Option<Holding>, StoreError> {
        let link = self.link()?;
        let queue = queue(&link, resource).await?;
        let holders = decide::holders(resource, &queue);
        let is_wanted = |holder: &&KeyValue| wanted.is_some() && self.owner_of(resource, holder) == wanted;
        let Some(holder) = holders.iter().find(is_wanted).or_else(|| holders.first()) else {
            return Ok(None);
        };
        let owner = match self.owner_of(resource, holder) {
            Some(owner) => Some(owner),
            None => self.owners(&link, resource, std::slice::from_ref(holder)).await?.pop().flatten(),
        };
        let lives: Lives = link.call(calls::TIME_TO_LIVE, LeaseId { id: holder.lease }).await?;
        let remaining = Duration::from_secs(lives.ttl.max(0).unsigned_abs());
        Ok(Some(Holding { owner, count: 1, remaining }))
    }

    /// The owner of a key, as far as that is known without its client's record.
    pub(super) fn owner_of(&self, resource: &Resource, place: &KeyValue) -> Option<OwnerId> {
        let own = self.places.lock().owner(&place.key).map(|of| of.owner);
        own.or_else(|| keys::owner(resource, &place.key))
    }

    /// The owners that wait, the next one first.
    pub(super) async fn waiting(&self, resource: &Resource) -> Result<QueryResult, StoreError> {
        let link = self.link()?;
        let queue = queue(&link, resource).await?;
        let waiters = decide::waiters(resource, &queue);
        let owners = self.owners(&link, resource, waiters).await?;
        let queue = owners.into_iter().flatten().map(Owner::from).collect();
        Ok(QueryResult { queue, waiters: waiters.len(), ..QueryResult::default() })
    }

    /// A client that has, or waits for, a resource.
    pub(super) async fn client(
        &self,
        resource: &Resource,
        client: ClientId,
    ) -> Result<QueryResult, StoreError> {
        let result = QueryResult::of_process(client);
        if result.client.is_some() {
            return Ok(result);
        }
        let link = self.link()?;
        let records = records(&link, &queue(&link, resource).await?).await?;
        let info =
            records.into_iter().flatten().find(|record| record.id == client).and_then(|record| record.info);
        Ok(QueryResult { client: info.map(Box::new), ..result })
    }

    /// The owner of each place. The key of a plain lock has no number of its owner, so that is zero for other clients; the owner
    /// is not known at all if another program has written the key.
    async fn owners(
        &self,
        link: &Link,
        resource: &Resource,
        places: &[KeyValue],
    ) -> Result<Vec<Option<OwnerId>>, StoreError> {
        let records = records(link, places).await?;
        let owner = |(place, record): (&KeyValue, Option<Record>)| {
            let of_client = |record: Record| OwnerId { client: record.id, number: 0 };
            self.owner_of(resource, place).or_else(|| record.map(of_client))
        };
        Ok(places.iter().zip(records).map(owner).collect())
    }
}

/// All keys of a name, the oldest first.
async fn queue(link: &Link, resource: &Resource) -> Result<Vec<KeyValue>, StoreError> {
    // Since 3.7 the server does not say the lease of a key of which only the key is asked for.
    let range = Range { keys_only: false, ..oldest(&keys::all(resource), 0) };
    let ranged: Ranged = link.call(calls::RANGE, range).await?;
    Ok(ranged.found)
}

/// What the client of each place has written about itself.
async fn records(link: &Link, places: &[KeyValue]) -> Result<Vec<Option<Record>>, StoreError> {
    let leases: Vec<_> = places.iter().map(|place| place.lease).collect();
    records_of(link, &leases).await
}

/// What the clients with these leases have written about themselves.
pub(super) async fn records_of(link: &Link, leases: &[i64]) -> Result<Vec<Option<Record>>, StoreError> {
    let mut records = Vec::new();
    for some in leases.chunks(AT_ONCE) {
        let of_client = |lease: &i64| {
            let span = keys::Span::only(keys::client(*lease));
            read(Range { keys_only: false, ..oldest(&span, 1) })
        };
        let then = some.iter().map(of_client).collect();
        let done = transact(link, Transaction { then, ..Transaction::default() }).await?;
        records
            .extend(done.found().map(|found| found.first().and_then(|record| Record::parse(&record.value))));
    }
    Ok(records)
}
