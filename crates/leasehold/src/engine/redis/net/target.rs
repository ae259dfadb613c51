//! Where connections lead, and which server has to be there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::super::address::Endpoint;
use super::super::sentinel::Primary;
use super::connect::said;
use super::resp::Value;
use crate::error::ServerError;

/// Where connections lead.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// To this endpoint. A name is looked up for each connection, because it may lead to another server by then.
    Server(Endpoint),
    /// To the primary that the sentinels name at that time.
    Primary(Arc<Primary>),
    /// To a sentinel.
    Sentinel(Endpoint),
}

const CLUSTER: &str = "it is a node of a cluster, which is not supported yet: connect to a server whose `cluster-enabled` is `no`";
const SENTINEL: &str = "it is a Sentinel, which keeps no locks: write redis+sentinel://HOST:PORT/NAME, with the name of its primary";
const NO_SENTINEL: &str =
    "it is not a Sentinel: check the hosts and ports in the URL (sentinels listen on 26379 by default)";
pub(super) const REPLICA: &str = "it is a replica, which accepts no locks: connect to its primary";

impl Target {
    /// The endpoint of the next connection.
    pub(super) async fn endpoint(&self) -> Result<Endpoint, ServerError> {
        match self {
            Self::Server(endpoint) | Self::Sentinel(endpoint) => Ok(endpoint.clone()),
            Self::Primary(primary) => primary.endpoint().await,
        }
    }

    /// Why there is no connection after this time.
    pub(super) fn late(&self, limit: Duration) -> ServerError {
        if let Self::Primary(primary) = self
            && !primary.is_known()
        {
            return primary.nowhere();
        }
        let text = "check the host, the port, and the firewalls in between";
        ServerError::Unavailable(format!("no connection within {limit:?}: {text}"))
    }

    /// After how long without a message a waiting client asks whether its server is still there, and the primary.
    ///
    /// Connections outlive the demotion of their server, and a replica accepts subscriptions: without this, waiters behind a name
    /// would hear nothing of the new primary. Sentinels tell it themselves.
    pub(crate) fn probe_after(&self) -> Duration {
        match self {
            Self::Server(_) => Duration::from_millis(500),
            Self::Primary(_) | Self::Sentinel(_) => Duration::from_secs(5),
        }
    }

    /// Whether the server is of the kind that is wanted, by its reply to `HELLO`. A field that it leaves out is unknown.
    ///
    /// A replica may become the primary, or the address may lead to the primary after a failover, so that is an outage.
    pub(crate) fn check(&self, hello: &Value) -> Result<(), ServerError> {
        let (mode, role) = (said(hello, "mode"), said(hello, "role"));
        let is_sentinel = mode == Some("sentinel") || role == Some("sentinel");
        match (self, mode, role) {
            (Self::Sentinel(_), ..) if is_sentinel => Ok(()),
            (Self::Sentinel(_), ..) => Err(ServerError::Denied(NO_SENTINEL.into())),
            (_, Some("cluster"), _) => Err(ServerError::Denied(CLUSTER.into())),
            _ if is_sentinel => Err(ServerError::Denied(SENTINEL.into())),
            (_, _, Some("replica" | "slave")) => Err(ServerError::Unavailable(REPLICA.into())),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(endpoint) | Self::Sentinel(endpoint) => endpoint.fmt(f),
            Self::Primary(primary) => primary.sentinels().fmt(f),
        }
    }
}
