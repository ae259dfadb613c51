//! A call on its way, and who waits for its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;

use super::connection::Trouble;
use super::pipeline::RawAnswer;
use super::resp::Value;
use super::scripts::{Call, Deletes, Wording};
use crate::engine::Spot;
use crate::error::Failure;

/// What is done with a reply before the next one is read.
///
/// The server carries out the requests of one connection in their order, and a grant, a takeover and a removal of the
/// same lock mean something only in that order. Callers see their replies when they are polled, in any order.
pub(super) type InOrder = Box<dyn FnOnce(&Value) + Send>;

/// Whose counts a request changes: mostly one, of several locks that are taken together all.
#[derive(Debug, Clone)]
pub(super) struct Step {
    spot: Spot,
    others: Vec<Spot>,
}

impl Step {
    pub(super) fn new(spot: &Spot, others: Vec<Spot>) -> Self {
        Self { spot: spot.clone(), others }
    }

    pub(super) fn spot(&self) -> &Spot {
        &self.spot
    }

    pub(super) fn spots(&self) -> impl Iterator<Item = Spot> {
        [&self.spot].into_iter().chain(&self.others).cloned()
    }
}

/// A call that was sent, and who waits for its answer.
pub(super) struct Request {
    pub(super) call: Call,
    /// Whose step from one count to the next it is, if it is one.
    pub(super) step: Option<Step>,
    pub(super) reading: Reading,
    pub(super) in_order: Option<InOrder>,
    pub(super) caller: oneshot::Sender<RawAnswer>,
}

impl Request {
    /// Tells the caller, unless the server does not know the script: then it has to be [said again](Self::again).
    pub(super) fn answered(mut self, answer: RawAnswer) -> Option<Self> {
        let answer = self.reading.read(answer);
        if let Ok(value) = &answer
            && let Some(in_order) = self.in_order.take()
        {
            in_order(value);
        }
        if matches!(answer, Err(Trouble::NoScript)) && !matches!(self.reading, Reading::Text) {
            return Some(self);
        }
        let explained = answer.map_err(|trouble| match trouble {
            Trouble::Refused(Failure::Denied(text)) => {
                Trouble::Refused(Failure::Denied(self.call.explain(text)))
            }
            other => other,
        });
        // Whoever asked may be gone.
        let _ = self.caller.send(explained);
        None
    }

    /// Says it in full, unless it is a step for which nobody waits any more: then its undo may be under way already.
    pub(super) fn again(self, out: &mut Vec<u8>) -> Option<Self> {
        if self.step.is_some() && self.caller.is_closed() {
            return None;
        }
        self.call.write(Wording::Text, Deletes::ByScript, out);
        Some(Self { reading: Reading::Text, ..self })
    }
}

/// How to read the answer to a call.
#[derive(Debug)]
pub(super) enum Reading {
    /// It was sent by its hash.
    Hash,
    /// It was sent as a command that the server has in place of a script. Where to note that we may not use it.
    Native(Arc<AtomicBool>),
    /// It was sent in full.
    Text,
}

impl Reading {
    pub(super) fn read(&self, answer: RawAnswer) -> RawAnswer {
        if let (Err(Trouble::Refused(Failure::Denied(_))), Self::Native(denied)) = (&answer, self) {
            // Nothing was done, and a script may do it.
            denied.store(true, Ordering::Relaxed);
            return Err(Trouble::NoScript);
        }
        answer
    }
}
