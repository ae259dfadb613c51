//! The messages that are published.

use leasehold_testkit::resp::Connection;
use leasehold_testkit::server::Server;

/// All messages that are published, on any channel.
pub(crate) struct Published {
    connection: Connection,
    marker: Connection,
}

impl Published {
    pub(crate) fn on(server: &Server) -> Self {
        let (mut connection, marker) = (server.connect(), server.connect());
        connection.call(&["PSUBSCRIBE", "*"]).expect("the server replies");
        Self { connection, marker }
    }

    /// The channels and payloads since the last call.
    pub(crate) fn take(&mut self) -> Vec<(String, String)> {
        self.marker.call(&["PUBLISH", "so far", ""]).expect("the server replies");
        let mut messages = Vec::new();
        loop {
            let message = self.connection.receive().expect("a message arrives");
            let text = |n: usize| message.elements()[n].as_str().expect("a string").to_owned();
            assert_eq!(text(0), "pmessage");
            if text(2) == "so far" {
                return messages;
            }
            messages.push((text(2), text(3)));
        }
    }
}
