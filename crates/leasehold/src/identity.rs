//! Who a client is: what it publishes about itself, so that the owner of a lock can be traced to a machine.

mod at_timeout;
mod in_process;
#[cfg(any(feature = "etcd", feature = "redis"))]
mod json;
mod process;

use std::fmt;
use std::time::SystemTime;

pub(crate) use self::at_timeout::name_holder;
pub(crate) use self::in_process::{InProcess, in_process};
#[cfg(any(feature = "etcd", feature = "redis"))]
pub(crate) use self::json::{from_json, to_json};
use crate::client_id::ClientId;
use crate::env;

/// What is known of a client: which program it is part of, and on which machine that runs.
///
/// Each field is `None` if it is not known. On Redis and Valkey each client writes one key about itself, which expires some
/// minutes after its process was killed; on `file:` label, host and process are in the file of a lock; in memory the clients of
/// the process are known. A client of Redisson tells nothing about itself, nor does an
/// [anonymous](crate::ConnectOptions::anonymous) one.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = leasehold::Client::connect("memory:").label("web-3").await?;
/// let guard = client.lock("stock:7").acquire().await?;
/// let holder = client.lock("stock:7").holder().await?.expect("it is held");
/// let info = holder.client.expect("a client of this process");
/// assert_eq!((info.label.as_deref(), info.pid), (Some("web-3"), Some(std::process::id())));
/// println!("held by {info}");
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientInfo {
    /// Its [label](crate::ConnectOptions::label).
    pub label: Option<String>,
    /// The name of its machine.
    pub host: Option<String>,
    /// The number of its process.
    pub pid: Option<u32>,
    /// The file name of its program.
    pub program: Option<String>,
    /// The version of this library that it uses.
    pub version: Option<String>,
    /// When the client was made, by the clock of its machine.
    pub started: Option<SystemTime>,
    /// The address of its connection, as the server sees it.
    pub address: Option<String>,
    /// Its lease on etcd, as `etcdctl lease` takes it; from [`Client::list`](crate::Client::list) and
    /// [`Client::find`](crate::Client::find) only.
    pub lease: Option<String>,
}

impl fmt::Display for ClientInfo {
    /// Its label, or else its program, then host and process: `web-3 (host a, pid 412)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label.as_deref().or(self.program.as_deref()).unwrap_or("a client"))?;
        let (host, pid) = (self.host.as_deref(), self.pid.map(|pid| pid.to_string()));
        let mut open = " (";
        for (what, value) in [("host", host), ("pid", pid.as_deref())] {
            if let Some(value) = value {
                write!(f, "{open}{what} {value}")?;
                open = ", ";
            }
        }
        if open == ", " { f.write_str(")") } else { Ok(()) }
    }
}

/// A client that publishes who it is.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) id: ClientId,
    pub(crate) info: ClientInfo,
}

/// How much of a label is published, in characters.
#[cfg(feature = "redis")]
const LONGEST_LABEL: usize = 64;

impl Identity {
    pub(crate) fn new(id: ClientId, label: &str) -> Self {
        let info = ClientInfo {
            label: (!label.is_empty()).then(|| label.to_owned()),
            started: Some(env::wall_clock()),
            ..process::of_this_process()
        };
        Self { id, info }
    }

    /// The name of its connections in the server's list of clients: label and id, without blanks and other characters that a
    /// server refuses there.
    #[cfg(feature = "redis")]
    pub(crate) fn connection_name(&self) -> String {
        let label = self.info.label.as_deref().unwrap_or("leasehold");
        let label = label.chars().map(|c| if c.is_ascii_graphic() { c } else { '-' }).take(LONGEST_LABEL);
        format!("{}@{}", label.collect::<String>(), self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_shown_by_what_is_known_of_it() {
        let text = |text: &str| Some(text.to_owned());
        let mut info = ClientInfo::default();
        assert_eq!(info.to_string(), "a client");
        info.pid = Some(412);
        assert_eq!(info.to_string(), "a client (pid 412)");
        (info.program, info.host) = (text("billing"), text("a"));
        assert_eq!(info.to_string(), "billing (host a, pid 412)");
        info.label = text("web-3");
        assert_eq!(info.to_string(), "web-3 (host a, pid 412)");
        info.pid = None;
        assert_eq!(info.to_string(), "web-3 (host a)");
    }

    #[cfg(feature = "redis")]
    #[test]
    fn the_name_of_a_connection_has_label_and_id_and_no_blank() {
        let id = ClientId::random();
        let name = |label| Identity::new(id, label).connection_name();
        assert_eq!(name("web-3"), format!("web-3@{id}"));
        assert_eq!(name(""), format!("leasehold@{id}"));
        assert_eq!(name("seat seller\n\0좌"), format!("seat-seller---@{id}"));
        assert_eq!(name(&"x".repeat(99)).len(), LONGEST_LABEL + 1 + 36);
    }
}
