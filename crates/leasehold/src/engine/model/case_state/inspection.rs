//! Comparing the state.

use super::super::engine_pair::ReplyFuture;
use super::super::observed::{self, Observed};
use super::super::op::{OWNERS, VALUES};
use super::{CaseState, lock_name};
use crate::engine::Query;
use crate::engine::{Adjust, Adjusted, Change, Engine, Family, Kind, Resource};
use crate::owner::OwnerId;
use crate::permit_id::PermitId;

/// A query about a name.
#[derive(Debug)]
enum StateQuery {
    Holder(Resource, Option<OwnerId>),
    Queue(Resource),
    Token(Resource),
    Count(Resource, Change),
}

impl StateQuery {
    fn send(&self, engine: &dyn Engine) -> ReplyFuture<Observed> {
        match self {
            Self::Holder(resource, owner) => {
                let (reply, owner) = (engine.inspect(&Query::Holder(resource, *owner)), *owner);
                Box::pin(
                    async move { observed::holding(reply.await.expect("an answer").holding.as_ref(), owner) },
                )
            }
            Self::Queue(resource) => {
                let reply = engine.inspect(&Query::Queue(resource));
                Box::pin(
                    async move { Observed::text(format!("{:?}", reply.await.expect("an answer").queue)) },
                )
            }
            Self::Token(resource) => {
                let reply = engine.inspect(&Query::Token(resource));
                Box::pin(async move { Observed::text(reply.await.expect("an answer").token.to_string()) })
            }
            Self::Count(resource, change) => {
                let reply = engine.adjust(resource, change);
                let is_time = matches!(change.adjust, Adjust::LeaseOf(_));
                Box::pin(async move {
                    let number = number(&reply.await.expect("an answer"));
                    if is_time { observed::lease(number) } else { Observed::text(number.to_string()) }
                })
            }
        }
    }
}

impl CaseState<'_> {
    /// Compares the whole visible state of a name. Requests that `client` has sent without waiting for a reply are done by
    /// then.
    pub(super) fn compare_state(&self, name: usize, client: usize) -> Result<(), String> {
        let queries = self.queries(name);
        let send = |engine: &dyn Engine| queries.iter().map(|query| query.send(engine)).collect();
        let [memory, server] = self.engines.call_all(client, send);
        for ((query, memory), server) in queries.iter().zip(memory).zip(server) {
            self.same(name, query, [memory, server])?;
        }
        Ok(())
    }

    fn queries(&self, name: usize) -> Vec<StateQuery> {
        let resource = |kind| self.of_kind(name, kind);
        let held = || self.holds.iter().filter(move |((_, of, _), _)| *of == name).map(|(_, hold)| &hold.key);
        match self.families[name] {
            Family::Lock => vec![
                StateQuery::Holder(resource(Kind::Lock), None),
                StateQuery::Token(resource(Kind::Lock)),
                StateQuery::Queue(resource(Kind::Fair)),
            ],
            Family::SetNx => {
                vec![
                    StateQuery::Holder(resource(Kind::SetNx), None),
                    StateQuery::Token(resource(Kind::SetNx)),
                ]
            }
            Family::Rw => {
                let read = resource(Kind::Read);
                let no_reader = OwnerId { client: self.clients[0], number: OWNERS as u64 };
                let readers = held().filter(|key| key.resource == read).map(|key| key.owner);
                let readers =
                    readers.chain([no_reader]).map(|reader| StateQuery::Holder(read.clone(), Some(reader)));
                let write = resource(Kind::Write);
                [StateQuery::Holder(write.clone(), None), StateQuery::Token(write)]
                    .into_iter()
                    .chain(readers)
                    .collect()
            }
            Family::Group => {
                let set = |value| Resource::group(lock_name(name), [value]).expect("a good group");
                let values = VALUES.into_iter().map(|value| StateQuery::Holder(set(value), None));
                let sets = held().map(|key| StateQuery::Holder(key.resource.clone(), Some(key.owner)));
                values.chain(sets).chain([StateQuery::Token(set("a"))]).collect()
            }
            Family::Semaphore => {
                vec![StateQuery::Count(resource(Kind::Semaphore), self.counter_query(Adjust::Count))]
            }
            Family::Latch => {
                vec![StateQuery::Count(resource(Kind::Latch), self.counter_query(Adjust::Count))]
            }
            Family::LeasedSemaphore => {
                let ids = held().flat_map(|key| PermitId::of(key.owner, key.amount));
                let loose = self.loose.iter().filter(|(of, _)| *of == name).map(|(_, id)| *id);
                let leases = ids.chain(loose).map(Adjust::LeaseOf);
                let counts = [Adjust::Count, Adjust::Taken, Adjust::Total].into_iter();
                let all = counts.chain(leases);
                all.map(|adjust| {
                    StateQuery::Count(resource(Kind::LeasedSemaphore), self.counter_query(adjust))
                })
                .collect()
            }
        }
    }

    /// A change that only reads.
    pub(super) fn counter_query(&self, adjust: Adjust) -> Change {
        let request = OwnerId { client: self.clients[0], number: 0 };
        Change { request, adjust, patience: std::time::Duration::from_secs(5) }
    }
}

pub(super) fn number(result: &Adjusted) -> i64 {
    match result {
        Adjusted::Done(number) => *number,
        Adjusted::NotSent(failure) => panic!("{failure}"),
    }
}
