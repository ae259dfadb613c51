//! A connection for commands, and what runs on it.

use redis::{PushInfo, PushKind};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::connection::{Connection, Settings, Trouble};
use super::io::{Message, Pipe, Request};
use super::scripts::Wording;
use crate::error::Failure;

/// A connection for commands.
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) connection: Connection,
    /// The server's number for it.
    pub(super) id: Option<i64>,
}

impl Link {
    pub(super) async fn open(settings: &Settings, number: u64, pipe: &Pipe) -> Result<Self, Failure> {
        let (push, pushes) = unbounded_channel();
        let mut connection = settings.open(push).await?;
        tokio::spawn(watch(pushes, number, pipe.clone()));
        // Both questions in one round trip.
        let asked = connection.clone();
        let (id, learned) = tokio::join!(biased; asked.id(), connection.learn());
        let (id, ()) = (id?, learned?);
        Ok(Self { number, connection, id })
    }

    /// Sends a request, in the order of the calls of this function, and answers it in its own time.
    pub(super) fn run(&self, request: Request, pipe: &Pipe) {
        tokio::spawn(run(self.connection.clone(), self.number, request, pipe.clone()));
    }
}

/// Tells when a connection has ended. Commands have no other pushes.
async fn watch(mut pushes: UnboundedReceiver<PushInfo>, number: u64, pipe: Pipe) {
    while let Some(push) = pushes.recv().await {
        if push.kind == PushKind::Disconnection {
            break;
        }
    }
    pipe.tell(Message::Broken(number));
}

/// Runs one call. A script that the server has forgotten is told again, unless it is a step and nobody waits any more:
/// then an undo may be under way already.
async fn run(connection: Connection, number: u64, request: Request, pipe: Pipe) {
    let Request { about, call, limit, answer } = request;
    let mut outcome = connection.run(&call, Wording::Hash, limit).await;
    if matches!(outcome, Err(Trouble::NoScript)) && (about.is_none() || !answer.is_closed()) {
        outcome = connection.run(&call, Wording::Text, limit).await;
    }
    if matches!(outcome, Err(Trouble::Broken(_))) {
        pipe.tell(Message::Broken(number));
    }
    let _ = answer.send(outcome.map_err(Failure::from));
}
