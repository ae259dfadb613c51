//! Faults of the messages of a simulation.

use std::sync::Arc;

use super::{SimServer, shared};
use crate::test::Simulation;

impl Simulation {
    /// The connections for messages break, and what was said meanwhile is missed. Clients connect again.
    pub fn cut_messages(&self) {
        self.messages_of().cut_messages();
    }

    /// The connections for messages break, and none can be had from now on. Requests are carried out.
    pub fn message_outage(&self) {
        self.messages_of().faults().message_outage = true;
        self.cut_messages();
    }

    /// Clients may not listen for messages from now on. One that begins to after this is refused, and looks from time to time
    /// instead. When that is allowed again, a client learns it by its next connection for messages.
    pub fn deny_messages(&self) {
        self.messages_of().faults().watch_denied = true;
    }

    fn messages_of(&self) -> Arc<SimServer> {
        shared(self.url().strip_prefix("sim:").unwrap_or_default())
    }
}
