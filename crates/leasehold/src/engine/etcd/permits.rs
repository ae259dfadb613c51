//! The permits of a leased semaphore, and what a change makes of them: no request and no state.
//!
//! Taken permits whose ids follow each other, and that end together, are one key. If some of them are released or get another end, the
//! key is deleted and the others get keys of their own: so the watch of a guard on the key of its permits reports it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::changes::number;
use super::keys::{self, Span};
use super::messages::KeyValue;
use super::state::{State, Step};
use super::transaction::delete_all;
use crate::engine::remote::store::StoreError;
use crate::engine::{Adjust, HoldKey, Resource};
use crate::permit_id::PermitId;

/// The number of all permits, and those that are taken.
pub(super) struct Permits {
    resource: Resource,
    span: Span,
    revision: i64,
    /// None if the semaphore is not set.
    total: Option<(i64, KeyValue)>,
    runs: Vec<Run>,
}

/// Taken permits whose ids follow each other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Run {
    first: u128,
    count: u32,
    pub(super) key: KeyValue,
}

/// When taken permits end, as the value of their key says. The lease of the key is what ends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// Never by themselves.
    Never,
    /// So long after they were taken: the key has a lease of its own.
    After(Duration),
    /// With the session of a client, where a guard holds them; or so long after they were forgotten.
    Kept(Duration),
}

impl Ends {
    pub(super) fn format(self) -> Vec<u8> {
        match self {
            Self::Never => String::new(),
            Self::After(length) => length.as_millis().to_string(),
            Self::Kept(length) => format!("kept {}", length.as_millis()),
        }
        .into_bytes()
    }

    pub(super) fn parse(value: &[u8]) -> Self {
        let text = std::str::from_utf8(value).unwrap_or_default();
        let length = |text: &str| text.parse().ok().map(Duration::from_millis);
        match text.strip_prefix("kept ") {
            Some(kept) => length(kept).map_or(Self::Never, Self::Kept),
            None => length(text).map_or(Self::Never, Self::After),
        }
    }
}

impl Run {
    fn parse(resource: &Resource, key: &KeyValue) -> Option<Self> {
        let (first, count) = keys::parse_run(resource, &key.key)?;
        Some(Self { first, count, key: key.clone() })
    }

    pub(super) fn ends(&self) -> Ends {
        Ends::parse(&self.key.value)
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    fn has(&self, id: PermitId) -> bool {
        id.bits().checked_sub(self.first).is_some_and(|offset| offset < self.count.into())
    }

    /// The lease that nothing but these permits and others of the same acquire has.
    pub(super) fn own_lease(&self) -> Option<i64> {
        (self.key.lease != 0 && matches!(self.ends(), Ends::After(_))).then_some(self.key.lease)
    }

    /// What is left of it without these, in order.
    fn without(&self, ids: &BTreeSet<u128>) -> Vec<(u128, u32)> {
        let mut left: Vec<(u128, u32)> = Vec::new();
        for id in (self.first..).take(usize::try_from(self.count).unwrap_or(usize::MAX)) {
            if ids.contains(&id) {
                continue;
            }
            match left.last_mut() {
                Some((first, count)) if *first + u128::from(*count) == id => *count += 1,
                _ => left.push((id, 1)),
            }
        }
        left
    }
}

/// The keys of the permits of one hold.
pub(super) fn span_of(hold_key: &HoldKey) -> Span {
    let (first, last) = ids(hold_key);
    keys::runs(&hold_key.resource, first, last)
}

/// The key of the permits of one hold, as long as all of them have the same end.
pub(super) fn key_of(hold_key: &HoldKey) -> Vec<u8> {
    keys::run(&hold_key.resource, ids(hold_key).0, hold_key.amount)
}

/// The permits in these keys.
pub(super) fn runs_in(resource: &Resource, found: &[KeyValue]) -> Vec<Run> {
    found.iter().filter_map(|key| Run::parse(resource, key)).collect()
}

fn ids(hold_key: &HoldKey) -> (u128, u128) {
    let first = PermitId::of(hold_key.owner, 1).next().map_or(0, PermitId::bits);
    (first, first + u128::from(hold_key.amount.saturating_sub(1)))
}

impl Permits {
    /// The permits in the keys that were read first.
    pub(super) fn parse(resource: &Resource, state: &State) -> Result<Self, StoreError> {
        let found = state.found.first().map_or(&[][..], Vec::as_slice);
        let total_key = keys::number(resource);
        let total = found.iter().find(|key| key.key == total_key);
        let total = total.map(|key| Ok::<_, StoreError>((number(key)?, key.clone()))).transpose()?;
        let (resource, span) = (resource.clone(), keys::all(resource));
        Ok(Self { runs: runs_in(&resource, found), resource, span, revision: state.revision, total })
    }

    fn taken(&self) -> i64 {
        self.runs.iter().map(|run| i64::from(run.count)).sum()
    }

    fn total(&self) -> i64 {
        self.total.as_ref().map_or(0, |(total, _)| *total)
    }

    fn free(&self) -> i64 {
        self.total().saturating_sub(self.taken())
    }

    /// The permits among which this one is taken.
    pub(super) fn of(&self, id: PermitId) -> Option<&Run> {
        self.runs.iter().find(|run| run.has(id))
    }

    /// Whether any permits of a hold are taken.
    pub(super) fn has(&self, hold_key: &HoldKey) -> bool {
        let (first, last) = ids(hold_key);
        self.runs.iter().any(|run| first <= run.first && run.first <= last)
    }

    /// Whether a hold can have its permits.
    pub(super) fn is_free(&self, hold_key: &HoldKey) -> bool {
        self.total.is_some() && self.free() >= hold_key.amount.into()
    }

    /// Takes the permits of a hold that can have them. It fails if others are taken meanwhile; not if any are released.
    pub(super) fn take(&self, hold_key: &HoldKey, ends: Ends, lease: i64) -> Step {
        let mut step = Step::default();
        self.total.iter().for_each(|(_, key)| step.expect_created(key));
        step.expect_no_writes(&self.span, self.revision);
        step.put(&key_of(hold_key), ends.format(), lease);
        step
    }

    pub(super) fn query(&self, query: &Adjust) -> i64 {
        match query {
            Adjust::Count => self.free(),
            Adjust::Exists => self.total.is_some().into(),
            Adjust::Taken => self.taken(),
            Adjust::Total => self.total(),
            _ => 0,
        }
    }

    /// The result of a change, and the change itself. `lease` is that of the permit whose end it sets, if it has one.
    pub(super) fn change(&self, adjust: &Adjust, lease: i64) -> (i64, Step) {
        match adjust {
            Adjust::TrySet { .. } if self.total.is_some() => (0, Step::default()),
            Adjust::TrySet { count, .. } => (1, self.set((*count).into())),
            Adjust::Set(count) => (0, self.set((*count).into())),
            Adjust::Add(more) => {
                let total = self.total().saturating_add((*more).into());
                (total.saturating_sub(self.taken()), self.set(total))
            }
            Adjust::GiveIds(ids) => self.give(ids),
            Adjust::SetLease(id, length) => self.set_end(*id, length.map_or(Ends::Never, Ends::After), lease),
            Adjust::Delete => self.delete(),
            _ => (0, Step::default()),
        }
    }

    fn set(&self, total: i64) -> Step {
        let (mut step, key) = (Step::default(), keys::number(&self.resource));
        if self.total.as_ref().is_none_or(|(before, _)| *before != total) {
            step.expect(&key, self.total.as_ref().map(|(_, key)| key));
            step.put(&key, total.to_string().into_bytes(), 0);
        }
        step
    }

    fn delete(&self) -> (i64, Step) {
        let mut step = Step::default();
        let Some((_, key)) = &self.total else { return (0, step) };
        step.expect(&key.key, Some(key));
        step.push([delete_all(&self.span)]);
        step.ended.extend(self.runs.iter().filter_map(Run::own_lease).collect::<BTreeSet<_>>());
        (1, step)
    }

    /// Releases permits, all or none.
    fn give(&self, ids: &[PermitId]) -> (i64, Step) {
        let ids: BTreeSet<_> = ids.iter().map(|id| id.bits()).collect();
        let mut step = Step::default();
        let (mut touched, mut found) = (BTreeSet::new(), 0);
        for run in &self.runs {
            let last = run.first + u128::from(run.count - 1);
            let given = ids.range(run.first..=last).count();
            if given > 0 {
                found += given;
                touched.insert(run.first);
                step.remove(&run.key);
                self.put(&mut step, run, run.without(&ids));
            }
        }
        if found < ids.len() {
            return (0, Step::default());
        }
        let is_gone = |run: &&Run| touched.contains(&run.first) && run.without(&ids).is_empty();
        step.ended = self.ended(is_gone);
        (i64::try_from(found).unwrap_or(i64::MAX), step)
    }

    /// Sets when one permit ends.
    fn set_end(&self, id: PermitId, ends: Ends, lease: i64) -> (i64, Step) {
        let mut step = Step::default();
        let Some(run) = self.of(id) else { return (0, step) };
        let key = keys::run(&self.resource, id.bits(), 1);
        if run.count == 1 {
            step.expect(&key, Some(&run.key));
            step.ended = self.ended(|other| other.first == run.first);
        } else {
            step.remove(&run.key);
            self.put(&mut step, run, run.without(&BTreeSet::from([id.bits()])));
        }
        step.put(&key, ends.format(), lease);
        (1, step)
    }

    /// The own leases of permits that go, unless others have them, too.
    fn ended(&self, goes: impl Fn(&&Run) -> bool) -> Vec<i64> {
        let mut stays: BTreeMap<i64, bool> = BTreeMap::new();
        for run in &self.runs {
            if let Some(lease) = run.own_lease() {
                *stays.entry(lease).or_default() |= !goes(&run);
            }
        }
        stays.into_iter().filter(|(_, stays)| !stays).map(|(lease, _)| lease).collect()
    }

    /// Writes what is left of some permits.
    fn put(&self, step: &mut Step, run: &Run, left: Vec<(u128, u32)>) {
        for (first, count) in left {
            step.put(&keys::run(&self.resource, first, count), run.key.value.clone(), run.key.lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::client_id::ClientId;
    use crate::engine::Kind;
    use crate::name::Name;
    use crate::owner::OwnerId;

    const TOTAL: u32 = 12;

    fn resource() -> Resource {
        Resource::new(Kind::LeasedSemaphore, Name::new("", "n").unwrap())
    }

    fn read(keys: &[KeyValue]) -> Permits {
        Permits::parse(&resource(), &State { revision: 1, found: vec![keys.to_vec()] }).ok().unwrap()
    }

    /// The hold of a client that begins with this number.
    fn hold(client: ClientId, number: u64, amount: u32) -> HoldKey {
        HoldKey { resource: resource(), owner: OwnerId { client, number }, amount }
    }

    #[test]
    fn ends_are_read_back() {
        let length = Duration::from_millis(1500);
        for (ends, text) in
            [(Ends::Never, ""), (Ends::After(length), "1500"), (Ends::Kept(length), "kept 1500")]
        {
            assert_eq!(ends.format(), text.as_bytes());
            assert_eq!(Ends::parse(text.as_bytes()), ends);
        }
    }

    #[test]
    fn a_list_with_an_id_that_is_not_taken_changes_nothing() {
        let (client, mut keys) = (ClientId::random(), Vec::new());
        read(&keys).change(&Adjust::Set(TOTAL), 0).1.apply(&mut keys);
        let one = hold(client, 10, 3);
        read(&keys).take(&one, Ends::Never, 0).apply(&mut keys);
        let ids: Vec<_> = PermitId::of(one.owner, 4).collect();
        let (result, step) = read(&keys).change(&Adjust::GiveIds(ids[1..].to_vec()), 0);
        assert!(result == 0 && step.is_empty());
        let (result, step) = read(&keys).change(&Adjust::GiveIds(ids[1..2].to_vec()), 0);
        step.apply(&mut keys);
        assert_eq!((result, read(&keys).query(&Adjust::Taken)), (1, 2));
        assert!(keys.iter().all(|key| key.key != key_of(&one)), "the key of the whole hold is gone");
    }

    #[test]
    fn a_lease_ends_when_no_permit_has_it_any_more() {
        let (client, mut keys, ends) = (ClientId::random(), Vec::new(), Ends::After(Duration::from_secs(9)));
        read(&keys).change(&Adjust::Set(TOTAL), 0).1.apply(&mut keys);
        let one = hold(client, 10, 2);
        read(&keys).take(&one, ends, 7).apply(&mut keys);
        let ids: Vec<_> = PermitId::of(one.owner, 2).collect();
        let (_, step) = read(&keys).change(&Adjust::SetLease(ids[0], None), 0);
        assert_eq!(step.ended, [0_i64; 0], "the other permit has it");
        step.apply(&mut keys);
        let (_, step) = read(&keys).change(&Adjust::GiveIds(ids), 0);
        assert_eq!(step.ended, [7]);
        step.apply(&mut keys);
        assert_eq!(read(&keys).query(&Adjust::Count), TOTAL.into());
    }

    proptest! {
        /// Whatever is taken, released and given another end, exactly the ids that a list of them has are taken.
        #[test]
        fn taken_permits_are_those_that_were_taken_and_not_released(
            steps in proptest::collection::vec((0..3_u8, 0..20_u64, 1..5_u32), 0..40),
        ) {
            let (client, mut keys, mut taken) = (ClientId::random(), Vec::new(), BTreeSet::new());
            read(&keys).change(&Adjust::TrySet { count: TOTAL, ttl: None }, 0).1.apply(&mut keys);
            for (next, (what, number, amount)) in steps.into_iter().enumerate() {
                let permits = read(&keys);
                let some = taken.iter().nth(usize::try_from(number).unwrap()).copied();
                match (what, some) {
                    (0, _) => {
                        let new = hold(client, u64::try_from(next).unwrap() * 10, amount);
                        let is_free = taken.len() + usize::try_from(amount).unwrap() <= usize::try_from(TOTAL).unwrap();
                        prop_assert_eq!(permits.is_free(&new), is_free);
                        if is_free {
                            permits.take(&new, Ends::Never, 0).apply(&mut keys);
                            taken.extend(PermitId::of(new.owner, amount));
                        }
                    }
                    (1, Some(id)) => {
                        let (given, step) = permits.change(&Adjust::GiveIds(vec![id]), 0);
                        prop_assert_eq!(given, 1);
                        step.apply(&mut keys);
                        taken.remove(&id);
                    }
                    (2, Some(id)) => {
                        let length = Some(Duration::from_secs(9));
                        let (done, step) = permits.change(&Adjust::SetLease(id, length), 7);
                        prop_assert_eq!(done, 1);
                        step.apply(&mut keys);
                        prop_assert_eq!(read(&keys).of(id).map(|run| (run.count(), run.own_lease())), Some((1, Some(7))));
                    }
                    _ => {}
                }
                let permits = read(&keys);
                prop_assert_eq!(permits.query(&Adjust::Taken), i64::try_from(taken.len()).unwrap());
                prop_assert!(taken.iter().all(|id| permits.of(*id).is_some()));
            }
            let (_, step) = read(&keys).change(&Adjust::Delete, 0);
            step.apply(&mut keys);
            prop_assert!(keys.is_empty());
        }
    }
}
