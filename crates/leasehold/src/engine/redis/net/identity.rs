//! What a server knows a connection by.

use super::super::script::Call;

/// What tells a connection from all others that a server has, and had before it was restarted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    id: String,
    address: String,
}

impl Identity {
    /// Reads the server's own line about a connection.
    pub(crate) fn parse(info: &str) -> Option<Self> {
        let field = |name: &str| info.split(' ').find_map(|field| field.strip_prefix(name));
        let (id, address) = (field("id=")?, field("addr=")?);
        // All clients of a Unix socket have its path for an address, and numbers begin anew after a restart.
        (!address.starts_with('/')).then(|| Self { id: id.into(), address: address.into() })
    }

    /// Ends the connection on the server, if both are still the same: after a restart the number may be another client's.
    pub(crate) fn kill(&self) -> Call {
        let kill = Call::command("CLIENT").arg("KILL").arg("ID").arg(&self.id);
        kill.arg("ADDR").arg(&self.address)
    }
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
