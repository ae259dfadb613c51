//! Permits that have a lease: a number, and which ids are taken until when.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Milliseconds, milliseconds};
use crate::client_id::ClientId;
use crate::engine::{Adjust, HoldKey};
use crate::lease::{Lease, PERMANENT};
use crate::permit_id::PermitId;

/// The permits of a semaphore that is set up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Permits {
    free: i64,
    taken: BTreeMap<PermitId, Permit>,
}

/// An acquired permit. It ends with its client, at its time, or when it is released, whichever is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Permit {
    ends: Option<Milliseconds>,
    /// A guard keeps it; it lasts so long after it was forgotten.
    kept: Option<Milliseconds>,
    /// The client of its guard, if it has one.
    client: Option<ClientId>,
}

impl Permits {
    /// The permits in the content of a table. The error: it is something else.
    pub(super) fn parse(content: &str) -> Result<Option<Self>, ()> {
        let mut lines = content.lines();
        let Some(first) = lines.next() else { return Ok(None) };
        let free = first.strip_prefix("permits ").ok_or(())?.parse().map_err(drop)?;
        let taken = lines.map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [id, ends, kept, client] = words[..] else { return Err(()) };
            let time = |word: &str| if word == "-" { Ok(None) } else { word.parse().map(Some).map_err(drop) };
            let client = if client == "-" { None } else { Some(ClientId::parse(client).ok_or(())?) };
            Ok((id.parse().map_err(drop)?, Permit { ends: time(ends)?, kept: time(kept)?, client }))
        });
        Ok(Some(Self { free, taken: taken.collect::<Result<_, _>>()? }))
    }

    pub(super) fn format(permits: Option<&Self>) -> String {
        let Some(Self { free, taken }) = permits else { return String::new() };
        let mut content = format!("permits {free}\n");
        for (id, Permit { ends, kept, client }) in taken {
            let time = |time: &Option<Milliseconds>| time.map_or_else(|| "-".into(), |time| time.to_string());
            let client = client.map_or_else(|| "-".into(), |client| client.to_string());
            // Writing to a string cannot fail.
            let _ = writeln!(content, "{id} {} {} {client}", time(ends), time(kept));
        }
        content
    }

    /// Takes back the permits that have ended, and those of dead clients.
    pub(super) fn expire(&mut self, now: Milliseconds, mut is_alive: impl FnMut(ClientId) -> bool) {
        let mut known: BTreeMap<ClientId, bool> = BTreeMap::new();
        let before = self.taken.len();
        self.taken.retain(|_, permit| {
            permit.ends.is_none_or(|ends| ends > now)
                && permit.client.is_none_or(|client| *known.entry(client).or_insert_with(|| is_alive(client)))
        });
        self.add(count(before - self.taken.len()));
    }

    /// Acquires the permits of a hold, all or none.
    pub(super) fn take(&mut self, key: &HoldKey, lease: Lease, now: Milliseconds) -> bool {
        if self.free < key.amount.into() {
            return false;
        }
        self.free -= i64::from(key.amount);
        let (ends, kept) = match lease {
            Lease::Kept(length) => (None, Some(milliseconds(length))),
            Lease::Fixed(PERMANENT) => (None, None),
            Lease::Fixed(length) => (Some(now.saturating_add(milliseconds(length))), None),
        };
        let permit = Permit { ends, kept, client: Some(key.owner.client) };
        self.taken.extend(PermitId::of(key.owner, key.amount).map(|id| (id, permit)));
        true
    }

    /// Releases the rest of a hold; true if that was all of it.
    pub(super) fn give(&mut self, key: &HoldKey) -> bool {
        let given = PermitId::of(key.owner, key.amount).filter(|id| self.taken.remove(id).is_some()).count();
        self.add(count(given));
        u32::try_from(given) == Ok(key.amount)
    }

    /// Whether all permits of a hold are taken.
    pub(super) fn has(&self, key: &HoldKey) -> bool {
        PermitId::of(key.owner, key.amount).all(|id| self.taken.contains_key(&id))
    }

    /// The permits of a hold have no guard any more. Those that were kept end after one more lease.
    pub(super) fn detach(&mut self, key: &HoldKey, now: Milliseconds) {
        for id in PermitId::of(key.owner, key.amount) {
            if let Some(permit) = self.taken.get_mut(&id) {
                permit.client = None;
                let ends = permit.kept.take().map(|kept| now.saturating_add(kept));
                permit.ends = permit.ends.or(ends);
            }
        }
    }

    /// Moves the end of a hold, if that is later.
    pub(super) fn extend(&mut self, key: &HoldKey, to: Milliseconds) {
        for id in PermitId::of(key.owner, key.amount) {
            if let Some(ends) = self.taken.get_mut(&id).and_then(|permit| permit.ends.as_mut()) {
                *ends = (*ends).max(to);
            }
        }
    }

    /// When the next permit ends by itself.
    pub(super) fn next_end(&self) -> Option<Milliseconds> {
        self.taken.values().filter_map(|permit| permit.ends).min()
    }

    /// Carries out a change or a query.
    pub(super) fn adjust(permits: &mut Option<Self>, adjust: &Adjust, now: Milliseconds) -> i64 {
        match (adjust, permits.as_mut()) {
            (Adjust::TrySet { count, .. } | Adjust::Set(count), None) => {
                *permits = Some(Self { free: (*count).into(), ..Self::default() });
                i64::from(matches!(adjust, Adjust::TrySet { .. }))
            }
            (Adjust::Set(count), Some(is)) => {
                is.add(i64::from(*count) - is.total());
                0
            }
            (Adjust::Add(permits), Some(is)) => {
                is.add((*permits).into());
                is.free
            }
            (Adjust::Add(free), None) => {
                *permits = Some(Self { free: (*free).into(), ..Self::default() });
                (*free).into()
            }
            (Adjust::GiveIds(ids), Some(is)) if ids.iter().all(|id| is.taken.contains_key(id)) => {
                let given = count(ids.iter().filter(|id| is.taken.remove(id).is_some()).count());
                is.add(given);
                given
            }
            (Adjust::SetLease(id, length), Some(is)) => {
                let Some(permit) = is.taken.get_mut(id) else { return 0 };
                permit.ends = length.map(|length| now.saturating_add(milliseconds(length)));
                1
            }
            (Adjust::Delete, is) => {
                let existed = is.is_some();
                *permits = None;
                existed.into()
            }
            (Adjust::Count, Some(is)) => is.free,
            (Adjust::Exists, is) => is.is_some().into(),
            (Adjust::Taken, Some(is)) => count(is.taken.len()),
            (Adjust::Total, Some(is)) => is.total(),
            (Adjust::LeaseOf(id), is) => {
                let Some(permit) = is.and_then(|is| is.taken.get(id)) else { return -2 };
                let left = permit.ends.map(|ends| ends.saturating_sub(now)).or(permit.kept);
                left.map_or(-1, |left| i64::try_from(left).unwrap_or(i64::MAX))
            }
            _ => 0,
        }
    }

    fn add(&mut self, permits: i64) {
        self.free = self.free.saturating_add(permits);
    }

    fn total(&self) -> i64 {
        self.free.saturating_add(count(self.taken.len()))
    }
}

fn count(permits: usize) -> i64 {
    i64::try_from(permits).unwrap_or(i64::MAX)
}
