//! What a server says of itself.

use super::resp::Value;
use crate::error::Failure;

const CLUSTER: &str =
    "it is a node of a cluster, which is not supported: connect to a server whose `cluster-enabled` is `no`";
const SENTINEL: &str = "it is a Sentinel, which keeps no locks: connect to the primary that it watches";
const REPLICA: &str = "it is a replica, which changes nothing by itself: connect to its primary";

/// The reply to `HELLO`. What a server leaves out is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    role: Option<String>,
    mode: Option<String>,
}

impl Hello {
    /// Whether locks can be kept there.
    ///
    /// A replica may become the primary, or the address may lead to the primary after a failover, so that is an outage.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match (self.mode.as_deref(), self.role.as_deref()) {
            (Some("cluster"), _) => Err(Failure::Denied(CLUSTER.into())),
            (Some("sentinel"), _) | (_, Some("sentinel")) => Err(Failure::Denied(SENTINEL.into())),
            (_, Some("replica" | "slave")) => Err(Failure::Unavailable(REPLICA.into())),
            _ => Ok(()),
        }
    }

    /// Reads the reply: keys and values in turn.
    pub(crate) fn read(reply: &Value) -> Self {
        let mut hello = Self::default();
        let Value::Array(parts) = reply else { return hello };
        for [key, value] in parts.as_chunks().0 {
            let Value::Text(key) = key else { continue };
            match (key.as_slice(), value) {
                (b"role", Value::Text(role)) => hello.role = Some(text(role)),
                (b"mode", Value::Text(mode)) => hello.mode = Some(text(mode)),
                _ => {}
            }
        }
        hello
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::redis::net::resp::{Frame, take};

    fn read(sent: &str) -> Hello {
        let Ok(Frame::Answer(reply)) = take(&mut sent.as_bytes()) else { panic!("{sent:?}") };
        Hello::read(&reply)
    }

    #[test]
    fn the_reply_of_a_server_is_understood() {
        let hello = read(
            "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:12\r\n\
             $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n",
        );
        let (role, mode) = (Some("master".into()), Some("standalone".into()));
        assert_eq!(hello, Hello { role, mode });
    }

    #[test]
    fn what_is_missing_is_unknown() {
        assert_eq!(read("+OK\r\n"), Hello::default());
        assert_eq!(read("%1\r\n$4\r\nrole\r\n:7\r\n"), Hello::default());
    }
}
