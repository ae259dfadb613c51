//! What this client holds, renewed and checked in batches until it is given back or lost.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::resp::Value;
use tokio::sync::{Notify, Semaphore};

use super::book::{Batch, Book, Id, Kept};
use super::calls;
use super::hints::Hints;
use super::io::Pipe;
use crate::engine::{Spot, Target};
use crate::lease::Lease;
use crate::loss::Loss;
use crate::term::Term;
use crate::time::{self, Instant};

/// Looks after holds.
#[derive(Debug)]
pub(super) struct Keeper {
    state: Mutex<State>,
    changed: Notify,
    /// How many more renewals may be under way.
    room: Arc<Semaphore>,
    /// Who may want to know that something is lost here, which then may be free.
    hints: Arc<Hints>,
}

#[derive(Debug, Default)]
struct State {
    book: Book,
    /// When the keeper looks by itself; never as long as nothing is held.
    alarm: Option<Instant>,
}

/// How many renewals are under way at once. What a hundred thousand holds would need to be renewed all together is much
/// more than what it takes to keep them.
const AT_ONCE: usize = 8;
/// A renewal that takes longer than this does not hold up the others.
const SLOW: Duration = Duration::from_millis(100);
/// Whatever is due, the clock is looked at this often while something is held: the machine may have been suspended.
const GLANCE: Duration = Duration::from_secs(1);

impl Keeper {
    pub(super) fn new(hints: Arc<Hints>) -> Self {
        let room = Arc::new(Semaphore::new(AT_ONCE));
        Self { state: Mutex::default(), changed: Notify::new(), room, hints }
    }

    /// The server has granted a hold for `length` from `begun` on. To be called in the order of the replies, before the
    /// caller hears of it: what the server does to the hold afterwards reaches its term in any case.
    pub(super) fn granted(&self, kept: Kept, begun: Instant, length: Duration, taken_over: bool) {
        // If it came too late, this ends the term.
        kept.term.lasts(kept.until(begun, length));
        self.keep(kept, taken_over);
    }

    /// A caller has entered a hold again: from now on it is kept like this, if it is still there.
    pub(super) fn reentered(&self, kept: Kept) {
        if kept.term.is_held() && self.get(&kept.spot).is_some() {
            self.keep(kept, false);
        }
    }

    /// Begins to keep a hold. Those who were kept and cannot hold it beside this one have lost it.
    fn keep(&self, kept: Kept, taken_over: bool) {
        let due = kept.due();
        let (displaced, is_soon) = {
            let mut state = self.state();
            let is_soon = state.alarm.is_none_or(|alarm| due < alarm);
            if is_soon {
                state.alarm = Some(due);
            }
            (state.book.insert(kept), is_soon)
        };
        for before in displaced {
            before.term.lose(if taken_over { Loss::TakenOver } else { Loss::Gone });
        }
        if is_soon {
            self.changed.notify_one();
        }
    }

    /// Stops keeping a hold.
    pub(super) fn forget(&self, spot: &Spot) -> Option<Kept> {
        self.state().book.remove(spot)
    }

    /// Tells this term of the loss of a hold from now on, instead of the one before; false if it is not kept.
    pub(super) fn entrust(&self, spot: &Spot, term: &Arc<Term>) -> bool {
        self.state().book.entrust(spot, term)
    }

    pub(super) fn get(&self, spot: &Spot) -> Option<Kept> {
        self.state().book.get(spot).cloned()
    }

    /// The term of a hold, by whichever handle of the same lock it was taken.
    pub(super) fn term(&self, spot: &Spot) -> Option<Arc<Term>> {
        let state = self.state();
        let kept = state.book.find(&spot.target.name, |kept| {
            kept.spot.owner == spot.owner && kept.spot.target.shares_holds_with(&spot.target)
        });
        kept.map(|kept| Arc::clone(&kept.term))
    }

    /// Whether the owner holds anything under this name, be it another half of it.
    pub(super) fn is_inside(&self, spot: &Spot) -> bool {
        let family = spot.target.kind.family();
        let is_inside =
            |kept: &Kept| kept.spot.owner == spot.owner && kept.spot.target.kind.family() == family;
        self.state().book.find(&spot.target.name, is_inside).is_some()
    }

    /// What was held under the name of a target, by whomever, is gone.
    pub(super) fn lose(&self, target: &Target, loss: Loss) {
        let all = self.state().book.remove_all(target);
        for lost in all {
            lost.term.lose(loss);
            self.hints.hint(&lost.spot);
        }
    }

    /// Stops keeping everything, tells the guards, and counts what was still held.
    pub(super) fn retire(&self) -> usize {
        let all = self.state().book.take_all();
        let held = all.filter(|kept| kept.term.is_held());
        let lost = held.inspect(|kept| kept.term.lose(Loss::Shutdown));
        // What no caller has taken yet is given back when it finds the term ended.
        lost.filter(|kept| kept.term.is_claimed()).count()
    }

    /// After a gap nobody knows what has become of the holds: look now.
    pub(super) fn check_all(&self) {
        self.state().book.put_all_off(time::now());
        self.changed.notify_one();
    }

    /// Renews and checks what is due, until the client is gone.
    pub(super) async fn run(self: Arc<Self>, pipe: Pipe) {
        loop {
            let changed = self.changed.notified();
            let now = time::now();
            let due = {
                let mut state = self.state();
                let due = state.book.next_due();
                state.alarm = due.map(|due| due.min(now + GLANCE));
                due
            };
            match due {
                None => changed.await,
                Some(due) if due > now => {
                    let nap = (due - now).min(GLANCE);
                    tokio::select! { () = changed => {}, () = tokio::time::sleep(nap) => {} }
                }
                Some(_) => {
                    let Ok(room) = Arc::clone(&self.room).acquire_owned().await else { return };
                    let batch = self.take_due();
                    if !batch.is_empty() {
                        // Sent in this order; answered whenever. Those that hang hold up no other.
                        let renewal = Arc::clone(&self).renew(batch, &pipe);
                        tokio::spawn(async move {
                            let mut renewal = pin!(renewal);
                            if tokio::time::timeout(SLOW, renewal.as_mut()).await.is_err() {
                                drop(room);
                                renewal.await;
                            }
                        });
                    }
                }
            }
        }
    }

    /// What goes into the next request.
    fn take_due(&self) -> Vec<(Id, Kept)> {
        let Batch { holds, ended } = self.state().book.take_due(time::now());
        // Whoever listens sleeps until the deadline by a clock that stands still while the machine is suspended.
        for Kept { term, spot, .. } in ended {
            term.announce();
            self.hints.hint(&spot);
        }
        holds
    }

    /// Renews and checks holds of one kind.
    fn renew(self: Arc<Self>, batch: Vec<(Id, Kept)>, pipe: &Pipe) -> impl Future<Output = ()> + use<> {
        let begun = time::now();
        let lengths: Vec<_> = batch.iter().map(|(_, kept)| kept.renewal(begun)).collect();
        let holds = batch.iter().zip(&lengths).map(|((_, kept), length)| (&kept.spot, *length));
        let call = calls::renew(batch[0].1.spot.target.kind, holds);
        // What comes after half of the time that is left comes too late to try again. What is only looked at may end.
        let renewed = batch.iter().zip(&lengths).filter(|(_, length)| !length.is_zero());
        let least = renewed.map(|((_, kept), _)| kept.term.remaining()).min();
        let answer = pipe.send_within(call, least.map(|least| least / 2));
        let ids: Vec<_> = batch.into_iter().map(|(id, _)| id).collect();
        async move {
            match answer.await {
                Ok(Value::Array(verdicts)) => {
                    for ((id, length), verdict) in ids.into_iter().zip(lengths).zip(verdicts) {
                        self.judge(id, begun, length, &verdict);
                    }
                }
                Ok(other) => tracing::warn!(?other, "a renewal was answered with nonsense"),
                Err(failure) => tracing::debug!(%failure, holds = ids.len(), "not renewed, trying again"),
            }
        }
    }

    /// What the server says of an entry. It may have been given back meanwhile, and somebody else be in its place.
    /// `length` is what it was renewed for, if it was.
    fn judge(&self, id: Id, begun: Instant, length: Duration, verdict: &Value) {
        match verdict {
            Value::Int(1) => {
                let mut state = self.state();
                let Some(kept) = state.book.entry(id) else { return };
                let renewed =
                    (!length.is_zero()).then(|| (Arc::clone(&kept.term), kept.until(begun, length)));
                let is_unclaimed = renewed.is_none() && matches!(kept.lease, Lease::Kept(_));
                // A caller may take the grant at any moment, and needs time for a renewal then.
                let pause = if is_unclaimed { kept.term.remaining() / 4 } else { kept.lease.length() / 3 };
                state.book.put_off(id, begun + pause);
                drop(state);
                if let Some((term, until)) = renewed {
                    // A renewal shortens nothing, so an extension stays.
                    term.lasts_at_least(until);
                }
            }
            Value::Int(2) => self.lose_one(id, Loss::TakenOver),
            _ => self.lose_one(id, Loss::Gone),
        }
    }

    fn lose_one(&self, id: Id, loss: Loss) {
        let lost = self.state().book.remove_entry(id);
        if let Some(Kept { spot, term, .. }) = lost {
            tracing::warn!(lock = %spot.target, %loss, "a held lock is lost");
            term.lose(loss);
            self.hints.hint(&spot);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
