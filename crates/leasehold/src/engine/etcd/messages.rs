//! The messages of etcd's API, as far as this engine uses them: fields and numbers as in `rpc.proto` and `kv.proto`.

use prost::{Enumeration, Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(uint64, tag = "2")]
    pub(super) member: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum Order {
    None = 0,
    Ascending = 1,
    Descending = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum SortBy {
    Key = 0,
    Created = 2,
}

/// Reads keys. A bound of zero is none.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// All keys from `key` to before this one; if it is empty, only `key`.
    #[prost(bytes = "vec", tag = "2")]
    pub(super) end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    #[prost(enumeration = "Order", tag = "5")]
    pub(super) order: i32,
    #[prost(enumeration = "SortBy", tag = "6")]
    pub(super) sort_by: i32,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
    #[prost(int64, tag = "13")]
    pub(super) created_until: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ranged {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) found: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
    /// The value stays as it is.
    #[prost(bool, tag = "5")]
    pub(super) keeps_value: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Written {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    /// As in [`Range`].
    #[prost(bytes = "vec", tag = "2")]
    pub(super) end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Deleted {
    #[prost(int64, tag = "2")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
    #[prost(message, tag = "4")]
    Transaction(Transaction),
}

/// One step of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Operation {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Range(Ranged),
    #[prost(message, tag = "2")]
    Put(Written),
    #[prost(message, tag = "3")]
    Delete(Deleted),
    #[prost(message, tag = "4")]
    Transaction(Transacted),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Outcome {
    #[prost(oneof = "Response", tags = "1, 2, 3, 4")]
    pub(super) response: Option<Response>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum Relation {
    Equal = 0,
    Less = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum Compared {
    Version = 0,
    Created = 1,
    Written = 2,
    Value = 3,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Against {
    #[prost(int64, tag = "5")]
    Created(i64),
    #[prost(int64, tag = "6")]
    Written(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

/// A condition of a transaction. On a range of keys it holds if it holds for each.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(enumeration = "Relation", tag = "1")]
    pub(super) relation: i32,
    #[prost(enumeration = "Compared", tag = "2")]
    pub(super) compared: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(oneof = "Against", tags = "5, 6, 7")]
    pub(super) against: Option<Against>,
    #[prost(bytes = "vec", tag = "64")]
    pub(super) end: Vec<u8>,
}

/// If all conditions hold, the operations of `then`, or else those of `otherwise`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Transaction {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) then: Vec<Operation>,
    #[prost(message, repeated, tag = "3")]
    pub(super) otherwise: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Transacted {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) held: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) outcomes: Vec<Outcome>,
}

/// Logs a user in.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Login {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LoggedIn {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Grant {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Granted {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseId {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Revoked {}

/// The reply to a heartbeat, and to the question how long a lease lasts: zero or less if there is no such lease.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Lives {
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(super) enum Filter {
    NoPut = 0,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BeginWatch {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) end: Vec<u8>,
    #[prost(enumeration = "Filter", repeated, tag = "5")]
    pub(super) filters: Vec<i32>,
    #[prost(int64, tag = "7")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EndWatch {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum WatchStep {
    #[prost(message, tag = "1")]
    Begin(BeginWatch),
    #[prost(message, tag = "2")]
    End(EndWatch),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "WatchStep", tags = "1, 2")]
    pub(super) step: Option<WatchStep>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// Zero if a key was written, one if it was deleted.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) now: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchReply {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

/// What a member tells about itself.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AskStatus {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    /// Of its database, in bytes.
    #[prost(int64, tag = "3")]
    pub(super) size: i64,
    /// Zero if it knows none.
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
    /// Alarms among them.
    #[prost(string, repeated, tag = "8")]
    pub(super) errors: Vec<String>,
    /// Zero before 3.6, which does not tell it.
    #[prost(int64, tag = "12")]
    pub(super) quota: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AskMembers {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Members {
    #[prost(message, repeated, tag = "2")]
    pub(super) members: Vec<Member>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Member {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    /// Empty until it is started for the first time.
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "4")]
    pub(super) urls: Vec<String>,
    /// It does not vote.
    #[prost(bool, tag = "5")]
    pub(super) is_learner: bool,
}
