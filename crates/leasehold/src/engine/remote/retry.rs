//! A change of a counter: retried until there is a reply, carried out once.
//!
//! It has a number of its own, by which the store recognises a retry and replies with the first result. When the result is
//! known here, the store deletes it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::{Notify, oneshot};

use super::Inner;
use super::store::{Store, StoreError};
use super::undo::BETWEEN_TRIES;
use crate::engine::{Adjust, Adjusted, Change, Reply, Resource};
use crate::env::{self, Instant, jittered};
use crate::error::ServerError;
use crate::loss::Loss;
use crate::mutex::Mutex;
use crate::race::{First, race};

/// The changes of one client that are in flight.
#[derive(Debug, Default)]
pub(super) struct Retries {
    open: AtomicUsize,
    /// Notifies when there is none any more.
    pub(super) settled: Notify,
    /// Notifies when a shard is reachable again, and when there is a new reason why it is not.
    resumed: Notify,
    /// Requests from before a reconnection may still be carried out: a repeated change whose result is deleted would count
    /// twice.
    stale: AtomicBool,
}

impl Retries {
    pub(super) fn resume(&self, stale: bool) {
        self.stale.fetch_or(stale, Ordering::SeqCst);
        self.resumed.notify_waiters();
    }

    /// A shard is not reachable for a new reason: a refusal ends the changes that were never sent.
    pub(super) fn reconsider(&self) {
        self.resumed.notify_waiters();
    }

    pub(super) fn is_settled(&self) -> bool {
        self.open.load(Ordering::SeqCst) == 0
    }
}

/// An operation that is in progress until this is dropped.
pub(super) struct Open<S: Store>(Arc<Inner<S>>);

impl<S: Store> Open<S> {
    pub(super) fn new(inner: &Arc<Inner<S>>) -> Self {
        inner.retries.open.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(inner))
    }
}

impl<S: Store> Drop for Open<S> {
    fn drop(&mut self) {
        if self.0.retries.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.retries.settled.notify_waiters();
        }
    }
}

/// The state that the caller of a change and its attempts share.
#[derive(Debug, Default)]
struct Progress {
    /// Whether it was sent, or given up before it could be: the first to set it decides.
    sent: OnceLock<bool>,
    // Invariant: why the server refused the last attempt that had a reply; the caller reads it once, when its time is over.
    refusal: Mutex<Option<ServerError>>,
    /// An attempt has no reply: it may have been carried out, or may still be.
    is_unknown: AtomicBool,
}

impl<S: Store> Inner<S> {
    /// Changes a counter, within the time that an outage may last.
    pub(super) fn change(self: &Arc<Self>, resource: &Resource, change: &Change) -> Reply<Adjusted> {
        let until = env::after(change.patience);
        let progress = Arc::new(Progress::default());
        let (sender, replied) = oneshot::channel();
        let trying = Trying {
            open: Open::new(self),
            resource: resource.clone(),
            change: change.clone(),
            until,
            progress: Arc::clone(&progress),
        };
        self.io.spawn(trying.run(sender));
        let (inner, shard) = (Arc::clone(self), self.store.shard(resource));
        Reply::later(async move {
            if let First::Left(Ok(result)) = race(replied, env::sleep_until_or_forever(until)).await {
                return result;
            }
            if *progress.sent.get_or_init(|| false) {
                let refusal = progress.refusal.lock().take();
                if let Some(refusal) = refusal.clone()
                    && !progress.is_unknown.load(Ordering::SeqCst)
                {
                    // Every attempt was refused.
                    return Ok(Adjusted::NotSent(refusal));
                }
                let no_reply = || {
                    ServerError::Unavailable("no reply within the limit for outages (`outage_limit`)".into())
                };
                return Err(refusal.unwrap_or_else(no_reply));
            }
            // The last reason is more useful than a time-out.
            let reason = inner.shards.check(shard).err().unwrap_or_else(|| {
                ServerError::Unavailable("not connected within the limit for outages (`outage_limit`)".into())
            });
            Ok(Adjusted::NotSent(reason))
        })
    }
}

/// The attempts of one change.
struct Trying<S: Store> {
    open: Open<S>,
    resource: Resource,
    change: Change,
    until: Option<Instant>,
    progress: Arc<Progress>,
}

impl<S: Store> Trying<S> {
    /// Retries until there is a reply or the time is over. Runs on the I/O thread.
    async fn run(self, sender: oneshot::Sender<Result<Adjusted, ServerError>>) {
        let Open(inner) = &self.open;
        let shard = inner.store.shard(&self.resource);
        let mut is_first = true;
        loop {
            let resumed = inner.retries.resumed.notified();
            if !inner.shards.is_up(shard) {
                // A caller that is gone cannot try again: its change is made if the server accepts this client in time.
                if let Err(refusal @ ServerError::Denied(_)) = inner.shards.check(shard)
                    && !sender.is_closed()
                    && !*self.progress.sent.get_or_init(|| false)
                {
                    let _ = sender.send(Ok(Adjusted::NotSent(refusal)));
                    return;
                }
                if let First::Right(()) =
                    race(Box::pin(resumed), env::sleep_until_or_forever(self.until)).await
                {
                    return;
                }
                continue;
            }
            if self.until.is_some_and(|until| env::now() >= until)
                || !*self.progress.sent.get_or_init(|| true)
            {
                return;
            }
            let was_first = std::mem::replace(&mut is_first, false);
            let was_unknown = self.progress.is_unknown.swap(true, Ordering::SeqCst);
            let sent = self.send().await;
            let is_known = !matches!(sent, Err(StoreError::Unknown(_)));
            self.progress.is_unknown.store(was_unknown || !is_known, Ordering::SeqCst);
            let failure = match sent {
                Ok(result) => {
                    // The caller may be gone. The change is done all the same.
                    let _ = sender.send(Ok(Adjusted::Done(result)));
                    let is_stale =
                        inner.retries.stale.load(Ordering::SeqCst) && !mutation!("result-forgotten");
                    if was_first || !is_stale {
                        let open = Open::new(inner);
                        inner.requesting().forget_change(&self.resource, &self.change, move |_| drop(open));
                    }
                    return;
                }
                Err(StoreError::Refused(refusal @ (ServerError::Denied(_) | ServerError::NotALock))) => {
                    let _ = sender.send(Err(refusal));
                    return;
                }
                Err(StoreError::Refused(refusal)) => Some(refusal),
                Err(StoreError::NotSent(_) | StoreError::Unknown(_)) => None,
            };
            if failure.is_some() {
                *self.progress.refusal.lock() = failure;
            }
            env::sleep_for(jittered(BETWEEN_TRIES)).await;
        }
    }

    /// Sends it once. Its effect on this client's state is applied where the reply is read.
    async fn send(&self) -> Result<i64, StoreError> {
        let Open(inner) = &self.open;
        let (sender, receiver) = oneshot::channel();
        let (inner, resource, adjust) =
            (Arc::clone(inner), self.resource.clone(), self.change.adjust.clone());
        let done = {
            let inner = Arc::clone(&inner);
            move |outcome: Result<i64, StoreError>| {
                if let Ok(result) = &outcome {
                    inner.changed(&resource, &adjust, *result);
                }
                let _ = sender.send(outcome);
            }
        };
        inner.requesting().change(&self.resource, &self.change, done);
        let closed = || StoreError::Unknown(ServerError::Unavailable("the client is closed".into()));
        receiver.await.unwrap_or_else(|_| Err(closed()))
    }
}

impl<S: Store> Inner<S> {
    /// Applies the effect of a change with this result on this client's state.
    fn changed(self: &Arc<Self>, resource: &Resource, adjust: &Adjust, result: i64) {
        if let Adjust::Delete = adjust {
            self.lose(resource, Loss::Gone);
        }
        if adjust.frees(result) {
            // The result does not show whether a message has notified the waiters.
            self.queues.freed_without_message(resource);
        }
    }
}
