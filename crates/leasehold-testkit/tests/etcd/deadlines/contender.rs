//! Clients that contend for one lock, and raise a number under it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::dice::Dice;
use tokio::time::{Instant, sleep, timeout};

use super::CLIENTS;
use crate::PATIENCE;
use crate::record::{Record, deadline};

/// What all contenders share.
#[derive(Default)]
pub(super) struct Shared {
    record: Record,
    number: AtomicU64,
    /// How often the number was raised.
    raised: AtomicU64,
    violations: Mutex<Vec<String>>,
    /// The grants of each client.
    grants: [AtomicUsize; CLIENTS],
    /// The client that was granted the lock last.
    holder: AtomicUsize,
    is_fault: AtomicBool,
    is_over: AtomicBool,
}

impl Shared {
    pub(super) fn holder(&self) -> usize {
        self.holder.load(Ordering::SeqCst)
    }

    pub(super) fn set_fault(&self, is_fault: bool) {
        self.is_fault.store(is_fault, Ordering::SeqCst);
    }

    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// How often this client, or any, was granted the lock.
    pub(super) fn grants(&self, client: Option<usize>) -> usize {
        let of = |client: usize| self.grants[client].load(Ordering::SeqCst);
        client.map_or_else(|| (0..CLIENTS).map(of).sum(), of)
    }

    /// Waits for a grant to this client, or to any, after there were so many.
    pub(super) async fn grant_after(&self, before: usize, client: Option<usize>, state: impl Fn() -> String) {
        let begun = Instant::now();
        while self.grants(client) == before {
            let is_late = begun.elapsed() >= PATIENCE;
            assert!(!is_late, "no grant within {PATIENCE:?} to {client:?}; {}", state());
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Judges what has happened.
    pub(super) fn check(&self, seed: u64) {
        assert_eq!(self.record.violations(), [""; 0], "seed {seed}");
        assert_eq!(*self.violations.lock().unwrap_or_else(PoisonError::into_inner), [""; 0], "seed {seed}");
    }
}

/// Acquires the lock, holds it for a while, and raises the number, until all is over.
pub(super) async fn contend(shared: Arc<Shared>, client: Client, me: usize, mut dice: Dice) {
    let name = format!("client {me}");
    let (lock, fair_lock) = (client.lock("n"), client.fair_lock("n"));
    while !shared.is_over.load(Ordering::SeqCst) {
        let granted = if dice.one_in(3) {
            fair_lock.acquire().wait(PATIENCE).await
        } else {
            lock.acquire().wait(PATIENCE).await
        };
        let Ok(guard) = granted else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        let Some(hold) = shared.record.granted(&name, &guard) else { continue };
        shared.holder.store(me, Ordering::SeqCst);
        shared.grants[me].fetch_add(1, Ordering::SeqCst);
        let seen = shared.number.load(Ordering::SeqCst);
        let (length, begun) =
            (dice.between(Duration::from_millis(2), Duration::from_millis(40)), Instant::now());
        let goes_through_faults = dice.one_in(2);
        while let Some(deadline) = deadline(&guard) {
            shared.record.trusted(hold, deadline);
            let stays = goes_through_faults && shared.is_fault.load(Ordering::SeqCst);
            if begun.elapsed() >= length && !stays {
                break;
            }
            sleep(Duration::from_millis(2)).await;
        }
        if guard.is_held() {
            let raised = shared.number.compare_exchange(seen, seen + 1, Ordering::SeqCst, Ordering::SeqCst);
            if raised.is_ok() {
                shared.raised.fetch_add(1, Ordering::SeqCst);
            } else if guard.is_held() {
                let mut violations = shared.violations.lock().unwrap_or_else(PoisonError::into_inner);
                violations
                    .push(format!("{name} holds the lock, and the number is not {seen} but {raised:?}"));
            }
        }
        shared.record.releases(hold);
        if dice.one_in(4) {
            drop(guard);
        } else {
            let _ = timeout(Duration::from_secs(1), guard.release()).await;
        }
    }
}
