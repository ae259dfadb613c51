//! What this client holds, renewed and checked in batches until it is given back or lost.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::Notify;

use super::io::Pipe;
use super::scripts::{Call, RENEW};
use crate::lease::{Lease, margin};
use crate::loss::Loss;
use crate::name::Name;
use crate::owner::OwnerId;
use crate::term::{Term, Until};
use crate::time::{self, Instant};

/// Holds and when each is due.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    book: Mutex<Book>,
    changed: Notify,
}

/// A plain lock has one holder, so a name has one entry.
#[derive(Debug, Default)]
struct Book {
    holds: HashMap<Name, Kept>,
    due: BTreeSet<(Instant, u64, Name)>,
}

#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) owner: OwnerId,
    pub(super) lease: Lease,
    pub(super) limit: Option<Instant>,
    pub(super) term: Arc<Term>,
    due: Instant,
}

impl Kept {
    pub(super) fn new(
        owner: OwnerId,
        lease: Lease,
        limit: Option<Instant>,
        term: Arc<Term>,
        begun: Instant,
    ) -> Self {
        Self { owner, lease, limit, term, due: begun + lease.length() / 3 }
    }

    /// Until when a hold lasts whose lease of `length` was begun at `begun`.
    pub(super) fn until(&self, begun: Instant, length: Duration) -> Until {
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

/// How many holds go into one request.
const BATCH: usize = 250;
/// Whatever is due, the clock is looked at this often while something is held: the machine may have been suspended.
const GLANCE: Duration = Duration::from_secs(1);

impl Keeper {
    /// Begins to keep a hold. Whoever was kept under this name before has lost it.
    pub(super) fn keep(&self, name: &Name, kept: Kept, taken_over: bool) {
        let mut book = self.book();
        let before = book.insert(name, kept);
        drop(book);
        if let Some(before) = before {
            before.term.lose(if taken_over { Loss::TakenOver } else { Loss::Gone });
        }
        self.changed.notify_one();
    }

    /// Stops keeping what `owner` holds.
    pub(super) fn forget(&self, name: &Name, owner: OwnerId) {
        self.book().remove(name, owner);
    }

    /// What is kept under this name in that owner's name.
    pub(super) fn get(&self, name: &Name, owner: OwnerId) -> Option<Kept> {
        self.book().holds.get(name).filter(|kept| kept.owner == owner).cloned()
    }

    /// The hold of this name, whoever's, is gone.
    pub(super) fn lose(&self, name: &Name, loss: Loss) {
        let lost = {
            let mut book = self.book();
            let owner = book.holds.get(name).map(|kept| kept.owner);
            owner.and_then(|owner| book.remove(name, owner))
        };
        if let Some(lost) = lost {
            lost.term.lose(loss);
        }
    }

    /// Stops keeping everything, tells the guards, and counts what was still held.
    pub(super) fn retire(&self) -> usize {
        let holds = {
            let mut book = self.book();
            book.due.clear();
            std::mem::take(&mut book.holds)
        };
        let held: Vec<_> = holds.into_values().filter(|kept| kept.term.is_held()).collect();
        for kept in &held {
            kept.term.lose(Loss::Shutdown);
        }
        held.len()
    }

    /// After a gap nobody knows what has become of the holds: look now.
    pub(super) fn check_all(&self) {
        let now = time::now();
        let mut book = self.book();
        let all: Vec<_> = book.holds.iter().map(|(name, kept)| (name.clone(), kept.owner)).collect();
        for (name, owner) in all {
            book.put_off(&name, owner, now);
        }
        drop(book);
        self.changed.notify_one();
    }

    /// Renews and checks what is due, until the client is gone.
    pub(super) async fn run(self: Arc<Self>, pipe: Pipe) {
        loop {
            let changed = self.changed.notified();
            let next = self.book().due.first().map(|(due, _, _)| *due);
            let now = time::now();
            match next {
                None => changed.await,
                Some(due) if due > now => {
                    let nap = (due - now).min(GLANCE);
                    tokio::select! { () = changed => {}, () = tokio::time::sleep(nap) => {} }
                }
                Some(_) => {
                    for batch in self.take_due(now).chunks(BATCH) {
                        let keeper = Arc::clone(&self);
                        // Sent in this order; answered whenever. A batch that hangs holds up no other.
                        let renewal = keeper.renew(batch.to_vec(), &pipe);
                        tokio::spawn(renewal);
                    }
                }
            }
        }
    }

    /// Everything that is due now or soon. What is taken comes up again by itself if nothing is heard of it.
    fn take_due(&self, now: Instant) -> Vec<(Name, Kept)> {
        let (mut taken, mut ended) = (Vec::new(), Vec::new());
        let mut book = self.book();
        for (name, kept) in book.pop_due(now) {
            let left = kept.term.remaining();
            if left.is_zero() {
                book.remove(&name, kept.owner);
                ended.push(kept.term);
                continue;
            }
            // The less is left, the sooner it is tried again.
            let again = (left / 4).clamp(Duration::from_millis(5), kept.lease.length() / 3);
            book.put_off(&name, kept.owner, now + again);
            taken.push((name, kept));
        }
        drop(book);
        // Whoever listens sleeps until the deadline by a clock that stands still while the machine is suspended.
        for term in ended {
            term.announce();
        }
        taken
    }

    fn renew(self: Arc<Self>, batch: Vec<(Name, Kept)>, pipe: &Pipe) -> impl Future<Output = ()> + use<> {
        let begun = time::now();
        let mut call = Call::new(&RENEW);
        for (name, kept) in &batch {
            let lease = match kept.lease {
                Lease::Kept(_) => kept.length(begun),
                Lease::Fixed(_) => Duration::ZERO,
            };
            call = call.key(name.as_str()).arg(kept.owner).arg(lease.as_millis());
        }
        // What comes after half of the time that is left comes too late to try again.
        let least = batch.iter().map(|(_, kept)| kept.term.remaining()).min().unwrap_or_default();
        let answer = pipe.send_within(call, least / 2);
        async move {
            match answer.await {
                Ok(Value::Array(verdicts)) => {
                    for ((name, kept), verdict) in batch.iter().zip(verdicts) {
                        self.judge(name, kept, begun, &verdict);
                    }
                }
                Ok(other) => tracing::warn!(?other, "a renewal was answered with nonsense"),
                Err(failure) => tracing::debug!(%failure, holds = batch.len(), "not renewed, trying again"),
            }
        }
    }

    fn judge(&self, name: &Name, kept: &Kept, begun: Instant, verdict: &Value) {
        match verdict {
            Value::Int(1) => {
                if let Lease::Kept(length) = kept.lease {
                    let term_ends = kept.until(begun, kept.length(begun));
                    kept.term.lasts(term_ends);
                    self.book().put_off(name, kept.owner, begun + length / 3);
                } else {
                    self.book().put_off(name, kept.owner, begun + kept.lease.length() / 3);
                }
            }
            Value::Int(2) => self.lose_if(name, kept.owner, Loss::TakenOver),
            _ => self.lose_if(name, kept.owner, Loss::Gone),
        }
    }

    fn lose_if(&self, name: &Name, owner: OwnerId, loss: Loss) {
        let lost = self.book().remove(name, owner);
        if let Some(lost) = lost {
            tracing::warn!(lock = %name, %loss, "a held lock is lost");
            lost.term.lose(loss);
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Notes a hold, and returns the one of another term that stood there.
    fn insert(&mut self, name: &Name, kept: Kept) -> Option<Kept> {
        let owner = self.holds.get(name).map(|before| before.owner);
        let before = owner.and_then(|owner| self.remove(name, owner));
        let other = before.filter(|before| !Arc::ptr_eq(&before.term, &kept.term));
        self.due.insert((kept.due, kept.owner.number, name.clone()));
        self.holds.insert(name.clone(), kept);
        other
    }

    fn remove(&mut self, name: &Name, owner: OwnerId) -> Option<Kept> {
        self.holds.get(name).filter(|kept| kept.owner == owner)?;
        let kept = self.holds.remove(name)?;
        self.due.remove(&(kept.due, kept.owner.number, name.clone()));
        Some(kept)
    }

    /// Takes out of the order what is due now, or so soon that it saves a request of its own.
    fn pop_due(&mut self, now: Instant) -> Vec<(Name, Kept)> {
        let mut popped = Vec::new();
        while let Some((due, _, name)) = self.due.first() {
            let kept = self.holds.get(name);
            if kept.is_some_and(|kept| *due > now + kept.lease.length() / 12) {
                break;
            }
            popped.extend(kept.map(|kept| (name.clone(), kept.clone())));
            self.due.pop_first();
        }
        popped
    }

    fn put_off(&mut self, name: &Name, owner: OwnerId, due: Instant) {
        if let Some(mut kept) = self.remove(name, owner) {
            kept.due = due;
            self.insert(name, kept);
        }
    }
}
