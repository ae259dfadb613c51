//! From a reply of the server to the outcome of a request.

use std::marker::PhantomData;
use std::sync::Arc;

use super::net::resp::Value;
use super::net::{OnReply, RawReply};
use super::{Parts, commands};
use crate::engine::remote::store::{Done, StoreError, Take, Taken, Tell};
use crate::engine::{Kind, Queueing, Spot};
use crate::error::Failure;

/// A request, and how it is completed when its reply is read.
struct Completed<T, D, F> {
    done: D,
    complete: F,
    means: PhantomData<fn() -> T>,
}

impl<T, D, F> OnReply for Completed<T, D, F>
where
    D: Done<T>,
    F: FnOnce(D, RawReply) + Send,
{
    fn is_awaited(&self) -> bool {
        self.done.is_awaited()
    }

    fn is_wanted(&self) -> bool {
        self.done.is_wanted()
    }

    fn late(&mut self) -> Option<Tell> {
        self.done.late()
    }

    fn replied(self: Box<Self>, reply: RawReply) {
        (self.complete)(self.done, reply);
    }
}

fn completed<T: 'static, D: Done<T>>(
    done: D,
    complete: impl FnOnce(D, RawReply) + Send + 'static,
) -> Box<dyn OnReply> {
    Box::new(Completed { done, complete, means: PhantomData })
}

/// Completes a request with what `decode` makes of its reply.
pub(super) fn decoded<T: 'static>(
    done: impl Done<T>,
    decode: impl FnOnce(Value) -> Result<T, Failure> + Send + 'static,
) -> Box<dyn OnReply> {
    completed(done, |done, reply| {
        let outcome = reply.map_err(StoreError::from);
        done.done(outcome.and_then(|reply| decode(reply).map_err(StoreError::Refused)));
    })
}

/// A request for a lock, and what it leaves on the server if it is not granted.
pub(super) struct Taking {
    spot: Spot,
    fenced: bool,
    /// How the owner stands in the queue of a fair lock.
    queue: Option<Queueing>,
    /// Whether a flag is left that a writer waits.
    flags: bool,
    /// `SET … NX` does not tell the holder when it is refused: only then there is another question.
    asks_holder: bool,
    parts: Arc<Parts>,
}

impl Taking {
    pub(super) fn new(parts: &Arc<Parts>, take: &Take<'_>) -> Self {
        let flags = commands::flags_writer(take);
        if flags {
            parts.waiting_writers.add(take.spot);
        }
        Self {
            spot: take.spot.clone(),
            fenced: take.fenced,
            queue: take.queue,
            flags,
            asks_holder: take.spot.target.kind == Kind::SetNx,
            parts: Arc::clone(parts),
        }
    }

    /// Notes what the request has left on the server.
    fn note(&self, taken: &mut Taken) {
        match taken {
            Taken::Granted(_) => {
                self.parts.heartbeat.remove(&self.spot);
                if self.flags {
                    // The script took the flag away.
                    self.parts.waiting_writers.take(&self.spot);
                }
            }
            Taken::Busy(busy) => {
                if let (Some(position), Some(queue)) = (busy.position, self.queue) {
                    self.parts.heartbeat.add(&self.spot, queue, position);
                }
                if self.flags {
                    busy.go_on_barring();
                }
            }
            Taken::Bound(..) | Taken::CountDiffers | Taken::WouldWaitForItself => {}
        }
    }

    /// Completes the request with what its reply says.
    pub(super) fn completing(self, done: impl Done<Taken>) -> Box<dyn OnReply> {
        completed(done, |done, reply| self.replied(done, reply))
    }

    fn replied(mut self, done: impl Done<Taken>, reply: RawReply) {
        if let (true, Ok(Value::Nil)) = (self.asks_holder && done.is_awaited(), &reply)
            && let Some(call) = commands::query(&self.spot.target, None)
        {
            self.asks_holder = false;
            let parts = Arc::clone(&self.parts);
            let target = self.spot.target.clone();
            return parts.topology.lane(&target).send(call, self.completing(done));
        }
        let taken = reply.map_err(StoreError::from).and_then(|reply| {
            let mut taken = commands::taken(&reply, &self.spot, self.fenced).map_err(StoreError::Refused)?;
            self.note(&mut taken);
            Ok(taken)
        });
        done.done(taken);
    }
}
