//! Connections to servers: sockets, the protocol on them, and reconnecting.

mod caller_reader;
mod connection;
mod handshake;
mod identity;
mod lane;
mod node;
mod pipeline;
mod reader;
mod reconnect;
mod request;
pub(crate) mod resp;
mod stream;

pub(crate) use self::connection::{CommandError, Connection, Ended, Settings};
pub(crate) use self::lane::Lane;
pub(crate) use self::node::Node;
pub(crate) use self::reader::Push;
pub(crate) use self::reconnect::Reconnect;
pub(crate) use self::request::{OnReply, RawReply};
