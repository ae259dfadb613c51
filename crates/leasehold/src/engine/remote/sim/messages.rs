//! Faults of the messages of a simulation.

use std::sync::Arc;

use super::{SimServer, shared};
use crate::test::Simulation;

impl Simulation {
    /// The connections for messages break, and messages sent meanwhile are missed. Clients connect again.
    pub fn cut_messages(&self) {
        self.messages_of().cut_messages();
    }

    /// The connections for messages break, and no new ones can be opened from now on. Requests are carried out.
    pub fn message_outage(&self) {
        self.messages_of().faults().message_outage = true;
        self.cut_messages();
    }

    /// Clients may not subscribe to messages from now on. A new subscription is refused, and its client polls instead. When
    /// subscribing is allowed again, a client notices at its next connection for messages.
    pub fn deny_messages(&self) {
        self.messages_of().faults().watch_denied = true;
    }

    fn messages_of(&self) -> Arc<SimServer> {
        shared(self.url().strip_prefix("sim:").unwrap_or_default())
    }
}
