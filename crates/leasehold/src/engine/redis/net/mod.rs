//! Connections to servers: sockets, the protocol on them, and reconnecting.

mod connect;
mod node;
mod pipeline;
mod reconnect;
mod refusal;
mod request;
mod resp;
mod secret;
mod stream;
mod target;

pub(crate) use self::connect::{Opened, Settings};
pub(crate) use self::node::{Connected, Node};
pub(crate) use self::pipeline::{Pipeline, Push, PushHandler};
pub(crate) use self::reconnect::Reconnect;
pub(crate) use self::request::{Call, Encoding, OnReply, Reply, Request, Script};
pub(crate) use self::resp::Value;
