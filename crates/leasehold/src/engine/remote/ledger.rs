//! The ledger of this client's holds: indexed by name, and by the time at which they are due.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;

use super::store::Shard;
use crate::engine::{HoldKey, Kind, Resource};
use crate::env::Instant;
use crate::lease::{Bounds, Lease, margin};
use crate::limits;
use crate::name::{ByName, Name};
use crate::session::Session;
use crate::term::{Term, Until};

/// One hold that the client tracks.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: HoldKey,
    pub(super) shard: Shard,
    pub(super) term: Arc<Term>,
    /// The bounds that were requested when it was granted. The term has those of the caller that took the grant last.
    bounds: Bounds,
    due: Instant,
    /// How often it is entered, and the token of the first entry, where the client counts.
    pub(super) count: u32,
    pub(super) token: Option<u64>,
}

impl Entry {
    pub(super) fn new(key: HoldKey, shard: Shard, term: Arc<Term>, bounds: Bounds, begun: Instant) -> Self {
        let length = bounds.lease.length();
        let due = begun + if mutation!("late-renewals") { length } else { period(length) };
        Self { key, shard, term, bounds, due, count: 1, token: None }
    }

    /// Binds it to a session, which is kept alive by itself: the hold is due when it has to end.
    pub(super) fn bind(&mut self, session: Arc<Session>, begun: Instant) {
        self.term.bind(session);
        self.due = self.end(begun, self.bounds.length(begun));
    }

    /// When it is due for a check or a renewal.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Until when it may be trusted under the bounds requested now; [`until`](Self::until) uses those requested last.
    pub(super) fn requested_until(&self, begun: Instant, length: Duration) -> Until {
        self.until_by(self.bounds, begun, length)
    }

    /// When the client has to end it, if it is bound to a session and a lease of `length` begins at `begun`.
    pub(super) fn end(&self, begun: Instant, length: Duration) -> Instant {
        end(self.bounds, begun, length).unwrap_or(begun + limits::LONGEST_LEASE)
    }

    /// How long it may last by the bounds that were requested when it was granted.
    pub(super) fn requested(&self) -> Bounds {
        self.bounds
    }

    /// How long it may last.
    pub(super) fn bounds(&self) -> Bounds {
        self.term.claimed().unwrap_or(self.bounds)
    }

    /// Many owners may hold permits of one name, so the field that distinguishes most of them is compared first.
    fn is_of(&self, key: &HoldKey) -> bool {
        self.key.owner.number == key.owner.number && self.key == *key
    }

    /// Whether it conflicts with a hold of this key.
    pub(super) fn excludes(&self, other: &HoldKey) -> bool {
        match (self.key.resource.kind, other.resource.kind) {
            (Kind::Semaphore | Kind::LeasedSemaphore, _) | (Kind::Read, Kind::Read) => false,
            _ => self.key.owner != other.owner && self.key.resource.overlaps(&other.resource),
        }
    }

    /// The cost of renewing it on the server, in holds of a plain lock.
    fn size(&self) -> usize {
        let HoldKey { resource, amount, .. } = &self.key;
        match resource.kind {
            Kind::Group => resource.values().len(),
            Kind::LeasedSemaphore => usize::try_from(*amount).unwrap_or(usize::MAX),
            _ => 1,
        }
    }

    /// Until when it may be trusted after a lease of `length` was begun at `begun`.
    pub(super) fn until(&self, begun: Instant, length: Duration) -> Until {
        self.until_by(self.bounds(), begun, length)
    }

    fn until_by(&self, bounds: Bounds, begun: Instant, length: Duration) -> Until {
        if !self.term.has_session() {
            return until(self.key.resource.kind, bounds, begun, length);
        }
        match end(bounds, begun, length) {
            Some(end) => bounds.until_end(end, begun),
            None => Until::Kept(bounds.lease.length()),
        }
    }

    /// For how long to renew it at `begun`: zero if the hold is only checked, because it has a fixed lease or because no
    /// caller has taken the grant yet, and none may ever do so. Counted permits have no lease: the renewal extends their
    /// record, which all holders share.
    pub(super) fn renewal(&self, begun: Instant) -> Duration {
        if self.term.has_session() {
            return Duration::ZERO;
        }
        let is_shared = self.key.resource.kind == Kind::Semaphore || mutation!("untaken-grant-renewed");
        match self.term.claimed().or(is_shared.then_some(self.bounds)) {
            Some(bounds @ Bounds { lease: Lease::Kept(_), .. }) => bounds.length(begun),
            _ => Duration::ZERO,
        }
    }

    /// How long to wait before the next check after it was found held, and renewed, if it was.
    pub(super) fn pause(&self, is_renewed: bool) -> Duration {
        match self.bounds().lease {
            // No caller has taken the grant. A caller may at any moment, and needs time for a renewal then.
            Lease::Kept(_) if !is_renewed => self.term.remaining() / 4,
            lease => period(lease.length()),
        }
    }

    /// Holds with the same batch key can share a request.
    fn batch(&self) -> (Shard, Kind) {
        (self.shard, self.key.resource.kind)
    }
}

/// How long after a renewal or a check of a hold with a lease of `length` the next one is due.
fn period(length: Duration) -> Duration {
    length / 3
}

/// When the client has to end a hold under a session, if ever.
fn end(Bounds { lease, limit }: Bounds, begun: Instant, length: Duration) -> Option<Instant> {
    let fixed = matches!(lease, Lease::Fixed(_)).then(|| begun + length);
    [fixed, limit].into_iter().flatten().min()
}

/// Until when a hold may be trusted. Permits that are only counted have no lease on the server, and last while they are
/// held.
pub(super) fn until(kind: Kind, bounds: Bounds, begun: Instant, length: Duration) -> Until {
    if kind == Kind::Semaphore { Until::Kept(length) } else { bounds.until(begun, length) }
}

/// All holds of a client, each in a slot of its own. A hundred thousand of them should cost little, so a single hold
/// allocates nothing, and all indexes refer to it by its slot number.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    slots: Vec<Slot>,
    /// The empty slots.
    free: Vec<u32>,
    /// The slot of the last hold under a name, of any kind. Mostly there is one.
    names: HashMap<Name, u32, ByName>,
    /// Holds that can share a request, in the order in which they are due.
    due: BTreeMap<(Shard, Kind), BTreeSet<(Instant, u32)>>,
    /// How many holds were ever entered; wraps around.
    entries: u32,
}

#[derive(Debug)]
struct Slot {
    hold: Option<Entry>,
    /// The slot of the hold before it under the same name.
    before: Option<u32>,
    entry: u32,
}

/// One entry in the ledger. When its slot is used again, that is another entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id {
    slot: u32,
    entry: u32,
}

/// The size of one request: holds, or values and permits where a hold has many. The server is blocked for other clients
/// while it carries that out.
pub(super) const BATCH: usize = 250;

/// Holds that are due.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The holds of one request, all of one shard and kind. They become due again if there is no reply.
    pub(super) holds: Vec<(Id, Entry)>,
    /// Holds that have ended meanwhile, and are no longer tracked.
    pub(super) ended: Vec<Entry>,
}

impl Ledger {
    /// Enters a hold, unless its term has ended already, and returns the conflicting holds of other terms.
    pub(super) fn insert(&mut self, hold: Entry) -> Vec<Entry> {
        let is_held = hold.term.is_held();
        let mut gone = self.remove_where(&hold.key.resource.name, |before| {
            // A hold that has ended displaces others, but not its own entry: that may have gone to another term.
            (is_held && before.key == hold.key) || before.excludes(&hold.key)
        });
        gone.retain(|before| !Arc::ptr_eq(&before.term, &hold.term));
        if !is_held {
            return gone;
        }
        self.entries = self.entries.wrapping_add(1);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { hold: None, before: None, entry: 0 });
            u32::try_from(self.slots.len() - 1).expect("fewer holds than there are numbers")
        });
        self.due.entry(hold.batch()).or_default().insert((hold.due, slot));
        let before = self.names.insert(hold.key.resource.name.clone(), slot);
        self.slots[index(slot)] = Slot { hold: Some(hold), before, entry: self.entries };
        gone
    }

    /// A hold under the name of this resource.
    pub(super) fn find(&self, name: &Name, wanted: impl Fn(&Entry) -> bool) -> Option<&Entry> {
        self.under(name).map(|(_, hold)| hold).find(|hold| wanted(hold))
    }

    pub(super) fn get(&self, key: &HoldKey) -> Option<&Entry> {
        self.find(&key.resource.name, |hold| hold.is_of(key))
    }

    /// Makes this term receive the loss of a hold, instead of the one before; false if the hold is not there.
    pub(super) fn rebind(&mut self, key: &HoldKey, term: &Arc<Term>) -> bool {
        let hold = self.slot_of(key).and_then(|slot| self.slots[index(slot)].hold.as_mut());
        hold.map(|hold| hold.term = Arc::clone(term)).is_some()
    }

    pub(super) fn remove(&mut self, key: &HoldKey) -> Option<Entry> {
        self.slot_of(key).and_then(|slot| self.clear(slot))
    }

    /// Removes a hold, by whichever kind of lock it was entered.
    pub(super) fn remove_hold(&mut self, key: &HoldKey) -> Option<Entry> {
        let hold = key.of_hold();
        let slot = self.under(&key.resource.name).find(|(_, other)| other.key.of_hold() == hold)?.0;
        self.clear(slot)
    }

    pub(super) fn remove_all(&mut self, resource: &Resource) -> Vec<Entry> {
        self.remove_where(&resource.name, |hold| hold.key.resource.overlaps(resource))
    }

    /// Removes one entry, if it is still there.
    pub(super) fn remove_entry(&mut self, id: Id) -> Option<Entry> {
        self.entry(id)?;
        self.clear(id.slot)
    }

    /// One entry, if it is still there.
    pub(super) fn entry(&self, id: Id) -> Option<&Entry> {
        let is_it = |slot: &&Slot| slot.entry == id.entry || mutation!("entry-is-its-place");
        self.slots.get(index(id.slot)).filter(is_it)?.hold.as_ref()
    }

    /// Schedules a re-entered hold in time for a new lease of `length`; returns when it is due.
    pub(super) fn reschedule(&mut self, key: &HoldKey, length: Duration, now: Instant) -> Option<Instant> {
        let (slot, hold) = self.under(&key.resource.name).find(|(_, hold)| hold.is_of(key))?;
        let due = hold.due.min(now + period(length.min(hold.term.remaining())));
        self.schedule(Id { slot, entry: self.slots[index(slot)].entry }, due);
        Some(due)
    }

    /// Schedules a hold for this time.
    pub(super) fn set_due(&mut self, key: &HoldKey, due: Instant) {
        if let Some(slot) = self.slot_of(key) {
            self.schedule(Id { slot, entry: self.slots[index(slot)].entry }, due);
        }
    }

    /// Sets the count of a hold, if it is there.
    pub(super) fn set_count(&mut self, key: &HoldKey, count: u32) -> Option<&Entry> {
        let slot = self.slot_of(key)?;
        let hold = self.slots[index(slot)].hold.as_mut()?;
        hold.count = count;
        Some(hold)
    }

    /// Removes all holds of a session.
    pub(super) fn remove_session(&mut self, session: &Arc<Session>) -> Vec<Entry> {
        let is_bound = |slot: &Slot| slot.hold.as_ref().is_some_and(|hold| hold.term.is_bound_to(session));
        let slots: Vec<_> =
            (0..).zip(&self.slots).filter(|(_, slot)| is_bound(slot)).map(|(at, _)| at).collect();
        slots.into_iter().filter_map(|slot| self.clear(slot)).collect()
    }

    /// Schedules an entry for this time.
    pub(super) fn schedule(&mut self, id: Id, due: Instant) {
        let slot = self.slots.get_mut(index(id.slot)).filter(|slot| slot.entry == id.entry);
        let Some(hold) = slot.and_then(|slot| slot.hold.as_mut()) else { return };
        if let Some(order) = self.due.get_mut(&hold.batch()) {
            order.remove(&(hold.due, id.slot));
            order.insert((due, id.slot));
        }
        hold.due = due;
    }

    /// The holds on a shard.
    pub(super) fn on(&self, shard: Shard) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter_map(move |slot| slot.hold.as_ref().filter(|hold| hold.shard == shard))
    }

    /// Schedules all holds on a shard for this time.
    pub(super) fn schedule_all(&mut self, shard: Shard, due: Instant) {
        self.due.retain(|(of, _), _| *of != shard);
        for (slot, hold) in (0..).zip(self.slots.iter_mut().map(|slot| slot.hold.as_mut())) {
            let Some(hold) = hold.filter(|hold| hold.shard == shard) else { continue };
            hold.due = due;
            self.due.entry(hold.batch()).or_default().insert((due, slot));
        }
    }

    /// When the next hold is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.first_due().map(|(due, _)| due)
    }

    fn first_due(&self) -> Option<(Instant, (Shard, Kind))> {
        self.due.iter().filter_map(|(batch, order)| Some((order.first()?.0, *batch))).min()
    }

    /// Holds that are due now, or so soon that it saves a request of its own: one request, of the shard and kind due first.
    pub(super) fn take_due(&mut self, now: Instant) -> Batch {
        let mut batch = Batch::default();
        let Some((_, batch_key)) = self.first_due() else { return batch };
        let mut size = 0;
        while let Some((due, slot)) = self.due.get(&batch_key).and_then(BTreeSet::first).copied() {
            let Slot { hold: Some(hold), entry, .. } = &self.slots[index(slot)] else { break };
            let left = hold.term.remaining();
            if left.is_zero() {
                batch.ended.extend(self.clear(slot));
                continue;
            }
            if hold.term.has_session() {
                // Nothing renews it: it is due when it ends. If it has not ended, its end was moved.
                if due > now {
                    break;
                }
                let id = Id { slot, entry: *entry };
                let longest = hold.bounds().lease.length().max(hold.requested().lease.length());
                self.schedule(id, now + left + margin(left.max(longest)));
                continue;
            }
            size += hold.size();
            // Sooner than any retry, so that this loop ends.
            if due > now + left / 8 || (size > BATCH && !batch.holds.is_empty()) {
                break;
            }
            // The less time is left, the sooner the retry.
            let again = (left / 4).clamp(Duration::from_millis(5), period(hold.bounds().lease.length()));
            let id = Id { slot, entry: *entry };
            batch.holds.push((id, hold.clone()));
            self.schedule(id, now + again);
        }
        batch
    }

    /// Empties the ledger.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Entry> + use<> {
        (self.free, self.names, self.due) = Default::default();
        std::mem::take(&mut self.slots).into_iter().filter_map(|slot| slot.hold)
    }

    /// The holds under a name and their slots.
    fn under(&self, name: &Name) -> impl Iterator<Item = (u32, &Entry)> {
        let last = self.names.get(name).copied();
        successors(last, |slot| self.slots[index(*slot)].before)
            .filter_map(|slot| Some((slot, self.slots[index(slot)].hold.as_ref()?)))
    }

    /// The slot of a hold.
    fn slot_of(&self, key: &HoldKey) -> Option<u32> {
        self.under(&key.resource.name).find(|(_, hold)| hold.is_of(key)).map(|(slot, _)| slot)
    }

    fn remove_where(&mut self, name: &Name, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let slots: Vec<_> = self.under(name).filter(|(_, hold)| wanted(hold)).map(|(slot, _)| slot).collect();
        slots.into_iter().filter_map(|slot| self.clear(slot)).collect()
    }

    /// Empties a slot.
    fn clear(&mut self, slot: u32) -> Option<Entry> {
        let Slot { hold, before, .. } = &mut self.slots[index(slot)];
        let (hold, before) = (hold.take()?, before.take());
        let name = &hold.key.resource.name;
        if let Some(order) = self.due.get_mut(&hold.batch()) {
            order.remove(&(hold.due, slot));
        }
        let last = self.names.get_mut(name)?;
        match before {
            _ if *last != slot => {
                let mut after = successors(Some(*last), |after| self.slots[index(*after)].before);
                let after = after.find(|after| self.slots[index(*after)].before == Some(slot))?;
                self.slots[index(after)].before = before;
            }
            Some(before) => *last = before,
            None => drop(self.names.remove(name)),
        }
        self.free.push(slot);
        Some(hold)
    }
}

fn index(slot: u32) -> usize {
    usize::try_from(slot).expect("a slot that there is")
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::client_id::ClientId;
    use crate::env;
    use crate::owner::OwnerId;

    const LEASE: Lease = Lease::Kept(Duration::from_secs(30));

    fn hold(kind: Kind, name: &str, begun: Instant) -> Entry {
        let resource = Resource::new(kind, Name::new("", name).unwrap());
        let key = HoldKey { resource, owner: OwnerId::fresh(ClientId::random(), 1), amount: 1 };
        let bounds = Bounds { lease: LEASE, limit: None };
        let hold = Entry::new(key, Shard::ONLY, Term::new(Weak::new()), bounds, begun);
        hold.term.set_until(hold.until(begun, bounds.length(begun)));
        hold
    }

    /// Renews until no hold is due; returns the sizes of the requests.
    fn requests(ledger: &mut Ledger, now: Instant) -> Vec<usize> {
        let mut sizes = Vec::new();
        while ledger.next_due().is_some_and(|due| due <= now) {
            let Batch { holds, ended } = ledger.take_due(now);
            assert!(ended.is_empty());
            assert!(holds.iter().all(|(_, hold)| hold.key.resource.kind == holds[0].1.key.resource.kind));
            sizes.push(holds.len());
        }
        sizes
    }

    #[tokio::test(start_paused = true)]
    async fn holds_of_one_name_can_be_removed_in_any_order() {
        let readers: Vec<_> = (0..4).map(|_| hold(Kind::Read, "n", env::now())).collect();
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let mut ledger = Ledger::default();
            for reader in &readers {
                assert!(ledger.insert(reader.clone()).is_empty());
            }
            for (gone, next) in order.into_iter().enumerate() {
                assert!(ledger.remove(&readers[next].key).is_some());
                assert!(ledger.remove(&readers[next].key).is_none());
                let left = readers.iter().filter(|reader| ledger.get(&reader.key).is_some()).count();
                assert_eq!(left, 3 - gone);
            }
            assert!(ledger.names.is_empty() && ledger.next_due().is_none());
            assert_eq!(ledger.free.len(), ledger.slots.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_hold_displaces_incompatible_holds() {
        let mut ledger = Ledger::default();
        let (reader, writer) = (hold(Kind::Read, "n", env::now()), hold(Kind::Write, "n", env::now()));
        let lock = hold(Kind::Lock, "n", env::now());
        ledger.insert(reader.clone());
        ledger.insert(lock.clone());
        let gone = ledger.insert(writer.clone());
        assert!(gone.len() == 1 && gone[0].key == reader.key);
        // Entering the same hold again is no loss.
        assert!(ledger.insert(writer.clone()).is_empty());
        assert!(ledger.get(&lock.key).is_some() && ledger.get(&reader.key).is_none());
        assert_eq!(ledger.take_all().count(), 2);
        assert!(ledger.get(&lock.key).is_none() && ledger.next_due().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reused_place_of_the_ledger_is_a_new_entry() {
        let mut ledger = Ledger::default();
        let (first, begun) = (hold(Kind::Lock, "n", env::now()), env::now());
        ledger.insert(first.clone());
        let id = ledger.take_due(begun + LEASE.length() / 3).holds[0].0;
        assert!(ledger.entry(id).is_some());
        ledger.insert(first.clone());
        assert!(ledger.entry(id).is_none() && ledger.remove_entry(id).is_none());
        ledger.schedule(id, begun);
        assert_eq!(ledger.next_due(), Some(first.due()));
        assert_eq!(ledger.slots.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_request_covers_one_kind_and_a_limited_number_of_holds() {
        let mut ledger = Ledger::default();
        for number in 0..BATCH * 2 {
            ledger.insert(hold(Kind::Lock, &format!("lock {number}"), env::now()));
            ledger.insert(hold(Kind::SetNx, &format!("setnx {number}"), env::now()));
        }
        assert_eq!(requests(&mut ledger, env::now()), [0; 0]);
        tokio::time::advance(LEASE.length() / 3).await;
        assert_eq!(requests(&mut ledger, env::now()), [BATCH; 4]);
        // There was no reply. The less time is left, the sooner the retry, but not at once.
        tokio::time::advance(LEASE.length() / 2).await;
        assert_eq!(requests(&mut ledger, env::now()), [BATCH; 4]);
        tokio::time::advance(LEASE.length() / 6).await;
        let Batch { holds, ended } = ledger.take_due(env::now());
        assert!(holds.is_empty() && ended.len() == BATCH * 2);
        assert_eq!(ledger.take_due(env::now()).ended.len(), BATCH * 2);
        assert!(ledger.next_due().is_none());
    }
}
