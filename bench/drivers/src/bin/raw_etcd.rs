//! The limit on etcd: one connection on the caller's runtime, one transaction that takes a lock and one that frees it. They are those of
//! the library, and there is no more: no waiting, no watch, no heartbeat.

use std::process::ExitCode;

use bench_drivers::{Args, Contender, Error, drive};
use prost::{Message, Oneof};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// Longer than any run, in seconds: nothing renews it.
const LEASE: i64 = 600;
const CREATED: i32 = 1;
const ASCENDING: i32 = 1;
const DESCENDING: i32 = 2;
const BY_CREATION: i32 = 2;

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(int64, tag = "3")]
    revision: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Range {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    end: Vec<u8>,
    #[prost(int64, tag = "3")]
    limit: i64,
    #[prost(int32, tag = "5")]
    order: i32,
    #[prost(int32, tag = "6")]
    sort_by: i32,
    #[prost(bool, tag = "8")]
    keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Request {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    request: Option<Request>,
}

/// The key was created at this revision; at zero: there is none.
#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    compared: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    created: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Transaction {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    then: Vec<Operation>,
    #[prost(message, repeated, tag = "3")]
    otherwise: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct Transacted {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "2")]
    held: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
}

struct Raw {
    channel: Channel,
    lease: i64,
}

impl Raw {
    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await?;
        let request = tonic::Request::new(request);
        let reply = client.unary(request, path.parse()?, ProstCodec::<Q, A>::default()).await?;
        Ok(reply.into_inner())
    }

    /// Does `then` if the key was created at this revision, and returns the revision after that.
    async fn transact(
        &self,
        key: &[u8],
        created: i64,
        then: Vec<Request>,
        otherwise: Vec<Request>,
    ) -> Result<i64, Error> {
        let compare = Compare { compared: CREATED, key: key.to_vec(), created: Some(created) };
        let operations = |requests: Vec<Request>| {
            requests.into_iter().map(|request| Operation { request: Some(request) }).collect()
        };
        let transaction =
            Transaction { compare: vec![compare], then: operations(then), otherwise: operations(otherwise) };
        let done: Transacted = self.call("/etcdserverpb.KV/Txn", transaction).await?;
        match done.header {
            Some(Header { revision }) if done.held => Ok(revision),
            _ => Err("the lock was busy".into()),
        }
    }
}

impl Contender for Raw {
    /// The key, and the revision at which it was created.
    type Held = (Vec<u8>, i64);

    async fn acquire(&self, name: &str) -> Result<Self::Held, Error> {
        let key = format!("{name}/{:x}", self.lease).into_bytes();
        let put = Put { key: key.clone(), lease: self.lease };
        let (first, end) = (format!("{name}/").into_bytes(), format!("{name}0").into_bytes());
        let queue =
            Range { key: first, end, limit: 2, order: DESCENDING, sort_by: BY_CREATION, keys_only: true };
        let oldest = Range { limit: 1, order: ASCENDING, ..queue.clone() };
        let own = Range { key: key.clone(), end: Vec::new(), ..oldest.clone() };
        let then = vec![Request::Put(put), Request::Range(queue)];
        let otherwise = vec![Request::Range(own), Request::Range(oldest)];
        let created = self.transact(&key, 0, then, otherwise).await?;
        Ok((key, created))
    }

    async fn release(&self, (key, created): Self::Held) -> Result<(), Error> {
        let delete = Request::Delete(Delete { key: key.clone() });
        self.transact(&key, created, vec![delete], Vec::new()).await?;
        Ok(())
    }
}

async fn connect(args: &Args) -> Result<Raw, Error> {
    let url = args.need("url")?.replace("etcd://", "http://");
    let channel = Endpoint::from_shared(url)?.tcp_nodelay(true).connect().await?;
    let mut raw = Raw { channel, lease: 0 };
    let granted: Granted = raw.call("/etcdserverpb.Lease/LeaseGrant", Grant { ttl: LEASE }).await?;
    raw.lease = granted.id;
    Ok(raw)
}

fn main() -> ExitCode {
    drive(connect)
}
