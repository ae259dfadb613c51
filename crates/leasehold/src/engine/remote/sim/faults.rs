//! What goes wrong in a simulation.

use std::time::Duration;

use crate::engine::remote::store::Shard;
use crate::error::Failure;

/// What goes wrong from now on. Nothing, by default.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each fault is there or not, by itself")]
pub(crate) struct SimFaults {
    /// How long a request takes to the server, and a reply or a message back.
    pub(crate) latency: Duration,
    /// Requests reach the server and are refused.
    pub(crate) refusal: Option<Failure>,
    /// There is no connection to these shards, and none can be had.
    pub(crate) outage: Vec<Shard>,
    /// So many requests are carried out without a reply. Each costs its client the connection after the time-out.
    pub(crate) lost_replies: usize,
    /// So many messages are lost.
    pub(crate) lost_messages: usize,
    /// Every message comes twice.
    pub(crate) doubled_messages: bool,
    /// No connection for messages can be had.
    pub(crate) message_outage: bool,
    /// Clients may not watch.
    pub(crate) watch_denied: bool,
    /// What waits on a connection is carried in another order, as far as it is about different names.
    pub(crate) is_reordered: bool,
    /// What was under way on a connection that breaks is carried out this much later, behind the back of its client.
    pub(crate) acts_late: Option<Duration>,
}
