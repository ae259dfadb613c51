//! Single calls: each has its own time limit, and an error that says whether there may be something to undo.

use std::time::Duration;

use prost::Message;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::engine::remote::store::StoreError;
use crate::env;
use crate::error::ServerError;

pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const TRANSACTION: &str = "/etcdserverpb.KV/Txn";
pub(super) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
pub(super) const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// Why a call has no reply.
pub(super) enum Failure {
    /// There is no lease of this id.
    NoLease,
    Other(StoreError),
}

/// One request and its reply.
pub(super) async fn call<Q, A>(
    channel: &Channel,
    path: &'static str,
    request: Q,
    limit: Duration,
) -> Result<A, Failure>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut client = Grpc::new(channel.clone());
    let reply = async {
        if let Err(error) = client.ready().await {
            return Err(Failure::Other(StoreError::NotSent(ServerError::Unavailable(causes(&error)))));
        }
        let codec = ProstCodec::<Q, A>::default();
        let reply = client.unary(Request::new(request), at(path), codec).await;
        reply.map(tonic::Response::into_inner).map_err(|status| failure(&status))
    };
    env::within(limit, reply).await.unwrap_or_else(|| Err(Failure::Other(StoreError::Unknown(late(limit)))))
}

/// The path of a request, in the form that the library of the connection wants.
pub(super) fn at<P: std::str::FromStr<Err: std::fmt::Debug>>(path: &'static str) -> P {
    path.parse().expect("the paths above are paths")
}

pub(super) fn late(limit: Duration) -> ServerError {
    ServerError::Unavailable(format!("no reply within {limit:?}"))
}

fn failure(status: &Status) -> Failure {
    let text = status.message();
    Failure::Other(match status.code() {
        Code::NotFound if text.contains("lease not found") => return Failure::NoLease,
        Code::PermissionDenied
        | Code::Unauthenticated
        | Code::InvalidArgument
        | Code::NotFound
        | Code::OutOfRange
        | Code::Unimplemented => StoreError::Refused(ServerError::Denied(text.into())),
        Code::ResourceExhausted => StoreError::Refused(ServerError::Unavailable(text.into())),
        _ => StoreError::Unknown(ServerError::Unavailable(causes(status))),
    })
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
