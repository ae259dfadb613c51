//! The commands that a server executes.

use super::{Server, mark};
use crate::resp::{Connection, Value};

/// A record of the commands that a server executes, kept by its `MONITOR`.
///
/// It also records the test's own commands by [`Server::cli`].
#[derive(Debug)]
pub struct Monitor {
    connection: Connection,
    marker: Connection,
    mark: String,
}

impl Monitor {
    pub(super) fn new(server: &Server) -> Self {
        let (mut connection, marker) = (server.connect(), server.connect());
        assert_eq!(connection.call(&["MONITOR"]).expect("the server replies"), "OK");
        Self { connection, marker, mark: mark::unique() }
    }

    /// Takes the lines recorded since the last call: all commands that were replied to before this one, in
    /// order, such as `1763239.5 [0 127.0.0.1:5000] "GET" "key"`, or with `[0 lua]` what a script called.
    ///
    /// # Panics
    ///
    /// When the server does not reply within 10 seconds.
    pub fn take(&mut self) -> Vec<String> {
        self.marker.call(&["ECHO", &self.mark]).expect("the server replies");
        let mut lines = Vec::new();
        loop {
            let Value::Text(line) = self.connection.receive().expect("the server still runs") else {
                panic!("MONITOR sends lines only");
            };
            if line.ends_with(&format!("{}\"", self.mark)) {
                return lines;
            }
            if !mark::is_in(&line) {
                lines.push(line);
            }
        }
    }

    /// Takes the commands that clients have sent since the last call, such as `"GET" "key"`, without those that
    /// scripts called.
    ///
    /// # Panics
    ///
    /// As for [`take`](Self::take).
    pub fn take_sent(&mut self) -> Vec<String> {
        let lines = self.take();
        let sent = lines.iter().filter_map(|line| {
            let (origin, command) = line.split_once("] ")?;
            (!origin.ends_with(" lua")).then(|| command.into())
        });
        sent.collect()
    }
}
