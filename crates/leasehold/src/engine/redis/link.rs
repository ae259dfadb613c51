//! A connection for commands.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::connection::{Connection, Settings};
use super::io::{Message, Pipe};
use super::pipeline::Push;
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
        let connection = settings.open(push).await?;
        tokio::spawn(watch(pushes, number, pipe.clone()));
        // Both questions in one round trip.
        let (id, learned) = tokio::join!(biased; connection.id(), connection.learn());
        let (id, ()) = (id?, learned?);
        Ok(Self { number, connection, id })
    }
}

/// Tells when a connection has ended. Commands have no pushes.
async fn watch(mut pushes: UnboundedReceiver<Push>, number: u64, pipe: Pipe) {
    while pushes.recv().await.is_some() {}
    pipe.tell(Message::Broken(number));
}
