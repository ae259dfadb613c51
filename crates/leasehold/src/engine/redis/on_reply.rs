//! From a reply of the server to the outcome of a request.

use std::marker::PhantomData;
use std::sync::Arc;

use super::net::resp::Value;
use super::net::{OnReply, RawReply};
use super::{Parts, commands};
use crate::engine::remote::store::{Done, StoreError, Take, Taken, Tell};
use crate::engine::{BARRED, Busy, Kind, Queueing, Spot};
use crate::error::Failure;

/// A request whose reply means something.
struct Decoded<T, D, F> {
    done: D,
    decode: F,
    means: PhantomData<fn() -> T>,
}

/// Completes a request with what `decode` makes of its reply.
pub(super) fn decoded<T: 'static>(
    done: impl Done<T>,
    decode: impl FnOnce(Value) -> Result<T, Failure> + Send + 'static,
) -> Box<dyn OnReply> {
    Box::new(Decoded { done, decode, means: PhantomData })
}

impl<T, D, F> OnReply for Decoded<T, D, F>
where
    D: Done<T>,
    F: FnOnce(Value) -> Result<T, Failure> + Send,
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
        let Self { done, decode, .. } = *self;
        done.done(
            reply.map_err(StoreError::from).and_then(|reply| decode(reply).map_err(StoreError::Refused)),
        );
    }
}

/// A request for a lock, and what it leaves on the server if it is not granted.
pub(super) struct Taking<D> {
    done: D,
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

impl<D: Done<Taken>> Taking<D> {
    pub(super) fn new(parts: &Arc<Parts>, take: &Take<'_>, done: D) -> Self {
        let flags = commands::flags_writer(take);
        if flags {
            parts.waiting_writers.add(take.spot);
        }
        Self {
            done,
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
            Taken::Busy(Busy { position, retry_in, .. }) => {
                if let (Some(position), Some(queue)) = (*position, self.queue) {
                    self.parts.heartbeat.add(&self.spot, queue, position);
                }
                if self.flags {
                    // To leave the flag again.
                    *retry_in = Some(retry_in.map_or(BARRED / 3, |wait| wait.min(BARRED / 3)));
                }
            }
            Taken::CountDiffers | Taken::WouldWaitForItself => {}
        }
    }
}

impl<D: Done<Taken>> OnReply for Taking<D> {
    fn is_awaited(&self) -> bool {
        self.done.is_awaited()
    }

    fn is_wanted(&self) -> bool {
        self.done.is_wanted()
    }

    fn late(&mut self) -> Option<Tell> {
        self.done.late()
    }

    fn replied(mut self: Box<Self>, reply: RawReply) {
        if let (true, Ok(Value::Nil)) = (self.asks_holder && self.done.is_awaited(), &reply)
            && let Some(call) = commands::query(&self.spot.target, None)
        {
            self.asks_holder = false;
            let parts = Arc::clone(&self.parts);
            return parts.topology.lane(&self.spot.target).send(call, self);
        }
        let taken = reply.map_err(StoreError::from).and_then(|reply| {
            let mut taken = commands::taken(&reply, &self.spot, self.fenced).map_err(StoreError::Refused)?;
            self.note(&mut taken);
            Ok(taken)
        });
        self.done.done(taken);
    }
}
