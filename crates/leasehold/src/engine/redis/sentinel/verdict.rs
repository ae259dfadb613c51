//! Which server is the primary, by what each sentinel says.
//!
//! Sentinels learn of a failover one after the other, and one that was cut off tells the old address until it hears of the new
//! one. Each failover has a higher epoch than those before it, so the highest epoch is right.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::super::address::Endpoint;
use crate::env::Instant;

/// How long most sentinels have to agree on an older epoch before they are believed. Epochs begin anew when sentinels are set up
/// again; but those that have not heard of a failover yet agree on an older one, too.
const SET_UP_AGAIN: Duration = Duration::from_secs(10);

/// What is known of the sentinels, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    sentinels: HashMap<Endpoint, Heard>,
    primary: Option<Named>,
    /// Since when most agree on an older epoch.
    older_since: Option<Instant>,
}

/// What a sentinel said last.
#[derive(Debug)]
struct Heard {
    said: Answer,
    /// In which round it was asked.
    round: u64,
}

/// The answer of a sentinel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing yet.
    Nothing,
    Primary(Named),
    /// It does not know a primary of that name.
    Unknown,
    /// It cannot be reached.
    Failed(String),
    /// It refused to answer, and will go on to do so.
    Denied(String),
}

/// A server that a sentinel calls the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) endpoint: Endpoint,
    /// Unknown if this client may not ask for it.
    pub(super) epoch: Option<u64>,
}

/// Why the sentinels name no primary.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Nowhere {
    /// Asking again may help.
    ForNow(String),
    ForGood(String),
}

impl Verdict {
    /// Adds a sentinel that has not been asked yet. False if it is there already.
    pub(super) fn add(&mut self, sentinel: &Endpoint) -> bool {
        let is_new = !self.sentinels.contains_key(sentinel);
        if is_new {
            self.sentinels.insert(sentinel.clone(), Heard { said: Answer::Nothing, round: 0 });
        }
        is_new
    }

    pub(super) fn remove(&mut self, sentinel: &Endpoint) {
        self.sentinels.remove(sentinel);
    }

    /// Whether no primary has been named yet.
    pub(super) fn is_open(&self) -> bool {
        self.primary.is_none()
    }

    /// A sentinel said this when it was asked in this round. Returns the new primary if that changes it.
    pub(super) fn hear(
        &mut self,
        sentinel: &Endpoint,
        said: Answer,
        round: u64,
        now: Instant,
    ) -> Option<Named> {
        let heard = self.sentinels.get_mut(sentinel)?;
        *heard = Heard { said, round };
        let (best, is_older) = self.best()?;
        if !is_older {
            self.older_since = None;
        } else if now.saturating_duration_since(*self.older_since.get_or_insert(now)) < SET_UP_AGAIN {
            return None;
        }
        if self.primary.as_ref() == Some(&best) {
            return None;
        }
        let is_other = self.primary.as_ref().is_none_or(|primary| primary.endpoint != best.endpoint);
        self.primary = Some(best.clone());
        is_other.then_some(best)
    }

    /// The primary by all present answers, and whether its epoch is older than that of the one before.
    fn best(&self) -> Option<(Named, bool)> {
        let newest = self.answers().map(|named| named.epoch).max()?;
        let votes = |named: &Named| self.answers().filter(|other| other.endpoint == named.endpoint).count();
        // With the same epoch, or none, the majority is right; the one before if there is none.
        let is_present =
            |named: &Named| self.primary.as_ref().is_some_and(|primary| primary.endpoint == named.endpoint);
        let candidates = self.answers().filter(|named| named.epoch == newest);
        let best = candidates.max_by_key(|named| (votes(named), is_present(named)))?;
        let is_older = self.primary.as_ref().is_some_and(|primary| best.epoch < primary.epoch);
        let is_enough = !is_older || votes(best) * 2 > self.sentinels.len();
        is_enough.then(|| (best.clone(), is_older))
    }

    fn answers(&self) -> impl Iterator<Item = &Named> {
        self.sentinels.values().filter_map(|heard| match &heard.said {
            Answer::Primary(named) => Some(named),
            _ => None,
        })
    }

    /// The primary, if a sentinel that was asked in this round or later has confirmed it. None as long as one of them has still
    /// to answer.
    pub(super) fn primary(&self, round: u64) -> Option<Result<Endpoint, Nowhere>> {
        let mut recent = self.sentinels.values().filter(|heard| heard.round >= round);
        let names = |said: &Answer, endpoint: &Endpoint| matches!(said, Answer::Primary(named) if named.endpoint == *endpoint);
        if let Some(Named { endpoint, .. }) = &self.primary
            && recent.any(|heard| names(&heard.said, endpoint))
        {
            return Some(Ok(endpoint.clone()));
        }
        let all_answered = self.sentinels.values().all(|heard| heard.round >= round);
        all_answered.then(|| Err(self.nowhere()))
    }

    /// Why there is no primary, with what each sentinel said.
    pub(super) fn nowhere(&self) -> Nowhere {
        let all = self.sentinels.values();
        if all.clone().any(|heard| heard.said == Answer::Unknown) && self.answers().next().is_none() {
            return Nowhere::ForGood(
                "the sentinels know no primary of that name: check the name in the URL".into(),
            );
        }
        let text = format!("no sentinel confirms where the primary is: {self}");
        let is_denied = |heard: &Heard| matches!(heard.said, Answer::Denied(_));
        if all.clone().all(is_denied) { Nowhere::ForGood(text) } else { Nowhere::ForNow(text) }
    }
}

impl fmt::Display for Verdict {
    /// What each sentinel said.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all: Vec<_> =
            self.sentinels.iter().map(|(sentinel, heard)| (sentinel.to_string(), &heard.said)).collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        for (index, (sentinel, said)) in all.into_iter().enumerate() {
            let separator = if index > 0 { "; " } else { "" };
            write!(f, "{separator}{sentinel}: {said}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no answer yet"),
            Self::Primary(named) => write!(f, "it is {}, by an older epoch", named.endpoint),
            Self::Unknown => f.write_str("no primary of that name"),
            Self::Failed(text) | Self::Denied(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env;

    fn at(port: u16) -> Endpoint {
        Endpoint::Tcp("127.0.0.1".into(), port)
    }

    fn named(port: u16, epoch: Option<u64>) -> Answer {
        Answer::Primary(Named { endpoint: at(port), epoch })
    }

    fn of(sentinels: &[u16]) -> Verdict {
        let mut verdict = Verdict::default();
        for sentinel in sentinels {
            assert!(verdict.add(&at(*sentinel)));
        }
        verdict
    }

    /// What one sentinel says, and the port of the new primary if it changes.
    fn hear(verdict: &mut Verdict, sentinel: u16, said: Answer, round: u64) -> Option<u16> {
        hear_at(verdict, sentinel, said, round, env::now())
    }

    fn hear_at(verdict: &mut Verdict, sentinel: u16, said: Answer, round: u64, now: Instant) -> Option<u16> {
        match verdict.hear(&at(sentinel), said, round, now)?.endpoint {
            Endpoint::Tcp(_, port) => Some(port),
            Endpoint::Unix(_) => unreachable!(),
        }
    }

    #[test]
    fn the_answer_with_the_highest_epoch_wins() {
        let mut verdict = of(&[1, 2, 3]);
        assert_eq!(hear(&mut verdict, 1, named(10, Some(4)), 1), Some(10));
        assert_eq!(hear(&mut verdict, 2, named(10, Some(4)), 1), None);
        assert_eq!(hear(&mut verdict, 3, named(20, Some(5)), 1), Some(20), "one is enough");
        assert_eq!(hear(&mut verdict, 1, named(10, Some(4)), 2), None, "it has not heard of it yet");
        assert_eq!(verdict.primary(2), None);
        assert_eq!(hear(&mut verdict, 1, named(20, Some(5)), 2), None);
        assert_eq!(verdict.primary(2), Some(Ok(at(20))));
    }

    #[test]
    fn a_single_sentinel_with_an_old_epoch_changes_nothing() {
        let mut verdict = of(&[1, 2, 3]);
        hear(&mut verdict, 1, named(20, Some(5)), 1);
        for dead in [1, 2] {
            assert_eq!(hear(&mut verdict, dead, Answer::Failed("refused".into()), 2), None);
        }
        assert_eq!(hear(&mut verdict, 3, named(10, Some(4)), 2), None);
        let Some(Err(Nowhere::ForNow(text))) = verdict.primary(2) else { panic!("{:?}", verdict.primary(2)) };
        assert!(text.contains("127.0.0.1:3: it is 127.0.0.1:10, by an older epoch"), "{text}");
        assert!(text.contains("127.0.0.1:1: refused"), "{text}");
    }

    #[test]
    fn sentinels_that_were_set_up_again_are_believed_when_most_agree_for_long() {
        let (mut verdict, begun) = (of(&[1, 2, 3]), env::now());
        hear(&mut verdict, 1, named(20, Some(5)), 1);
        assert_eq!(
            hear_at(&mut verdict, 1, named(10, Some(0)), 2, begun + SET_UP_AGAIN),
            None,
            "not most of them"
        );
        let agreed = begun + SET_UP_AGAIN * 2;
        assert_eq!(hear_at(&mut verdict, 2, named(10, Some(0)), 2, agreed), None, "they may lag behind");
        assert_eq!(hear_at(&mut verdict, 1, named(10, Some(0)), 3, agreed + SET_UP_AGAIN), Some(10));
    }

    #[test]
    fn most_sentinels_that_have_not_heard_of_a_failover_yet_change_nothing() {
        let (mut verdict, begun) = (of(&[1, 2, 3]), env::now());
        hear_at(&mut verdict, 1, named(20, Some(5)), 1, begun);
        hear_at(&mut verdict, 1, Answer::Failed("refused".into()), 2, begun);
        for (seconds, sentinel) in [(0, 2), (1, 3), (4, 2), (9, 3)] {
            let now = begun + Duration::from_secs(seconds);
            assert_eq!(hear_at(&mut verdict, sentinel, named(10, Some(4)), 2, now), None);
        }
        assert_eq!(hear_at(&mut verdict, 2, named(20, Some(5)), 3, begun + SET_UP_AGAIN), None);
        assert_eq!(verdict.primary(3), Some(Ok(at(20))));
        hear_at(&mut verdict, 2, Answer::Failed("refused".into()), 4, begun + SET_UP_AGAIN * 2);
        assert_eq!(hear_at(&mut verdict, 3, named(10, Some(4)), 4, begun + SET_UP_AGAIN * 3), None);
    }

    #[test]
    fn without_epochs_the_majority_wins() {
        let mut verdict = of(&[1, 2, 3]);
        assert_eq!(hear(&mut verdict, 1, named(10, None), 1), Some(10));
        assert_eq!(hear(&mut verdict, 2, named(20, None), 1), None);
        assert_eq!(hear(&mut verdict, 3, named(20, None), 1), Some(20));
    }

    #[test]
    fn a_primary_counts_only_when_it_was_confirmed_in_that_round() {
        let mut verdict = of(&[1, 2]);
        hear(&mut verdict, 1, named(10, Some(1)), 1);
        assert_eq!(verdict.primary(1), Some(Ok(at(10))));
        assert_eq!(verdict.primary(2), None, "remembered, but not confirmed");
        hear(&mut verdict, 2, Answer::Failed("refused".into()), 2);
        assert_eq!(verdict.primary(2), None, "the other may answer");
        hear(&mut verdict, 1, Answer::Failed("refused".into()), 2);
        assert!(matches!(verdict.primary(2), Some(Err(Nowhere::ForNow(_)))));
    }

    #[test]
    fn an_unknown_name_and_refusals_of_all_are_for_good() {
        let mut verdict = of(&[1, 2]);
        hear(&mut verdict, 1, Answer::Failed("refused".into()), 1);
        hear(&mut verdict, 2, Answer::Unknown, 1);
        assert!(
            matches!(verdict.primary(1), Some(Err(Nowhere::ForGood(text))) if text.contains("check the name"))
        );
        hear(&mut verdict, 2, Answer::Denied("wrong password".into()), 1);
        assert!(matches!(verdict.primary(1), Some(Err(Nowhere::ForNow(_)))));
        hear(&mut verdict, 1, Answer::Denied("wrong password".into()), 1);
        assert!(
            matches!(verdict.primary(1), Some(Err(Nowhere::ForGood(text))) if text.contains("wrong password"))
        );
    }
}
