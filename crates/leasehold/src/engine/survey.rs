//! What a cluster says about itself, for a diagnosis.

use std::time::Duration;

/// A cluster.
#[derive(Debug, Clone)]
pub(crate) struct Survey {
    /// Its members; `None` if the user may not ask for them.
    pub(crate) members: Option<Vec<Member>>,
    /// The shortest lease that it grants, as far as that is known.
    pub(crate) shortest_lease: Option<Duration>,
    /// A host of the URL to which a password is sent as it is, over a network.
    pub(crate) tells_password_to: Option<String>,
}

/// A member, whether it replies or not.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// It has a copy of the data, and does not vote.
    pub(crate) is_learner: bool,
    pub(crate) is_leader: bool,
    /// What it replies, or why there is no reply.
    pub(crate) condition: Result<Condition, String>,
}

/// What a member says about itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Condition {
    pub(crate) version: String,
    /// The size of its database in bytes.
    pub(crate) size: u64,
    /// The limit of that, if it tells it.
    pub(crate) quota: Option<u64>,
    pub(crate) errors: Vec<String>,
}
