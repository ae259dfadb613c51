//! Names on the wire, byte for byte as Redisson derives them.

use std::fmt::{self, Display, Formatter};

use crate::client_id::ClientId;
use crate::engine::remote::store::Topic;
use crate::engine::{Kind, Resource};
use crate::name::Name;

/// A name as a part of other names: in braces, so that all of them are in one slot of a cluster.
pub(super) struct Tagged<'a>(pub(super) &'a Name);

impl Display for Tagged<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = self.0.as_str();
        if name.contains('{') { f.write_str(name) } else { write!(f, "{{{name}}}") }
    }
}

/// The channel on which it is published that a resource may be free; for a spin lock nothing is published.
pub(super) struct Channel<'a>(pub(super) &'a Resource);

impl Display for Channel<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Resource { kind, name, .. } = self.0;
        let tag = Tagged(name);
        match kind {
            Kind::Lock | Kind::Fair | Kind::Group => write!(f, "redisson_lock__channel:{tag}"),
            Kind::Spin => Ok(()),
            Kind::SetNx => write!(f, "leasehold_setnx__channel:{tag}"),
            Kind::Read | Kind::Write => write!(f, "redisson_rwlock:{tag}"),
            Kind::Semaphore | Kind::LeasedSemaphore => write!(f, "redisson_sc:{tag}"),
            // Always in braces of its own, whatever the name contains. Redisson's other channels are not.
            Kind::Latch => write!(f, "redisson_countdownlatch__channel__{{{name}}}"),
        }
    }
}

/// The channel of the messages of a topic.
pub(super) fn waiting_channel((resource, owner): &Topic) -> String {
    let channel = Channel(resource);
    owner.map_or_else(|| channel.to_string(), |owner| format!("{channel}:{owner}"))
}

/// The keys of a fair lock: its queue, when waiters are presumed dead, which of our waiters are alive, and how long they wait.
pub(super) fn queue(resource: &Resource) -> [String; 4] {
    ["redisson_lock_queue", "redisson_lock_timeout", "leasehold_lock_marks", "leasehold_lock_waits"]
        .map(|key| format!("{key}:{}", Tagged(&resource.name)))
}

/// The key that tells who a client is. Redisson has none.
pub(super) fn client(id: ClientId) -> String {
    format!("leasehold:client:{id}")
}

/// The key that counts the tokens of a lock.
pub(super) fn token(resource: &Resource) -> String {
    format!("redisson_lock_token:{}", Tagged(&resource.name))
}

/// The key that has the greatest token with which a value was written.
pub(super) fn fence(key: &Name) -> String {
    format!("leasehold_fence:{}", Tagged(key))
}

/// The key of the flag that a writer waits and new readers should not enter. Redisson has none.
pub(super) fn writer_flag(resource: &Resource) -> String {
    format!("leasehold_rwlock_waiting:{}", Tagged(&resource.name))
}

/// The key of the permits that are taken, and until when.
pub(super) fn permits(resource: &Resource) -> String {
    format!("{}:timeout", Tagged(&resource.name))
}

/// The record of how many permits of a semaphore each owner has. It is ours alone: other libraries count without it.
pub(super) fn record(resource: &Resource) -> String {
    format!("leasehold_permits:{}", Tagged(&resource.name))
}

/// The results of requests that may be sent again. They outlast the changed state, so that a repeated request does not change the
/// state that replaces it.
pub(super) fn requests(resource: &Resource) -> String {
    let tag = Tagged(&resource.name);
    if resource.kind == Kind::Latch {
        format!("leasehold_latch:{tag}")
    } else {
        format!("leasehold_requests:{tag}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_name_with_a_brace_is_used_as_its_own_hash_tag() {
        for (name, expected) in [
            ("foo", "redisson_lock__channel:{foo}"),
            ("a{b}c", "redisson_lock__channel:a{b}c"),
            ("{x}:y", "redisson_lock__channel:{x}:y"),
        ] {
            let resource = Resource::new(Kind::Lock, Name::new("", name).unwrap());
            assert_eq!(Channel(&resource).to_string(), expected);
        }
    }

    #[test]
    fn the_channel_of_a_latch_has_its_own_braces() {
        for (name, expected) in [
            ("foo", "redisson_countdownlatch__channel__{foo}"),
            ("{a}b", "redisson_countdownlatch__channel__{{a}b}"),
        ] {
            let resource = Resource::new(Kind::Latch, Name::new("", name).unwrap());
            assert_eq!(Channel(&resource).to_string(), expected);
        }
    }
}
