//! Who a client is, and how many clients wait.

use std::time::Duration;

use crate::client_id::ClientId;
use crate::engine::Resource;
use crate::engine::redis::keys;
use crate::engine::redis::net::{Call, Value};
use crate::identity::{ClientInfo, from_json, to_json};

/// Writes who a client is, for so long.
pub(in super::super) fn register(id: ClientId, info: &ClientInfo, ttl: Duration) -> Call {
    let set = Call::command("SET").key(&keys::client(id)).arg(to_json(info));
    set.arg("PX").arg(ttl.as_millis())
}

pub(in super::super) fn unregister(id: ClientId) -> Call {
    Call::command("DEL").key(&keys::client(id))
}

/// Reads who a client is.
pub(in super::super) fn client(id: ClientId) -> Call {
    Call::command("GET").key(&keys::client(id))
}

pub(in super::super) fn client_info(reply: &Value) -> Option<ClientInfo> {
    if let Value::Text(json) = reply { from_json(json) } else { None }
}

/// How many clients are subscribed to the messages of a resource.
pub(in super::super) fn subscribers_of(resource: &Resource) -> Call {
    Call::command("PUBSUB").arg("NUMSUB").arg(keys::Channel(resource))
}

pub(in super::super) fn subscribed(reply: &Value) -> usize {
    let Value::Array(parts) = reply else { return 0 };
    parts
        .iter()
        .find_map(|part| if let Value::Int(count) = part { usize::try_from(*count).ok() } else { None })
        .unwrap_or(0)
}
