//! What this client holds, renewed and checked in batches until it is given back or lost.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::resp::Value;
use tokio::sync::Notify;

use super::calls;
use super::hints::Hints;
use super::io::Pipe;
use crate::engine::{Family, Kind, Spot, Target};
use crate::lease::{Lease, margin};
use crate::loss::Loss;
use crate::name::Name;
use crate::term::{Term, Until};
use crate::time::{self, Instant};

/// Holds and when each is due.
#[derive(Debug)]
pub(super) struct Keeper {
    book: Mutex<Book>,
    changed: Notify,
    /// Who may want to know that something is lost here, which then may be free.
    hints: Arc<Hints>,
}

/// Mostly there is one hold under a name.
#[derive(Debug, Default)]
struct Book {
    holds: HashMap<(Family, Name), Vec<Kept>>,
    due: BTreeSet<Due>,
}

/// When which hold is to be looked after. The number of its owner comes before the name, because it is nearly always
/// enough to tell two apart.
type Due = (Instant, u64, Target);

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

    fn key(&self) -> (Family, Name) {
        key(&self.spot.target)
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

    fn due(&self) -> Due {
        (self.due, self.spot.owner.number, self.spot.target.clone())
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

    /// How long a lease that begins at `begun` may be: the limit cuts it.
    pub(super) fn length(&self, begun: Instant) -> Duration {
        let length = self.lease.length();
        self.limit.map_or(length, |limit| length.min(limit.saturating_duration_since(begun)))
    }
}

fn key(target: &Target) -> (Family, Name) {
    (target.kind.family(), target.name.clone())
}

/// How much goes into one request: holds, or values and permits where a hold has many. The server serves nobody else
/// while it works on that.
const BATCH: usize = 250;

/// How many of these go into the next request: at least one, whatever it has.
fn next_batch(due: &[Kept]) -> usize {
    let mut sum = 0;
    let fit = due.iter().take_while(|kept| {
        sum += kept.size();
        sum <= BATCH
    });
    fit.count().max(1)
}
/// Whatever is due, the clock is looked at this often while something is held: the machine may have been suspended.
const GLANCE: Duration = Duration::from_secs(1);

impl Keeper {
    pub(super) fn new(hints: Arc<Hints>) -> Self {
        Self { book: Mutex::default(), changed: Notify::new(), hints }
    }

    /// Begins to keep a hold. Those who were kept and cannot hold it beside this one have lost it.
    pub(super) fn keep(&self, kept: Kept, taken_over: bool) {
        let displaced = self.book().insert(kept);
        for before in displaced {
            before.term.lose(if taken_over { Loss::TakenOver } else { Loss::Gone });
        }
        self.changed.notify_one();
    }

    /// Stops keeping a hold.
    pub(super) fn forget(&self, spot: &Spot) {
        self.book().remove(spot);
    }

    /// Tells this term of the loss of a hold from now on, instead of the one before; false if it is not kept.
    pub(super) fn entrust(&self, spot: &Spot, term: &Arc<Term>) -> bool {
        let mut book = self.book();
        let beside = book.holds.get_mut(&key(&spot.target));
        let kept = beside.and_then(|beside| beside.iter_mut().find(|kept| kept.is_of(spot)));
        kept.map(|kept| kept.term = Arc::clone(term)).is_some()
    }

    pub(super) fn get(&self, spot: &Spot) -> Option<Kept> {
        self.book().holds.get(&key(&spot.target))?.iter().find(|kept| kept.is_of(spot)).cloned()
    }

    /// The term of a hold, by whichever handle of the same lock it was taken.
    pub(super) fn term(&self, spot: &Spot) -> Option<Arc<Term>> {
        let book = self.book();
        let beside = book.holds.get(&key(&spot.target))?;
        let kept = beside
            .iter()
            .find(|kept| kept.spot.owner == spot.owner && kept.spot.target.shares_holds_with(&spot.target));
        kept.map(|kept| Arc::clone(&kept.term))
    }

    /// Whether the owner holds anything under this name, be it another half of it.
    pub(super) fn is_inside(&self, spot: &Spot) -> bool {
        let book = self.book();
        book.holds
            .get(&key(&spot.target))
            .is_some_and(|all| all.iter().any(|kept| kept.spot.owner == spot.owner))
    }

    /// What was held under the name of a target, by whomever, is gone.
    pub(super) fn lose(&self, target: &Target, loss: Loss) {
        for lost in self.book().remove_all(target) {
            lost.term.lose(loss);
            self.hints.hint(&lost.spot);
        }
    }

    /// Stops keeping everything, tells the guards, and counts what was still held.
    pub(super) fn retire(&self) -> usize {
        let holds = {
            let mut book = self.book();
            book.due.clear();
            std::mem::take(&mut book.holds)
        };
        let held: Vec<_> = holds.into_values().flatten().filter(|kept| kept.term.is_held()).collect();
        for kept in &held {
            kept.term.lose(Loss::Shutdown);
        }
        held.len()
    }

    /// After a gap nobody knows what has become of the holds: look now.
    pub(super) fn check_all(&self) {
        let now = time::now();
        let mut book = self.book();
        let all: Vec<_> = book.holds.values().flatten().map(|kept| kept.spot.clone()).collect();
        for spot in all {
            book.put_off(&spot, now);
        }
        drop(book);
        self.changed.notify_one();
    }

    /// Renews and checks what is due, until the client is gone.
    pub(super) async fn run(self: Arc<Self>, pipe: Pipe) {
        loop {
            let changed = self.changed.notified();
            let next = self.book().due.first().map(|(due, ..)| *due);
            let now = time::now();
            match next {
                None => changed.await,
                Some(due) if due > now => {
                    let nap = (due - now).min(GLANCE);
                    tokio::select! { () = changed => {}, () = tokio::time::sleep(nap) => {} }
                }
                Some(_) => {
                    let mut due = self.take_due(now);
                    due.sort_by_key(|kept| kept.spot.target.kind);
                    for mut kind in due.chunk_by(|one, other| one.spot.target.kind == other.spot.target.kind)
                    {
                        while !kind.is_empty() {
                            let (batch, rest) = kind.split_at(next_batch(kind));
                            kind = rest;
                            let keeper = Arc::clone(&self);
                            // Sent in this order; answered whenever. A batch that hangs holds up no other.
                            let renewal = keeper.renew(batch.to_vec(), &pipe);
                            tokio::spawn(renewal);
                        }
                    }
                }
            }
        }
    }

    /// Everything that is due now or soon. What is taken comes up again by itself if nothing is heard of it.
    fn take_due(&self, now: Instant) -> Vec<Kept> {
        let (mut taken, mut ended) = (Vec::new(), Vec::new());
        let mut book = self.book();
        for kept in book.pop_due(now) {
            let left = kept.term.remaining();
            if left.is_zero() {
                book.remove(&kept.spot);
                ended.push(kept);
                continue;
            }
            // The less is left, the sooner it is tried again.
            let again = (left / 4).clamp(Duration::from_millis(5), kept.lease.length() / 3);
            book.put_off(&kept.spot, now + again);
            taken.push(kept);
        }
        drop(book);
        // Whoever listens sleeps until the deadline by a clock that stands still while the machine is suspended.
        for Kept { term, spot, .. } in ended {
            term.announce();
            self.hints.hint(&spot);
        }
        taken
    }

    /// Renews and checks holds of one kind.
    fn renew(self: Arc<Self>, batch: Vec<Kept>, pipe: &Pipe) -> impl Future<Output = ()> + use<> {
        let begun = time::now();
        let holds = batch.iter().map(|kept| match kept.lease {
            Lease::Kept(_) => (&kept.spot, kept.length(begun)),
            Lease::Fixed(_) => (&kept.spot, Duration::ZERO),
        });
        let call = calls::renew(batch[0].spot.target.kind, holds);
        // What comes after half of the time that is left comes too late to try again.
        let least = batch.iter().map(|kept| kept.term.remaining()).min().unwrap_or_default();
        let answer = pipe.send_within(call, least / 2);
        async move {
            match answer.await {
                Ok(Value::Array(verdicts)) => {
                    for (kept, verdict) in batch.iter().zip(verdicts) {
                        self.judge(kept, begun, &verdict);
                    }
                }
                Ok(other) => tracing::warn!(?other, "a renewal was answered with nonsense"),
                Err(failure) => tracing::debug!(%failure, holds = batch.len(), "not renewed, trying again"),
            }
        }
    }

    fn judge(&self, kept: &Kept, begun: Instant, verdict: &Value) {
        match verdict {
            Value::Int(1) => {
                if let Lease::Kept(_) = kept.lease
                    // It may have gone to somebody else meanwhile.
                    && let Some(now) = self.get(&kept.spot)
                {
                    now.term.lasts(kept.until(begun, kept.length(begun)));
                }
                self.book().put_off(&kept.spot, begun + kept.lease.length() / 3);
            }
            Value::Int(2) => self.lose_one(&kept.spot, Loss::TakenOver),
            _ => self.lose_one(&kept.spot, Loss::Gone),
        }
    }

    fn lose_one(&self, spot: &Spot, loss: Loss) {
        let lost = self.book().remove(spot);
        if let Some(lost) = lost {
            tracing::warn!(lock = %spot.target, %loss, "a held lock is lost");
            lost.term.lose(loss);
            self.hints.hint(spot);
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Notes a hold, and returns those of other terms that cannot be there beside it.
    fn insert(&mut self, kept: Kept) -> Vec<Kept> {
        let Self { holds, due } = self;
        let beside = holds.entry(kept.key()).or_default();
        let (mut gone, rest): (Vec<_>, Vec<_>) = std::mem::take(beside)
            .into_iter()
            .partition(|before| before.spot == kept.spot || before.excludes(&kept));
        for before in &gone {
            due.remove(&before.due());
        }
        due.insert(kept.due());
        gone.retain(|before| !Arc::ptr_eq(&before.term, &kept.term));
        *beside = rest;
        beside.push(kept);
        gone
    }

    fn remove(&mut self, spot: &Spot) -> Option<Kept> {
        let key = key(&spot.target);
        let beside = self.holds.get_mut(&key)?;
        let kept = beside.swap_remove(beside.iter().position(|kept| kept.is_of(spot))?);
        if beside.is_empty() {
            self.holds.remove(&key);
        }
        self.due.remove(&kept.due());
        Some(kept)
    }

    fn remove_all(&mut self, target: &Target) -> Vec<Kept> {
        let key = key(target);
        let beside = self.holds.remove(&key).unwrap_or_default();
        let (all, rest): (Vec<_>, Vec<_>) =
            beside.into_iter().partition(|kept| kept.spot.target.overlaps(target));
        if !rest.is_empty() {
            self.holds.insert(key, rest);
        }
        for kept in &all {
            self.due.remove(&kept.due());
        }
        all
    }

    /// Takes out of the order what is due now, or so soon that it saves a request of its own.
    fn pop_due(&mut self, now: Instant) -> Vec<Kept> {
        let mut popped = Vec::new();
        while let Some((due, number, target)) = self.due.first() {
            let beside = self.holds.get(&key(target)).into_iter().flatten();
            let kept = beside
                .filter(|kept| kept.spot.owner.number == *number && kept.spot.target == *target)
                .find(|kept| kept.due == *due);
            if kept.is_some_and(|kept| *due > now + kept.lease.length() / 12) {
                break;
            }
            popped.extend(kept.cloned());
            self.due.pop_first();
        }
        popped
    }

    fn put_off(&mut self, spot: &Spot, due: Instant) {
        let Some(beside) = self.holds.get_mut(&key(&spot.target)) else { return };
        if let Some(kept) = beside.iter_mut().find(|kept| kept.is_of(spot)) {
            self.due.remove(&kept.due());
            kept.due = due;
            self.due.insert(kept.due());
        }
    }
}
