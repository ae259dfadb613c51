//! The book of what this client holds: found by name, and in the order in which it is due.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Kind, Spot, Target};
use crate::lease::{Lease, margin};
use crate::loss::Loss;
use crate::name::{ByName, Name};
use crate::term::{Term, Until};
use crate::time::Instant;

/// One hold that is looked after.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) spot: Spot,
    pub(super) lease: Lease,
    pub(super) limit: Option<Instant>,
    pub(super) term: Arc<Term>,
    due: Instant,
}

impl Kept {
    pub(super) fn new(
        spot: Spot,
        lease: Lease,
        limit: Option<Instant>,
        term: Arc<Term>,
        begun: Instant,
    ) -> Self {
        Self { spot, lease, limit, term, due: begun + lease.length() / 3 }
    }

    /// When it is to be looked after.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Many may hold permits of one name, so what tells most of them apart comes first.
    fn is_of(&self, spot: &Spot) -> bool {
        self.spot.owner.number == spot.owner.number && self.spot == *spot
    }

    /// Whether both cannot be held at once.
    fn excludes(&self, other: &Self) -> bool {
        match (self.spot.target.kind, other.spot.target.kind) {
            (Kind::Semaphore | Kind::Permits, _) | (Kind::Read, Kind::Read) => false,
            _ => self.spot.owner != other.spot.owner && self.spot.target.overlaps(&other.spot.target),
        }
    }

    /// What it costs the server to look after it, in holds of a plain lock.
    fn size(&self) -> usize {
        let Spot { target, amount, .. } = &self.spot;
        match target.kind {
            Kind::Group => target.values().len(),
            Kind::Permits => usize::try_from(*amount).unwrap_or(usize::MAX),
            _ => 1,
        }
    }

    /// Until when a hold lasts whose lease of `length` was begun at `begun`.
    pub(super) fn until(&self, begun: Instant, length: Duration) -> Until {
        if self.spot.target.kind == Kind::Semaphore {
            return Until::Kept(length);
        }
        let end = begun + length;
        let loss = match self.lease {
            _ if self.limit.is_some_and(|limit| limit <= end) => Loss::MaxHold,
            Lease::Kept(_) => Loss::Unreachable,
            Lease::Fixed(_) => Loss::Expired,
        };
        Until::Deadline(end - margin(length), loss)
    }

    /// For how long to renew it at `begun`: nothing if the hold is only to be looked at, because it has a lease of its own
    /// or because no caller has taken the grant yet, and none may ever come. Counted permits have no lease: what is
    /// renewed is the record of them, which others share.
    pub(super) fn renewal(&self, begun: Instant) -> Duration {
        let is_shared = self.spot.target.kind == Kind::Semaphore;
        match self.lease {
            Lease::Kept(_) if is_shared || self.term.is_claimed() => self.length(begun),
            Lease::Kept(_) | Lease::Fixed(_) => Duration::ZERO,
        }
    }

    /// How long a lease that begins at `begun` may be: the limit cuts it.
    pub(super) fn length(&self, begun: Instant) -> Duration {
        let length = self.lease.length();
        self.limit.map_or(length, |limit| length.min(limit.saturating_duration_since(begun)))
    }
}

/// All holds of a client, each in a place of its own. A hundred thousand of them should cost little, so there is nothing
/// to allocate for a single one, and everything but the place itself knows it by its number.
#[derive(Debug, Default)]
pub(super) struct Book {
    places: Vec<Place>,
    /// Which of them are empty.
    free: Vec<u32>,
    /// Where the last hold under a name is, of whatever kind. Mostly there is one.
    names: HashMap<Name, u32, ByName>,
    due: BTreeMap<Kind, BTreeSet<(Instant, u32)>>,
    /// How many holds were ever noted, but for what does not fit.
    entries: u32,
}

#[derive(Debug)]
struct Place {
    kept: Option<Kept>,
    /// Where the one before under the same name is.
    before: Option<u32>,
    entry: u32,
}

/// One entry in the book. When its place is used again, that is another entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id {
    place: u32,
    entry: u32,
}

/// How much goes into one request: holds, or values and permits where a hold has many. The server serves nobody else
/// while it works on that.
pub(super) const BATCH: usize = 250;

/// What is due.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// What goes into one request, all of one kind. It comes up again by itself if nothing is heard of it.
    pub(super) holds: Vec<(Id, Kept)>,
    /// What has ended meanwhile, and is not kept any more.
    pub(super) ended: Vec<Kept>,
}

impl Book {
    /// Notes a hold, unless its term has ended already, and returns those of other terms that cannot be there beside it.
    pub(super) fn insert(&mut self, kept: Kept) -> Vec<Kept> {
        let is_held = kept.term.is_held();
        let mut gone = self.remove_where(&kept.spot.target.name, |before| {
            // What has ended takes the place of others, but not its own: that may have gone to another term.
            (is_held && before.spot == kept.spot) || before.excludes(&kept)
        });
        gone.retain(|before| !Arc::ptr_eq(&before.term, &kept.term));
        if !is_held {
            return gone;
        }
        self.entries = self.entries.wrapping_add(1);
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { kept: None, before: None, entry: 0 });
            u32::try_from(self.places.len() - 1).expect("fewer holds than there are numbers")
        });
        self.due.entry(kept.spot.target.kind).or_default().insert((kept.due, place));
        let before = self.names.insert(kept.spot.target.name.clone(), place);
        self.places[index(place)] = Place { kept: Some(kept), before, entry: self.entries };
        gone
    }

    /// A hold under the name of this target.
    pub(super) fn find(&self, name: &Name, wanted: impl Fn(&Kept) -> bool) -> Option<&Kept> {
        self.under(name).map(|(_, kept)| kept).find(|kept| wanted(kept))
    }

    pub(super) fn get(&self, spot: &Spot) -> Option<&Kept> {
        self.find(&spot.target.name, |kept| kept.is_of(spot))
    }

    /// Tells this term of the loss of a hold from now on, instead of the one before; false if it is not kept.
    pub(super) fn entrust(&mut self, spot: &Spot, term: &Arc<Term>) -> bool {
        let place = self.under(&spot.target.name).find(|(_, kept)| kept.is_of(spot)).map(|(place, _)| place);
        let kept = place.and_then(|place| self.places[index(place)].kept.as_mut());
        kept.map(|kept| kept.term = Arc::clone(term)).is_some()
    }

    pub(super) fn remove(&mut self, spot: &Spot) -> Option<Kept> {
        let place = self.under(&spot.target.name).find(|(_, kept)| kept.is_of(spot))?.0;
        self.clear(place)
    }

    pub(super) fn remove_all(&mut self, target: &Target) -> Vec<Kept> {
        self.remove_where(&target.name, |kept| kept.spot.target.overlaps(target))
    }

    /// Takes out one entry, if it is still there.
    pub(super) fn remove_entry(&mut self, id: Id) -> Option<Kept> {
        self.entry(id)?;
        self.clear(id.place)
    }

    /// One entry, if it is still there.
    pub(super) fn entry(&self, id: Id) -> Option<&Kept> {
        self.places.get(index(id.place)).filter(|place| place.entry == id.entry)?.kept.as_ref()
    }

    /// Looks after an entry at this time.
    pub(super) fn put_off(&mut self, id: Id, due: Instant) {
        let place = self.places.get_mut(index(id.place)).filter(|place| place.entry == id.entry);
        let Some(kept) = place.and_then(|place| place.kept.as_mut()) else { return };
        if let Some(order) = self.due.get_mut(&kept.spot.target.kind) {
            order.remove(&(kept.due, id.place));
            order.insert((due, id.place));
        }
        kept.due = due;
    }

    /// Looks after everything at this time.
    pub(super) fn put_all_off(&mut self, due: Instant) {
        self.due.clear();
        for (place, kept) in (0..).zip(self.places.iter_mut().map(|place| place.kept.as_mut())) {
            let Some(kept) = kept else { continue };
            kept.due = due;
            self.due.entry(kept.spot.target.kind).or_default().insert((due, place));
        }
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.first_due().map(|(due, _)| due)
    }

    fn first_due(&self) -> Option<(Instant, Kind)> {
        self.due.iter().filter_map(|(kind, order)| Some((order.first()?.0, *kind))).min()
    }

    /// What is due now, or so soon that it saves a request of its own: one request of the kind that is due first.
    pub(super) fn take_due(&mut self, now: Instant) -> Batch {
        let mut batch = Batch::default();
        let Some((_, kind)) = self.first_due() else { return batch };
        let mut size = 0;
        while let Some((due, place)) = self.due.get(&kind).and_then(BTreeSet::first).copied() {
            let Place { kept: Some(kept), entry, .. } = &self.places[index(place)] else { break };
            let left = kept.term.remaining();
            if left.is_zero() {
                batch.ended.extend(self.clear(place));
                continue;
            }
            size += kept.size();
            // Sooner than anything is tried again, so that this comes to an end.
            if due > now + left / 8 || (size > BATCH && !batch.holds.is_empty()) {
                break;
            }
            // The less is left, the sooner it is tried again.
            let again = (left / 4).clamp(Duration::from_millis(5), kept.lease.length() / 3);
            let id = Id { place, entry: *entry };
            batch.holds.push((id, kept.clone()));
            self.put_off(id, now + again);
        }
        batch
    }

    /// Empties the book.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Kept> + use<> {
        (self.free, self.names, self.due) = Default::default();
        std::mem::take(&mut self.places).into_iter().filter_map(|place| place.kept)
    }

    /// The holds under a name and where they are.
    fn under(&self, name: &Name) -> impl Iterator<Item = (u32, &Kept)> {
        let last = self.names.get(name).copied();
        successors(last, |place| self.places[index(*place)].before)
            .filter_map(|place| Some((place, self.places[index(place)].kept.as_ref()?)))
    }

    fn remove_where(&mut self, name: &Name, wanted: impl Fn(&Kept) -> bool) -> Vec<Kept> {
        let places: Vec<_> =
            self.under(name).filter(|(_, kept)| wanted(kept)).map(|(place, _)| place).collect();
        places.into_iter().filter_map(|place| self.clear(place)).collect()
    }

    /// Empties a place.
    fn clear(&mut self, place: u32) -> Option<Kept> {
        let Place { kept, before, .. } = &mut self.places[index(place)];
        let (kept, before) = (kept.take()?, before.take());
        let Target { kind, name, .. } = &kept.spot.target;
        if let Some(order) = self.due.get_mut(kind) {
            order.remove(&(kept.due, place));
        }
        let last = self.names.get_mut(name)?;
        match before {
            _ if *last != place => {
                let mut after = successors(Some(*last), |after| self.places[index(*after)].before);
                let after = after.find(|after| self.places[index(*after)].before == Some(place))?;
                self.places[index(after)].before = before;
            }
            Some(before) => *last = before,
            None => drop(self.names.remove(name)),
        }
        self.free.push(place);
        Some(kept)
    }
}

fn index(place: u32) -> usize {
    usize::try_from(place).expect("a place that there is")
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::client_id::ClientId;
    use crate::owner::OwnerId;
    use crate::time;

    const LEASE: Lease = Lease::Kept(Duration::from_secs(30));

    fn kept(kind: Kind, name: &str, begun: Instant) -> Kept {
        let target = Target::new(kind, Name::new("", name).unwrap());
        let spot = Spot { target, owner: OwnerId::fresh(ClientId::random(), 1), amount: 1 };
        let kept = Kept::new(spot, LEASE, None, Term::new(Weak::new()), begun);
        kept.term.lasts(kept.until(begun, kept.length(begun)));
        kept
    }

    /// Looks after them until nothing is due; the sizes of the requests.
    fn requests(book: &mut Book, now: Instant) -> Vec<usize> {
        let mut sizes = Vec::new();
        while book.next_due().is_some_and(|due| due <= now) {
            let Batch { holds, ended } = book.take_due(now);
            assert!(ended.is_empty());
            assert!(holds.iter().all(|(_, kept)| kept.spot.target.kind == holds[0].1.spot.target.kind));
            sizes.push(holds.len());
        }
        sizes
    }

    #[tokio::test(start_paused = true)]
    async fn holds_under_one_name_go_in_any_order() {
        let readers: Vec<_> = (0..4).map(|_| kept(Kind::Read, "n", time::now())).collect();
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let mut book = Book::default();
            for reader in &readers {
                assert!(book.insert(reader.clone()).is_empty());
            }
            for (gone, next) in order.into_iter().enumerate() {
                assert!(book.remove(&readers[next].spot).is_some());
                assert!(book.remove(&readers[next].spot).is_none());
                let left = readers.iter().filter(|reader| book.get(&reader.spot).is_some()).count();
                assert_eq!(left, 3 - gone);
            }
            assert!(book.names.is_empty() && book.next_due().is_none());
            assert_eq!(book.free.len(), book.places.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_excludes_those_who_cannot_be_there() {
        let mut book = Book::default();
        let (reader, writer) = (kept(Kind::Read, "n", time::now()), kept(Kind::Write, "n", time::now()));
        let lock = kept(Kind::Lock, "n", time::now());
        book.insert(reader.clone());
        book.insert(lock.clone());
        let gone = book.insert(writer.clone());
        assert!(gone.len() == 1 && gone[0].spot == reader.spot);
        // The same once more is no loss.
        assert!(book.insert(writer.clone()).is_empty());
        assert!(book.get(&lock.spot).is_some() && book.get(&reader.spot).is_none());
        assert_eq!(book.take_all().count(), 2);
        assert!(book.get(&lock.spot).is_none() && book.next_due().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_is_used_again_is_another_entry() {
        let mut book = Book::default();
        let (first, begun) = (kept(Kind::Lock, "n", time::now()), time::now());
        book.insert(first.clone());
        let id = book.take_due(begun + LEASE.length() / 3).holds[0].0;
        assert!(book.entry(id).is_some());
        book.insert(first.clone());
        assert!(book.entry(id).is_none() && book.remove_entry(id).is_none());
        book.put_off(id, begun);
        assert_eq!(book.next_due(), Some(first.due()));
        assert_eq!(book.places.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_about_one_kind_and_not_too_many() {
        let mut book = Book::default();
        for number in 0..BATCH * 2 {
            book.insert(kept(Kind::Lock, &format!("lock {number}"), time::now()));
            book.insert(kept(Kind::SetNx, &format!("setnx {number}"), time::now()));
        }
        assert_eq!(requests(&mut book, time::now()), [0; 0]);
        tokio::time::advance(LEASE.length() / 3).await;
        assert_eq!(requests(&mut book, time::now()), [BATCH; 4]);
        // Nothing was heard of them. The less is left, the sooner it is tried again, but not at once.
        tokio::time::advance(LEASE.length() / 2).await;
        assert_eq!(requests(&mut book, time::now()), [BATCH; 4]);
        tokio::time::advance(LEASE.length() / 6).await;
        let Batch { holds, ended } = book.take_due(time::now());
        assert!(holds.is_empty() && ended.len() == BATCH * 2);
        assert_eq!(book.take_due(time::now()).ended.len(), BATCH * 2);
        assert!(book.next_due().is_none());
    }
}
