//! A connection for commands.

use super::connection::{Connection, Ended, Settings};
use super::io::{Message, Pipe};
use super::scripts::Call;
use crate::error::Failure;

/// A connection for commands.
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) connection: Connection,
    /// By what the server knows it, if it tells.
    pub(super) identity: Option<Identity>,
}

/// What tells a connection from all others that a server has, and had before it was restarted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    id: String,
    address: String,
}

impl Identity {
    /// Reads the server's own line about a connection.
    pub(super) fn parse(info: &str) -> Option<Self> {
        let field = |name: &str| info.split(' ').find_map(|field| field.strip_prefix(name));
        let (id, address) = (field("id=")?, field("addr=")?);
        // All clients of a Unix socket have its path for an address, and numbers begin anew after a restart.
        (!address.starts_with('/')).then(|| Self { id: id.into(), address: address.into() })
    }

    /// Ends the connection on the server, if both are still the same: after a restart the number may be another client's.
    pub(super) fn kill(&self) -> Call {
        let kill = Call::command("CLIENT").arg("KILL").arg("ID").arg(&self.id);
        kill.arg("ADDR").arg(&self.address)
    }
}

impl Link {
    pub(super) async fn open(settings: &Settings, number: u64, pipe: &Pipe) -> Result<Self, Failure> {
        // Commands have no pushes.
        let (connection, ended) = settings.open(Box::new(|_| {})).await?;
        tokio::spawn(watch(ended, number, pipe.clone()));
        // Both questions in one round trip.
        let (identity, learned) = tokio::join!(biased; connection.identity(), connection.learn());
        let (identity, ()) = (identity?, learned?);
        Ok(Self { number, connection, identity })
    }
}

/// Tells when a connection has ended.
async fn watch(ended: Ended, number: u64, pipe: Pipe) {
    let _ = ended.await;
    pipe.tell(Message::Broken(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_known_by_its_number_and_its_address_together() {
        let info = "id=7 addr=127.0.0.1:4711 laddr=127.0.0.1:6379 fd=8 name= age=0 flags=N";
        let identity = Identity::parse(info).expect("both are there");
        assert_eq!(identity, Identity { id: "7".into(), address: "127.0.0.1:4711".into() });
        for info in
            ["", "id=7", "addr=127.0.0.1:4711", "id=7 laddr=127.0.0.1:6379", "id=7 addr=/run/redis.sock:0"]
        {
            assert_eq!(Identity::parse(info), None, "{info}");
        }
    }
}
