//! The faults of a simulation.

use std::time::Duration;

use crate::engine::remote::store::Shard;
use crate::error::ServerError;

/// The faults from now on. By default there are none.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each fault is there or not, whatever the others are")]
pub(crate) struct SimFaults {
    /// How long a request takes to the server, and a reply or a message back.
    pub(crate) latency: Duration,
    /// Requests reach the server and are refused.
    pub(crate) refusal: Option<ServerError>,
    /// There is no connection to these shards, and none can be opened.
    pub(crate) outage: Vec<Shard>,
    /// So many requests are carried out without a reply. Each costs its client the connection after the time-out.
    pub(crate) lost_replies: usize,
    /// So many messages are lost.
    pub(crate) lost_messages: usize,
    /// Every message arrives twice.
    pub(crate) doubled_messages: bool,
    /// No connection for messages can be opened.
    pub(crate) message_outage: bool,
    /// Clients may not subscribe.
    pub(crate) watch_denied: bool,
    /// Requests and replies that wait on a connection are carried in another order, as far as they are about different names.
    pub(crate) is_reordered: bool,
    /// Requests in flight on a connection that breaks are carried out this much later; their client does not see it.
    pub(crate) acts_late: Option<Duration>,
}
