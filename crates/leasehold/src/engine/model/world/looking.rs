//! Comparing the state.

use super::super::both::Answer;
use super::super::op::{OWNERS, VALUES};
use super::super::said::{self, Said};
use super::{World, word};
use crate::engine::Question as Inspect;
use crate::engine::{Adjust, Adjusted, Change, Engine, Family, Kind, Target};
use crate::owner::OwnerId;
use crate::permit_id::PermitId;

/// A query about a name.
#[derive(Debug)]
enum Question {
    Holder(Target, Option<OwnerId>),
    Queue(Target),
    Token(Target),
    Count(Target, Change),
}

impl Question {
    fn put(&self, engine: &dyn Engine) -> Answer<Said> {
        match self {
            Self::Holder(target, owner) => {
                let (reply, owner) = (engine.inspect(&Inspect::Holder(target, *owner)), *owner);
                Box::pin(async move { said::holding(reply.await.expect("a reply").holding.as_ref(), owner) })
            }
            Self::Queue(target) => {
                let reply = engine.inspect(&Inspect::Queue(target));
                Box::pin(async move { Said::words(format!("{:?}", reply.await.expect("a reply").queue)) })
            }
            Self::Token(target) => {
                let reply = engine.inspect(&Inspect::Token(target));
                Box::pin(async move { Said::words(reply.await.expect("a reply").token.to_string()) })
            }
            Self::Count(target, change) => {
                let reply = engine.adjust(target, change);
                let is_time = matches!(change.adjust, Adjust::LeaseOf(_));
                Box::pin(async move {
                    let number = number(&reply.await.expect("a reply"));
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
        let target = |kind| self.of_kind(name, kind);
        let held =
            || self.holds.iter().filter(move |((_, of, _), _)| *of == name).map(|(_, hold)| &hold.spot);
        match self.families[name] {
            Family::Lock => vec![
                Question::Holder(target(Kind::Lock), None),
                Question::Token(target(Kind::Lock)),
                Question::Queue(target(Kind::Fair)),
            ],
            Family::SetNx => {
                vec![Question::Holder(target(Kind::SetNx), None), Question::Token(target(Kind::SetNx))]
            }
            Family::Rw => {
                let read = target(Kind::Read);
                let nobody = OwnerId { client: self.clients[0], number: OWNERS as u64 };
                let readers = held().filter(|spot| spot.target == read).map(|spot| spot.owner);
                let readers =
                    readers.chain([nobody]).map(|reader| Question::Holder(read.clone(), Some(reader)));
                let write = target(Kind::Write);
                [Question::Holder(write.clone(), None), Question::Token(write)]
                    .into_iter()
                    .chain(readers)
                    .collect()
            }
            Family::Group => {
                let set = |value| Target::group(word(name), [value]).expect("a good group");
                let values = VALUES.into_iter().map(|value| Question::Holder(set(value), None));
                let sets = held().map(|spot| Question::Holder(spot.target.clone(), Some(spot.owner)));
                values.chain(sets).chain([Question::Token(set("a"))]).collect()
            }
            Family::Semaphore => vec![Question::Count(target(Kind::Semaphore), self.question(Adjust::Count))],
            Family::Latch => vec![Question::Count(target(Kind::Latch), self.question(Adjust::Count))],
            Family::Permits => {
                let ids = held().flat_map(|spot| PermitId::of(spot.owner, spot.amount));
                let loose = self.loose.iter().filter(|(of, _)| *of == name).map(|(_, id)| *id);
                let leases = ids.chain(loose).map(Adjust::LeaseOf);
                let counts = [Adjust::Count, Adjust::Taken, Adjust::Total].into_iter();
                let all = counts.chain(leases);
                all.map(|adjust| Question::Count(target(Kind::Permits), self.question(adjust))).collect()
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
