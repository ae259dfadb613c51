//! A connection for commands.

use super::connection::{Connection, Ended, Settings};
use super::io::{Message, Pipe};
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
        // Commands have no pushes.
        let (connection, ended) = settings.open(Box::new(|_| {})).await?;
        tokio::spawn(watch(ended, number, pipe.clone()));
        // Both questions in one round trip.
        let (id, learned) = tokio::join!(biased; connection.id(), connection.learn());
        let (id, ()) = (id?, learned?);
        Ok(Self { number, connection, id })
    }
}

/// Tells when a connection has ended.
async fn watch(ended: Ended, number: u64, pipe: Pipe) {
    let _ = ended.await;
    pipe.tell(Message::Broken(number));
}
