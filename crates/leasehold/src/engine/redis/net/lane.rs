//! The connection for commands to one server, as long as there is one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::super::script::{Call, Encoding};
use super::connection::{CommandError, Connection};
use super::pipeline::Sink;
use super::request::{OnReply, ReplyMode, Request};
use crate::error::Failure;

/// Where requests to one server are put, from any thread. They go out in this order.
pub(crate) struct Lane {
    // Invariant: a request is put under the mutex, so those of one caller are in order across a change of the connection. No
    // reply is handled under it.
    state: Mutex<State>,
    /// Requests without a connection. They are completed on the I/O thread, because their callers may have a mutex.
    rejected: UnboundedSender<(Sink, Failure)>,
    /// Where it was made. A fork has no I/O thread.
    process: u32,
}

struct State {
    connection: Option<Connection>,
    closed: bool,
}

impl Lane {
    pub(crate) fn new() -> (Self, Rejected) {
        let (rejected, receiver) = unbounded_channel();
        let state = Mutex::new(State { connection: None, closed: false });
        (Self { state, rejected, process: std::process::id() }, Rejected(receiver))
    }

    /// Sends a call.
    pub(crate) fn send(&self, call: Call, on_reply: Box<dyn OnReply>) {
        let state = self.state();
        let put = match &state.connection {
            Some(connection) => connection.put_request(call, on_reply),
            None => Err(Sink::Request(Request { call, mode: ReplyMode::Source, on_reply })),
        };
        self.settle(state, put);
    }

    /// Sends a call with the whole script, so that it need not be sent again. False if it could not be sent.
    pub(crate) fn send_source(&self, call: Call, on_reply: Box<dyn OnReply>) -> bool {
        let state = self.state();
        let request = |call, mode| Sink::Request(Request { call, mode, on_reply });
        let put = state.connection.as_ref().map(|connection| connection.put(call, Encoding::Source, request));
        // It is flushed with what follows it.
        matches!(put, Some(Ok(_)))
    }

    /// Completes a request that no call can be made of.
    pub(crate) fn reject(&self, on_reply: Box<dyn OnReply>) {
        let request = Request { call: Call::command("PING"), mode: ReplyMode::Source, on_reply };
        let failure = Failure::Denied("there is no such request for this kind of lock".into());
        self.reject_because(Sink::Request(request), failure);
    }

    /// Sends a call whose reply is ignored: with the whole script, because it would not be sent again.
    pub(crate) fn post(&self, call: Call) {
        let state = self.state();
        let put = match &state.connection {
            Some(connection) => connection.put(call, Encoding::Source, |_, _| Sink::Ignored),
            None => Err(Sink::Ignored),
        };
        self.settle(state, put);
    }

    /// Writes what was put, if no other caller does, or sees to it that the caller of what could not be put is told.
    fn settle(&self, state: MutexGuard<'_, State>, put: Result<bool, Sink>) {
        match put {
            Ok(true) => {
                let connection = state.connection.clone();
                // Without keeping other callers from the lane.
                drop(state);
                if let Some(connection) = connection {
                    connection.flush();
                }
            }
            // Another caller writes.
            Ok(false) => {}
            Err(sink) => {
                let is_served = !state.closed && self.process == std::process::id();
                drop(state);
                if is_served {
                    self.reject_because(sink, Failure::Unavailable("not connected".into()));
                }
                // Else the client is closed, or this is a fork of its process: the caller of what is dropped sees that.
            }
        }
    }

    fn reject_because(&self, sink: Sink, failure: Failure) {
        let _ = self.rejected.send((sink, failure));
    }

    /// From now on there is a connection.
    pub(crate) fn connect(&self, connection: &Connection) {
        let mut state = self.state();
        if !state.closed {
            state.connection = Some(connection.clone());
        }
    }

    /// Takes the connection away.
    pub(crate) fn disconnect(&self) {
        self.state().connection = None;
    }

    /// Ends the connection if nothing was heard on it for `silence` although a reply is due.
    pub(crate) fn doubt(&self, silence: Duration) {
        let connection = self.state().connection.clone();
        if let Some(connection) = connection {
            connection.doubt(silence);
        }
    }

    /// Nothing is sent any more.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let connection = state.connection.take();
        drop(state);
        drop(connection);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests that had no connection.
pub(crate) struct Rejected(UnboundedReceiver<(Sink, Failure)>);

impl Rejected {
    /// Tells their callers, until the lane is gone.
    pub(crate) async fn run(mut self) {
        while let Some((sink, failure)) = self.0.recv().await {
            drop(sink.reply(Err(CommandError::NotSent(failure))));
        }
    }
}
