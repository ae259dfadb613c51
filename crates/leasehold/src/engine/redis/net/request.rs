//! A call on its way, and what its reply does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::script::{Call, Deletes, Encoding};
use super::connection::CommandError;
use super::resp::Value;
use crate::engine::remote::store::Tell;
use crate::error::Failure;

/// What became of a command.
pub(crate) type RawReply = Result<Value, CommandError>;

/// What a reply does. It is done where the reply is read, before the next one is: the server carries out the requests of one
/// connection in their order, and a grant, a takeover and a removal of the same lock mean something only in that order.
pub(crate) trait OnReply: Send {
    /// Whether a caller waits for it, and has to be told if it is late.
    fn is_awaited(&self) -> bool;

    /// Whether a call of which nothing was done may be sent again.
    fn is_wanted(&self) -> bool;

    /// What tells the caller that the reply is late.
    fn late(&mut self) -> Option<Tell>;

    fn replied(self: Box<Self>, reply: RawReply);
}

/// A call that was sent, and what its reply does.
pub(crate) struct Request {
    pub(crate) call: Call,
    pub(crate) mode: ReplyMode,
    pub(crate) on_reply: Box<dyn OnReply>,
}

impl Request {
    /// The reply has come. If the server does not know the script, the request comes back, to be sent [again](Self::again).
    pub(crate) fn replied(self, reply: RawReply) -> Option<Self> {
        let reply = self.mode.read(reply);
        if matches!(reply, Err(CommandError::NoScript)) && !matches!(self.mode, ReplyMode::Source) {
            return Some(self);
        }
        let explained = reply.map_err(|error| match error {
            CommandError::Server(Failure::Denied(text)) => {
                CommandError::Server(Failure::Denied(self.call.explain(text)))
            }
            other => other,
        });
        self.on_reply.replied(explained);
        None
    }

    /// Writes it with the whole script, unless it is not wanted any more: then its undo may be under way already.
    pub(crate) fn again(self, out: &mut Vec<u8>) -> Option<Self> {
        if !self.on_reply.is_wanted() {
            return None;
        }
        self.call.write(Encoding::Source, Deletes::ByScript, out);
        Some(Self { mode: ReplyMode::Source, ..self })
    }
}

/// How to read the reply to a call.
#[derive(Debug)]
pub(crate) enum ReplyMode {
    /// It was sent by the hash of its script.
    Sha,
    /// It was sent as a command that the server has in place of a script. Where to note that we may not use it.
    Native(Arc<AtomicBool>),
    /// It was sent with the whole script.
    Source,
}

impl ReplyMode {
    fn read(&self, reply: RawReply) -> RawReply {
        if let (Err(CommandError::Server(Failure::Denied(_))), Self::Native(denied)) = (&reply, self) {
            // Nothing was done, and a script may do it.
            denied.store(true, Ordering::Relaxed);
            return Err(CommandError::NoScript);
        }
        reply
    }
}
