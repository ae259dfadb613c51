//! The messages that are published on a server.

use super::{Server, mark};
use crate::resp::Connection;

/// A record of the messages on some channels.
#[derive(Debug)]
pub struct Subscription {
    connection: Connection,
    marker: Connection,
    /// A channel.
    mark: String,
}

/// A message as it was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where it was published.
    pub channel: String,
    /// The contents.
    pub payload: String,
}

impl Subscription {
    pub(super) fn new(server: &Server, channels: &[&str]) -> Self {
        let (mut connection, marker) = (server.connect(), server.connect());
        let mark = mark::unique();
        let command = [&["SUBSCRIBE", &mark], channels].concat();
        connection.send(&command).expect("the server listens");
        for channel in &command[1..] {
            let confirmed = connection.receive().expect("the server replies");
            assert_eq!(confirmed.elements().get(1), Some(&(*channel).into()), "{confirmed:?}");
        }
        Self { connection, marker, mark }
    }

    /// Takes the messages published since the last call.
    ///
    /// # Panics
    ///
    /// When the server does not reply within 10 seconds.
    pub fn take(&mut self) -> Vec<Message> {
        self.marker.call(&["PUBLISH", &self.mark, ""]).expect("the server replies");
        let mut messages = Vec::new();
        loop {
            let message = self.receive();
            if message.channel == self.mark {
                return messages;
            }
            messages.push(message);
        }
    }

    /// Waits for the next message and takes it.
    ///
    /// # Panics
    ///
    /// When there is none within 10 seconds.
    pub fn wait(&mut self) -> Message {
        self.receive()
    }

    fn receive(&mut self) -> Message {
        let received = self.connection.receive().expect("a message arrives");
        let text = |n: usize| received.elements().get(n).and_then(|text| text.as_str()).map(String::from);
        match (text(0).as_deref(), text(1), text(2)) {
            (Some("message"), Some(channel), Some(payload)) => Message { channel, payload },
            _ => panic!("not a message: {received:?}"),
        }
    }
}
