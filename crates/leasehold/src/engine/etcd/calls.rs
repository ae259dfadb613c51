//! The calls of etcd's API, and what their errors say about something to undo.

use std::time::Duration;

use tonic::{Code, Status};

use crate::engine::remote::store::StoreError;
use crate::error::ServerError;

pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const TRANSACTION: &str = "/etcdserverpb.KV/Txn";
pub(super) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
pub(super) const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(super) const LOG_IN: &str = "/etcdserverpb.Auth/Authenticate";
pub(super) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
pub(super) const MEMBERS: &str = "/etcdserverpb.Cluster/MemberList";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// Why a call has no reply.
pub(super) enum Failure {
    /// There is no lease of this id.
    NoLease,
    /// The server does not know the token of the user any more; nothing was done.
    NoToken(ServerError),
    Other(StoreError),
}

impl Failure {
    pub(super) fn into_error(self) -> ServerError {
        match self {
            Self::NoLease => ServerError::Unavailable("there is no such lease".into()),
            Self::NoToken(error) => error,
            Self::Other(error) => error.into(),
        }
    }

    /// What the status of a reply means.
    pub(super) fn of(status: &Status) -> Self {
        let text = status.message();
        Self::Other(match status.code() {
            Code::NotFound if text.contains("lease not found") => return Self::NoLease,
            Code::InvalidArgument if text.contains("revision of auth store is old") => {
                return Self::NoToken(ServerError::Denied(text.into()));
            }
            Code::Unauthenticated => return Self::NoToken(ServerError::Denied(text.into())),
            Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::InvalidArgument
            | Code::NotFound
            | Code::OutOfRange
            | Code::Unimplemented => StoreError::Refused(ServerError::Denied(text.into())),
            Code::ResourceExhausted => StoreError::Refused(ServerError::Unavailable(text.into())),
            _ => StoreError::Unknown(ServerError::Unavailable(causes(status))),
        })
    }
}

/// The path of a request, in the form that the library of the connection wants.
pub(super) fn at<P: std::str::FromStr<Err: std::fmt::Debug>>(path: &'static str) -> P {
    path.parse().expect("the paths above are paths")
}

pub(super) fn late(limit: Duration) -> ServerError {
    ServerError::Unavailable(format!("no reply within {limit:?}"))
}

/// The text of an error, and of those behind it.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}
