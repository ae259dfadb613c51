//! Comparing the state.

use super::super::both::Answer;
use super::super::op::{OWNERS, VALUES};
use super::super::said::{self, Said};
use super::{World, word};
use crate::engine::Question as Inspect;
use crate::engine::{Adjust, Adjusted, Change, Engine, Family, Kind, Resource};
use crate::owner::OwnerId;
use crate::permit_id::PermitId;

/// A query about a name.
#[derive(Debug)]
enum Question {
    Holder(Resource, Option<OwnerId>),
    Queue(Resource),
    Token(Resource),
    Count(Resource, Change),
}

impl Question {
    fn put(&self, engine: &dyn Engine) -> Answer<Said> {
        match self {
            Self::Holder(resource, owner) => {
                let (reply, owner) = (engine.inspect(&Inspect::Holder(resource, *owner)), *owner);
                Box::pin(
                    async move { said::holding(reply.await.expect("an answer").holding.as_ref(), owner) },
                )
            }
            Self::Queue(resource) => {
                let reply = engine.inspect(&Inspect::Queue(resource));
                Box::pin(async move { Said::words(format!("{:?}", reply.await.expect("an answer").queue)) })
            }
            Self::Token(resource) => {
                let reply = engine.inspect(&Inspect::Token(resource));
                Box::pin(async move { Said::words(reply.await.expect("an answer").token.to_string()) })
            }
            Self::Count(resource, change) => {
                let reply = engine.adjust(resource, change);
                let is_time = matches!(change.adjust, Adjust::LeaseOf(_));
                Box::pin(async move {
                    let number = number(&reply.await.expect("an answer"));
                    if is_time { said::lease(number) } else { Said::words(number.to_string()) }
                })
            }
        }
    }
}

impl World<'_> {
    /// Compares the whole visible state of a name. Requests that `client` has sent without waiting for a reply are done by
    /// then.
    pub(super) fn look(&self, name: usize, client: usize) -> Result<(), String> {
        let questions = self.questions(name);
        let put = |engine: &dyn Engine| questions.iter().map(|question| question.put(engine)).collect();
        let [memory, server] = self.both.ask_all(client, put);
        for ((question, memory), server) in questions.iter().zip(memory).zip(server) {
            self.same(name, question, [memory, server])?;
        }
        Ok(())
    }

    fn questions(&self, name: usize) -> Vec<Question> {
        let resource = |kind| self.of_kind(name, kind);
        let held =
            || self.holds.iter().filter(move |((_, of, _), _)| *of == name).map(|(_, hold)| &hold.key);
        match self.families[name] {
            Family::Lock => vec![
                Question::Holder(resource(Kind::Lock), None),
                Question::Token(resource(Kind::Lock)),
                Question::Queue(resource(Kind::Fair)),
            ],
            Family::SetNx => {
                vec![Question::Holder(resource(Kind::SetNx), None), Question::Token(resource(Kind::SetNx))]
            }
            Family::Rw => {
                let read = resource(Kind::Read);
                let nobody = OwnerId { client: self.clients[0], number: OWNERS as u64 };
                let readers = held().filter(|key| key.resource == read).map(|key| key.owner);
                let readers =
                    readers.chain([nobody]).map(|reader| Question::Holder(read.clone(), Some(reader)));
                let write = resource(Kind::Write);
                [Question::Holder(write.clone(), None), Question::Token(write)]
                    .into_iter()
                    .chain(readers)
                    .collect()
            }
            Family::Group => {
                let set = |value| Resource::group(word(name), [value]).expect("a good group");
                let values = VALUES.into_iter().map(|value| Question::Holder(set(value), None));
                let sets = held().map(|key| Question::Holder(key.resource.clone(), Some(key.owner)));
                values.chain(sets).chain([Question::Token(set("a"))]).collect()
            }
            Family::Semaphore => vec![Question::Count(resource(Kind::Semaphore), self.question(Adjust::Count))],
            Family::Latch => vec![Question::Count(resource(Kind::Latch), self.question(Adjust::Count))],
            Family::Permits => {
                let ids = held().flat_map(|key| PermitId::of(key.owner, key.amount));
                let loose = self.loose.iter().filter(|(of, _)| *of == name).map(|(_, id)| *id);
                let leases = ids.chain(loose).map(Adjust::LeaseOf);
                let counts = [Adjust::Count, Adjust::Taken, Adjust::Total].into_iter();
                let all = counts.chain(leases);
                all.map(|adjust| Question::Count(resource(Kind::Permits), self.question(adjust))).collect()
            }
        }
    }

    /// A change that only reads.
    pub(super) fn question(&self, adjust: Adjust) -> Change {
        let request = OwnerId { client: self.clients[0], number: 0 };
        Change { request, adjust, patience: std::time::Duration::from_secs(5) }
    }
}

pub(super) fn number(told: &Adjusted) -> i64 {
    match told {
        Adjusted::Done(number) => *number,
        Adjusted::NotAsked(failure) => panic!("{failure}"),
    }
}
